"""netCDF4: its class for the registry of libraries.

Not here: how data sets, groups, variables and dimensions are saved (:mod:`ckpt.image.libraries.netcdf`).
"""

from __future__ import annotations

from ckpt.image.interface.library import Library, Reducer, by_name, later

__all__ = ["NetCDF4"]

_NETCDF = "ckpt.image.libraries.netcdf"


class NetCDF4(Library):
    def reducers(self) -> dict[type, Reducer]:
        reducers = {
            "Dataset": "reduce_data_set",
            "Group": "reduce_group",
            "Dimension": "reduce_dimension",
            "Variable": "reduce_variable",
        }
        return by_name("netCDF4", {name: later(_NETCDF, reducer) for name, reducer in reducers.items()})

    def before_image(self) -> None:
        from ckpt.image.libraries import netcdf

        netcdf.flush_all()

"""h5py: its class for the registry of libraries.

Not here: how files, groups and data sets are saved (:mod:`ckpt.image.libraries.hdf5`).
"""

from __future__ import annotations

from ckpt.image.interface.library import Library, Reducer, by_name, later

__all__ = ["H5py"]

_HDF5 = "ckpt.image.libraries.hdf5"


class H5py(Library):
    transient_types = ("h5py.h5a", "h5py.h5p", "h5py.h5s", "h5py.h5t")
    transient_functions = (
        ("h5py._hl.files:File.__init__", "an HDF5 file is being opened"),
        ("h5py._hl.files:File.close", "an HDF5 file is being closed"),
    )
    lock_types = ("h5py._objects:FastRLock",)  # held during every call of h5py

    def reducers(self) -> dict[type, Reducer]:
        member, identifier = later(_HDF5, "reduce_member"), later(_HDF5, "reduce_member_identifier")
        return {
            **by_name("h5py", {"File": later(_HDF5, "reduce_file"), "Group": member, "Dataset": member}),
            **by_name("h5py.h5f", {"FileID": later(_HDF5, "reduce_identifier")}),
            **by_name("h5py.h5g", {"GroupID": identifier}),
            **by_name("h5py.h5d", {"DatasetID": identifier}),
        }

    def before_image(self) -> None:
        from ckpt.image.libraries import hdf5

        hdf5.flush_all()

"""netCDF4: data sets, groups, variables and dimensions.

Before an image, all data sets are flushed in the program's own process. At a restart each is opened again at its path, for
reading or for reading and writing as before; it is never truncated. Groups, variables and dimensions are found again by
their names.

One that has been closed comes back closed, with what its members still tell then.

**The content is not rolled back**, as in :mod:`ckpt.image.libraries.hdf5`, the format of most of these files: what the
program wrote after the checkpoint is still in the file, and the program writes it again.
"""

from __future__ import annotations

import fcntl
import gc
import os
from pickle import PicklingError
from typing import Any

import netCDF4  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ckpt.image.errors import RestoreError
from ckpt.image.files.reopen import wait_for_files

__all__ = ["flush_all", "reduce_data_set", "reduce_dimension", "reduce_group", "reduce_variable"]

_BEGINNINGS = (b"\x89HDF\r\n\x1a\n", b"CDF")
_SETTINGS = {
    "mask": "set_auto_mask",
    "scale": "set_auto_scale",
    "always_mask": "set_always_mask",
    "chartostring": "set_auto_chartostring",
}
"""How a variable converts its values to arrays and back: attribute → the method that sets it."""


_writable: set[str] | None = None
"""Paths of the files that were open for writing at the last image: in the image's child, descriptors do not show that."""


def flush_all() -> None:
    """Flush all data sets that are open for writing in this process. The library has no list of them, so all objects are
    searched; but only if such a file is open.
    """
    global _writable
    _writable = writable = _open_for_writing()
    if not writable:
        return
    for obj in gc.get_objects():
        if type(obj) is netCDF4.Dataset and obj.isopen() and os.path.realpath(obj.filepath()) in writable:
            obj.sync()


def _open_for_writing() -> set[str]:
    """Paths of the netCDF files that are open for writing, recognised by their first bytes. A data set does not tell how it
    was opened; its descriptor does."""
    paths = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            is_writable = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
            if is_writable and os.pread(int(name), 8, 0).startswith(_BEGINNINGS):
                paths.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # the descriptor of the listing itself, or no file
    return paths


def reduce_data_set(pickler: Any, data_set: Any) -> Any:
    if not data_set.isopen():
        return make_closed, (_outline(data_set),)
    path = data_set.filepath()
    if not os.path.exists(path):
        raise PicklingError(f"the netCDF data set {path!r} is no file: not saved")
    status = os.stat(path)
    pickler.owned.add((status.st_dev, status.st_ino))
    writable = _open_for_writing() if _writable is None else _writable
    return make_data_set, (os.path.abspath(path), "r+" if os.path.realpath(path) in writable else "r")


def _outline(group: Any) -> tuple[list[str], list[tuple[str, Any, int]], dict[str, Any]]:
    """What a closed data set, or a group of one, still tells: the names of its dimensions; name, type and number of
    dimensions of its variables; its groups."""
    variables = [
        (name, _type_of(name, variable), int(variable.ndim)) for name, variable in group.variables.items()
    ]
    return list(group.dimensions), variables, {name: _outline(part) for name, part in group.groups.items()}


def _type_of(name: str, variable: Any) -> Any:
    if isinstance(variable.datatype, (netCDF4.EnumType, netCDF4.VLType)) and variable.dtype is not str:
        raise PicklingError(f"the variable {name!r} of a closed netCDF data set, which has a type of its own")
    return variable.dtype


def _name(member: Any, holder: Any, collection: str) -> str:
    """The name of a group, dimension or variable. When the data set has been closed, only its holder tells it."""
    if holder.isopen():
        return str(member.name)
    for name, other in getattr(holder, collection).items():
        if other is member:
            return str(name)
    raise PicklingError(f"a part of a closed netCDF data set that is not in its {collection} any more")


def reduce_group(pickler: Any, group: Any) -> Any:
    return find_member, (group.parent, "groups", _name(group, group.parent, "groups"))


def reduce_dimension(pickler: Any, dimension: Any) -> Any:
    holder = dimension.group()
    return find_member, (holder, "dimensions", _name(dimension, holder, "dimensions"))


def reduce_variable(pickler: Any, variable: Any) -> Any:
    holder = variable.group()
    settings = {name: bool(getattr(variable, name)) for name in _SETTINGS}
    return find_member, (holder, "variables", _name(variable, holder, "variables"), settings)


# ---------------------------------------------------------------------- called while loading


def make_data_set(path: str, mode: Any) -> Any:
    wait_for_files()  # the library opens files in C
    try:
        return netCDF4.Dataset(path, mode)
    except OSError as failure:
        raise RestoreError(f"the netCDF data set {path!r} cannot be opened again: {failure}") from failure


def make_closed(outline: tuple[Any, ...] = ((), (), {})) -> Any:
    made = netCDF4.Dataset("closed", "w", diskless=True, persist=False)
    _fill(made, *outline)
    made.close()
    return made


def _fill(group: Any, dimensions: Any, variables: Any, groups: Any) -> None:
    for name in dimensions:
        group.createDimension(name, 1)
    for number, (name, kind, count) in enumerate(variables):
        if kind is not str and kind.fields:
            kind = group.createCompoundType(kind, f"structure{number}")
        places = [f"{name} {place}" for place in range(count)]  # those that it had cannot be asked for
        for place in places:
            group.createDimension(place, 1)
        group.createVariable(name, kind, places)
        for place in places:
            del group.dimensions[place]
    for name, outline in groups.items():
        _fill(group.createGroup(name), *outline)


def find_member(holder: Any, collection: str, name: str, settings: dict[str, bool] | None = None) -> Any:
    try:
        found = getattr(holder, collection)[name]
    except KeyError:
        raise RestoreError(f"the netCDF data set {holder.filepath()!r} has no {name!r} any more") from None
    for setting, value in (settings or {}).items():
        getattr(found, _SETTINGS[setting])(value)
    return found

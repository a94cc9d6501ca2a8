"""h5py: files, groups and data sets.

All open files are flushed in the program's process before an image; at a restart they are opened again where they were, for
reading or for reading and writing (never truncated). Groups and data sets are found again by their names.

**The content is not rolled back**: what was written after the checkpoint is there when the program writes it again.
And HDF5 itself does not promise a readable file after a ``kill -9`` in the middle of a write; a file that cannot be
opened is named when the job restarts.
"""

from __future__ import annotations

from pickle import PicklingError
from typing import Any

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ckpt.image.errors import RestoreError

__all__ = ["flush_all", "reduce_file", "reduce_member"]


def flush_all() -> None:
    """Everything that is open in this process."""
    kinds = h5py.h5f.OBJ_FILE
    if h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, kinds):
        for identifier in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, kinds):
            h5py.h5f.flush(identifier)


def reduce_file(pickler: Any, file: Any) -> Any:
    if not file.id.valid:
        return make_closed, ()
    if file.driver not in ("sec2", "stdio"):
        raise PicklingError(
            f"the HDF5 file {file.filename!r} is opened by the driver {file.driver!r}: not saved"
        )
    return make_file, (file.filename, file.mode, file.libver)


def reduce_member(pickler: Any, member: Any) -> Any:
    if not member.id.valid:
        return make_closed_member, (type(member),)
    if member.name is None:
        raise PicklingError("an anonymous group or data set of HDF5 cannot be saved")
    return find_member, (member.file, member.name)


# ---------------------------------------------------------------------- called while loading


def make_file(path: str, mode: str, libver: Any) -> Any:
    try:
        return h5py.File(path, mode, libver=libver)
    except OSError as failure:
        raise RestoreError(f"the HDF5 file {path!r} cannot be opened again: {failure}") from failure


def make_closed() -> Any:
    made = h5py.File("closed", "w", driver="core", backing_store=False)
    made.close()
    return made


def make_closed_member(cls: type) -> Any:
    with h5py.File("closed", "w", driver="core", backing_store=False) as file:
        return file.create_group("g") if cls is h5py.Group else file.create_dataset("d", (0,))


def find_member(file: Any, name: str) -> Any:
    try:
        return file[name]
    except KeyError:
        raise RestoreError(f"the HDF5 file {file.filename!r} has no {name!r} any more") from None

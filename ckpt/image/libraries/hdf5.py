"""h5py: files, groups and data sets.

Before an image, all open files are flushed in the program's own process. At a restart each file is opened again at its path,
for reading or for reading and writing as before; it is never truncated. Groups and data sets are found again by their names.

HDF5 keeps what is written through one opening of a file apart from what is written through another opening of the same file:
a flush or close of one does not reach the data sets of the other. So the number of openings is restored too: a file object,
its copies (``dataset.file``) and what belongs to them share one opening again (:func:`reduce_identifier`).

**The content is not rolled back**: what the program wrote after the checkpoint is still in the file, and the program writes
it again. HDF5 does not promise that a file can be read after a ``kill -9`` in the middle of a write; if a file cannot be
opened, the restart names it. The formats from version 1.10 on (``libver="latest"``) mark a file as open for writing. A
killed process leaves that mark behind; it is taken away before the file is opened (:mod:`ckpt.image.libraries.hdf5_marks`).
"""

from __future__ import annotations

import os
from pickle import PicklingError
from typing import Any

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ckpt.image.errors import RestoreError
from ckpt.image.files.reopen import wait_for_files
from ckpt.image.libraries import hdf5_marks

__all__ = ["flush_all", "reduce_file", "reduce_identifier", "reduce_member", "reduce_member_identifier"]

_DELETED = " (deleted)"


def flush_all() -> None:
    """Flush all files that are open in this process: each opening of a file, also one that only a data set holds."""
    h5f, flushed = h5py.h5f, set()
    if not h5f.get_obj_count(h5f.OBJ_ALL, h5f.OBJ_FILE | h5f.OBJ_DATASET | h5f.OBJ_GROUP):
        return
    for object_type in (h5f.OBJ_FILE, h5f.OBJ_DATASET, h5f.OBJ_GROUP):
        for identifier in (
            h5f.get_obj_ids(h5f.OBJ_ALL, object_type) if h5f.get_obj_count(h5f.OBJ_ALL, object_type) else ()
        ):
            opening = h5py.h5i.get_file_id(identifier)
            if opening.id not in flushed:
                flushed.add(opening.id)
                h5f.flush(opening)


def reduce_file(pickler: Any, file: Any) -> Any:
    if not file.id.valid:
        return make_closed, ()
    return file_of, (_representative(pickler, file.id),)


def reduce_member(pickler: Any, member: Any) -> Any:
    if not member.id.valid:
        return make_closed_member, (type(member),)
    if member.name is None:
        raise PicklingError("an anonymous group or data set of HDF5 cannot be saved")
    return find_member, (_representative(pickler, h5py.h5i.get_file_id(member.id)), member.name)


def reduce_member_identifier(pickler: Any, identifier: Any) -> Any:
    """The reducer for the identifier of a group or data set; :class:`h5py.AttributeManager` holds one."""
    cls = h5py.Group if isinstance(identifier, h5py.h5g.GroupID) else h5py.Dataset
    if not identifier.valid:
        raise PicklingError("a closed group or data set of HDF5 cannot be saved by its identifier alone")
    return identifier_of, (cls(identifier),)


def _representative(pickler: Any, identifier: Any) -> Any:
    """The identifier that stands, in this image, for all Python objects of one opening of a file."""
    return pickler.shared.setdefault(("h5py", identifier.id), identifier)


def reduce_identifier(pickler: Any, identifier: Any) -> Any:
    if not identifier.valid:
        return closed_identifier, ()
    representative = _representative(pickler, identifier)
    if representative is not identifier:
        return same_identifier, (representative,)
    file = h5py.File(identifier)
    if file.driver != "sec2":
        raise PicklingError(
            f"the HDF5 file {file.filename!r} is opened by the driver {file.driver!r}: not saved"
        )
    descriptor = identifier.get_vfd_handle()
    pickler.owned.add(descriptor)
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if path.endswith(_DELETED) and not os.path.exists(path):
        raise PicklingError(f"the HDF5 file {file.filename!r} has been removed while it is open: not saved")
    access = identifier.get_access_plist()
    _, slots, nbytes, preemption = access.get_cache()
    settings = {"rdcc_nslots": slots, "rdcc_nbytes": nbytes, "rdcc_w0": preemption, "libver": file.libver}
    if hasattr(access, "get_file_locking"):
        is_used, may_be_ignored = access.get_file_locking()
        settings["locking"] = ("best-effort" if may_be_ignored else True) if is_used else False
    is_swmr = bool(file.swmr_mode)
    return open_file, (path, file.mode, is_swmr, settings)


# ---------------------------------------------------------------------- called while loading


def open_file(path: str, mode: str, is_swmr: bool, settings: dict[str, Any]) -> Any:
    wait_for_files()  # HDF5 opens files in C
    before = _opening_of(path) if os.path.exists(path) else None
    if before is not None and before.swmr_mode:
        mode = "r"  # all openings of a process seem to write as soon as one does
    if mode == "r+" and before is None:
        hdf5_marks.remove_mark(path)
    try:
        file = h5py.File(path, mode, swmr=is_swmr and mode == "r", **settings)
        if is_swmr and not file.swmr_mode:
            file.swmr_mode = True
    except OSError as failure:
        raise RestoreError(f"the HDF5 file {path!r} cannot be opened again: {failure}") from failure
    return file.id


def _opening_of(path: str) -> Any:
    """A file object of this process for that file; None: it is not open yet."""
    which, status = (h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE), os.stat(path)
    # where there are none, asking for them fails
    for identifier in h5py.h5f.get_obj_ids(*which) if h5py.h5f.get_obj_count(*which) else ():
        file = h5py.File(identifier)
        if file.driver == "sec2" and os.path.samestat(os.fstat(identifier.get_vfd_handle()), status):
            return file
    return None


def file_of(identifier: Any) -> Any:
    return h5py.File(identifier)


def same_identifier(identifier: Any) -> Any:
    return h5py.h5i.get_file_id(identifier)


def identifier_of(member: Any) -> Any:
    return member.id


def closed_identifier() -> Any:
    return make_closed().id


def make_closed() -> Any:
    made = h5py.File("closed", "w", driver="core", backing_store=False)
    made.close()
    return made


def make_closed_member(cls: type) -> Any:
    with h5py.File("closed", "w", driver="core", backing_store=False) as file:
        return file.create_group("g") if cls is h5py.Group else file.create_dataset("d", (0,), dtype="f4")


def find_member(identifier: Any, name: str) -> Any:
    file = h5py.File(identifier)
    try:
        return file[name]
    except KeyError:
        raise RestoreError(f"the HDF5 file {file.filename!r} has no {name!r} any more") from None

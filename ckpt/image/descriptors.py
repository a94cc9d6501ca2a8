"""Descriptors that a program has opened with ``os.open`` and keeps as mere numbers: regular files, with their offset.

Which they are
    Every regular file that is open when an image is taken, but for those that were open before the program began
    (:func:`note_baseline`), those of file objects, and files in memory. A :class:`Descriptors` is pickled with the last,
    when all file objects of the image are known; for what is left, the process is searched for other file objects.

At load each is opened again under its number. A number that is in use by then, other than for the very same file, is a
:class:`RestoreError`: the program would write into what is not its own.

Not here: pipes and sockets, of which an integer says nothing; as objects they are named as what cannot be saved.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import RestoreError
from ckpt.image.reopen import SavedFile, open_saved

if TYPE_CHECKING:
    from ckpt.image.file_notes import FileNote
    from ckpt.image.pickler import ImagePickler

__all__ = ["Descriptors", "baseline", "note_baseline", "restore_descriptors", "unexplained"]

_IN_MEMORY = "/memfd:"
_baseline: dict[int, tuple[int, int]] = {}  # and what is behind each: device, inode


def note_baseline() -> None:
    """What is open now does not belong to the program that is about to begin, or to go on."""
    _baseline.clear()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            _baseline[int(name)] = _behind(int(name))


def baseline() -> Collection[int]:
    """Descriptors that do not belong to the program, but for those whose number has been given away again since."""
    found = []
    for fd, behind in _baseline.items():
        with contextlib.suppress(OSError):
            if _behind(fd) == behind:
                found.append(fd)
    return found


def _behind(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def unexplained(notes: Mapping[int, FileNote], known: Collection[int]) -> list[int]:
    """Descriptors of regular files that belong to no file object; ``known``: those of file objects already met."""
    found = [
        fd
        for fd, note in notes.items()
        if fd > 2
        and fd not in _baseline
        and fd not in known
        and note.kind in ("file", "deleted")
        and not note.path.startswith(_IN_MEMORY)
    ]
    if not found:
        return []
    owned = {obj.fileno() for obj in gc.get_objects() if type(obj) is io.FileIO and not obj.closed}
    return [fd for fd in found if fd not in owned]


class Descriptors:
    """Stands for the descriptors that no file object pickled before it owns. ``saver``: a FileSaver."""

    def __init__(self, saver: Any) -> None:
        self.saver = saver


def reduce_descriptors(pickler: ImagePickler, obj: Descriptors) -> Any:
    return list, (obj.saver.raw_descriptors(),)


def restore_descriptors(saved: list[SavedFile]) -> None:
    for file in saved:
        fd = open_saved(file)
        if fd == file.fd:
            os.set_inheritable(fd, False)
            os.lseek(fd, file.offset, os.SEEK_SET)
            continue
        try:
            if _is_taken(file.fd, fd):
                raise RestoreError(
                    f"descriptor {file.fd} of the open file {file.path!r} is in use in this process; "
                    "use file objects (open(), os.fdopen()), which need no number of their own"
                )
            os.dup2(fd, file.fd, inheritable=False)
            os.lseek(file.fd, file.offset, os.SEEK_SET)
        finally:
            os.close(fd)


def _is_taken(number: int, fd: int) -> bool:
    try:
        return _behind(number) != _behind(fd)
    except OSError:
        return False

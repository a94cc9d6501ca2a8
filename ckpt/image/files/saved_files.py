"""The record of one open file in an image (:class:`ckpt.image.files.reopen.SavedFile`), with the file's content if small.

A file with a name is saved with its content because the file may be gone at a restart, or replaced by another: programs
write ``state.tmp`` and rename it, read a scratch file and remove it, begin a log anew.

======================================  =====================================================================
file                                    content in the image
======================================  =====================================================================
regular file with a name                up to ``LIMIT_BYTES``, and ``LIMIT_ALL_BYTES`` for all such files of
                                        one image; a larger file must still exist at the restart
deleted file, temporary file            always; a file of more than 1 GiB is an error
below ``/proc``, ``/sys``, ``/dev``     never
======================================  =====================================================================

The content is read after the fork: bytes that the program overwrites in place meanwhile may be in the image.

A path in the program's own directory of ``/proc`` has the number of the process, as the kernel says it: the new process has
another one, so the image says ``/proc/self``.

Not here: which descriptors are saved (:mod:`ckpt.image.files.open_files`, :mod:`ckpt.image.files.descriptors`).
"""

from __future__ import annotations

import os
from pickle import PicklingError
from typing import TYPE_CHECKING

from ckpt.image.files import descriptors
from ckpt.image.files.file_locks import locks_of
from ckpt.image.files.file_notes import OF_THE_KERNEL
from ckpt.image.files.file_positions import read_at
from ckpt.image.files.reopen import SavedFile
from ckpt.undo.selection.kept import is_kept

if TYPE_CHECKING:
    from ckpt.image.files.file_notes import FileNote

__all__ = ["LIMIT_ALL_BYTES", "LIMIT_BYTES", "SavedFiles"]

LIMIT_BYTES = 1 << 20
LIMIT_ALL_BYTES = 16 << 20
_DELETED_LIMIT_BYTES = 1 << 30
_NO_CONTENT = (*OF_THE_KERNEL, "/dev/")


class SavedFiles:
    """The records of one image's files; counts the bytes of content that it holds. ``pid``: of the program."""

    def __init__(self, pid: int) -> None:
        self._own = ["", "proc", str(pid)]
        self._left_bytes = LIMIT_ALL_BYTES
        self._contents: dict[tuple[int, int, int], bytes | None] = {}

    def saved(self, fd: int, note: FileNote, readable: int, *, is_temporary: bool = False) -> SavedFile:
        """The record of a file. ``fd``: its descriptor in the program; ``readable``: a descriptor of the same file in this
        process. Raises PicklingError: a deleted or temporary file is too large, or has another name, which is not known.
        """
        is_deleted = note.kind == "deleted"
        content = None
        if is_deleted or is_temporary:
            if note.length > _DELETED_LIMIT_BYTES:
                raise PicklingError(
                    f"the temporary file {note.path!r} is too large to be saved ({note.length} bytes)"
                )
            if is_deleted and is_written(note) and os.fstat(readable).st_nlink:
                raise PicklingError(
                    f"the open file {note.path!r} has another name, in another directory: what is written to it from now on "
                    "would not be there after a restart"
                )
            content = read_at(readable, 0, note.length)
        stream = descriptors.stream_of(fd, note)
        if note.kind == "file" and content is None and stream is None:
            content = self._content(note, readable)
        return SavedFile(
            fd,
            self._lasting(note.path),
            note.flags,
            note.offset if note.kind != "directory" else 0,  # os.scandir and os.listdir leave it there
            note.length if note.kind in ("file", "deleted") and is_written(note) else None,
            content,
            is_deleted,
            stream,
            note.first,
            note.identity,
            note.mode,
            locks_of(note.locks),
            note.kind == "file" and is_kept(note.path),
        )

    def _lasting(self, path: str) -> str:
        parts = path.split("/")
        return "/".join(["", "proc", "self", *parts[3:]]) if parts[:3] == self._own else path

    def _content(self, note: FileNote, readable: int) -> bytes | None:
        if note.identity in self._contents:
            return self._contents[note.identity]
        content = None
        if note.length <= min(LIMIT_BYTES, self._left_bytes) and not note.path.startswith(_NO_CONTENT):
            try:
                content = read_at(readable, 0, note.length)
            except OSError:
                pass  # reading is not permitted: the image holds the path only
        if content is not None and len(content) < note.length:
            content = None  # the program has cut the file meanwhile
        self._left_bytes -= len(content or b"")
        self._contents[note.identity] = content
        return content


def is_written(note: FileNote) -> bool:
    """Is the file open for writing?"""
    return note.flags & os.O_ACCMODE != os.O_RDONLY

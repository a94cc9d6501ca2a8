"""What an image says of one open file (:class:`ckpt.image.files.reopen.SavedFile`), its content included where that is
small.

The content of a file with a name is for the case that the file is gone at a restart, or another one: a program writes
``state.tmp`` and renames it, reads a scratch file and removes it, begins a log anew. It is that of a regular file of at most
``LIMIT_BYTES``, as long as all of them together are not more than ``LIMIT_ALL_BYTES``; larger ones must still be
there. It is read after the fork: what the program overwrites in place meanwhile may be in it. Files without a name
have theirs at any size up to 1 GiB, and so have temporary ones.

Not here: which descriptors are saved (:mod:`ckpt.image.files.open_files`, :mod:`ckpt.image.files.descriptors`).
"""

from __future__ import annotations

import os
from pickle import PicklingError
from typing import TYPE_CHECKING

from ckpt.image.files import descriptors
from ckpt.image.files.file_locks import locks_of
from ckpt.image.files.file_positions import read_at
from ckpt.image.files.reopen import SavedFile

if TYPE_CHECKING:
    from ckpt.image.files.file_notes import FileNote

__all__ = ["LIMIT_ALL_BYTES", "LIMIT_BYTES", "SavedFiles"]

LIMIT_BYTES = 1 << 20
LIMIT_ALL_BYTES = 16 << 20
_DELETED_LIMIT_BYTES = 1 << 30
_NO_CONTENT = ("/proc/", "/sys/", "/dev/")


class SavedFiles:
    """Of one image."""

    def __init__(self) -> None:
        self._left_bytes = LIMIT_ALL_BYTES
        self._contents: dict[tuple[int, int, int], bytes | None] = {}

    def saved(self, fd: int, note: FileNote, readable: int, *, is_temporary: bool = False) -> SavedFile:
        """``readable``: a descriptor of this process for it. Raises PicklingError: no name, and too large."""
        is_deleted = note.kind == "deleted"
        content = None
        if is_deleted or is_temporary:
            if note.length > _DELETED_LIMIT_BYTES:
                raise PicklingError(
                    f"the temporary file {note.path!r} is too large to be saved ({note.length} bytes)"
                )
            content = read_at(readable, 0, note.length)
        stream = descriptors.stream_of(fd, note)
        if note.kind == "file" and content is None and stream is None:
            content = self._content(note, readable)
        return SavedFile(
            fd,
            note.path,
            note.flags,
            note.offset,
            note.length if note.kind in ("file", "deleted") and is_written(note) else None,
            content,
            is_deleted,
            stream,
            note.first,
            note.identity,
            note.mode,
            locks_of(note.locks),
        )

    def _content(self, note: FileNote, readable: int) -> bytes | None:
        if note.identity in self._contents:
            return self._contents[note.identity]
        content = None
        if note.length <= min(LIMIT_BYTES, self._left_bytes) and not note.path.startswith(_NO_CONTENT):
            try:
                content = read_at(readable, 0, note.length)
            except OSError:
                pass  # not one that may be read: its name will do
        if content is not None and len(content) < note.length:
            content = None  # cut since by the program
        self._left_bytes -= len(content or b"")
        self._contents[note.identity] = content
        return content


def is_written(note: FileNote) -> bool:
    return note.flags & os.O_ACCMODE != os.O_RDONLY

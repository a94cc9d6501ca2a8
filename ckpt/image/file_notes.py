"""What every descriptor of this process refers to, noted in the parent before the fork (:mod:`ckpt.image.moment`).

After the fork parent and child share the offset of a file, and the parent goes on moving it: the child must not ask
again (:mod:`ckpt.image.files`). Nor may it move it, or write: what the child asks of the program's objects runs their
code, and a text layer that is asked for what it holds flushes the gzip file below, which writes. So the first thing that a
child does is to set its descriptors apart (:func:`set_apart`).
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Collection

from transport.lean import dataclass, replace

__all__ = ["FileNote", "completed", "kind_of", "set_apart"]

_DELETED = " (deleted)"
_STREAMS = 2  # the last of the standard ones


@dataclass(frozen=True, slots=True)
class FileNote:
    """What a descriptor referred to when the image was prepared. ``offset`` and ``length`` in bytes.

    What is no regular file has a kind only: it cannot change before the child looks (:func:`completed`).
    """

    path: str
    kind: str  # "file", "deleted", "device" or another word for what cannot be saved
    flags: int
    offset: int
    length: int


def completed(fd: int, note: FileNote) -> FileNote:
    """With path and flags, for what is no regular file; the descriptor must still be the parent's."""
    if note.path:
        return note
    return replace(note, path=os.readlink(f"/proc/self/fd/{fd}"), flags=fcntl.fcntl(fd, fcntl.F_GETFL))


def set_apart(notes: dict[int, FileNote], ours: Collection[int]) -> None:
    """In a forked child: whatever the program has open is open for reading only, at an offset of the child's own.

    Writing fails there (EBADF) instead of reaching the program's file; so does any use of a pipe or a socket. ``ours`` are
    needed, standard streams are taken care of by :mod:`ckpt.image.standard`, and devices are left alone: what is saved of
    them is harmless.
    """
    for fd, note in notes.items():
        is_file = note.kind in ("file", "deleted")
        if fd <= _STREAMS or note.kind == "device" or fd in ours:
            continue
        try:
            if not is_file:
                notes[fd] = completed(fd, note)
            own = os.open(f"/proc/self/fd/{fd}" if is_file else os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # closed since, or nothing that may be read
            own = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        if is_file:
            os.lseek(own, note.offset, os.SEEK_SET)
        os.dup2(own, fd, inheritable=False)
        os.close(own)


def kind_of(path: str, mode: int, links: int) -> str:
    """A word for what a descriptor refers to; ``mode`` and ``links`` as in :class:`os.stat_result`."""
    if stat.S_ISREG(mode):
        return "deleted" if path.endswith(_DELETED) or links == 0 else "file"
    if stat.S_ISCHR(mode):
        return "device"
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "special file"

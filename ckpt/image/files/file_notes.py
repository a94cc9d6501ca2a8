"""What every descriptor of this process refers to, noted in the parent before the fork (:mod:`ckpt.image.process.moment`).

After the fork parent and child share the offset of a file, and the parent goes on moving it: the child must not ask again
(:mod:`ckpt.image.files.open_files`). Nor may it move it, or write: what the child asks of the program's objects runs their
code, and a text layer that is asked for what it holds flushes the gzip file below, which writes. Nor may it have an open
file in common with its parent at all: a ``flock`` lasts as long as anybody has the open file to which it belongs, so a
program that closes its file would not be rid of its lock. So the fork itself puts files of the child's own, open for
reading, in the place of regular ones, before the parent goes on (``_frames.fork``); then the child gives up the others
(:func:`set_apart`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Collection

from ckpt.transport.records import dataclass, replace

__all__ = ["FileNote", "completed", "kind_of", "set_apart"]

_DELETED = " (deleted)"
_STREAMS = 2  # the last of the standard ones


@dataclass(frozen=True, slots=True)
class FileNote:
    """What a descriptor referred to when the image was prepared. ``offset`` and ``length`` in bytes.

    ``flags``: as opened, with ``O_CLOEXEC`` if it is set. ``first``: the lowest descriptor of the same open file (they have
    their position in common). ``identity``: device, inode, when it was made (0: unknown). ``locks``: what
    ``/proc/self/fdinfo`` says of them.

    What is no regular file has a kind and an identity only: it cannot change before the child looks (:func:`completed`).
    """

    path: str
    kind: str  # "file", "deleted", "device", "directory" or another word for what cannot be saved
    flags: int
    offset: int
    length: int
    first: int = -1
    identity: tuple[int, int, int] = (0, 0, 0)
    mode: int = 0
    locks: str = ""


def completed(fd: int, note: FileNote) -> FileNote:
    """With path and flags, for what is no regular file; the descriptor must still be the parent's."""
    if note.path:
        return note
    closes = os.O_CLOEXEC if fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC else 0
    flags = fcntl.fcntl(fd, fcntl.F_GETFL) | closes
    return replace(note, path=os.readlink(f"/proc/self/fd/{fd}"), flags=flags)


def set_apart(notes: dict[int, FileNote], ours: Collection[int]) -> None:
    """In a forked child: any use of the program's pipes, sockets and the like fails.

    ``ours`` are needed, standard streams are taken care of by :mod:`ckpt.image.files.standard_output`, and devices are left
    alone: what is saved of them is harmless.
    """
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for fd, note in notes.items():
        if fd <= _STREAMS or note.kind in ("file", "deleted", "device") or fd in ours:
            continue
        with contextlib.suppress(OSError):  # closed since
            notes[fd] = completed(fd, note)
            os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)


def kind_of(path: str, mode: int, links: int) -> str:
    """A word for what a descriptor refers to; ``mode`` and ``links`` as in :class:`os.stat_result`."""
    if stat.S_ISREG(mode):
        return "deleted" if path.endswith(_DELETED) or links == 0 else "file"
    if stat.S_ISCHR(mode):
        return "device"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "special file"

"""Notes of the files that the descriptors of this process refer to, made in the parent before the fork
(:mod:`ckpt.image.process.moment`).

After a plain ``fork(2)`` parent and child share every open file description (POSIX), which has three consequences:

- The parent moves the file offset while the child works, so the child must not ask the kernel for the offset: it uses the
  offset recorded here (:mod:`ckpt.image.files.open_files`).
- The child must not move the offset, or write. But the child calls methods of the program's file objects, and these may
  write: asking a text layer over a gzip file for its buffered text flushes the gzip file.
- A ``flock`` lasts as long as any process has the open file description, so the program could not release its lock by
  closing its file while a child lives.

Therefore ``_frames.fork`` replaces the child's regular files and directories by ones of the child's own, open for reading,
before the parent goes on. Then the child gives up the program's pipes, sockets and the like (:func:`give_up_descriptors`).

Not here: how a file is saved (:mod:`ckpt.image.files.saved_files`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Collection

from ckpt.transport.records import dataclass, replace

__all__ = ["FileNote", "completed", "give_up_descriptors", "kind_of", "present_name"]

OF_THE_KERNEL = ("/proc/", "/sys/")
_DELETED = " (deleted)"
_STREAMS = 2  # the highest descriptor of a standard stream


@dataclass(frozen=True, slots=True)
class FileNote:
    """What a descriptor referred to when the image was prepared. ``offset`` and ``length`` in bytes.

    ``flags``: those of ``open(2)``, with ``O_CLOEXEC`` if it is set. ``first``: the lowest descriptor of the same open file
    description (descriptors of one description share the offset). ``identity``: device, inode, time of creation in ns (0:
    unknown). ``mode``: the permission bits. ``locks``: the lines of ``/proc/self/fdinfo`` about locks.

    For a descriptor of no regular file, ``path`` and ``flags`` are filled in later by :func:`completed`: they cannot change
    before the child looks at them. ``offset`` of a directory: how far it has been read; -1: it cannot be read (``O_PATH``).
    ``content``: what waits in a pipe or in a pair of sockets, or the lines of ``/proc/self/fdinfo`` of an epoll instance; an
    ``offset`` of -1: it cannot be read without taking it out.
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
    content: bytes = b""


def completed(fd: int, note: FileNote) -> FileNote:
    """The note with path and flags, also for a descriptor of no regular file. The descriptor must not have been replaced
    by :func:`give_up_descriptors` yet. Raises OSError: the descriptor is closed.
    """
    if note.path:
        return note
    closes = os.O_CLOEXEC if fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC else 0
    flags = fcntl.fcntl(fd, fcntl.F_GETFL) | closes
    return replace(note, path=os.readlink(f"/proc/self/fd/{fd}"), flags=flags)


def give_up_descriptors(notes: dict[int, FileNote], own: Collection[int]) -> None:
    """In a forked child: replace the program's pipes, sockets and the like by ``/dev/null``, open for reading, so that the
    child cannot use them. The notes are completed before.

    Four kinds of descriptors are left alone: those in ``own``, which ckpt itself needs; standard streams, which
    :mod:`ckpt.image.files.standard_output` treats; devices, of which only harmless ones can be saved; and files and
    directories that are the child's own.
    """
    null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for fd, note in notes.items():
        if fd <= _STREAMS or note.kind in ("file", "deleted", "device") or fd in own:
            continue
        with contextlib.suppress(OSError):  # the descriptor has been closed
            notes[fd] = completed(fd, note)
            if note.kind != "directory" or note.offset < 0:
                os.dup2(null_fd, fd, inheritable=False)
    os.close(null_fd)


def present_name(path: str, identity: tuple[int, int, int], mode: int, links: int) -> str:
    """The path of an open file, as the kernel says it; or another name, in the same directory, of a file that has lost the
    one with which it was opened, or has been given one since (``O_TMPFILE``)."""
    if not path.endswith(_DELETED) or links == 0 or not stat.S_ISREG(mode):
        return path
    with contextlib.suppress(OSError):
        for entry in os.scandir(os.path.dirname(path)):
            if entry.inode() == identity[1] and entry.stat(follow_symlinks=False).st_dev == identity[0]:
                return entry.path
    return path


def has_length(path: str, mode: int) -> bool:
    """Does ``st_size`` say how much can be read? Not of what is no regular file, and what a file of the kernel holds is made
    when it is read."""
    return stat.S_ISREG(mode) and not path.startswith(OF_THE_KERNEL)


def kind_of(path: str, mode: int, links: int) -> str:
    """The ``kind`` of a :class:`FileNote`. ``mode``, ``links``: ``st_mode`` and ``st_nlink`` of :class:`os.stat_result`."""
    if stat.S_ISREG(mode):
        return "deleted" if links == 0 or (path.endswith(_DELETED) and not os.path.lexists(path)) else "file"
    if stat.S_ISCHR(mode):
        return "device"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "special file"

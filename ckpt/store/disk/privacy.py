"""Directories and files that only their owner may touch (★ asks the system about owners and modes).

An image is code and a key opens it, so nothing is read from, or put into, a place where another user could
have put something: symbolic links, foreign owners and group- or world-writable modes are refused with
`NotPrivate`. A check of an open descriptor is used wherever a path could be exchanged between check and use.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from typing import Final

from ckpt.store.errors import NotPrivate, StorageFailed

__all__ = [
    "check_private_directory",
    "check_private_file",
    "is_private_directory",
    "make_runtime_directory",
    "open_regular",
]

SOCKET_PATH_LIMIT: Final = 107
"""Longest path of a Unix socket in bytes (Linux: 108 with its terminating zero)."""

_SOCKET_NAME_ROOM: Final = 40
_RANDOM_NAME_ROOM: Final = 8
_ELSEWHERE: Final = "Sockets need a directory on this machine: set TMPDIR to one that you may write to."


def _refuse(info: os.stat_result, path: str, forbidden_mode: int) -> None:
    if info.st_uid != os.geteuid():
        raise NotPrivate(
            f"owned by user {info.st_uid}, not by you (user {os.geteuid()})",
            path=path,
            hint="Images are code: a job can only be used by the user who owns it.",
        )
    if info.st_mode & forbidden_mode:
        raise NotPrivate(
            f"open to other users (mode {stat.S_IMODE(info.st_mode):04o})",
            path=path,
            hint=f"Images are code: if you trust what is in there, `chmod go-rwx {path}`.",
        )


def check_private_directory(path: str, *, forbidden_mode: int = 0o022) -> None:
    """Raise NotPrivate unless `path` is a real directory of ours that lacks all bits of `forbidden_mode`.

    Raises:
        FileNotFoundError: there is nothing.
        NotPrivate: a symbolic link, no directory, another owner, or too open.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotPrivate(
            f"not a directory of ours ({error.strerror})",
            path=path,
            hint="A symbolic link or a file stands where a private directory must be: remove it.",
        ) from error
    try:
        _refuse(os.fstat(fd), path, forbidden_mode)
    finally:
        os.close(fd)


def check_private_file(fd: int, path: str, *, forbidden_mode: int = 0o077) -> None:
    """Raise NotPrivate unless the open file is a regular one of ours without a bit of `forbidden_mode`."""
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise NotPrivate("not a regular file", path=path, hint="Remove it.")
    _refuse(info, path, forbidden_mode)


def open_regular(path: str, flags: int, mode: int = 0o600) -> int:
    """`os.open` of a file in a job directory, close-on-exec, without waiting for anybody.

    Every file of a job is opened so, to read or to write: a FIFO in the place of one would hold who opens it until
    somebody comes to its other end.

    Raises:
        OSError: as the system does.
        NotPrivate: something other than a regular file stands there.
    """
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO that nobody reads, or a socket
            raise _irregular(path) from error
        raise
    try:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
        if regular:
            os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    if not regular:
        os.close(fd)
        raise _irregular(path)
    return fd


def _irregular(path: str) -> NotPrivate:
    return NotPrivate(
        "not a regular file",
        path=path,
        hint="A FIFO, device, directory or socket stands in its place: remove it.",
    )


def make_runtime_directory() -> str:
    """A new private directory for a job's sockets, with a path short enough for them.

    Its name cannot be foretold, so nobody can be there first; who looks for it reads it in the job's record.
    It lies in the system's temporary directory (`TMPDIR`), or in /tmp when that is too long.

    Raises:
        StorageFailed: it cannot be made.
    """
    name = f"ckpt-{os.geteuid()}-"
    root = tempfile.gettempdir()
    if len(os.fsencode(os.path.join(root, name))) + _RANDOM_NAME_ROOM + _SOCKET_NAME_ROOM > SOCKET_PATH_LIMIT:
        root = "/tmp"
    try:
        return tempfile.mkdtemp(prefix=name, dir=root)
    except OSError as error:
        raise StorageFailed("mkdir", os.path.join(root, name), error, hint=_ELSEWHERE) from error


def is_private_directory(path: str) -> bool:
    """Whether it is there, a real directory, ours, and closed to all others."""
    try:
        check_private_directory(path, forbidden_mode=0o077)
    except (FileNotFoundError, NotPrivate):
        return False
    return True

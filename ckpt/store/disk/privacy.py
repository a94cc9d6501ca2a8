"""Checks that directories and files belong to this user and that no other user may change them.

An image is code, and whoever has the job's key can sign one. So the store reads and writes only in places where no other
user can have put a file: symbolic links, other owners and group- or world-writable modes are refused with
`NotPrivate`. The check uses an open descriptor wherever a path could be replaced between check and use.
"""

from __future__ import annotations

import errno
import os
import stat
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
    """Raise NotPrivate unless `path` is a real directory of this user without any mode bit of `forbidden_mode`.

    Raises:
        FileNotFoundError: `path` does not exist.
        NotPrivate: `path` is a symbolic link or no directory, has another owner, or a bit of `forbidden_mode`.
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
    """Raise NotPrivate unless `fd` is a regular file of this user without any mode bit of `forbidden_mode`."""
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise NotPrivate("not a regular file", path=path, hint="Remove it.")
    _refuse(info, path, forbidden_mode)


def open_regular(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a file of a job directory like `os.open`, close-on-exec, without blocking.

    Every file of a job is opened in this way, to read or to write: if a FIFO stood in its place, a plain open would block
    until a process opens the other end.

    Raises:
        OSError: as the system does.
        NotPrivate: `path` is not a regular file.
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
    """Make a new private directory for a job's sockets, with a path short enough for them; return the path.

    Its name is random, so no other user can create it first; other processes of this user find it in the job's record.
    It lies in the system's temporary directory (`TMPDIR`), or in /tmp when that path is too long.

    Raises:
        StorageFailed: the directory cannot be made.
    """
    import tempfile  # only a controller needs it, and its import is slow

    name = f"ckpt-{os.geteuid()}-"
    root = tempfile.gettempdir()
    if len(os.fsencode(os.path.join(root, name))) + _RANDOM_NAME_ROOM + _SOCKET_NAME_ROOM > SOCKET_PATH_LIMIT:
        root = "/tmp"
    try:
        return tempfile.mkdtemp(prefix=name, dir=root)
    except OSError as error:
        raise StorageFailed("mkdir", os.path.join(root, name), error, hint=_ELSEWHERE) from error


def is_private_directory(path: str) -> bool:
    """Is `path` an existing real directory of this user, closed to all other users (mode 0700 or less)?"""
    try:
        check_private_directory(path, forbidden_mode=0o077)
    except (FileNotFoundError, NotPrivate):
        return False
    return True

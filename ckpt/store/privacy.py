"""Directories and files that only their owner may touch (★ asks the system about owners and modes).

An image is code and a key opens it, so nothing is read from, or put into, a place where another user could
have put something: symbolic links, foreign owners and group- or world-writable modes are refused with
`NotPrivate`. A check of an open descriptor is used wherever a path could be exchanged between check and use.
"""

from __future__ import annotations

import os
import stat
import tempfile
from typing import Final

from .errors import NotPrivate, StorageFailed

__all__ = ["check_private_directory", "check_private_file", "make_private_directory", "runtime_directory"]

SOCKET_PATH_LIMIT: Final = 107
"""Longest path of a Unix socket in bytes (Linux: 108 with its terminating zero)."""

_SOCKET_NAME_ROOM: Final = 40


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


def make_private_directory(path: str) -> None:
    """Create `path` with mode 0700, or accept it when it is there and private (0700, ours, no link)."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass  # ours from before, or planted by somebody: the check below tells
    except OSError as error:
        raise StorageFailed("mkdir", path, error) from error
    check_private_directory(path, forbidden_mode=0o077)


def runtime_directory(job_id: str, *, base: str | None = None) -> str:
    """The job's private directory for sockets, `BASE/ckpt-UID/JOB`, mode 0700, created if needed.

    Args:
        base: a directory; the default is the system's temporary one, or /tmp when that is too long for
        sockets.

    Raises:
        NotPrivate: somebody else owns it, or planted a link.
        StorageFailed: it cannot be made.
    """
    root = tempfile.gettempdir() if base is None else base
    tail = os.path.join(f"ckpt-{os.geteuid()}", job_id)
    if base is None and len(os.fsencode(os.path.join(root, tail))) + _SOCKET_NAME_ROOM > SOCKET_PATH_LIMIT:
        root = "/tmp"
    outer = os.path.join(root, f"ckpt-{os.geteuid()}")
    make_private_directory(outer)
    inner = os.path.join(outer, job_id)
    make_private_directory(inner)
    return inner

"""Translates audit events into operations on files, by canonical names: absolute, and through no symbolic link.

Some events name the descriptor of the directory that a path is relative to, others a descriptor of the file.

Not here: who tells of an event, and what an operation needs (:mod:`ckpt.undo.watching`, :mod:`ckpt.undo.recorder`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
from types import FrameType
from typing import Any

from ckpt.undo.recorder import Operation

__all__ = ["SQLITE", "canonical_name", "is_of_a_directory", "operations_of", "place_of"]

SQLITE = ("", "-journal", "-wal", "-shm")
"""What the names of a database's files end with."""
_ACCESS_READ, _ACCESS_COPY = 1, 3  # of mmap
_AF_UNIX = 1  # the module socket is not imported for that
_O_TMPFILE = os.O_TMPFILE & ~os.O_DIRECTORY


def operations_of(event: str, arguments: tuple[Any, ...]) -> list[Operation]:
    """What the event says is about to happen; nothing for events of other kinds. Raises OSError, ValueError, TypeError."""
    match event, arguments:
        case "open", (path, _, flags):
            return _opened(path, flags)
        case "os.rename", (source, target, source_fd, target_fd):
            return _both("rename", canonical_name(source, source_fd), canonical_name(target, target_fd))
        case "os.remove" | "os.rmdir", (path, fd):
            return _one("remove", canonical_name(path, fd))
        case "os.mkdir", (path, _, fd):
            return _one("directory", canonical_name(path, fd))
        case "os.link", (source, target, source_fd, target_fd):
            return _both("link", canonical_name(target, target_fd), canonical_name(source, source_fd))
        case "os.symlink", (_, path, fd):
            return _one("link", canonical_name(path, fd))
        case "socket.bind", (made, path) if isinstance(path, (str, bytes)):
            return _bound(made, path)
        case "os.truncate", (path, _):
            return _one("rewrite", _followed(path))
        case "os.chmod" | "os.chown", (path, *_, fd):
            return _one("attributes", _followed(path, fd))
        case "os.utime", (path, _, _, fd):
            return _one("attributes", _followed(path, fd))
        case "os.setxattr" | "os.removexattr", (path, *_):
            return _one("attributes", _followed(path))
        case "mmap.__new__", (fd, _, access, _):
            return _mapped(fd, access)
        case "sqlite3.connect", (path, *_):
            return _connected(path)
    return []


def is_of_a_directory(operation: Operation) -> bool:
    """Does the name of a directory change?"""
    return operation.kind == "directory" or (
        operation.kind in ("remove", "rename")
        and os.path.isdir(operation.path)
        and not os.path.islink(operation.path)
    )


def _connected(database: Any) -> list[Operation]:
    """SQLite opens the database later, and makes files beside it."""
    path = os.fsdecode(database)
    if path.startswith("file:"):
        path = path[5:].partition("?")[0].removeprefix("//")
    name = "" if path in ("", ":memory:") else _followed(path)
    return [Operation("rewrite", name + each) for each in SQLITE] if name else []


def _opened(path: Any, flags: int) -> list[Operation]:
    if isinstance(path, int) or flags & _O_TMPFILE == _O_TMPFILE:
        return []
    appends = flags & os.O_APPEND and not flags & os.O_TRUNC
    return _one("append" if appends else "rewrite", _followed(path))


def is_shared_mapping(fd: int, nbytes: int, access: int) -> bool:
    """Is a file mapped by :class:`mmap.mmap` so that the program's changes reach it? (Perhaps, where it gives flags.)"""
    return fd >= 0 and access not in (_ACCESS_READ, _ACCESS_COPY)


def _mapped(fd: int, access: int) -> list[Operation]:
    """What is mapped may be changed anywhere from then on. Other files than those that are appended to have been kept."""
    if not is_shared_mapping(fd, 0, access):
        return []
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    appends = flags & os.O_ACCMODE == os.O_RDWR and flags & os.O_APPEND
    return _one("rewrite", _followed(fd)) if appends else []


def _bound(made: Any, path: str | bytes) -> list[Operation]:
    """A socket gets a name in the file system, unless the name begins with a null byte."""
    is_file = made.family == _AF_UNIX and path and os.fsencode(path)[0]
    return _one("link", canonical_name(path)) if is_file else []


def _one(kind: Any, path: str) -> list[Operation]:
    return [Operation(kind, path)] if path else []


def _both(kind: Any, path: str, target: str) -> list[Operation]:
    return [Operation(kind, path, target)] if path and target else []


def canonical_name(path: Any, fd: int = -1) -> str:
    """The canonical name that the path refers to, a symbolic link itself; "": there is no such directory."""
    given = os.fsdecode(path)
    if fd >= 0 and not given.startswith("/"):
        given = f"/proc/self/fd/{fd}/{given}"
    while given.endswith("/") and given != "/":
        given = given[:-1]
    directory, base = os.path.split(given)
    if base in ("", ".", ".."):
        return os.path.realpath(given)
    found = _canonical(directory or ".")
    return os.path.join(found, base) if found else ""


def _followed(path: Any, fd: int = -1) -> str:
    """The canonical name of what the path leads to, symbolic links followed."""
    if isinstance(path, int):
        with contextlib.suppress(OSError):
            if (
                stat.S_IFMT(os.fstat(path).st_mode) in (stat.S_IFREG, stat.S_IFDIR)
                and os.fstat(path).st_nlink
            ):
                return os.readlink(f"/proc/self/fd/{path}")
        return ""
    name = canonical_name(path, fd)
    if name and os.path.islink(name):
        return os.path.realpath(name)
    return name


def _canonical(directory: str) -> str:
    """The directory's absolute name without symbolic links; "": it does not exist."""
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def place_of(frame: FrameType | None) -> tuple[str, str]:
    """(top-level package, ``file:line function``) of the innermost line from this frame on that is not of the standard
    library; empty: there is none."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == "__main__" or package not in sys.stdlib_module_names:
            code = frame.f_code
            return package, f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_qualname}"
        frame = frame.f_back
    return "", ""

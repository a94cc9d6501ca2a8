"""Functions of `os` that take a descriptor, for files that the replicas of a rank write together. (driver)

`os.open` for writing (opening.py) gives a number that the kernel refuses. So what does not know of these numbers (C code,
`mmap`) fails, and changes nothing anywhere. Whether a number is such a descriptor is decided in one place: `of`.

    open(number), os.fdopen    a raw file over the number, as :class:`io.FileIO` is one (`DescriptorFile`)
    os.dup                     another number of the same file, with the same position
    images                     the numbers, and the files with their positions (`state`)

What is not here for such a number is refused by name (`REFUSED`), where it is a function of `os` or `fcntl`.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.redundancy.files.changes import CALLS_PROGRAM, RefusedMode

__all__ = [
    "GIVEN",
    "NO_DESCRIPTOR",
    "TABLE",
    "DescriptorFile",
    "is_descriptor",
    "of",
    "opened_by",
    "refusal",
    "refuse_numpy",
]

NO_DESCRIPTOR = 1 << 29
"""Numbers from here on are no descriptors of the kernel's."""


class _Table:
    """Of this process. `files`: by number; `count`: the numbers given, so that all replicas give the same ones."""

    def __init__(self) -> None:
        self.files: dict[int, Any] = {}
        self.count = 0

    def new(self) -> int:
        self.count += 1
        return NO_DESCRIPTOR + self.count

    def add(self, file: Any) -> int:
        number = self.new()
        self.files[number] = file
        return number

    def named(self, number: int) -> None:
        """Raises RefusedMode for the number of a file that has lost its name: replicas open it again by that."""
        try:
            of(number).status()
        except (FileNotFoundError, NotADirectoryError) as failure:
            self.files.pop(number, None)
            raise RefusedMode(
                f"under --redundancy a file has been removed before it was written ({failure.filename!r}): replicas open it "
                "by its name"
            ) from None

    def state(self) -> dict[str, Any]:
        """For an image."""
        return {"files": dict(self.files), "count": self.count}

    def go_on(self, state: dict[str, Any]) -> None:
        """This process goes on from an image with this `state`; {}: it has none of these descriptors."""
        self.files, self.count = dict(state.get("files", {})), state.get("count", 0)


TABLE = _Table()


def is_descriptor(number: Any) -> bool:
    return isinstance(number, int) and number >= NO_DESCRIPTOR


def of(number: Any, nbytes: int = 0) -> Any:
    """The file of this number; None: it is a descriptor of the kernel's. Raises OSError for one that is closed, and, as the
    kernel does before it looks, if `nbytes` is negative."""
    if not isinstance(number, int) or number < NO_DESCRIPTOR:
        return None
    if nbytes < 0:
        raise _failure(errno.EINVAL)
    try:
        return TABLE.files[number]
    except KeyError:
        raise _failure(errno.EBADF) from None


def _failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _to_read(file: Any) -> Any:
    if not file.readable():
        raise _failure(errno.EBADF)
    return file


def _to_write(file: Any) -> Any:
    if not file.writable():
        raise _failure(errno.EBADF)
    return file


def os_read(fd: Any, length: int, /) -> bytes:
    """As `os.read`."""
    if (file := of(fd, length)) is None:
        return _GENUINE["read"](fd, length)  # type: ignore[no-any-return]
    found: bytes = _to_read(file).read(length)
    return found


def os_pread(fd: Any, length: int, offset: int, /) -> bytes:
    """As `os.pread`."""
    if (file := of(fd, min(length, offset))) is None:
        return _GENUINE["pread"](fd, length, offset)  # type: ignore[no-any-return]
    at = _to_read(file).tell()
    file.seek(offset)
    try:
        found: bytes = file.read(length)
    finally:
        file.seek(at)
    return found


def os_write(fd: Any, data: Any, /) -> int:
    """As `os.write`; all is written."""
    if (file := of(fd)) is None:
        return _GENUINE["write"](fd, data)  # type: ignore[no-any-return]
    return _to_write(file).write(data)  # type: ignore[no-any-return]


def os_writev(fd: Any, buffers: Iterable[Any], /) -> int:
    """As `os.writev`; all is written."""
    if (file := of(fd)) is None:
        return _GENUINE["writev"](fd, buffers)  # type: ignore[no-any-return]
    return _to_write(file).write(b"".join(bytes(each) for each in buffers))  # type: ignore[no-any-return]


def os_pwrite(fd: Any, data: Any, offset: int, /) -> int:
    """As `os.pwrite`: a file with O_APPEND is appended to, as Linux does."""
    if (file := of(fd, offset)) is None:
        return _GENUINE["pwrite"](fd, data, offset)  # type: ignore[no-any-return]
    at = _to_write(file).tell()
    file.seek(offset)
    try:
        return file.write(data)  # type: ignore[no-any-return]
    finally:
        file.seek(at)


def os_lseek(fd: Any, position: int, whence: int, /) -> int:
    """As `os.lseek`, with SEEK_SET, SEEK_CUR or SEEK_END."""
    if (file := of(fd)) is None:
        return _GENUINE["lseek"](fd, position, whence)  # type: ignore[no-any-return]
    if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
        raise refusal("lseek to data or holes")
    return file.seek(position, whence)  # type: ignore[no-any-return]


def os_ftruncate(fd: Any, length: int, /) -> None:
    """As `os.ftruncate`."""
    if (file := of(fd, length)) is None:
        return _GENUINE["ftruncate"](fd, length)  # type: ignore[no-any-return]
    if not file.writable():
        raise _failure(errno.EINVAL)
    file.truncate(length)
    return None


def os_fstat(fd: Any) -> os.stat_result:
    """As `os.fstat`."""
    return _GENUINE["fstat"](fd) if (file := of(fd)) is None else file.status()  # type: ignore[no-any-return]


def os_close(fd: Any) -> None:
    """As `os.close`."""
    if of(fd) is None:
        return _GENUINE["close"](fd)  # type: ignore[no-any-return]
    del TABLE.files[fd]
    return None


def os_dup(fd: Any, /) -> int:
    """As `os.dup`."""
    return _GENUINE["dup"](fd) if (file := of(fd)) is None else TABLE.add(file)


def os_isatty(fd: Any, /) -> bool:
    """As `os.isatty`, which says False of a closed one."""
    return False if is_descriptor(fd) else _GENUINE["isatty"](fd)


def os_get_inheritable(fd: Any, /) -> bool:
    """As `os.get_inheritable`: no other program can be started."""
    return _GENUINE["get_inheritable"](fd) if of(fd) is None else False


_GENUINE: dict[str, Any] = {}
GIVEN: dict[Any, Any] = {}
"""Genuine functions, and those that the program gets instead."""
for _function in (
    *(os_read, os_pread, os_write, os_writev, os_pwrite, os_lseek, os_ftruncate, os_fstat, os_close, os_dup),
    *(os_isatty, os_get_inheritable),
):
    _name = _function.__name__.removeprefix("os_")
    _GENUINE[_name] = getattr(os, _name)
    GIVEN[_GENUINE[_name]] = _function


# ---- what is refused -------------------------------------------------------------------------------------


def refusal(name: str) -> NotReplicable:
    return NotReplicable(
        f"under --redundancy: {name} of a file that the program has opened for writing with os.open, or with an opener: "
        "replicas write it together, and cannot share this. Use os.read, os.write, os.lseek, os.ftruncate, os.fsync, "
        "os.fdopen, or open() with a path"
    )


def _refused(module: Any, name: str) -> Any:
    genuine = getattr(module, name)

    def refused(*arguments: Any, **named: Any) -> Any:
        if any(is_descriptor(each) or _is_file(each) for each in (*arguments[:2], *named.values())):
            raise refusal(f"{module.__name__}.{name}")
        return genuine(*arguments, **named)

    refused.__name__, refused.__qualname__ = name, f"{module.__name__}_{name}"
    refused.__doc__ = genuine.__doc__
    globals()[refused.__qualname__] = refused
    return genuine, refused


def _is_file(each: Any) -> bool:
    """Is this a file object over such a descriptor? `fcntl` takes these, too."""
    number = getattr(each, "fileno", None)
    try:
        return callable(number) and is_descriptor(number())
    except (OSError, ValueError):
        return False


REFUSED = {
    **dict.fromkeys(
        (
            *("readv", "preadv", "pwritev", "splice", "posix_fallocate"),
            *("posix_fadvise", "lockf", "fchown", "dup2", "set_inheritable", "set_blocking"),
            *("get_blocking", "fpathconf", "fstatvfs", "fchdir", "ttyname"),
        ),
        os,
    ),
    **dict.fromkeys(("fcntl", "flock", "ioctl"), fcntl),
}
GIVEN |= dict(_refused(module, name) for name, module in REFUSED.items() if hasattr(module, name))
GIVEN |= dict([_refused(fcntl, "lockf")])  # as the one of `os`, by another name


# ---- file objects ----------------------------------------------------------------------------------------


class DescriptorFile(io.RawIOBase):
    """A raw file over a descriptor, as :class:`io.FileIO`. `mode`: as of FileIO. Raises OSError for a closed descriptor."""

    def __init__(self, number: int, name: Any, mode: str, closes: bool) -> None:
        super().__init__()
        self.name, self.mode = name, mode
        self._number, self._closes = number, closes
        of(number)

    def readable(self) -> bool:
        return self.mode.startswith("r") or "+" in self.mode

    def writable(self) -> bool:
        return not self.mode.startswith("r") or "+" in self.mode

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._check(self.readable(), "not readable")
        view = memoryview(buffer).cast("B")
        data = os_read(self._number, len(view))
        view[: len(data)] = data
        return len(data)

    def write(self, data: Any, /) -> int:
        self._check(self.writable(), "not writable")
        return os_write(self._number, data)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._check()
        return os_lseek(self._number, offset, whence)

    def tell(self) -> int:
        return self.seek(0, 1)

    def truncate(self, size: int | None = None, /) -> int:
        self._check(self.writable(), "not writable")
        length = self.tell() if size is None else size
        os_ftruncate(self._number, length)
        return length

    def fileno(self) -> int:
        return self.number(2)

    def number(self, depth: int) -> int:
        """The descriptor, for the caller at this `depth` of the stack."""
        self._check()
        refuse_numpy(depth + 1)
        return self._number

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._closes:
                os_close(self._number)

    def _check(self, can: bool = True, text: str = "") -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not can:
            raise io.UnsupportedOperation(text)


def refuse_numpy(depth: int) -> None:
    """Raises UnsupportedOperation if numpy calls at this `depth`: it would write to the descriptor itself."""
    if sys._getframe(depth).f_globals.get("__name__", "").startswith("numpy"):
        raise io.UnsupportedOperation("fileno: replicas write this file together")


_FLAGS = {
    "r": 0,
    "w": os.O_CREAT | os.O_TRUNC,
    "x": os.O_CREAT | os.O_EXCL,
    "a": os.O_CREAT | os.O_APPEND,
}


def opened_by(opener: Callable[[Any, int], int], file: Any, mode: str) -> int:
    """The descriptor that the `opener` of `open` gives. Raises RefusedMode for a mode that `open` does not know."""
    kinds = [letter for letter in mode if letter in _FLAGS]
    if len(kinds) != 1:
        raise RefusedMode(f"under --redundancy the program opens {file!r} with an opener in mode {mode!r}")
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if kinds[0] == "r" else os.O_WRONLY
    number = opener(file, access | _FLAGS[kinds[0]] | os.O_CLOEXEC)
    if isinstance(number, int) and number < 0:
        raise ValueError(f"opener returned {number}")
    return number


CALLS_PROGRAM.add(opened_by.__code__)

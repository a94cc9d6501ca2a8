"""Open files, put back at load: what the pickle of an image calls for them. Counterpart of :mod:`ckpt.image.files`.

Its names are part of the image format. A writable file is cut to its saved length and gets what the program had
written but not flushed; the descriptor number is the old one where that is free. What cannot be opened, or is
shorter than the image needs, is a :class:`RestoreError` with the path; the loader adds the variable.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tempfile
from dataclasses import dataclass
from typing import Any

from ckpt.image.errors import RestoreError


@dataclass(frozen=True, slots=True)
class SavedFile:
    """``length``: of a writable file; ``pending``: written by the program, but not yet to the file;
    ``content``: if deleted.
    """

    fd: int
    path: str
    flags: int
    offset: int
    length: int | None
    pending: bytes
    content: bytes | None


def make_raw_file(saved: SavedFile, mode: str, name: Any, closefd: bool) -> io.FileIO:
    fd = _deleted_again(saved) if saved.content is not None else _open_again(saved)
    offset = saved.offset
    if saved.pending:
        if saved.flags & os.O_APPEND:
            os.write(fd, saved.pending)
            offset = os.lseek(fd, 0, os.SEEK_END)
        else:
            os.pwrite(fd, saved.pending, offset)
            offset += len(saved.pending)
    if fd != saved.fd and not os.path.exists(f"/proc/self/fd/{saved.fd}"):
        os.dup2(fd, saved.fd, inheritable=False)
        os.close(fd)
        fd = saved.fd
    made = io.FileIO(fd, mode, closefd)
    with contextlib.suppress(OSError):  # a device
        os.lseek(fd, offset, os.SEEK_SET)
    made.name = name
    return made


def _open_again(saved: SavedFile) -> int:
    try:
        fd = os.open(saved.path, saved.flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC) | os.O_CLOEXEC)
    except OSError as failure:
        raise RestoreError(
            f"the open file {saved.path!r} cannot be opened again: {failure.strerror}"
        ) from failure
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        needed = saved.offset if saved.length is None else saved.length
        if status.st_size < needed:
            raise RestoreError(
                f"the open file {saved.path!r} has {status.st_size} bytes; the image needs {needed}"
            )
        if saved.length is not None:
            os.ftruncate(fd, saved.length)
    return fd


def _deleted_again(saved: SavedFile) -> int:
    """A file without a name, with its content.

    The first descriptor gives the kernel's copy of the access mode.
    """
    assert saved.content is not None
    directory = os.path.dirname(saved.path)
    fd, path = tempfile.mkstemp(dir=directory if os.path.isdir(directory) else None)
    try:
        with open(fd, "wb") as file:
            file.write(saved.content)
        return os.open(
            path, saved.flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_TMPFILE) | os.O_CLOEXEC
        )
    finally:
        os.unlink(path)


def make_std_raw(fd: int, mode: str, name: Any) -> io.FileIO:
    made = io.FileIO(fd, mode, closefd=False)
    made.name = name
    return made


def make_buffered(cls: Any, raw: Any, position: int | None) -> Any:
    made = cls(raw)
    if position is not None:
        made.seek(position)
    return made


def make_text(buffer: Any, settings: tuple[Any, ...], position: Any, attributes: dict[str, Any]) -> Any:
    made = io.TextIOWrapper(buffer, *settings)
    if position is not None:
        made.seek(position)
    made.__dict__.update(attributes)
    return made


def make_closed(layer: str, name: Any, mode: str) -> Any:
    raw = io.FileIO(os.devnull, "r")
    raw.name = name
    made: Any = raw if layer == "raw" else io.BufferedReader(raw)
    if layer == "text":
        made = io.TextIOWrapper(made)
        made.mode = mode
    made.close()
    return made

"""The changes that a restart makes to files: a file is cut to its saved length, or gets its saved content back.

No file is changed while the load can still fail: :func:`cut`, :func:`put_back` and :func:`cut_output` only record a change,
and the loader calls :func:`make_changes`, which makes all changes, when everything else has been loaded. So a restart that
fails leaves files and output as they were, and another image can still be loaded.

Not here: which files are changed, and why (:mod:`ckpt.image.files.reopen`).
"""

from __future__ import annotations

import os
import stat
import warnings

from ckpt.image.errors import RestoreError
from ckpt.image.files import numbers
from ckpt.transport.records import dataclass

__all__ = ["begin", "cut", "cut_output", "put_back", "make_changes", "warn_of_shorter_output"]


@dataclass(frozen=True, slots=True)
class _PendingChange:
    """A recorded change: the file will have ``length`` bytes, or this ``content``. ``fd`` is a descriptor that only this
    change uses. ``kept_from``: for standard output and error, the file's length when loading began; what loading itself
    prints behind that byte is kept (``None``: the file is no standard stream).
    """

    fd: int
    length: int
    content: bytes | None = None
    kept_from: int | None = None


_pending: list[_PendingChange] = []


def begin() -> None:
    """A load begins: the list of recorded changes is emptied."""
    _pending.clear()


def cut(fd: int, length: int) -> None:
    """Record that the file will be cut to ``length`` bytes. A duplicate of ``fd`` is kept, because the object that owns
    ``fd`` may be gone when make_changes() runs.
    """
    _pending.append(_PendingChange(numbers.duplicate(fd), length))


def put_back(fd: int, content: bytes) -> None:
    """Record that the file will have this content, whatever is in the file now."""
    _pending.append(_PendingChange(numbers.duplicate(fd), len(content), content))


def cut_output(fd: int, length: int) -> None:
    """Record that the bytes which the file of a standard stream now has beyond ``length`` will be cut out of the file.
    Nothing is recorded for a stream that is no regular file, or has this length.
    """
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_size != length:
        _pending.append(_PendingChange(numbers.duplicate(fd), length, kept_from=status.st_size))


def warn_of_shorter_output() -> None:
    """Warn of output that has become shorter since the image was taken. The program's own filters are not set yet."""
    for change in _pending:
        if change.kept_from is not None and change.kept_from < change.length:
            warnings.warn(
                f"the output in {os.readlink(f'/proc/self/fd/{change.fd}')!r} has {change.kept_from} bytes, but had "
                f"{change.length} when the image was taken: some of it has been removed, by hand or by a restart from an "
                "older image",
                RuntimeWarning,
                stacklevel=2,
            )


def make_changes() -> None:
    """Make the recorded changes. Raises RestoreError if the file system refuses one."""
    done: set[tuple[int, int]] = set()
    try:
        for change in _pending:
            status = os.fstat(change.fd)
            if (status.st_dev, status.st_ino) not in done:  # several descriptors may refer to one file
                done.add((status.st_dev, status.st_ino))
                _make_change(change)
    except OSError as failure:
        raise RestoreError(
            f"a file that the program writes cannot be cut to its length: {failure.strerror}"
        ) from failure
    finally:
        for change in _pending:
            os.close(change.fd)
        _pending.clear()


def _make_change(change: _PendingChange) -> None:
    if change.content is not None:
        if _holds(change.fd, change.content):
            return
        with open(
            f"/proc/self/fd/{change.fd}", "wb"
        ) as file:  # opened anew: the flags of due.fd (O_APPEND) must not apply
            file.write(change.content)
        return
    printed = b""
    if change.kept_from is not None and change.kept_from < change.length:
        return  # see warn_of_shorter_output()
    if change.kept_from is not None:
        with open(f"/proc/self/fd/{change.fd}", "rb") as file:
            file.seek(change.kept_from)
            printed = file.read()
    os.ftruncate(change.fd, change.length)
    if printed:
        os.lseek(change.fd, change.length, os.SEEK_SET)
        os.write(change.fd, printed)


def _holds(fd: int, content: bytes) -> bool:
    """Is this in the file already, as where a restart has put it back? Then it is not touched."""
    try:
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False  # it may not be read

"""What is to be written to files when an image is loaded: cut to their length, or given back their content.

No file is touched while anything can still fail: opening one notes what is due (:func:`cut`, :func:`put_back`,
:func:`cut_output`), and the loader calls :func:`settle` when all else has been loaded. So a restart that fails leaves
files and output as they were, for another image too.

Not here: which files, and why (:mod:`ckpt.image.files.reopen`).
"""

from __future__ import annotations

import os
import stat
import warnings

from ckpt.image.errors import RestoreError
from ckpt.image.files import numbers
from ckpt.transport.records import dataclass

__all__ = ["begin", "cut", "cut_output", "put_back", "settle"]


@dataclass(frozen=True, slots=True)
class _Due:
    """A file that is to have ``length`` bytes, or this ``content``; ``fd`` is a descriptor for this alone. What loading
    itself has printed, behind byte ``kept_from``, stays (``None``: there is no such thing).
    """

    fd: int
    length: int
    content: bytes | None = None
    kept_from: int | None = None


_due: list[_Due] = []


def begin() -> None:
    """A load begins: nothing is due yet."""
    _due.clear()


def cut(fd: int, length: int) -> None:
    """The file is to be cut to its length. By settle() the object that owns ``fd`` may have been dropped: a duplicate."""
    _due.append(_Due(numbers.aside(fd), length))


def put_back(fd: int, content: bytes) -> None:
    """The file is to have this content, whatever is in it now."""
    _due.append(_Due(numbers.aside(fd), len(content), content))


def cut_output(fd: int, length: int) -> None:
    """What a standard stream, if it is a file, now holds beyond ``length`` bytes is to be cut out of it."""
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_size != length:
        _due.append(_Due(numbers.aside(fd), length, kept_from=status.st_size))


def settle() -> None:
    """Do what is due. Raises RestoreError: a file system that does not do it."""
    done: set[tuple[int, int]] = set()
    try:
        for due in _due:
            status = os.fstat(due.fd)
            if (status.st_dev, status.st_ino) not in done:  # several descriptors may be of one file
                done.add((status.st_dev, status.st_ino))
                _do(due)
    except OSError as failure:
        raise RestoreError(
            f"a file that the program writes cannot be cut to its length: {failure.strerror}"
        ) from failure
    finally:
        for due in _due:
            os.close(due.fd)
        _due.clear()


def _do(due: _Due) -> None:
    if due.content is not None:
        with open(f"/proc/self/fd/{due.fd}", "wb") as file:  # not what was opened for appending, say
            file.write(due.content)
        return
    said = b""
    if due.kept_from is not None and due.kept_from < due.length:
        warnings.warn(
            f"the output in {os.readlink(f'/proc/self/fd/{due.fd}')!r} has {due.kept_from} bytes, but had {due.length} when "
            "the image was taken: some of it has been removed, by hand or by a restart from an older image",
            RuntimeWarning,
            stacklevel=4,
        )
        return
    if due.kept_from is not None:
        with open(f"/proc/self/fd/{due.fd}", "rb") as again:
            again.seek(due.kept_from)
            said = again.read()
    os.ftruncate(due.fd, due.length)
    if said:
        os.lseek(due.fd, due.length, os.SEEK_SET)
        os.write(due.fd, said)

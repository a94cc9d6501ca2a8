"""Access modes of a file, and the error classes of what the operating system says. (pure)"""

from __future__ import annotations

import errno

from ckpt.mpi.base.constants import NUMBERS
from ckpt.mpi.base.errors import ERR_ARG, ERR_IO, ERR_UNSUPPORTED_OPERATION, ERROR_CLASSES, MpiException

CREATE = NUMBERS["MODE_CREATE"]
RDONLY = NUMBERS["MODE_RDONLY"]
WRONLY = NUMBERS["MODE_WRONLY"]
RDWR = NUMBERS["MODE_RDWR"]
DELETE_ON_CLOSE = NUMBERS["MODE_DELETE_ON_CLOSE"]
EXCL = NUMBERS["MODE_EXCL"]
APPEND = NUMBERS["MODE_APPEND"]
SEQUENTIAL = NUMBERS["MODE_SEQUENTIAL"]
_ALL = RDWR | RDONLY | WRONLY | CREATE | DELETE_ON_CLOSE | EXCL | APPEND | SEQUENTIAL
_ALL |= NUMBERS["MODE_UNIQUE_OPEN"]

_CLASSES = {
    errno.ENOENT: "ERR_NO_SUCH_FILE",
    errno.EEXIST: "ERR_FILE_EXISTS",
    errno.EACCES: "ERR_ACCESS",
    errno.EPERM: "ERR_ACCESS",
    errno.EROFS: "ERR_READ_ONLY",
    errno.ENOSPC: "ERR_NO_SPACE",
    errno.EDQUOT: "ERR_QUOTA",
    errno.EISDIR: "ERR_BAD_FILE",
    errno.ENOTDIR: "ERR_BAD_FILE",
    errno.ENAMETOOLONG: "ERR_BAD_FILE",
    errno.ELOOP: "ERR_BAD_FILE",
    errno.ENXIO: "ERR_BAD_FILE",
    errno.ETXTBSY: "ERR_FILE_IN_USE",
    errno.EBUSY: "ERR_FILE_IN_USE",
}


def check(amode: int) -> None:
    """MpiException (ERR_AMODE): the standard does not allow this combination."""
    if amode & ~_ALL:
        raise _bad(f"unknown bits {amode & ~_ALL} in the access mode")
    if sum(bool(amode & each) for each in (RDONLY, WRONLY, RDWR)) != 1:
        raise _bad("the access mode has to have one of MODE_RDONLY, MODE_WRONLY and MODE_RDWR")
    if amode & RDONLY and amode & (CREATE | EXCL):
        raise _bad("MODE_RDONLY cannot be combined with MODE_CREATE or MODE_EXCL")
    if amode & RDWR and amode & SEQUENTIAL:
        raise _bad("MODE_RDWR cannot be combined with MODE_SEQUENTIAL")


def _bad(text: str) -> MpiException:
    return MpiException(ERROR_CLASSES["ERR_AMODE"], text)


def check_reading(amode: int) -> None:
    """MpiException (ERR_ACCESS): the file is open for writing only."""
    if amode & WRONLY:
        raise MpiException(ERROR_CLASSES["ERR_ACCESS"], "the file was opened with MODE_WRONLY")


def check_writing(amode: int) -> None:
    """MpiException (ERR_READ_ONLY): the file is open for reading only."""
    if amode & RDONLY:
        raise MpiException(ERROR_CLASSES["ERR_READ_ONLY"], "the file was opened with MODE_RDONLY")


def check_not_sequential(amode: int) -> None:
    """MpiException (ERR_UNSUPPORTED_OPERATION): only the shared pointer can be used."""
    if amode & SEQUENTIAL:
        raise MpiException(
            ERR_UNSUPPORTED_OPERATION, "the file was opened with MODE_SEQUENTIAL: the shared pointer only"
        )


def whence_of(number: int) -> int:
    """MpiException (ERR_ARG): it is none of SEEK_SET, SEEK_CUR and SEEK_END."""
    if number not in (NUMBERS["SEEK_SET"], NUMBERS["SEEK_CUR"], NUMBERS["SEEK_END"]):
        raise MpiException(ERR_ARG, f"{number} is none of SEEK_SET, SEEK_CUR and SEEK_END")
    return number


def failure_of(error: OSError, path: str) -> tuple[int, str]:
    """(error class, text) of what the operating system has refused."""
    name = _CLASSES.get(error.errno or 0)
    return ERR_IO if name is None else ERROR_CLASSES[name], f"{path}: {error.strerror or error}"

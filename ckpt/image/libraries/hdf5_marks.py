"""The mark in an HDF5 file that says that the file is open for writing.

The formats from HDF5 1.10 on (``libver="latest"``) set the mark when a file is opened, and clear it when the file is closed.
A process that is killed leaves the mark behind, and HDF5 then refuses to open the file (``h5clear -s`` removes the mark). So
a restart removes it. It is not removed if another process has locked the file: then the file is in fact open for writing.

The mark is one byte of flags in the superblock (versions 3 and later). The superblock ends with a checksum of everything
before, Bob Jenkins' "lookup3" (2006, public domain), which is computed again.

This module does not use h5py, because the file is not open yet.
"""

from __future__ import annotations

import fcntl
import os
import struct

__all__ = ["checksum", "remove_mark"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FLAGS_AT = 11
_OPEN = 0x01 | 0x04  # open for writing; open for writing while others read
_FIRST_PLACES = (0, *(512 << n for n in range(16)))  # offsets of the superblock: a user block may precede it
_MASK = 0xFFFFFFFF


def remove_mark(path: str) -> None:
    """Remove the mark from the file. Does nothing if there is no mark, or if the file cannot be written: opening the file
    will then raise."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for at in _FIRST_PLACES:
            block = bytearray(os.pread(fd, 128, at))
            if not block.startswith(_SIGNATURE):
                continue
            end = 12 + 4 * block[9]
            if (
                block[8] >= 3
                and block[_FLAGS_AT] & _OPEN
                and _saved_checksum(block, end) == checksum(block[:end])
            ):
                block[_FLAGS_AT] &= ~_OPEN
                struct.pack_into("<I", block, end, checksum(block[:end]))
                os.pwrite(fd, block[: end + 4], at)
            return
    except OSError:
        return
    finally:
        os.close(fd)


def _saved_checksum(block: bytes | bytearray, end: int) -> int:
    return int.from_bytes(block[end : end + 4], "little")


def checksum(data: bytes | bytearray) -> int:
    """lookup3's ``hashlittle`` with an initial value of 0."""
    a = b = c = (0xDEADBEEF + len(data)) & _MASK
    rest = bytes(data)
    while len(rest) > 12:
        x, y, z = struct.unpack_from("<III", rest)
        a, b, c = _mixed((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)
        rest = rest[12:]
    if not rest:
        return c
    x, y, z = struct.unpack("<III", rest.ljust(12, b"\0"))
    return _finished((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits in (4, 6, 8, 16, 19, 4):
        a = ((a - c) & _MASK) ^ _rotated(c, bits)
        c = (c + b) & _MASK
        a, b, c = b, c, a
    return a, b, c


def _finished(a: int, b: int, c: int) -> int:
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotated(b, bits)) & _MASK
        a, b, c = b, c, a
    return b

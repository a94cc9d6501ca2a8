"""Structs of buffers that read (``Modules/_io/bufferedio.c``): the two of a pair; what a buffer knows while a thread is
inside of one of its calls.

For a new minor version: have ``buffered`` and ``rwpair`` kept their fields? Those that are used are compared with what
Python says of the object.
"""

from __future__ import annotations

import ctypes
import gc
import io
import sys
from typing import Any

from ckpt.compat.typeobjects import HEADER_BYTES, instance_bytes

__all__ = ["buffers_of_pair", "is_in_use", "taken_of_line"]

_WORDS = 17
_RAW, _BUFFER, _FILLED, _OWNER, _SIZE = 0, 5, 7, 12, 13
_NEWLINE = b"\n"
_REFERENCES = 5
"""To a list that C code alone holds: by C, two lists and a variable here, and ``getrefcount``."""


def _words(reader: io.BufferedReader) -> Any:
    """The words of the struct, in place. None: another layout."""
    if instance_bytes(io.BufferedReader) != HEADER_BYTES + _WORDS * ctypes.sizeof(ctypes.c_void_p):
        return None
    words = (ctypes.c_ssize_t * _WORDS).from_address(id(reader) + HEADER_BYTES)
    size = reader.__sizeof__() - instance_bytes(type(reader))
    return words if words[_RAW] == id(reader.raw) and words[_SIZE] == size else None


def buffers_of_pair(pair: io.BufferedRWPair) -> tuple[Any, Any] | None:
    """The reader and the writer of a pair of buffers (``rwpair``; all versions). None: another layout."""
    if instance_bytes(io.BufferedRWPair) != HEADER_BYTES + 4 * ctypes.sizeof(ctypes.c_void_p):
        return None
    words = (ctypes.c_ssize_t * 2).from_address(id(pair) + HEADER_BYTES)
    found = [ctypes.cast(word, ctypes.py_object).value for word in words]
    is_known = [type(each) for each in found] == [io.BufferedReader, io.BufferedWriter]
    return (found[0], found[1]) if is_known else None


def is_in_use(reader: io.BufferedReader) -> bool:
    """Is a thread inside of a call of the reader? In a forked child such a thread does not exist, and nobody may call any of
    the reader's methods that need its lock."""
    words = _words(reader)
    return words is not None and words[_OWNER] != 0


def taken_of_line(reader: io.BufferedReader, *, is_listed: bool = True) -> bytes | None:
    """What a call of ``readline`` that waits for more below has taken already; None: that is not known.

    It has taken all that the buffer had been filled with, from some place on; there is no end of a line in it. So nothing
    has been taken if the last byte in the buffer is one. Else the pieces are in a list that C code alone holds
    (``is_listed``), of which the latest is the end of the buffer.
    """
    words = _words(reader)
    if words is None or not 0 <= words[_FILLED] <= words[_SIZE]:
        return None
    filled = ctypes.string_at(words[_BUFFER], words[_FILLED])
    if not filled or filled.endswith(_NEWLINE):
        return b""
    if not is_listed:
        return None
    found = [part for part in gc.get_objects() if type(part) is list and _are_pieces(part, filled)]
    held = [part for part in found if all(holder is found for holder in gc.get_referrers(part))]
    of_c = [b"".join(part) for part in held if sys.getrefcount(part) == _REFERENCES]
    return b"" if not of_c else of_c[0] if len(of_c) == 1 else None


def _are_pieces(part: list[Any], filled: bytes) -> bool:
    if not part or type(part[-1]) is not bytes or not filled.endswith(part[-1]):
        return False
    return all(type(piece) is bytes and piece and _NEWLINE not in piece for piece in part)

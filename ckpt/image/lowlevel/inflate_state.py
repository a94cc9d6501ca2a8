"""Decompressors of zlib anywhere in their streams: raw, with zlib's checksum, or of gzip files, as programs use that read
from the network (``zlib.decompressobj(31)``).

In the middle of a block a decompressor has tables of codes, bits that it has not used, a window, and a checksum, and its
library gives them to nobody. They are in one block of memory, ``struct inflate_state``, which is the same in zlib 1.2.9 to
1.3, and in the window. So these bytes are copied into the memory of a new decompressor. Addresses in them are those of the
block itself, or of tables of constants, which any decompressor in a block of fixed codes has.

The layout is never relied on without a proof: the version of the library and what can be known of the memory must be right,
and a new decompressor must do the same as the original with further input, before it becomes part of an image. The loaded
one must do so again. With another library (zlib-ng) nothing is copied.

Not here: what can be asked of any library, :mod:`ckpt.image.lowlevel.inflating`.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import zlib
from functools import cache
from typing import Any, NamedTuple

from ckpt.compat.typeobjects import instance_bytes

__all__ = ["InflateState", "make_with_state", "state_of"]

_KNOWN_VERSIONS = re.compile(r"1\.(2\.(9|1[0-9])|3)(\.[0-9]+)*")
_OBJECT_BYTES, _STREAM_AT = 168, 16  # z_stream is behind the header of the object
_POINTER_AT, _FIELDS_AT, _DICTIONARY_AT = 72, 128, 152  # the block; unused_data and unconsumed_tail; zdict
_BLOCK_BYTES = 7160
_MODES = range(16180, 16208)  # in a stream that has not met its end, or damage
_MODE_AT, _HEADER_AT, _COUNTS_AT, _WINDOW_AT = 8, 48, 56, 72
_TABLES_AT = (104, 112, 144)  # codes of lengths, codes of distances, room for further ones
_CONSTANT = -1
_LARGEST_WINDOW = 1 << zlib.MAX_WBITS
_WORD = ctypes.sizeof(ctypes.c_void_p)
_ZLIB_HEADER, _A_IN_FIXED_CODES = b"\x78\x9c", b"\x4b\x04"
_PROBES = tuple(pow(base, 600).to_bytes(base * 100, "little")[:150] for base in (3, 5, 7, 11))

Answers = tuple[Any, ...]


class InflateState(NamedTuple):
    """``block``: without its addresses; ``tables``: where in the block the tables are; ``window``: None before the first
    output; ``tail``: ``unconsumed_tail``; ``dictionary``: the argument ``zdict``; ``answers``: to the probes."""

    block: bytes
    tables: tuple[int, ...]
    window: bytes | None
    tail: bytes
    dictionary: Any
    answers: Answers


def state_of(decompressor: Any) -> InflateState | None:
    """None: this library, or its memory, is another one. The decompressor is left as it is."""
    address = _block_address(decompressor)
    if address is None:
        return None
    block = bytearray(_read(address, _BLOCK_BYTES) or b"")
    (window_at,) = struct.unpack_from("Q", block, _WINDOW_AT)
    _, size, have, following = struct.unpack_from("4I", block, _COUNTS_AT)
    if not have <= size <= _LARGEST_WINDOW or (have < size and following != have):
        return None
    tables = []
    for at in _TABLES_AT:
        (table,) = struct.unpack_from("Q", block, at)
        if not 0 <= table - address < _BLOCK_BYTES and table not in _constants():
            return None
        tables.append(table - address if table not in _constants() else _CONSTANT)
    window = _read(window_at, have) if window_at else None
    tail = decompressor.unconsumed_tail
    if window is None and (window_at or tail or have):
        return None
    for at in (0, _WINDOW_AT, *_TABLES_AT):
        struct.pack_into("Q", block, at, 0)
    word = _word(id(decompressor) + _DICTIONARY_AT)
    dictionary = ctypes.cast(word, ctypes.py_object).value if word else None
    state = InflateState(bytes(block), tuple(tables), window, tail, dictionary, _answers(decompressor))
    return None if _made(state) is None else state


def make_with_state(state: InflateState) -> Any:
    """A decompressor that goes on with the stream. None: this machine has another zlib."""
    return _made(state)


def _made(state: InflateState) -> Any:
    made = zlib.decompressobj() if state.dictionary is None else zlib.decompressobj(zdict=state.dictionary)
    if state.window is not None:  # the library allocates it with the first output
        made.decompress(_ZLIB_HEADER + b"\x00\x02\x00\xfd\xff-" + state.tail, 1)
    address = _block_address(made)
    if address is None:
        return None
    block = bytearray(state.block)
    own = _read(address, _BLOCK_BYTES) or bytes(_BLOCK_BYTES)
    for at in (0, _WINDOW_AT):
        block[at : at + _WORD] = own[at : at + _WORD]
    for place, at, constant in zip(state.tables, _TABLES_AT, (*_constants(), 0), strict=True):
        struct.pack_into("Q", block, at, constant if place == _CONSTANT else address + place)
    if state.window is not None:
        (window_at,) = struct.unpack_from("Q", block, _WINDOW_AT)
        ctypes.memmove(window_at, state.window, len(state.window))
    ctypes.memmove(address, bytes(block), _BLOCK_BYTES)
    return made if made.unconsumed_tail == state.tail and _answers(made) == state.answers else None


def _answers(decompressor: Any) -> Answers:
    """What copies do with further input."""
    found: list[Any] = []
    for probe in _PROBES:
        copy = decompressor.copy()
        try:
            found.append(copy.decompress(probe))
        except zlib.error as error:
            found.append(str(error))
        found += [copy.eof, copy.unused_data, copy.unconsumed_tail]
    return tuple(found)


def _block_address(decompressor: Any) -> int | None:
    """Where ``struct inflate_state`` of the decompressor is; None: it is not that, as far as can be known."""
    if (
        not _KNOWN_VERSIONS.fullmatch(zlib.ZLIB_RUNTIME_VERSION)
        or struct.calcsize("Q") != _WORD
        or instance_bytes(type(decompressor)) != _OBJECT_BYTES
    ):
        return None
    parts = _read(id(decompressor) + _FIELDS_AT, 2 * _WORD)
    if parts != struct.pack("2Q", id(decompressor.unused_data), id(decompressor.unconsumed_tail)):
        return None
    address = _word(id(decompressor) + _POINTER_AT)
    block = _read(address, _BLOCK_BYTES)
    if block is None or struct.unpack_from("Q", block)[0] != id(decompressor) + _STREAM_AT:
        return None
    (mode,), (header,) = struct.unpack_from("I", block, _MODE_AT), struct.unpack_from("Q", block, _HEADER_AT)
    return address if mode in _MODES and not header else None


@cache
def _constants() -> tuple[int, int]:
    """The addresses of the two tables of fixed codes."""
    fixed = zlib.decompressobj(-zlib.MAX_WBITS)
    fixed.decompress(_A_IN_FIXED_CODES)
    block = _read(_block_address(fixed) or 0, _BLOCK_BYTES) or bytes(_BLOCK_BYTES)
    codes, distances = (struct.unpack_from("Q", block, at)[0] for at in _TABLES_AT[:2])
    return codes, distances


def _word(address: int) -> int:
    (found,) = struct.unpack("Q", _read(address, _WORD) or bytes(_WORD))
    return int(found)


def _read(address: int, count: int) -> bytes | None:
    """Memory from an address on; None: not all of it exists. A system call reads it, which cannot fault."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        try:
            found = os.pread(memory.fileno(), count, address)
        except (OSError, OverflowError):
            return None
    return found if len(found) == count else None

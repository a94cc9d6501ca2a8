"""The messages between the ranks of a file.

Each is an envelope (ckpt/mpi/base/envelope.py) of kind WINDOW: source is the sender's rank in the file's group, tag is the
action, context is the number of the file, token is the number of the access at its sender. What follows:

    WRITE     the pieces, then the data. Answer: DONE or FAILED
    READ      the pieces. Answer: DATA or FAILED
    ADVANCE   i64: etypes by which the shared pointer goes on. Answer: NUMBER, where it was, or FAILED
    SIZE      nothing. Answer: NUMBER, the size of the file in bytes, or FAILED
    DONE      nothing
    DATA      what was read; less than was asked for where the file ends
    NUMBER    i64
    FAILED    a pickle: (error code, text)

Pieces: their number as u64, then offset and size of each as i64.

Not here: what the messages do (writer.py, state.py).
"""

from __future__ import annotations

import struct
from array import array
from itertools import chain

from ckpt.mpi.base import envelope
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.io.view import Ranges

WRITE = envelope.FILE_WRITE
READ = 1
ADVANCE = 2
SIZE = 3
DONE = envelope.WINDOW_CALLS + 1
DATA = DONE + 1
NUMBER = DONE + 2
FAILED = DONE + 3
"""Up to SIZE the rank that writes handles the message, from DONE on the one that has asked."""

CHUNK_BYTES = 16 << 20
"""An access of more is several messages, between which the rank that writes gets on with others."""

_COUNT = struct.Struct("<Q")
_NUMBER = struct.Struct("<q")


def pack_ranges(ranges: Ranges) -> bytes:
    """Pieces of a file, packed."""
    return _COUNT.pack(len(ranges)) + array("q", chain.from_iterable(ranges)).tobytes()


def unpack_ranges(data: Buffer) -> tuple[Ranges, int]:
    """(pieces, index of the byte behind them) of a WRITE or READ message."""
    (count,) = _COUNT.unpack_from(data, envelope.SIZE)
    at = envelope.SIZE + _COUNT.size
    numbers = array("q")
    numbers.frombytes(memoryview(data)[at : at + 16 * count])
    return list(zip(numbers[::2], numbers[1::2], strict=True)), at + 16 * count


def pack_number(number: int) -> bytes:
    """The body of ADVANCE or NUMBER."""
    return _NUMBER.pack(number)


def unpack_number(data: Buffer) -> int:
    """The number of an ADVANCE or NUMBER message."""
    number: int = _NUMBER.unpack_from(data, envelope.SIZE)[0]
    return number


def chunks(ranges: Ranges, *, is_atomic: bool) -> list[tuple[Ranges, int]]:
    """The pieces in portions of at most CHUNK_BYTES, each with its number of bytes; in atomic mode in one portion."""
    if is_atomic:
        return [(ranges, sum(nbytes for _, nbytes in ranges))]
    out: list[tuple[Ranges, int]] = []
    current: Ranges = []
    size = 0
    for offset, nbytes in ranges:
        while nbytes:
            taken = min(nbytes, CHUNK_BYTES - size)
            current.append((offset, taken))
            size += taken
            offset += taken
            nbytes -= taken
            if size == CHUNK_BYTES:
                out.append((current, size))
                current, size = [], 0
    if current:
        out.append((current, size))
    return out

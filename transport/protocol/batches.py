"""Joins many messages into the body of a wire frame, and splits the body again. No state, no decisions.

    common_length(messages)            the length of every message; VARIED if lengths differ, or if several are empty
    join(head, messages, length)       crc32 of the rest, `head`, the table of lengths if VARIED, and the messages
    split(frame, start, count, length) the `count` messages that fill a frame from `start` to its end; None: they do not
    crc32(data)                        the checksum of all frames, as zlib.crc32

The functions are written in C (`_batch.c`, `checksum.c`) where that module is built, since their time counts for every
message. The Python functions below, and zlib's, are the specification that the C functions are compared with
(tests/unit/transport/protocol/test_batches.py, test_checksum.py); they are used where the C module is missing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

VARIED = 0xFFFFFFFF

__all__ = ["VARIED", "common_length", "crc32", "join", "split"]


def _common_length(messages: Sequence[bytes]) -> int:
    length = len(messages[0])
    if len(messages) > 1 and not length:
        return VARIED  # without a table, a short frame could claim any number of empty messages
    return length if all(len(message) == length for message in messages) else VARIED


def _join(head: bytes, messages: Sequence[bytes], length: int) -> bytes:
    table = b"".join(len(message).to_bytes(4, "little") for message in messages) if length == VARIED else b""
    rest = b"".join((head, table, *messages))
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def _split(frame: bytes, start: int, count: int, length: int) -> list[bytes] | None:
    if length != VARIED:
        if len(frame) != start + count * length or (count != 1 and not length):
            return None
        return [frame[at : at + length] for at in range(start, len(frame), length)] if length else [b""]
    first = start + 4 * count
    if len(frame) < first:
        return None
    ends = list(accumulate(struct.unpack_from(f"<{count}I", frame, start), initial=first))
    return [frame[a:b] for a, b in pairwise(ends)] if ends[-1] == len(frame) else None


try:
    from ckpt.transport.protocol._batch import common_length, crc32, join, split
except ImportError:
    common_length, crc32, join, split = _common_length, zlib.crc32, _join, _split

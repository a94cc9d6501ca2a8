"""The body of a frame of many messages: put together and taken apart. No state, no decisions.

    common_length(messages)            the length that all have, or VARIED: they differ, or there are several of no length
    join(head, messages, length)       a checksum, `head`, the table of lengths if they are VARIED, and the messages
    split(frame, start, count, length) the messages that lie in a frame from `start` on; None: they do not

In C where that is built (`_batch.c`), since here every message costs. What is written in Python below is the specification,
which C is compared with (tests/unit/transport/protocol/test_batches.py), and what is used without it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

VARIED = 0xFFFFFFFF

__all__ = ["VARIED", "common_length", "join", "split"]


def _common_length(messages: Sequence[bytes]) -> int:
    length = len(messages[0])
    if len(messages) > 1 and not length:
        return VARIED  # so many empty messages would cost nothing to claim
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
    from ckpt.transport.protocol._batch import common_length, join, split
except ImportError:
    common_length, join, split = _common_length, _join, _split

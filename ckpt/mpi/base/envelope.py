"""The envelope: 32 bytes in front of every message, with all that matching needs at fixed offsets.

     0  'C', 29      pickle opcode SHORT_BINBYTES and the length of its argument
     2  kind         u8   EAGER, SYNC (the sender wants a MATCHED message once the message is matched), MATCHED,
                          REVOKE (the sender's communicator is revoked; a pickle of its members follows),
                          AGREE (token: number of the agreement; a pickle follows),
                          ACTIVE (token: number of the communicator's channel of active messages; tag: CALL, a pickle
                          follows for the channel's handler; END, a pickle follows, or DONE: steps of its freeing)
                          WINDOW (one-sided communication: ckpt/mpi/rma/wire.py; parallel files:
                          ckpt/mpi/io/wire.py)
     3  zero
     4  source       i32  sender's rank in the communicator
     8  tag          i32
    12  context      u64  the communicator, and its plane
    20  token        u64  number of the synchronous send; zero for EAGER
    28  zero         3 bytes
    31  '0'          pickle opcode POP

The first, second and last byte make the envelope a pickle fragment that pushes a bytes object and pops it again. So a
message that carries a pickled object is one pickle from its first byte, and is loaded without slicing. The length of 32
bytes keeps the data after the envelope aligned.

All EAGER messages of one (context, source, tag) have the same envelope, byte by byte. Therefore the sender packs the
envelope once, and the receiver finds the queue of messages with the envelope's bytes as the key. A message of another
kind is put into the queue of the EAGER envelope of its (context, source, tag).

Context number: (creator's world rank << 32 | creator's count) * PLANES + plane. The rank that creates a communicator
takes its own next count. So context numbers are unique, and ranks need not agree on them. Planes separate the
point-to-point, collective, internal and partitioned messages of one communicator.
"""

from __future__ import annotations

import struct

from ckpt.mpi.base.progress import Buffer

SIZE = 32

EAGER = 0
SYNC = 1
MATCHED = 2
REVOKE = 3
AGREE = 4
ACTIVE = 5
WINDOW = 6

CALL = 0
END = 1
DONE = 2

FILE_WRITE = 0
WINDOW_REQUESTS = 11
WINDOW_CALLS = 12
"""Actions of WINDOW (its tag): FILE_WRITE changes a parallel file (ckpt/mpi/io/wire.py); up to WINDOW_REQUESTS they work on
the receiver's memory and locks, or read its file; up to WINDOW_CALLS they are sent by the program's own calls, and so in
their order; those above answer requests."""

PLANES = 4
PLANE_POINT = 0
PLANE_COLLECTIVE = 1
PLANE_INTERNAL = 2
PLANE_PARTS = 3

_CODEC = struct.Struct("<2sBxiiQQ3xc")
assert _CODEC.size == SIZE


def pack(kind: int, source: int, tag: int, context: int, token: int = 0) -> bytes:
    """An envelope of SIZE bytes. Ranges: source and tag i32, context and token u64; struct.error outside of them."""
    return _CODEC.pack(b"C\x1d", kind, source, tag, context, token, b"0")


def unpack(data: Buffer) -> tuple[int, int, int, int, int]:
    """(kind, source, tag, context, token) of a message; struct.error if it is too short."""
    _, kind, source, tag, context, token, _ = _CODEC.unpack_from(data)
    return kind, source, tag, context, token


def is_predefined(base: int) -> bool:
    """Whether `base` is the context of COMM_WORLD (count 0) or of a COMM_SELF (count 1)."""
    return (base // PLANES) & 0xFFFFFFFF <= 1


def context_base(creator: int, count: int) -> int:
    """Context number of plane 0 of the communicator with number `count` among those that world rank `creator` made."""
    return (creator << 32 | count) * PLANES

"""The 32 bytes in front of every message: what matching needs, in fixed places.

     0  'C', 29      opcode SHORT_BINBYTES and its length
     2  kind         u8   EAGER, SYNC (wants an answer once matched), MATCHED (that answer), REVOKE,
                          AGREE (token: which agreement; a pickle follows)
     3  zero
     4  source       i32  sender's rank in the communicator
     8  tag          i32
    12  context      u64  which communicator, and which plane of it
    20  token        u64  names the synchronous send; zero for EAGER
    28  zero         3 bytes
    31  '0'          opcode POP

The first, second and last byte make an envelope a pickle that does nothing, so a message that carries a
pickled object is one pickle from its first byte and is loaded without slicing. 32 bytes keep what follows
aligned.

Nothing in an EAGER envelope differs between two messages of one (context, source, tag): the sender prepares
it once, the receiver finds the queue by looking these very bytes up. Messages of other kinds are looked up
under the EAGER envelope of their (context, source, tag).

Context numbers: (creator's world rank << 32 | creator's count) * PLANES + plane. Whoever creates a
communicator takes the next count, so no agreement is needed for uniqueness. Planes keep point-to-point,
collective and internal traffic apart.
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

PLANES = 4
PLANE_POINT = 0
PLANE_COLLECTIVE = 1
PLANE_INTERNAL = 2
PLANE_PARTS = 3

_CODEC = struct.Struct("<2sBxiiQQ3xc")
assert _CODEC.size == SIZE


def pack(kind: int, source: int, tag: int, context: int, token: int = 0) -> bytes:
    """Envelope as bytes. Ranges: source and tag i32, context and token u64."""
    return _CODEC.pack(b"C\x1d", kind, source, tag, context, token, b"0")


def unpack(data: Buffer) -> tuple[int, int, int, int, int]:
    """(kind, source, tag, context, token) of a message; struct.error if it is too short."""
    _, kind, source, tag, context, token, _ = _CODEC.unpack_from(data)
    return kind, source, tag, context, token


def is_predefined(base: int) -> bool:
    """Is this the world, or a rank alone (counts 0 and 1)?"""
    return (base // PLANES) & 0xFFFFFFFF <= 1


def context_base(creator: int, count: int) -> int:
    """Number of the first plane of the communicator that `creator` (world rank) made as its `count`-th."""
    return (creator << 32 | count) * PLANES

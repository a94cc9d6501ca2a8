"""The messages between the members of a window.

Each is an envelope (ckpt/mpi/base/envelope.py) of kind WINDOW: source is the sender's rank in the window, tag is the action,
context is the number of the window, token is the number of the operation at its origin. What follows:

    PUT, ACCUMULATE                a Description, then the packed data. No answer
    GET                            a Description. Answer: DATA or FAILED
    GET_AND_TELL                   the same, and the origin wants to read the memory itself next time. Answer: TOLD if it
                                   may, then as to GET
    GET_ACCUMULATE                 a Description, then the packed data (none for NO_OP). Answer: DATA or FAILED
    COMPARE_AND_SWAP               a Description, then the packed element to compare with, then the packed new one.
                                   Answer: DATA or FAILED
    FLUSH                          nothing. Answer: DONE, or FAILED with the first error since the last answer to a
                                   FLUSH or UNLOCK of this origin
    LOCK_SHARED, LOCK_EXCLUSIVE    nothing. Answer: DONE, as soon as the origin has the lock
    UNLOCK                         nothing. Answer as to FLUSH; none if the token is 0
    POST                           the sender's exposure epoch for the receiver has begun. No answer
    COMPLETE                       the sender's access epoch at the receiver has ended. No answer
    DATA                           the packed data
    DONE                           nothing
    TOLD                           where the sender's memory is (direct.py). No answer
    FAILED                         a pickle: (error code, text)

Messages between two ranks are handled in the order in which they were sent. So an answer to FLUSH says that all that was
sent before has been done, and the answers to all of it have arrived before.

Not here: what the messages do (target.py, origin.py).
"""

from __future__ import annotations

import pickle
import struct
from typing import NamedTuple

from ckpt.mpi.base import envelope
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.layout import Layout

PUT = 1
ACCUMULATE = 2
GET = 3
GET_AND_TELL = 4
GET_ACCUMULATE = 5
COMPARE_AND_SWAP = 6
FLUSH = 7
LOCK_SHARED = 8
LOCK_EXCLUSIVE = 9
UNLOCK = 10
COMPLETE = envelope.WINDOW_REQUESTS
POST = envelope.WINDOW_CALLS
DATA = 13
DONE = 14
FAILED = 15
TOLD = 16
"""Up to COMPLETE the target's side of a window handles the message, from POST on the origin's. From DATA on they are sent
when a message is handled, and not by a call of the program."""

_FIXED = struct.Struct("<qQI")


class Description(NamedTuple):
    """The place of an operation in the target's memory, and what is done there.

    offset: bytes from the beginning of the window; an address for a dynamic window. layout: of an element; None for bytes.
    elements: their number. code, operation: typecode of the basic elements and MPI name of the operation, of an
    accumulate."""

    offset: int
    elements: int
    layout: Layout | None = None
    code: str = ""
    operation: str = ""

    @property
    def nbytes(self) -> int:
        """The size of the data there."""
        return self.elements * (1 if self.layout is None else self.layout.size)


def describe(description: Description) -> bytes:
    """A description, packed."""
    offset, count, *more = description
    rest = pickle.dumps(more, 5) if any(more) else b""
    return _FIXED.pack(offset, count, len(rest)) + rest


def described(data: Buffer) -> tuple[Description, int]:
    """(description, index of the byte behind it) of a message."""
    offset, count, length = _FIXED.unpack_from(data, envelope.SIZE)
    at = envelope.SIZE + _FIXED.size
    if not length:
        return Description(offset, count), at
    return Description(offset, count, *pickle.loads(memoryview(data)[at : at + length])), at + length

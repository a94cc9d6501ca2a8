"""Reads of a window's memory without a message: `process_vm_readv(2)` from the target's process, on one host.

The target's program and its helper thread take no part: it may compute, sleep or be stopped. The origin learns where the
memory is from the target's first answer to GET_AND_TELL, so a restart needs nothing: what was learned is not in the image.

When is a read right? A message of a higher epoch waits until its receiver has taken its own image; a read must not see more
than such a message could bring. So the read counts only if, after the data have been read,

    the target is the same process (its badge), in this incarnation of the job, and has not left the window
    the epoch that the target publishes (`Port.published_epoch`) is not above the reader's epoch

The target publishes the epoch of an image before the image is captured. So at the time of the read the target had not yet
captured an image that the reader has not, and in every line of images the reader's image follows what it has read. A reader
that is ahead of the target reads what the target's next image will have, or earlier; after a restart from that line it reads
again. An origin's own changes that are not complete yet are messages under way, so it asks by message while there are any
(origin.py). If a read does not count, a message replaces it: that is always right.

A read is not atomic with respect to changes by others at the same time, which the standard leaves undefined.

Not here: the system call (transport/wires/crossmemory.py).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ckpt.transport.wires.crossmemory import PACKED_BADGE_BYTES, Badge, Published, Reader, available

if TYPE_CHECKING:
    from ckpt.mpi.datatypes.buffers import BufferSpec
    from ckpt.mpi.engine.engine import Engine

_PLACE = struct.Struct(f"<{PACKED_BADGE_BYTES}sQQQQQ")
_HERE = 1
_LEFT = 2


@runtime_checkable
class BetweenProcesses(Protocol):
    """A `Progress` over a port between processes: that of a rank's runtime, not that of a layer or of a single rank."""

    port: Any
    """The `Port`; None until the rank is connected."""
    incarnation: int


class DirectReads:
    """The reads of one process, and what others must know to read its memory. Needs the engine's lock.

    Windows are told apart by number, members by rank in the window."""

    def __init__(self, port: Any, incarnation: int) -> None:
        self._port = port
        self._incarnation = incarnation
        self._badge = Badge()
        self._reader = Reader()
        self._cell = bytearray(8)
        self._members: dict[int, Published] = {}
        """For each window of this process whether it is still a member. Kept after it has left: others may read it."""
        self._places: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._refused: set[tuple[int, int]] = set()

    # -- of this process ---------------------------------------------------------------------------

    def place_of(self, window: int, address: int, nbytes: int) -> bytes:
        """What an origin must know to read the memory of a window of this process."""
        member = self._members.setdefault(window, Published(_HERE))
        epoch_at = self._port.published_epoch.address
        return _PLACE.pack(self._badge.packed, address, nbytes, epoch_at, member.address, self._incarnation)

    def forget(self, window: int) -> None:
        """This process leaves a window: who has not heard of it must not read the memory any more."""
        if window in self._members:
            self._members[window].value = _LEFT
        for key in [key for key in self._places if key[0] == window]:
            del self._places[key]

    # -- of others ---------------------------------------------------------------------------------

    def wants_place(self, window: int, rank: int) -> bool:
        """Whether this process does not know where a member's memory is, and may read it as far as it knows."""
        return (window, rank) not in self._places and (window, rank) not in self._refused

    def learn(self, window: int, rank: int, packed: bytes) -> None:
        """A member has told where its memory is. What was told before a restart is dropped."""
        place = _PLACE.unpack(packed)
        if place[-1] == self._incarnation:
            self._places[window, rank] = place

    def read(self, window: int, rank: int, offset: int, into: BufferSpec) -> bool:
        """Read bytes of a member's memory into a dense buffer. False: they do not count, ask by a message.

        The buffer's content is undefined then, as it may be for a Get that is not complete."""
        place = self._places.get((window, rank))
        if place is None:
            return False
        badge, address, nbytes, epoch_at, member_at, _ = place
        if offset + into.nbytes > nbytes:
            return False  # cannot be: the bounds were checked; a message brings the error
        try:
            self._reader.read(badge, address + offset, into.view())
            epoch = self._number(badge, epoch_at)
            member = self._number(badge, member_at)
        except PermissionError:
            self._refused.add((window, rank))
            del self._places[window, rank]
            return False
        except OSError:  # the process is gone, or its memory
            del self._places[window, rank]
            return False
        if member != _HERE or epoch > self._port.endpoint.epoch:
            return False
        self._port.counts["window_reads"] += 1
        return True

    def _number(self, badge: bytes, address: int) -> int:
        self._reader.read(badge, address, self._cell)
        return int.from_bytes(self._cell, "little")


def reads_of(engine: Engine) -> DirectReads | None:
    """The reads of this process; None where there is no transport between processes, or no such system call."""
    windows = engine.windows
    if windows.direct is None:
        progress = engine.progress
        if not isinstance(progress, BetweenProcesses) or progress.port is None or not available():
            return None
        windows.direct = DirectReads(progress.port, progress.incarnation)
    reads: DirectReads = windows.direct
    return reads

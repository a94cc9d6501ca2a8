"""The seam between a port and whatever carries its frames.

A wire is one rank's attachment to the network: it has one address at which every peer reaches it, and it
carries whole frames (one or two parts) to peers that were named by `connect`. It may lose, duplicate, reorder
and corrupt frames; the endpoint above it repairs all of that. It must never block, never split or join frames
and never raise because of the network. What does not belong here: sequence numbers, retries, knowledge of
what is in a frame, threads, clocks.

How a port waits decides the shape of `receive` and `fileno`:

    receive() returned a frame   there may be more: call again
    receive() returned None      nothing is there, and from now on `fileno()` becomes readable (and stays so
    until the next
                                 receive) when a frame arrives; receive() in this state is cheap, so it can be
                                 polled

So a port spins on `receive` for a bounded time and then sleeps on `fileno()`, together with its other
descriptors. Nothing else may be assumed of the descriptor: it can be readable without a frame being there. A
wire through shared memory fits the same contract: `receive` looks at a ring, and the None that follows a look
arms the descriptor.

Ownership: buffers given to `send` stay untouched by their owner until the frame is acked at the level above,
but may be read by the wire later than that (an old copy of a retransmitted frame): wires keep them alive, and
their content may change then without harm, since the receiver drops duplicates by their head. Not
thread-safe: the port's lock guards it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from ckpt.transport.errors import WireClosed
from ckpt.transport.protocol.state import Buffer

Frame = Sequence[Buffer]


class Wire(Protocol):
    """One rank's attachment to the network. See the module's description for the contract."""

    @property
    def address(self) -> str:
        """Where peers reach this wire, to be handed to their `connect`."""
        ...

    def connect(self, rank: int, address: str) -> None:
        """From now on frames for `rank` go to `address`; frames still queued for its former address are
        forgotten.

        Raises AddressError for an address this kind of wire cannot reach; that nobody listens there is no
        error.
        """
        ...

    def renew(self, rank: int) -> None:
        """Nothing seems to reach `rank` any more: begin its connection anew, if there is something like that."""
        ...

    def send(self, rank: int, parts: Frame) -> bool:
        """Take one frame of one or two parts. False: congested or not connected yet, try the very same frame
        later.

        The first part is copied when small; a second part is always sent from where it lies.
        """
        ...

    def receive(self) -> Frame | None:
        """One frame, or None when there is none (which arms `fileno()`)."""
        ...

    def fileno(self) -> int:
        """Readable after `receive` returned None and a frame arrived since."""
        ...

    def deadline_ns(self) -> int | None:
        """When `receive` has to be called even if `fileno()` stays silent (monotonic clock), or None."""
        ...

    def counters(self) -> dict[str, int]:
        """What this wire counts, by name."""
        ...

    def close(self) -> None:
        """Let go of everything; what is still queued is lost. Idempotent."""
        ...


class ProcessGuard:
    """Remembers the process that opened a resource; a forked child must not touch it.

    A checkpoint's child is a fork of the rank. Sockets shared with it would corrupt the parent's traffic.
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    def mine(self) -> bool:
        """Is this still the process that opened it?"""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise WireClosed in a forked child."""
        if os.getpid() != self._pid:
            raise WireClosed(
                f"{self._what} was opened by process {self._pid}; a forked child must not touch it"
            )

"""The interface between a port and the wire that carries its frames.

A wire is one rank's attachment to the network: it has one address at which every peer reaches it, and it carries whole
frames to peers that were named by `connect`. A port's frames have one or two parts; a wire that stands on another wire may
send frames of three parts (`directwire.py`). A wire may lose, duplicate, reorder and corrupt frames; the endpoint above it
repairs all of that. A wire must never block, never split or join frames and never raise because of the network. What does
not belong here: sequence numbers, retries, knowledge of the content of a frame, threads, clocks.

How a port waits decides the shape of `receive` and `fileno`:

    receive() returned a frame   there may be more: call again
    receive() returned None      nothing is there, and from now on `fileno()` becomes readable when a frame
                                 arrives (and stays so until the next receive); receive() in this state is
                                 cheap, so it can be polled

So a port spins on `receive` for a bounded time and then sleeps on `fileno()`, together with its other
descriptors. Nothing else may be assumed of the descriptor: it can be readable without a frame being there. Between the
None and the sleep it calls `deadline_ns`, where a wire may arm its descriptor: a wire through shared memory (`ringwire.py`)
tells its peers there that they have to wake it, which costs them a system call, and costs none while it spins.

Ownership: the owner of a buffer given to `send` leaves it unchanged until the endpoints have acknowledged the message. The
wire may read the buffer later than that (an old copy of a retransmitted frame): wires keep buffers alive, and
a change of their content does no harm then, since the receiver drops a duplicate by its head. A wire is not
thread-safe: the port's lock guards it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import NoReturn, Protocol

from ckpt.transport.errors import WireClosed
from ckpt.transport.protocol.state import Buffer

Frame = Sequence[Buffer]


class Wire(Protocol):
    """One rank's attachment to the network. See the module's description for the contract."""

    @property
    def address(self) -> str:
        """The address at which peers reach this wire; it is the argument of their `connect`."""
        ...

    def connect(self, rank: int, address: str) -> None:
        """Send frames for `rank` to `address` from now on; frames still queued for its former address are dropped.

        Raises AddressError for an address that this kind of wire cannot reach. An address at which no wire listens is no
        error. The connection itself may be opened as late as the first `send`.
        """
        ...

    def renew(self, rank: int) -> None:
        """Nothing seems to reach `rank` any more: close its connection and open it again, if the wire has connections."""
        ...

    def send(self, rank: int, parts: Frame) -> bool:
        """Take one frame (see the module for the number of parts). False: the peer's queue is full or its connection is
        not up yet; the caller offers the very same frame again later.

        Raises TooManyConnections if this would be the first frame for that peer and the process may open no more files.
        Whether the wire copies a part or sends it from the caller's memory is its own matter: see the module, Ownership.
        """
        ...

    def receive(self) -> Frame | None:
        """One frame, or None when there is none (which arms `fileno()`)."""
        ...

    def spin(self, end_ns: int) -> None:
        """A short part of a wait that does not sleep, at most to `end_ns` (monotonic clock): let other processes run, or
        look for frames in a way that costs less than `receive`. The caller calls `receive` next."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable when a frame has arrived since `receive` returned None."""
        ...

    def deadline_ns(self) -> int | None:
        """Time (monotonic clock, ns) at which `receive` has to be called even if `fileno()` is not readable, or None.

        Called before each sleep on `fileno()`; a time in the past says that a frame is there.
        """
        ...

    def counters(self) -> dict[str, int]:
        """The counters of this wire, by name."""
        ...

    def close(self) -> None:
        """Free all resources; frames still queued are lost. Idempotent."""
        ...


def refuse_closed(*_: object) -> NoReturn:
    """A wire is used after `close`. Raises WireClosed; in another thread than the main one SystemExit.

    Why: whoever closes a rank's wire has waited for all threads but daemons. What a daemon does then is of no use to
    anybody, and Python, too, ends it without a word: no handler of the thread may take this for a failure."""
    if threading.get_ident() != threading.main_thread().ident:
        raise SystemExit
    raise WireClosed("this wire is closed")


class ProcessGuard:
    """Remembers the process that opened a resource; a forked child must not touch it.

    A checkpoint's child is a fork of the rank. Sockets shared with it would corrupt the parent's traffic.
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    def mine(self) -> bool:
        """Is this still the process that opened the resource?"""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise WireClosed in a forked child."""
        if os.getpid() != self._pid:
            raise WireClosed(
                f"{self._what} was opened by process {self._pid}; a forked child must not touch it"
            )

"""The seam to what carries messages.

A `Progress` delivers messages exactly once and in order per pair of ranks. It hands arriving messages to
`Engine.on_messages` under `lock`. The main thread holds `lock` during a whole library call, waiting included.

`block` is the one place inside the library where a process image may be taken: all frames between the
user's call and `block` must be plain Python frames whose locals can be pickled (no generator, no
comprehension over something that blocks, no C function that calls back, no memoryview). After a restart the
call simply returns, in another process.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, TypeAlias

__all__ = ["Buffer", "Lock", "Progress"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes. Whoever receives one must not write to it."""


class Lock(Protocol):
    """What the engine uses of a `threading.Lock`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Progress(Protocol):
    """What the engine needs from below. Every method is called with `lock` held by the calling thread."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def lock(self) -> Lock: ...

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        """Enqueue the message `data` followed by `payload` for rank `dst` and return its sequence number.

        Never blocks; an idle link transmits soon without further calls. `payload` is kept by reference: it
        must stay unchanged until `acked(dst)` is above the sequence number. May be called from within
        `Engine.on_messages`.
        """

    def acked(self, dst: int) -> int:
        """All messages to `dst` with sequence numbers below this one are acknowledged."""

    def release(self, dst: int, sequence: int) -> bool:
        """Give the memory of the message's `payload` back before it is acknowledged, keeping a copy. False: not
        yet, it is being sent; ask again after a `poll` or `block`."""

    def backlog_bytes(self, dst: int) -> int:
        """Bytes to `dst` that are queued or not yet acknowledged."""

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        """The program took this much out of the mailbox: flow-control credit goes back to `src`."""

    def poll(self) -> None:
        """Make progress without waiting."""

    def block(self, hungry: bool) -> None:
        """Wait until any progress was made. MAY TAKE A PROCESS IMAGE.

        hungry: receives are posted and nothing in the mailbox matches them, so more credit must be granted
        however full the mailbox is. Callers re-check their condition in a loop.
        """

"""The interface between ckpt.mpi and the transport.

A `Progress` delivers messages exactly once, and in order for each pair of ranks. It passes arriving messages to
`Engine.on_messages` with `lock` held. The main thread holds `lock` during a whole library call, also while it waits.

`block` is the only place inside the library where a process image may be taken. Therefore all stack frames between the
user's call and `block` must be plain Python frames whose local variables can be pickled (no generator, no comprehension
over something that blocks, no C function that calls back, no memoryview). After a restart, `block` returns in the new
process as it would have returned in the old one.

Not here: the implementation (the rank's runtime over ckpt.transport; tests have others).
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, TypeAlias

__all__ = ["Buffer", "Lock", "Placed", "Progress"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes. A function that is given a Buffer must not write to it."""


class Placed(Protocol):
    """A message whose payload is in the program's memory already: `spot` is what was named for it. Its length includes
    the envelope, which is `head`."""

    @property
    def head(self) -> bytes: ...
    @property
    def spot(self) -> Any: ...
    def __len__(self) -> int: ...


class Lock(Protocol):
    """The methods of a `threading.Lock` that the engine uses."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Progress(Protocol):
    """The engine's requirements on the transport. The caller of every method holds `lock`."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def lock(self) -> Lock: ...

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        """Enqueue the message `data` followed by `payload` for rank `dst` and return its sequence number.

        `send` never blocks, and needs no further call to transmit on an idle link. `payload` is kept by reference: it
        must stay unchanged until `acked(dst)` is above the sequence number. `Engine.on_messages` may call `send`.
        """

    def acked(self, dst: int) -> int:
        """A sequence number: all messages to `dst` with smaller sequence numbers are acknowledged."""

    def release(self, dst: int, sequence: int) -> bool:
        """Copy the `payload` of message `sequence`, so that the program may use its memory before the acknowledgement.

        False: the payload is being sent, and cannot be copied now; call again after a `poll` or `block`."""

    def backlog_bytes(self, dst: int) -> int:
        """Number of bytes to `dst` that are queued, or sent and not acknowledged."""

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        """The program has taken `nmessages` messages of `src`, of `nbytes` bytes in total, from the mailbox.

        The rank `src` gets that much flow-control credit back."""

    def poll(self) -> None:
        """Make progress without waiting."""

    def block(self, hungry: bool, awaited: Any = None) -> None:
        """Wait until some progress is made. THIS CALL MAY TAKE A PROCESS IMAGE.

        hungry: receives are posted and no message in the mailbox matches them. So the peers must get more credit, even
        if the mailbox is full. awaited: the operation that the caller waits for; None: any progress. It may be woken for
        other progress, too. Callers test their condition again in a loop.
        """

    def wake(self) -> None:
        """Make `block` return soon in the thread that waits there, which then looks for what was posted to handlers.

        From any thread, with or without `lock`."""

"""The windows (one-sided communication) of one engine, by number, and the messages that come for them.

A message of kind `envelope.WINDOW` is handled at once, under the engine's lock, by the thread that makes progress: also
by the helper thread, while the program computes. So an image holds the message and the change it makes, or neither.
What handles a message may send, but never waits, and reports an error to the sender instead of raising it.

    unknown    a peer that was faster sends already: its messages are kept until the window is opened here
    open       messages are handled
    removed    freed by all members, and nothing comes any more

Where several processes must handle the same requests in the same order, `ordered` gets each request when it comes, also
those of this rank to itself, and calls `handle` when it is its turn. Answers to this rank's own requests need no order.
A request that changes a parallel file (`envelope.FILE_WRITE`) is not handled so: one of the processes makes the change
(`change`), and all of them tell the sender what came of it (`changed`).

Not here: what a window is (ckpt/mpi/members/state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ckpt.mpi.base import envelope
from ckpt.mpi.base.progress import Buffer


class Window(Protocol):
    """What the engine needs of an open window."""

    number: int

    @property
    def is_dynamic(self) -> bool:
        """Are displacements in it what `MPI.Get_address` has told?"""

    def on_message(self, src: int, data: Buffer) -> None: ...
    def lost(self, ranks: Sequence[int]) -> None: ...
    def revoke(self) -> None: ...

    def open_memory(self) -> list[Any]:
        """The memory (`BufferSpec`) that messages may change at any moment."""

    def change(self, data: Buffer) -> bytes: ...
    def changed(self, src: int, data: Buffer, failure: bytes) -> None: ...


class Windows:
    """The open windows of one rank. Every method needs the engine's lock.

    `awaited`: number of answers that the program waits for or will wait for. While there are some and the program waits,
    the peers get more credit, because an answer may come behind messages that nobody receives."""

    __slots__ = ("addresses", "awaited", "direct", "disk", "early", "open", "ordered", "refusal")

    def __init__(self) -> None:
        self.open: dict[int, Window] = {}
        self.early: dict[int, list[tuple[int, bytes]]] = {}
        self.addresses: Any = None
        """What the program was told of addresses (ckpt/mpi/datatypes/addresses.py); None: nothing."""
        self.awaited = 0
        self.direct: Any = None
        """What reads the memory of other processes (ckpt/mpi/rma/direct.py). Not part of the image."""
        self.disk: Any = None
        """What changes files where several processes are this rank: `Disk` (ckpt/mpi/base/layer.py); None: this process
        alone. Not part of the image."""
        self.refusal = ""
        """Why this process can have no windows; empty: it can. Not part of the image."""
        self.ordered: Callable[[int, Buffer], None] | None = None
        """Who decides when a request of a world rank is handled; None: at once. Not part of the image."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("addresses", "awaited", "early", "open")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.addresses = state["addresses"]
        self.awaited, self.early, self.open = state["awaited"], state["early"], state["open"]

    def on_message(self, src: int, data: Buffer) -> None:
        """A message of world rank `src` has come."""
        if self.ordered is not None and envelope.unpack(data)[2] <= envelope.WINDOW_REQUESTS:
            self.ordered(src, data)
        else:
            self.handle(src, data)

    def handle(self, src: int, data: Buffer) -> None:
        """Handle a message of world rank `src`, or keep it for a window that is not open yet."""
        number = envelope.unpack(data)[3]
        window = self.open.get(number)
        if window is not None:
            window.on_message(src, data)
        else:
            self.early.setdefault(number, []).append((src, bytes(data)))

    def change(self, data: Buffer) -> bytes:
        """Make the change of a file that this request asks for. Returns what has gone wrong, packed; empty: nothing."""
        return self.open[envelope.unpack(data)[3]].change(data)

    def changed(self, src: int, data: Buffer, failure: bytes) -> None:
        """Tell world rank `src` what came of its request."""
        self.open[envelope.unpack(data)[3]].changed(src, data, failure)

    @property
    def tells_numbers(self) -> bool:
        """Several processes are this rank, and what it is told of addresses may become a displacement."""
        return self.ordered is not None and any(each.is_dynamic for each in self.open.values())

    def add(self, window: Window) -> None:
        """Open a window, and handle the messages that came before."""
        self.open[window.number] = window
        for src, data in self.early.pop(window.number, []):
            window.on_message(src, data)

    def remove(self, window: Window) -> None:
        """Forget a window that all members have freed."""
        self.open.pop(window.number, None)

    def lost(self, ranks: Sequence[int]) -> None:
        """World ranks have failed: end what needs them."""
        for window in list(self.open.values()):
            window.lost(ranks)

    def revoke(self, number: int) -> None:
        """The communicator of a window is revoked: end the operations under way."""
        if number in self.open:
            self.open[number].revoke()

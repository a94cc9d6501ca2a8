"""The engine's interface to active messages (ckpt/mpi/active/): where it hands a message or a death, what it asks before a
call.

`Engine.handlers` is `NoHandlers` until this rank makes its first channel of active messages. `Engine.guard` is None at all
times but these two: a handler runs, in whichever thread, or the program holds the handlers' lock; or the program's next
call has something to do first. `Engine.lock` is then the guard, too. So a call looks at one attribute, or at none if it
takes the lock anyway.

Not here: what calls handlers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ckpt.mpi.base.progress import Buffer, Lock

__all__ = ["Guard", "Handlers", "NoHandlers"]


class Guard(Lock, Protocol):
    """Stands in place of the engine's lock. Taking it does what `attend` does, and what `check` refuses."""

    def check(self) -> None:
        """Called without the lock, by a call that is about to change something without it. Raises NotInHandler where the
        calling thread runs a handler or holds the handlers' lock; otherwise does what `attend` does."""

    def attend(self) -> None:
        """Called with the lock. Begin the work of new channels; raise what a handler has raised."""


class Handlers(Protocol):
    """The handlers of one rank. Methods are called with the lock held, and raise nothing that a handler raises."""

    @property
    def in_use(self) -> bool:
        """Whether this rank has a channel of active messages, or a message for one."""

    def on_message(self, src: int, data: Buffer) -> None:
        """An active message of the world rank `src`, with its envelope, has arrived."""

    def on_failed(self, ranks: Iterable[int]) -> None:
        """These world ranks are dead."""

    @property
    def posted(self) -> Sequence[object]:
        """What threads have posted to handlers, and nobody has taken yet."""

    def run(self) -> None:
        """Make all calls that are due."""

    def resume(self) -> None:
        """The program of an image goes on: what has come since then may be handled."""

    def stop(self) -> None:
        """The program of every rank has ended: from now on nothing is handled. Raises what a handler has raised."""


class NoHandlers:
    """The handlers of a rank that has made no channel: what comes for its channels is kept in `early`, with its source."""

    __slots__ = ("early",)
    posted: Sequence[object] = ()

    def __init__(self) -> None:
        self.early: list[tuple[int, Buffer]] = []

    @property
    def in_use(self) -> bool:
        return bool(self.early)

    def on_message(self, src: int, data: Buffer) -> None:
        self.early.append((src, bytes(data)))

    def on_failed(self, ranks: Iterable[int]) -> None:
        pass  # a channel asks for the dead when it starts

    def run(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def stop(self) -> None:
        pass

"""What a rank offers to those that take its images, and what it needs of a program that saves itself.

:class:`ckpt.rank.runtime.Runtime` is the rank. The rooms below name the protocols only, so that imports run one way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

from ckpt.capture.hooks import Hooks
from ckpt.capture.threads import HarmlessThreads

if TYPE_CHECKING:
    from ckpt.capture.imager import Imager
    from ckpt.mpi.engine.engine import Engine
    from ckpt.transport.driver.port import Port

__all__ = ["Control", "RankContext", "ReplayedProgram"]


class Control(Protocol):
    """The way to the controller."""

    def send(self, packet: dict[str, Any]) -> bool:
        """``False``: there is nobody to take it."""


class ReplayedProgram(Protocol):
    """A program that saves what it registers, between two steps of its loops (:mod:`ckpt.replay.program`)."""

    def wanted(self, epoch: int) -> None:
        """An image of this epoch is wanted."""

    def blocked(self) -> bool:
        """The program waits in the library. ``True``: an image was taken, or given up."""

    def problem(self) -> str:
        """Why no image can be taken at this boundary; empty: it can."""

    def settle(self) -> None:
        """Before the port is frozen."""

    def prepare(self, port_state: Any) -> Any:
        """Just before the fork: what the image will hold."""


class RankContext(Protocol):
    """One rank of a job."""

    spec: dict[str, Any]
    """What the agent has started this rank with."""

    rank: int
    incarnation: int
    lock: Lock
    """Held by the main thread during library calls, and by whoever else looks into the rank."""

    registered: dict[str, object]
    finished_code: int | None
    """The program's exit code, once it has ended."""

    alone: bool
    """There is no controller: nobody collects votes."""

    incomplete: bool
    """A rank has died and is not started again."""

    in_hook: bool
    """A hook of the program is running: nobody may wait for messages."""

    engine: Engine | None
    port: Port | None
    hooks: Hooks
    threads: HarmlessThreads
    imager: Imager
    send: Callable[..., int]
    consumed: Callable[[int, int, int], None]

    @property
    def control(self) -> Control: ...

    @property
    def explicit(self) -> ReplayedProgram | None:
        """Set when the program saves itself, in all ranks and from the start."""

    @property
    def live(self) -> Mapping[str, object]:
        """Objects that an image refers to by name, and that the resumed process replaces by its own."""

    def block(self, hungry: bool) -> None:
        """Wait until anything has happened. The caller holds ``lock``."""

    def frames_to_skip(self) -> Sequence[CodeType]:
        """Between a waiting library function and the capture: left out of an image."""

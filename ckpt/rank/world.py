"""The protocol (``typing.Protocol``) that the functions of `import ckpt` use.

Two classes implement the protocol: a rank of a job (:class:`ckpt.rank.runtime.Runtime`), and a program of one rank without
a job (:class:`ckpt.rank.standalone.Standalone`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ckpt.capture.context import RecordedFiles
from ckpt.capture.hooks import Hooks
from ckpt.capture.threads import HarmlessThreads

if TYPE_CHECKING:
    from ckpt.mpi.comm.communicator import Communicator
    from ckpt.mpi.engine.engine import Engine
    from ckpt.rank.commits import Commits, CommitsAtOnce
    from ckpt.replay.program import Replay

__all__ = ["World"]


class World(Protocol):
    """The job as the program sees it."""

    hooks: Hooks
    threads: HarmlessThreads
    restarts: int
    """How many times this job has been restarted so far."""

    @property
    def epoch(self) -> int:
        """The epoch of this rank's last image; 0 before the first."""

    @property
    def files(self) -> RecordedFiles: ...

    @property
    def commits(self) -> Commits | CommitsAtOnce:
        """The calls that wait for a commit."""

    @property
    def explicit(self) -> Replay | None:
        """Set where the program saves its registered objects itself (``ckpt run --explicit``); else ``None``."""

    @property
    def engine(self) -> Engine | None: ...

    @property
    def world(self) -> Communicator | None: ...

    def enter(self, explicit: bool) -> None:
        """The program asks for its communicator. Raises NotEnabled, ThreadsRunning."""

    def checkpoint(self, wait: bool = True) -> int | None:
        """Ask for a checkpoint of the whole job; returns the epoch, or None: see :func:`ckpt.checkpoint`."""

    def register(self, name: str, obj: object) -> object:
        """Register ``obj`` under ``name``; returns the object. Raises RegistrationError."""

    def log(self, packet: dict[str, Any]) -> None:
        """Send a packet to the controller: an entry for the event log, or a request. From any thread."""

    def spawn(self, packet: dict[str, Any] | None) -> str | None:
        """Ask the controller for processes; None: do not. Returns why there are none, or are not asked for; None: the answer
        will come to the engine. With the lock."""

    def abort(self, exit_code: int) -> NoReturn:
        """End all ranks, as MPI_Abort does."""

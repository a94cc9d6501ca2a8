"""Protocols (``typing.Protocol``): what a rank offers to the modules that take its images.

:class:`RankContext` is implemented by :class:`ckpt.rank.runtime.Runtime`, :class:`Control` by
:class:`ckpt.rank.channel.control.ControlChannel` and :class:`ReplayedProgram` by :class:`ckpt.replay.program.Replay`.
Modules of `ckpt/capture` and `ckpt/replay` name the protocols only, so that imports run one way.
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
    from ckpt.mpi.base.layer import Layer
    from ckpt.mpi.engine.engine import Engine
    from ckpt.shared_memory.host import HostMemory
    from ckpt.transport.driver.port import Port

__all__ = ["AwaitedCommits", "Control", "RankContext", "RecordedFiles", "ReplayedProgram"]


class Control(Protocol):
    """The rank's channel to the controller."""

    def send(self, packet: dict[str, Any]) -> bool:
        """Send one packet to the controller. ``False``: the other end of the channel is closed."""


class ReplayedProgram(Protocol):
    """A program that saves the objects it has registered, between two steps of its loops (:mod:`ckpt.replay.program`).

    Such a program is called *explicit*, after ``ckpt run --explicit``. A *boundary* is the moment between two steps.
    """

    def wanted(self, epoch: int) -> None:
        """An image of this epoch is wanted."""

    def blocked(self) -> bool:
        """The program waits inside a library call. ``True``: the image was taken, or the rank has given it up."""

    def problem(self) -> str:
        """Why no image can be taken at this boundary; empty: an image can be taken."""

    def before_image(self) -> None:
        """Called before the port is frozen."""

    def prepare(self, port_state: Any) -> Any:
        """Called just before the fork: returns the content of the image."""


class RecordedFiles(Protocol):
    """The undo log of the rank's files (:mod:`ckpt.rank.files`)."""

    def start(self) -> None:
        """The program is about to begin, or to go on: record changes from now on."""

    def make_ready(self) -> None:
        """An image is near: what can be made before it, is."""

    def rehearse(self) -> None:
        """Do what has no effect of :meth:`cut`: see :meth:`ckpt.capture.taker.Taker.rehearse`."""

    def cut(self, epoch: int) -> bytes | None:
        """An image of this epoch is taken; the program stands still. Returns the record of
        :mod:`ckpt.image.process.moment`, if one was made that is still right."""

    def uncut(self, epoch: int) -> None:
        """The image could not be taken, and the program still stands still: as if :meth:`cut` had not been called."""

    @property
    def is_tick_due(self) -> bool:
        """Is there anything to do for :meth:`tick`?"""

    def tick(self) -> None:
        """The program has gone on after a :meth:`cut`: do what could wait until then. Under the lock."""

    def label(self, epoch: int) -> None:
        """The rank takes the number of this epoch without an image. Implies :meth:`aborted`."""

    def committed(self, epoch: int) -> None:
        """The line of this epoch is committed."""

    def aborted(self, epoch: int) -> None:
        """There will be no line of this epoch."""

    def keep(self, patterns: Sequence[str]) -> None:
        """What has changed in the files that match since the last checkpoint, too, stays. ``patterns``: absolute ones."""

    def status(self) -> dict[str, int] | None:
        """Numbers for `ckpt status`; None: nothing is recorded."""

    def look_at_changes(self) -> None:
        """The image of the last :meth:`cut` is about to be written: look at what this rank has changed last."""

    def seal(self) -> dict[str, Any] | None:
        """The image of the last :meth:`cut` is written: make durable what was kept before it. Returns what the manifest says
        of files (``formats.FILES`` of :mod:`ckpt.store.records`)."""


class AwaitedCommits(Protocol):
    """The rank's calls that wait for a commit (:mod:`ckpt.rank.commits`)."""

    def taken(self, epoch: int) -> object:
        """An image of this epoch is prepared: what it holds of them."""


class RankContext(Protocol):
    """One rank of a job."""

    spec: dict[str, Any]
    """The start parameters that the agent has given to this rank."""

    rank: int
    incarnation: int
    lock: Lock
    """Held by the main thread during library calls, but not while it sleeps there; by any other thread while it reads or
    changes the rank's state."""

    registered: dict[str, object]
    finished_code: int | None
    """The program's exit code, once it has ended."""

    ended: tuple[int, str] | None
    """The exit code and the traceback ("": none), once the program's main thread has ended; its other threads may go on."""

    alone: bool
    """There is no controller any more: nobody collects votes."""

    incomplete: bool
    """There are no more images: the program has started processes, or a rank of a job that saves itself explicitly has died
    and is not started again."""

    in_hook: bool
    """A hook of the program is running: the program may not wait for messages."""

    engine: Engine | None
    port: Port | None
    hooks: Hooks
    threads: HarmlessThreads
    imager: Imager
    send: Callable[..., int]
    consumed: Callable[[int, int, int], None]

    @property
    def control(self) -> Control: ...

    def look_at_mapped_files(self) -> None:
        """A checkpoint is near: let the other ranks of this host know which files are mapped here for shared writing."""

    def on_mapped(self, fd: int) -> None:
        """The program is about to map a file for shared writing. From any thread."""

    @property
    def memory_in_use(self) -> HostMemory | None:
        """The memory that this rank shares with others of its host now; None: it shares none."""

    @property
    def files(self) -> RecordedFiles: ...

    @property
    def commits(self) -> AwaitedCommits: ...

    @property
    def explicit(self) -> ReplayedProgram | None:
        """Set when the program is explicit (:class:`ReplayedProgram`), in all ranks and from the start; else ``None``."""

    @property
    def program_rank(self) -> int:
        """The rank that the program sees: `rank`, but where several processes compute each rank."""

    @property
    def takes_images(self) -> bool:
        """False: other processes compute this rank, too, and one of them takes its images."""

    @property
    def layer(self) -> Layer | None:
        """What is under the engine where the ranks of the program are not the processes."""

    @property
    def live(self) -> Mapping[str, object]:
        """Objects that an image holds by name only (persistent ids). A resumed process puts its own objects there."""

    def enter_from_outside(self) -> bool:
        """Take ``lock`` unless a thread of the program has it, or the main thread waits inside of the library."""

    def block(self, hungry: bool) -> None:
        """Wait until a message, an acknowledgement or a packet of the controller has been handled.

        The caller holds ``lock``. ``hungry``: the program waits for a message that is not in the mailbox.
        """

    def frames_to_skip(self) -> Sequence[CodeType]:
        """Code of the runtime's functions whose frames lie between a waiting library call and the capture of the stack.

        These frames are left out of an image.
        """

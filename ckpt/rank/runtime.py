"""The runtime of one rank: binds the port, the communicator's engine, the image and the control channel. (driver)

Who makes progress
    The main thread holds ``lock`` during every library call and drives the port itself; it lets go of the lock while it
    sleeps there. Outside the library, the port's helper thread drives it and obeys the controller. Both reach this module
    under ``lock``. Another thread that waits in the library drives nothing: it waits beside (:meth:`Runtime.block`), at a
    lock of its own, which an image can have like any other lock that the program waits for. So the main thread alone takes
    images, whatever the threads do.

A rank whose agent is gone stops itself (fencing).

This module is long because port, engine, images and control channel of a rank meet in one object, under one lock.

Not here: what packets mean (:mod:`ckpt.rank.packets`), waits of other threads (:mod:`ckpt.rank.beside`), how an image is
taken (:mod:`ckpt.capture.imager`), how a rank is started or resumed (:mod:`ckpt.rank.boot`), matching and collectives
(:mod:`ckpt.mpi`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt.capture.context import RecordedFiles
from ckpt.capture.hooks import Hooks
from ckpt.capture.imager import Imager
from ckpt.capture.memory import number_of, shared_files
from ckpt.capture.threads import HarmlessThreads
from ckpt.compat.threads import captured_in_threads
from ckpt.errors import CkptError, ControlLost, NotEnabled
from ckpt.rank import asking
from ckpt.rank.beside import NO_PORT, wait_beside
from ckpt.rank.channel import reports
from ckpt.rank.channel.control import ControlChannel, Packet
from ckpt.rank.channel.held_output import HeldOutput
from ckpt.rank.commits import Commits
from ckpt.rank.files import NoFiles
from ckpt.rank.packets import EXIT_FENCED, obey, on_event

if TYPE_CHECKING:
    from ckpt.mpi.base.layer import Layer, OfLayer
    from ckpt.mpi.comm.communicator import Communicator
    from ckpt.mpi.engine.engine import Engine
    from ckpt.replay.program import Replay
    from ckpt.shared_memory.host import HostMemory
    from ckpt.transport.driver.port import Port

__all__ = ["Runtime", "current", "install"]

Buffer = bytes | bytearray | memoryview

_EXPLICIT = "a program that saves itself explicitly says with messages what its images are to have"
_LAYER_TICK_NS = 50_000_000


class Runtime:
    """One rank of a job. Implements the communicator's ``Progress`` protocol.

    The main thread holds ``lock`` in library calls. ``live``: name → object of this process, in images by its name only.
    """

    def __init__(self, spec: Mapping[str, Any], control: ControlChannel) -> None:
        self.spec = dict(spec)
        self.options: dict[str, Any] = dict(spec.get("options") or {})
        self.rank: int = spec["rank"]
        self.size: int = spec["size"]
        self.incarnation: int = spec["incarnation"]
        self.restarts: int = spec["restarts"]
        self.lock = threading.Lock()
        self.control = control
        self.registered: dict[str, object] = {}
        self.finished_code: int | None = None
        self.ended: tuple[int, str] | None = None
        self.released = self.is_final = self.alone = False
        self.incomplete = self.has_spares = "parent" in spec
        """Processes were started while the job ran: there are no images from then on."""
        self.pid = os.getpid()
        self.engine: Engine | None = None
        self.world: Communicator | None = None
        self.port: Port | None = None
        self.hooks = Hooks()
        self.threads = HarmlessThreads(self.options.get("harmless_threads", ()))
        self.explicit: Replay | None = None
        """Set when the program saves itself explicitly, in all ranks and from the start."""
        if self.options.get("explicit"):
            from ckpt.replay.program import Replay

            self.explicit = Replay(self)
        self.early: list[Packet] = []  # what the controller has said while the image was loaded
        self.said_hello: Callable[[], None] = lambda: None  # returns when the rank may go on
        self._in_hook = False
        self.are_all_loaded = False
        """All ranks have said hello: the controller has told their addresses."""
        self._shared_memory: HostMemory | None = None
        self.layer: Layer | None = None
        """Set from the start where the program's ranks are not the processes (:mod:`ckpt.mpi.base.layer`)."""
        if spec.get("layer"):
            from ckpt.rank.layers import attach

            self.layer = attach(self)
        self.imager = Imager(self)
        self.files: RecordedFiles = NoFiles()
        self.commits = Commits(self)
        self.outputs = HeldOutput(self.lock, control)
        self._main_ident = threading.main_thread().ident
        self.is_main_hungry = False
        self.look_beside: Callable[[], bool] | None = None
        """Replaces the engine's look when a thread waits beside for the first time: it is for the main thread."""
        self.send: Callable[..., int] = _no_port

    # ------------------------------------------------------------------ assembling

    @property
    def live(self) -> dict[str, object]:
        named: dict[str, object] = {"ckpt.runtime": self, "ckpt.runtime.lock": self.lock}
        if self.layer is not None:
            named["ckpt.layer"] = self.layer
        if self.engine is not None:
            named |= {f"ckpt.mpi{slot}": comm for slot, comm in self.engine.predefined.items()}
        return named

    @property
    def epoch(self) -> int:
        """The epoch of the last image this rank has captured."""
        return self.imager.epoch

    @property
    def program_rank(self) -> int:
        """See :attr:`ckpt.capture.context.RankContext.program_rank`."""
        return self.rank if self.layer is None else self.layer.rank

    @property
    def in_hook(self) -> bool:
        """A hook of the program is running: the program may not wait for messages."""
        return self._in_hook

    @in_hook.setter
    def in_hook(self, is_running: bool) -> None:
        self._in_hook = is_running
        if self.port is not None and self.port.boards is not None:
            self.port.boards.host.is_closed = is_running

    @property
    def is_thread_multiple(self) -> bool:
        """May several threads of the program be in the library at once (MPI_THREAD_MULTIPLE)?"""
        return self.layer is None and self.explicit is None

    @property
    def shared_memory(self) -> HostMemory | None:
        """The memory that ranks of this host can share; None: there is none."""
        place = self.spec.get("shared_memory")
        if self._shared_memory is None and place and self.layer is None:
            from ckpt.shared_memory.host import HostMemory

            self._shared_memory = HostMemory(self, tuple(place), self.rank, self.lock)
        return self._shared_memory

    def look_at_mapped_files(self) -> None:
        """See :meth:`ckpt.capture.context.RankContext.look_at_mapped_files`."""
        if self.spec.get("local_size", 1) < 2 or self.explicit is not None:
            return
        files = frozenset(number_of(os.stat(path)) for path in shared_files() if os.path.exists(path))
        if (files or self._shared_memory is not None) and self.shared_memory is not None:
            self.shared_memory.map_files(files)

    def on_mapped(self, fd: int) -> None:
        """See :meth:`ckpt.capture.context.RankContext.on_mapped`."""
        if self.spec.get("local_size", 1) > 1 and self.explicit is None and self.shared_memory is not None:
            with contextlib.suppress(OSError):
                self.shared_memory.map_files(frozenset([number_of(os.fstat(fd))]), all_of_them=False)

    @property
    def memory_in_use(self) -> HostMemory | None:
        """See :attr:`ckpt.capture.context.RankContext.memory_in_use`."""
        memory = self._shared_memory
        return memory if memory is not None and memory.is_in_use else None

    @property
    def takes_images(self) -> bool:
        """See :attr:`ckpt.capture.context.RankContext.takes_images`."""
        return not self.has_spares if self.layer is None else self.layer.takes_images

    def load(self, extras: Mapping[str, Any], epoch: int) -> None:
        """Take over what the image of `epoch` has of the runtime (:func:`ckpt.capture.description.extras`)."""
        self.registered = extras["ckpt.registered"]
        self.hooks = extras["ckpt.hooks"]
        self.hooks.use_again()
        self.commits.load(extras["ckpt.commits"], epoch)
        self.threads.allow(*extras["ckpt.threads"])
        self.finished_code = extras["ckpt.finished"]
        self.ended = extras["ckpt.ended"]

    def bind(self, port: Port, engine: Engine, world: Communicator, of_layer: OfLayer = None) -> None:
        """Connect the parts, tell the agent the address of this rank and start the port's helper thread."""
        self.port, self.engine, self.world = port, engine, world
        port.on_messages = engine.on_messages
        port.on_event = functools.partial(on_event, self)
        port.on_control = self._on_control
        port.on_idle_tick = self._tick
        port.on_helped = engine.tell = self.tell_waiting
        port.control_fd = self.control.fileno()
        # bound methods, looked up once: the communicator calls them for every message
        self.send = port.send
        self.wake: Callable[[], None] = port.wake
        self.acked: Callable[[int], int] = port.endpoint.base
        self.release: Callable[[int, int], bool] = port.endpoint.release
        self.backlog_bytes: Callable[[int], int] = port.endpoint.backlog_bytes
        self.consumed: Callable[[int, int, int], None] = port.endpoint.consumed
        if self.explicit is not None:
            port.on_messages = self.explicit.install(engine.on_messages)
            engine.windows.refusal = _EXPLICIT
        elif self.layer is not None:
            port.on_messages = self.layer.on_messages
            port.attentive_ns = _LAYER_TICK_NS
            self.layer.bind(engine, of_layer)
        else:
            from ckpt.rank.network import open_fast_paths

            self.look_beside = open_fast_paths(self, port, engine)
            if of_layer is not None:
                of_layer.deliver(self.report)
        self.control.send(reports.hello(self.rank, self.incarnation, port.wire.address))
        self.said_hello()
        asking.ask_again(self)
        port.interrupts.install()
        port.start_helper()

    def _tick(self) -> None:
        """The housekeeping of the port's helper thread."""
        if (self.layer is not None or self.files.is_tick_due) and self.enter_from_outside():
            try:
                if self.layer is not None:
                    self.layer.tick()
                if not self.imager.taker.is_writing_here:  # the image names the log that this closes
                    self.files.tick()
            finally:
                self.lock.release()
        self.outputs.tick()
        self.commits.tick()
        self.imager.tick()

    # ------------------------------------------------------------------ progress

    def poll(self) -> None:
        """Progress without waiting. The caller holds ``lock``."""
        assert self.port is not None
        if self.port.progress():
            self.tell_waiting()

    def tell_waiting(self) -> None:
        """Progress was made: wake the threads that wait for it. The caller holds ``lock``."""
        port, engine = self.port, self.engine
        if port is not None and port.waiters.entries and engine is not None:
            port.waiters.wake(engine.is_due)

    def enter_from_outside(self) -> bool:
        """Take ``lock`` unless a thread of the program has it, or the main thread waits inside of the library."""
        if not self.lock.acquire(blocking=False):
            return False
        if self.port is None or not self.port.interrupts.sleeping:
            return True
        self.lock.release()
        return False

    @captured_in_threads
    def block(self, hungry: bool, awaited: Any = None, longest_ns: int | None = None) -> None:
        """Wait until a message, an acknowledgement or a packet of the controller has been handled, or `longest_ns` are over.
        `awaited`: see :meth:`ckpt.mpi.base.progress.Progress.block`.

        An image may be taken here. The caller holds ``lock``, which is free for others meanwhile. ``hungry``: no message in
        the mailbox matches, so the port accepts more than the credit allows. Raises CkptError in hooks, and without a port.
        """
        if get_ident() != self._main_ident:
            wait_beside(self, hungry, awaited)  # nothing else: an image has this frame
            return
        port = self.port
        if port is None:
            raise CkptError(NO_PORT)
        if self.in_hook:
            raise CkptError(
                "an on_checkpoint hook or a function of when_committed must not wait for messages: the ranks may be in "
                "different ones"
            )
        self.outputs.write()
        if self.commits.in_call():
            return
        imager = self.imager
        imager.blocked()
        if imager.is_looking and imager.look("call"):
            return
        if self.finished_code is None:
            imager.rehearse()
        if hungry:
            port.endpoint.hungry(True, time.monotonic_ns())
            self.is_main_hungry = True
            try:
                port.wait(imager.wait_limit_ns())
            finally:
                self.is_main_hungry = False
                port.endpoint.hungry(port.waiters.are_hungry, time.monotonic_ns())
        else:
            port.wait(imager.wait_limit_ns() if longest_ns is None else longest_ns)
        if port.waiters.entries:
            self.tell_waiting()
            port.lead_beside()
        if self.engine is not None and self.engine.handlers.posted:
            self.engine.handlers.run()

    def frames_to_skip(self) -> Sequence[CodeType]:
        """See :meth:`ckpt.capture.context.RankContext.frames_to_skip`."""
        if self.layer is None:
            return (Runtime.block.__code__,)
        from ckpt.rank.layers import ProcessBelow

        return tuple(each.block.__code__ for each in (Runtime, type(self.layer), ProcessBelow))

    # ------------------------------------------------------------------ what arrives

    def report(self, name: str, **fields: object) -> None:
        """An entry for the job's event log, from a wire."""
        self.control.send(reports.event(name, **fields))

    def _on_control(self) -> None:
        try:
            packets = self.control.receive()
        except ControlLost as lost:
            self.leave(EXIT_FENCED, f"rank {self.rank}: {lost}; stopping")
        for packet in packets:
            obey(self, packet)

    # ------------------------------------------------------------------ what a program can ask

    def enter(self, explicit: bool) -> None:
        """See :meth:`ckpt.rank.world.World.enter`."""
        if self.explicit is not None:
            return
        if explicit:
            raise NotEnabled("the program saves itself explicitly: start it with `ckpt run --explicit`")
        from ckpt.image import refresh_modules

        self.threads.check()
        refresh_modules()  # now, so that the pause for the first image is shorter

    @captured_in_threads
    def checkpoint(self, wait: bool = True) -> int | None:
        """Ask the controller for a checkpoint of the whole job; see :func:`ckpt.checkpoint`."""
        return asking.checkpoint(self, wait, is_main=get_ident() == self._main_ident)

    def register(self, name: str, obj: object) -> object:
        """Register ``obj`` under ``name``: identifiers, separated by dots. Returns the object. Raises RegistrationError."""
        return asking.register(self, name, obj)

    def spawn(self, packet: Packet | None) -> str | None:
        """See :meth:`ckpt.rank.world.World.spawn`."""
        return asking.spawn(self, packet)

    def log(self, packet: Packet) -> None:
        """See :meth:`ckpt.rank.world.World.log`."""
        self.control.send(packet)

    def status(self) -> Packet:
        assert self.port is not None
        return reports.status(self.imager, self.port.counters(), self.files.status()) | self.hooks.said()

    # ------------------------------------------------------------------ the end

    def finish(self, exit_code: int) -> None:
        """The program has ended: acknowledge messages, call handlers and take images until every rank has finished. Raises
        what handlers raise."""
        assert self.engine is not None
        with self.lock:
            self.finished_code = exit_code
            if self.layer is not None:
                self.layer.ending(exit_code)
            self.control.send({"m": "finished", "exit_code": exit_code})
            while not self.released:
                self.engine.attend()
                self.block(False)
            self.engine.handlers.stop()
        if self.is_final:
            self.commits.call(all_requests=True)

    def settle(self, exit_code: int) -> None:
        """The program has ended, but for the calls that wait for a commit."""
        with self.lock:
            self.finished_code = exit_code
        self.commits.settle()

    def close(self, exit_code: int, traceback_text: str) -> None:
        """Close the port, and tell the controller of a failure. From here on nobody tells this rank to leave.

        After a failure the controller stops the other ranks, and waits for the end of this process.
        """
        if self.layer is not None and (exit_code or traceback_text):
            with self.lock:
                self.layer.ending(exit_code)
        if self.port is not None:
            self.port.close()
        if exit_code or traceback_text:
            self.control.send({"m": "error", "exit_code": exit_code, "traceback": traceback_text})

    def fail(self, exit_code: int, traceback_text: str) -> NoReturn:
        """The program wants all ranks to end now (MPI_Abort): tell the controller, which stops the others, and leave."""
        if self.layer is not None:
            self.lock.acquire(timeout=1)  # this thread may hold it: in a function that the library calls
            self.layer.ending(exit_code)
        self.control.send({"m": "error", "exit_code": exit_code, "traceback": traceback_text})
        self.leave(exit_code, None)

    def abort(self, exit_code: int) -> NoReturn:
        """See :meth:`ckpt.rank.world.World.abort`."""
        self.fail(exit_code & 0xFF or 1, f"MPI.Comm.Abort({exit_code}) was called\n")

    def leave(self, exit_code: int, reason: str | None) -> NoReturn:
        """End this process now, from any thread: flush output, run no finalizers. ``reason``: printed to stderr."""
        if reason:
            os.write(2, f"{reason}\n".encode(errors="replace"))
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, RuntimeError, AttributeError):
                continue  # closed, replaced or busy in the other thread: its buffered text is lost
        os._exit(exit_code)


def _no_port(dst: int, data: Buffer, payload: Buffer | None = None) -> int:
    raise CkptError(NO_PORT)


_current: list[Runtime] = []


def install(runtime: Runtime) -> None:
    """Make ``runtime`` the one that :func:`current` returns (a process is one rank for all its life)."""
    _current[:] = [runtime]


def current() -> Runtime | None:
    """The runtime of this process; ``None`` outside ``ckpt run``."""
    return _current[0] if _current else None

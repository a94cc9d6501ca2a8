"""The runtime of one rank: binds the port, the communicator's engine, the image and the control channel. (driver)

Who makes progress
    The main thread holds ``lock`` during every library call and drives the port itself; it lets go of the lock while it
    sleeps there. Outside the library, the port's helper thread drives it and obeys the controller. Both reach this module
    under ``lock``. Another thread that waits in the library drives nothing: it waits beside (:meth:`Runtime.block`), at a
    lock of its own, which an image can have like any other lock that the program waits for. So the main thread alone takes
    images, whatever the threads do.

Packets from the controller, and what the rank does
    ========== =================================================================================================
    packet     effect
    ========== =================================================================================================
    table      addresses and incarnations of the peers: given to the port
    ask        could an image of that epoch be taken? The rank answers ``ready`` as soon as it could
    checkpoint an image of that epoch is wanted (:mod:`ckpt.capture.imager` takes it as soon as the program can be captured)
    cut        explicit ranks: at which boundary the image is taken, or that all are there (:mod:`ckpt.replay.program`)
    abort      the epoch cannot commit any more: nobody waits for its image, frames of that epoch are accepted
    committed  calls that wait for a commit are made (:mod:`ckpt.rank.commits`)
    release    all ranks have finished: a rank that waits in :meth:`Runtime.finish` may leave
    alone      the controller is gone (until ``table`` comes again): nobody collects votes, so no image is wanted
    failed     these ranks are dead and are not started again: operations with them end, there are no more images
    layer      for the layer under the engine, if there is one (:mod:`ckpt.mpi.base.layer`)
    stop       leave at once, with the given exit code
    status     answer with counters and with where the program is
    ========== =================================================================================================

A rank whose agent is gone stops itself (fencing). A rank whose *controller* is gone goes on; the agent tells the rank
(``alone``).

This module is long because every packet, and every call that concerns the whole job, meets here.

Not here: how an image is taken (:mod:`ckpt.capture.imager`), how a rank is started or resumed (:mod:`ckpt.rank.boot`),
matching and collectives (:mod:`ckpt.mpi`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt.capture.context import RecordedFiles
from ckpt.capture.hooks import Hooks
from ckpt.capture.imager import Imager
from ckpt.capture.threads import HarmlessThreads
from ckpt.compat.threads import captured_in_threads
from ckpt.errors import CkptError, ControlLost, NotEnabled, RegistrationError
from ckpt.rank import reports
from ckpt.rank.commits import Commits
from ckpt.rank.control import ControlChannel, Packet
from ckpt.rank.files import NoFiles
from ckpt.rank.held_output import HeldOutput
from ckpt.transport.protocol.events import Event, ImageDue, Zombie

if TYPE_CHECKING:
    from ckpt.mpi.base.layer import Layer
    from ckpt.mpi.comm.communicator import Communicator
    from ckpt.mpi.engine.engine import Engine
    from ckpt.replay.program import Replay
    from ckpt.transport.driver.port import Port
    from ckpt.transport.driver.waiters import Bell

__all__ = ["Runtime", "current", "install"]

Buffer = bytes | bytearray | memoryview

_EXIT_FENCED = 70
_LAYER_TICK_NS = 50_000_000
_BESIDE_S = 0.5
"""A thread that waits beside looks at its condition this often, though nobody has woken it: so it goes on after a restart,
where nobody knows of it. A wait that ends while an image is prepared has the image looked for again, so not more often."""


class Runtime:
    """One rank of a job. Implements the communicator's ``Progress`` protocol.

    The main thread holds ``lock`` during library calls. ``live`` maps names to the objects that an image holds by name only
    (persistent ids); a resumed process puts its own objects there.
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
        self.released = self.is_final = self.alone = self.incomplete = False
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
        self._in_hook = False
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
        self._is_main_hungry = False
        self._look_beside: Callable[[], bool] | None = None
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
    def is_on_one_host(self) -> bool:
        """Are all ranks on this host, each of them one process that is not replayed, with rings between them?"""
        is_plain = self.layer is None and self.explicit is None and self.options.get("wire", "ring") == "ring"
        return is_plain and self.spec.get("local_size") == self.size

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
    def takes_images(self) -> bool:
        """See :attr:`ckpt.capture.context.RankContext.takes_images`."""
        return self.layer is None or self.layer.takes_images

    def load(self, extras: Mapping[str, Any], epoch: int) -> None:
        """Take over what the image of `epoch` has of the runtime (:func:`ckpt.capture.description.extras`)."""
        self.registered = extras["ckpt.registered"]
        self.hooks = extras["ckpt.hooks"]
        self.hooks.use_again()
        self.commits.load(extras["ckpt.commits"], epoch)
        self.threads.allow(*extras["ckpt.threads"])
        self.finished_code = extras["ckpt.finished"]
        self.ended = extras["ckpt.ended"]

    def bind(self, port: Port, engine: Engine, world: Communicator, of_layer: object = None) -> None:
        """Connect the parts, tell the agent the address of this rank and start the port's helper thread. ``of_layer``: what
        an image has of a layer."""
        self.port, self.engine, self.world = port, engine, world
        port.on_messages = engine.on_messages
        port.on_event = self._on_event
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
            engine.windows.refusal = (
                "a program that saves itself explicitly says with messages what its images are to have"
            )
        elif self.layer is not None:
            port.on_messages = self.layer.on_messages
            port.attentive_ns = _LAYER_TICK_NS
            self.layer.bind(engine, of_layer)
        else:
            from ckpt.rank.network import open_fast_paths

            self._look_beside = open_fast_paths(self, port, engine)
        self.control.send(reports.hello(self.rank, self.incarnation, port.wire.address))
        port.interrupts.install()
        port.start_helper()

    def _tick(self) -> None:
        """The housekeeping of the port's helper thread."""
        if (self.layer is not None or self.files.is_tick_due) and self.enter_from_outside():
            try:
                if self.layer is not None:
                    self.layer.tick()
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

        An image may be taken here. The caller holds ``lock``, which is free for others meanwhile. ``hungry``: no
        message in the mailbox matches, so the port accepts more messages than the credit allows. Raises CkptError
        inside an ``on_checkpoint`` hook, and before the rank has its port.
        """
        if get_ident() != self._main_ident:
            self._wait_beside(hungry, awaited)  # nothing else: an image has this frame
            return
        port = self.port
        if port is None:
            raise CkptError(_NO_PORT_TEXT)
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
            self._is_main_hungry = True
            try:
                port.wait(imager.wait_limit_ns())
            finally:
                self._is_main_hungry = False
                port.endpoint.hungry(port.waiters.are_hungry, time.monotonic_ns())
        else:
            port.wait(imager.wait_limit_ns() if longest_ns is None else longest_ns)
        if port.waiters.entries:
            self.tell_waiting()
            port.lead_beside()
        if self.engine is not None and self.engine.handlers.posted:
            self.engine.handlers.run()

    @captured_in_threads
    def _wait_beside(self, hungry: bool, awaited: Any) -> None:
        """A thread waits that is not the main one. An image has this frame, so its variables are the program's: after a
        restart the thread waits on, until the time is over."""
        woken = allocate_lock()
        woken.acquire()
        if self._enter_beside(woken, hungry, awaited):
            return
        try:
            self.lock.release()
            woken.acquire(True, _BESIDE_S)
        finally:
            self.lock.acquire()
            self._leave_beside(woken)

    def _enter_beside(self, woken: Bell, hungry: bool, awaited: Any) -> bool:
        """``True``: there has been progress already."""
        port, engine = self.port, self.engine
        if port is None or engine is None:
            raise CkptError(_NO_PORT_TEXT)
        if self._look_beside is not None:
            engine.look, self._look_beside = self._look_beside, None
        if port.enter_beside():
            self.tell_waiting()
            return True
        port.waiters.enter(woken, awaited, is_hungry=hungry)
        if hungry:
            port.endpoint.hungry(True, time.monotonic_ns())
        return False

    def _leave_beside(self, woken: Bell) -> None:
        port = self.port
        assert port is not None
        port.waiters.leave(woken)
        port.endpoint.hungry(self._is_main_hungry or port.waiters.are_hungry, time.monotonic_ns())

    def frames_to_skip(self) -> Sequence[CodeType]:
        """See :meth:`ckpt.capture.context.RankContext.frames_to_skip`."""
        if self.layer is None:
            return (Runtime.block.__code__,)
        from ckpt.rank.layers import ProcessBelow

        blocks = type(self.layer).block, ProcessBelow.block
        return (Runtime.block.__code__, *(each.__code__ for each in blocks))

    # ------------------------------------------------------------------ what arrives

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ImageDue):
            self.imager.want(event.epoch)
        elif isinstance(event, Zombie):
            self.leave(_EXIT_FENCED, f"rank {self.rank}: a newer incarnation of this rank exists; stopping")
        elif (report := reports.about_peer(event, time.monotonic_ns())) is not None:
            self.control.send(report)

    def report(self, name: str, **fields: object) -> None:
        """An entry for the job's event log, from a wire."""
        self.control.send(reports.event(name, **fields))

    def _on_control(self) -> None:
        try:
            packets = self.control.receive()
        except ControlLost as lost:
            self.leave(_EXIT_FENCED, f"rank {self.rank}: {lost}; stopping")
        for packet in packets:
            self._handle_packet(packet)

    def _handle_packet(self, packet: Packet) -> None:
        assert self.port is not None
        match packet["m"]:
            case "table":
                self.alone = False
                for peer, (incarnation, address) in packet["peers"].items():
                    self.port.set_peer(int(peer), address, incarnation)
            case "ask":
                self.imager.ask(packet["epoch"], packet.get("waiting", ()))
            case "checkpoint":
                self.imager.want(packet["epoch"], mode=packet.get("mode"))
            case "cut":
                if self.explicit is not None:
                    self.explicit.on_cut(packet)
            case "abort":
                self.imager.abort(packet["epoch"])
            case "committed":
                self.commits.committed(packet["epoch"])
                self.files.committed(packet["epoch"])
                if self.port.far_counts is not None:
                    self.control.send(reports.links(packet["epoch"], self.port.far_counts()))
            case "release":
                self.released, self.is_final = True, packet.get("final", True)
            case "alone":
                if self.layer is not None:
                    self.leave(_EXIT_FENCED, f"rank {self.rank}: {_ALONE_TEXT}; stopping")
                self.alone = True
                self.imager.abandon()
            case "failed":
                self._drop_ranks(packet["ranks"], packet.get("cause", ""), packet.get("diagnoses", ()))
            case "layer":
                if self.layer is not None:
                    self.layer.on_packet(packet)
            case "stop":
                self.leave(packet["exit_code"], packet.get("reason"))
            case "status":
                self.control.send(self.status())
            case other:
                self.control.send(reports.event("unknown-packet", packet=other))

    def _drop_ranks(
        self, ranks: list[int], cause: str, diagnoses: Iterable[tuple[int, dict[str, Any]]]
    ) -> None:
        """These ranks are dead, and the job goes on without them: there will be no more images, unless other processes
        compute them, too."""
        assert self.port is not None and self.engine is not None
        if self.layer is None:
            self.incomplete = True
            self.imager.abandon()
        lost = [rank for rank in ranks if rank != self.rank]
        for rank in lost:
            self.port.drop_peer(rank)
        if self.layer is not None:
            self.layer.on_lost(lost, cause)
        else:
            self.engine.failed_ranks.diagnoses.update(diagnoses)
            self.engine.failed_ranks.add(lost)

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
        if self.port is not None and self.port.interrupts.running:
            wait = False  # called in a signal handler: there is no image before the handler has returned
        request = {"m": "request", "what": "checkpoint", "wait": wait and self.explicit is None}
        with (self.engine or self).lock:  # the engine's refuses handlers
            if wait and self.layer is None:
                self.imager.expect()
            if self.layer is not None:
                if self.layer.takes_images:
                    self.control.send({**request, "wait": False})
                return None
            if self.alone or self.incomplete:
                return None
            if not self.control.send(request) or not wait:
                return None
            if self.explicit is not None:
                self.explicit.ask()
                return None
            is_main = get_ident() == self._main_ident
            self.imager.places.is_awaited = is_main
            try:
                return self._await_image(is_main)
            finally:
                self.imager.places.is_awaited = False

    @captured_in_threads
    def _await_image(self, is_main: bool) -> int | None:
        """Wait for the next image. Returns its epoch; ``None``: there is none."""
        before = self.imager.epoch
        while not (
            self.imager.epoch != before or self.imager.awaited_round_failed or self.alone or self.incomplete
        ):
            self.block(False)
            if is_main and self.imager.give_up_here():
                return None
        return None if self.imager.awaited_round_failed or self.imager.epoch == before else self.imager.epoch

    def register(self, name: str, obj: object) -> object:
        """Register ``obj`` under ``name``: identifiers, separated by dots. Returns the object. Raises RegistrationError."""
        if not name.isidentifier() and not all(part.isidentifier() for part in name.split(".")):
            raise RegistrationError(f"{name!r} is no usable name: letters, digits, '_' and '.' only")
        if self.explicit is not None:
            self.explicit.register(name, obj)
        with (self.engine or self).lock:
            present = self.registered.get(name, self)
            if present is not self and present is not obj:
                raise RegistrationError(f"{name!r} is registered already, for another object")
            self.registered[name] = obj
        return obj

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


_ALONE_TEXT = "the controller is gone, and nobody compares what the replicas compute"

_NO_PORT_TEXT = (
    "a library communicates while it is imported. A restart imports it anew, each rank at its own time, and can then give "
    "it duplicates of communicators only; let the library communicate when it is first used"
)


def _no_port(dst: int, data: Buffer, payload: Buffer | None = None) -> int:
    raise CkptError(_NO_PORT_TEXT)


_current: list[Runtime] = []


def install(runtime: Runtime) -> None:
    """Make ``runtime`` the one that :func:`current` returns (a process is one rank for all its life)."""
    _current[:] = [runtime]


def current() -> Runtime | None:
    """The runtime of this process; ``None`` outside ``ckpt run``."""
    return _current[0] if _current else None

"""Explicit checkpoints: a rank saves the objects that its program has registered, between two steps of ``ckpt.loop``.
(driver)

This serves programs whose authors prefer it, and interpreters whose frames (of the stack) cannot be captured. The image
holds the registered objects, the place in the loops, the port and the mailbox, and the state of the libraries' global
generators of random numbers. A restart runs the script again from its start. :mod:`ckpt.replay.position` says how the
script gets back to its place, and :mod:`ckpt.replay.mailbox` what happens to the messages that it sends meanwhile.

Places
    An image is taken at a *boundary*: in the main thread, before each step of a loop and at the loop's end; and when the
    program has ended. All ranks take their images at the same boundary, on which the controller agrees with them
    (``boundary`` and ``cut`` packets). The reason: if rank A took its image at an earlier boundary, A's messages would
    carry the new epoch, and a rank B that needs such a message to finish its step could not accept it before B's own
    image. Ranks that do not loop in step might wait for each other for ever. So a rank that waits for a message much
    longer than its longest step so far (`_PATIENCE_NS`, `_PATIENCE_STEPS`) gives up the image.

States of a run: fresh (the count of boundaries begins at 0); or resumed: replaying → restored.

Not here: the agreement's other side (:mod:`ckpt.controller.supervision.cuts.boundaries`), the pickles
(:mod:`ckpt.replay.pickling`), the content of registered objects (:mod:`ckpt.replay.state`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ckpt.errors import LoopError, RegistrationError, StateError
from ckpt.image.files.descriptors import own_lengths
from ckpt.image.interface.registry import libraries
from ckpt.replay import mailbox, state
from ckpt.replay.output import ReplayedOutput
from ckpt.replay.position import Entry, Tracker
from ckpt.transport.records import dataclass

if TYPE_CHECKING:
    from ckpt.capture.context import RankContext
    from ckpt.image import ImageReport, Sink
    from ckpt.replay.pickling import Reader

__all__ = ["ReplayImage", "Replay"]

_PATIENCE_NS = 1_000_000_000
_PATIENCE_STEPS = 10
_NO_MORE_BOUNDARIES = -1


@dataclass(slots=True)
class ReplayImage:
    """The objects to be saved, by reference. Like :class:`ckpt.image.Prepared` it is valid until the fork that follows.

    ``noted``: the contents of registered files by name, recorded before the fork. ``stack``: for `ckpt inspect` only.
    """

    extras: Mapping[str, Any]
    header: Mapping[str, Any]
    mail: mailbox.Mail
    registered: Mapping[str, Any]
    noted: Mapping[str, state.Content]
    reducers: Mapping[type, Callable[[Any], Any]]
    stack: list[dict[str, Any]]

    def dump(self, sink: Sink) -> ImageReport:
        """Write the image to ``sink``. Raises :class:`ckpt.image.Unpicklable`."""
        from ckpt.mpi.engine.operations import frozen
        from ckpt.replay.pickling import dump

        def mail() -> mailbox.Mail:
            return self.mail | {"messages": [(*head, frozen(data)) for *head, data in self.mail["messages"]]}

        parts: list[tuple[tuple[str, str], Callable[[], object]]] = [
            (("mail", ""), mail),
            (("random", ""), libraries.note_random),
        ]
        for name, obj in self.registered.items():
            parts.append((("registered", name), partial(self._content, name, obj)))
        return dump(
            sink,
            header=self.header,
            port=self.extras["ckpt.port"],
            parts=parts,
            names={id(obj): name for name, obj in self.registered.items()},
            reducers=self.reducers,
            stack=self.stack,
        )

    def _content(self, name: str, obj: Any) -> state.Content:
        return self.noted[name] if name in self.noted else state.content_of(obj)


class Replay:
    """The explicit checkpoints of one rank: count of boundaries, agreement, image and replay.

    A comment or docstring says so where methods are called under the runtime's lock.
    """

    def __init__(self, runtime: RankContext) -> None:
        self._runtime = runtime
        self.tracker = Tracker()
        self.count = 0
        """Boundaries passed since the program's first start."""
        self._reached = 0  # the epoch at whose agreed boundary this rank waits
        self._cut: tuple[int, int, bool] = (0, 0, False)  # the last `cut` packet: epoch, boundary, take
        self._is_at_boundary = False
        self._is_requested = False  # ckpt.checkpoint() has asked for a round
        self._passed_ns = time.monotonic_ns()
        self._longest_step_ns = 0
        self._blocked_ns: int | None = (
            None  # since when the program waits in its present library call; None: it does not
        )
        self._reader: Reader | None = None
        self._names: list[str] = []  # names of the objects that were registered at the checkpoint
        self._output: ReplayedOutput | None = None
        self.sorter: mailbox.MessageSorter | None = None

    # ------------------------------------------------------------------ resuming

    def replay(self, reader: Reader, header: Mapping[str, Any]) -> None:
        """This run goes on from an image. Called before the program starts. ``header``: of the image's stream."""
        self._reader = reader
        self._passed_ns = time.monotonic_ns()  # the clock goes on from where it was in another boot
        self._names = header["names"]
        self.count = header["count"]
        self._output = ReplayedOutput(header["lengths"])
        self.tracker = Tracker(header["position"])

    def install(self, deliver: Callable[[int, list[Any]], None]) -> Callable[[int, list[Any]], None]:
        """The function that the port is to call with messages, in place of ``deliver``. Called when the rank is
        bound to its port."""
        runtime = self._runtime

        def delivered(src: int, batch: list[Any]) -> None:
            self._blocked_ns = None
            deliver(src, batch)

        self.sorter = mailbox.MessageSorter(delivered, runtime.consumed)
        if self.tracker.is_replaying:
            self.sorter.replay(runtime.incarnation)
            runtime.send = self.sorter.marked(runtime.send)
        return self.sorter.on_messages

    def end_replay_output(self) -> None:
        """The replay has failed: append its output to the rank's files."""
        if self._output is not None:
            self._output.give_back(show=True)

    def _restore(self) -> None:
        runtime, reader = self._runtime, self._reader
        assert reader is not None and self.sorter is not None and runtime.port is not None
        assert runtime.engine is not None
        with runtime.lock:
            missing = sorted(set(self._names) - runtime.registered.keys())
            if missing:
                raise StateError(
                    f"the checkpoint has the state of {', '.join(map(repr, missing))}, registered under that name before; "
                    f"registered by now: {', '.join(map(repr, sorted(runtime.registered))) or 'nothing'}"
                )
            operation = mailbox.pending(runtime.engine)
            if operation:
                raise LoopError(f"{operation} at the place where the checkpoint was taken, where nothing was")
            reader.registered = runtime.registered
            contents: dict[str, Any] = {}
            for (kind, name), value in reader.rest():
                if kind == "registered":
                    contents[name] = value
                elif kind == "mail":
                    mailbox.restore(runtime.engine, value, runtime.consumed)
                elif kind == "random":
                    libraries.apply_random(value)
            for name, content in contents.items():
                state.put_back(name, runtime.registered[name], content)
            runtime.send = runtime.port.send
            self.sorter.end_replay()
            self._reader = None
        if self._output is not None:
            self._output.give_back(show=False)
            self._output = None
        runtime.hooks.call_after(runtime.spec["resume"])

    def check_ended(self) -> None:
        """The program has ended. Raises LoopError if it has never reached its saved place."""
        if self.tracker.is_replaying:
            raise LoopError(
                f"after the restart the program ended without coming to the loop {self.tracker.awaited}, "
                "in which it was when the checkpoint was taken"
            )

    # ------------------------------------------------------------------ what the program does

    def register(self, name: str, obj: object) -> None:
        """Check a registration. Raises RegistrationError if ``obj`` cannot be restored in place, or inside a loop."""
        state.check(name, obj)
        if any(level.running for level in self.tracker.levels) and name not in self._runtime.registered:
            raise RegistrationError(
                f"{name!r} is registered inside a loop: after a restart the loop goes on from a later step, so register "
                "everything before the loop"
            )

    def enter(self, name: str) -> Entry:
        """The program enters the loop ``name``. Raises StateError if nothing is registered, and LoopError as the tracker."""
        if not self._runtime.registered and not self.tracker.is_replaying:
            raise StateError(
                f"the loop {name} is entered, and nothing is registered that a checkpoint could save: "
                "call ckpt.register(NAME, OBJECT) before it"
            )
        return self.tracker.enter(name)

    def restore_at(self, entry: Entry) -> None:
        """Restore the state if ``entry`` says so. Called when the loop has skipped its finished steps. Raises StateError."""
        if entry.restores:
            self._restore()

    def boundary(self) -> None:
        """The program is before a step, or at the end of a loop. An image may be taken here."""
        self.count += 1
        now_ns = time.monotonic_ns()
        self._longest_step_ns = max(self._longest_step_ns, now_ns - self._passed_ns)
        runtime, imager = self._runtime, self._runtime.imager
        if (self._is_requested or imager.wanted > imager.epoch) and not self.tracker.is_replaying:
            with runtime.lock:
                self._is_at_boundary = True
                try:
                    self._stop()
                finally:
                    self._is_at_boundary = False
            now_ns = time.monotonic_ns()
        self._passed_ns = now_ns

    def ask(self) -> None:
        """The program asks for a checkpoint: at its next boundary it waits until the controller has begun a round."""
        self._is_requested = True

    # ------------------------------------------------------------------ the agreement (under the lock)

    def _stop(self) -> None:
        """Stay at this boundary until the image is taken or given up, or must be taken at a later boundary."""
        runtime, imager = self._runtime, self._runtime.imager
        epoch = imager.epoch
        while imager.wanted > imager.epoch or (self._is_requested and imager.epoch == epoch):
            if imager.wanted > imager.epoch:
                self._is_requested = False  # there is a round now
                if not self._must_stop():
                    return
                if self._take_if_due():
                    continue
            elif runtime.alone or runtime.incomplete:
                break
            runtime.block(False)
        self._is_requested = False

    def wanted(self, epoch: int) -> None:
        """An image is wanted: tell the controller how many boundaries this rank has passed."""
        self._report(epoch, reached=False)

    def on_cut(self, packet: dict[str, Any]) -> None:
        """A `cut` packet: the controller names the agreed boundary, or says that all ranks have reached it (``take``)."""
        self._cut = (packet["epoch"], packet["at"], bool(packet["take"]))

    def _report(self, epoch: int, *, reached: bool) -> None:
        count = self.count - self._is_at_boundary  # the present boundary can still be agreed on
        if self._runtime.finished_code is not None:
            count = _NO_MORE_BOUNDARIES
        packet = {"m": "boundary", "epoch": epoch, "count": count, "reached": reached}
        self._runtime.control.send(packet)

    def _must_stop(self) -> bool:
        """Must this rank stay at its present boundary?"""
        wanted = self._runtime.imager.wanted
        epoch, at, _ = self._cut
        if epoch != wanted:
            return True  # the boundary has not been agreed on yet
        if self.count < at and self._runtime.finished_code is None:
            return False
        if self._reached != wanted:
            self._reached = wanted
            self._report(wanted, reached=True)
        return True

    def _take_if_due(self) -> bool:
        epoch, _, take = self._cut
        if epoch != self._runtime.imager.wanted or not take:
            return False
        return self._runtime.imager.take_explicitly(self)

    def blocked(self) -> bool:
        """The program waits inside a library call, perhaps for a message. ``True``: the image was taken or given up."""
        runtime, imager = self._runtime, self._runtime.imager
        if runtime.finished_code is not None:
            return self._must_stop() and self._take_if_due()
        if self._is_at_boundary or imager.wanted <= imager.epoch:
            self._blocked_ns = None
            return False
        now_ns = time.monotonic_ns()
        if self._blocked_ns is None or self._cut[0] != imager.wanted:
            self._blocked_ns = now_ns
        elif now_ns - self._blocked_ns > _PATIENCE_NS + _PATIENCE_STEPS * self._longest_step_ns:
            self._blocked_ns = None
            imager.give_up(
                "this rank waits for a message in the middle of a step, and the others, it seems, for this rank at "
                f"boundary {self._cut[1]} (it has passed {self.count}): ranks must loop in step"
            )
            return True
        return False

    # ------------------------------------------------------------------ the image (under the lock)

    def problem(self) -> str:
        """Why no image can be taken at this boundary; empty: an image can be taken."""
        runtime = self._runtime
        if runtime.finished_code is not None:
            return ""
        assert runtime.engine is not None
        operation = mailbox.pending(runtime.engine)
        return (
            f"{operation} over the end of a step: finish it within the step that begins it"
            if operation
            else ""
        )

    def prepare(self, port_state: Any) -> ReplayImage:
        """The content of the image; called just before the fork. ``port_state``: of the frozen port."""
        runtime = self._runtime
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        header = {
            "position": self.tracker.position(),
            "count": self.count,
            "finished": runtime.finished_code,
            "lengths": {fd: os.fstat(fd).st_size for fd in (1, 2)} | own_lengths(),
        }
        registered = dict(runtime.registered) if runtime.finished_code is None else {}
        # before the fork: parent and child share file offsets, and the program goes on writing
        noted = {name: state.content_of(obj) for name, obj in registered.items() if state.is_file(obj)}
        return ReplayImage(
            extras={"ckpt.port": port_state, "ckpt.engine": runtime.engine},
            header=header | {"names": list(registered)},
            mail=self._mail,
            registered=registered,
            noted=noted,
            reducers=_library_reducers() | runtime.hooks.reducers(),
            stack=_stack(),
        )

    def before_image(self) -> None:
        """Called before the port is frozen: save the mailbox. The engine reports all consumed messages to the port first.
        Registered files are flushed, since the undo log records the lengths of files before :meth:`prepare`.
        """
        assert self._runtime.engine is not None
        self._mail = mailbox.save(self._runtime.engine)
        for obj in self._runtime.registered.values():
            if state.is_file(obj):
                # prepare() meets it again, and the round fails
                with contextlib.suppress(OSError, ValueError):
                    obj.flush()  # type: ignore[attr-defined]

    _mail: mailbox.Mail


def _stack() -> list[dict[str, Any]]:
    """The program's frames of the stack, outermost first, in the form of :meth:`ckpt.image.frames.stack.Stack.describe`."""
    rows: list[dict[str, Any]] = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not str(frame.f_globals.get("__name__", "")).startswith("ckpt."):
            rows.append({"file": code.co_filename, "line": frame.f_lineno, "function": code.co_qualname})
        frame = frame.f_back  # type: ignore[assignment]
    return rows[::-1]


class _PicklerStandIn:
    """Stands for a pickler in the ready-made reducers, which read ``is_disposable`` only.

    ``is_disposable``: this process is a forked child, so a reducer may destroy objects while it saves them.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_disposable(self) -> bool:
        return os.getpid() != self._pid


def _library_reducers() -> dict[type, Callable[[Any], Any]]:
    pickler = _PicklerStandIn()
    return {cls: partial(reduce, pickler) for cls, reduce in libraries.reducers(beside_pickle=True).items()}

"""The images of one rank: whether an image could be taken now, when an image is wanted, and how the attempt ends. (driver)

::

            ask(e)                 want(e)
    idle ─────────▶ asked ──ready──▶ wanted ──captured──▶ writing (the child) ──▶ idle
                     │  ▲              │  ▲
             refused └──┘      refused └──┘  tried again where the program can be captured; named, counted, bounded
                     │                 └──abort(e) / held up / own time limit──▶ idle, label e taken without an image
                     └──abort(e)──▶ idle

Rules (``PROTOCOL``: what makes the cut consistent)

- A rank that is *asked* answers as soon as its program could be captured, and nothing else happens: no frame is labelled
  with the epoch, and no rank waits. The controller begins the round when all ranks have answered. Until then, a rank that
  cannot be captured costs the other ranks nothing.
- An image is taken *before* any frame (of the wire) of its epoch is processed: the endpoint holds such frames until
  :meth:`ckpt.transport.protocol.endpoint.Endpoint.advance`.
- A rank that never voted for an epoch may take its label without an image, since a line (the images of all ranks for one
  epoch) needs every vote. An aborted round, a failed image and the rank's own time limit end so. So no rank hangs others.
- A rank that is *held up* gives up its image. Held up means: the program waits, at a place where it cannot be captured, for
  a message that may be in a held frame; or, while the rank is asked, for one of a rank whose program waits for this round.
  If only the time for looks is used up, the obstacle may be gone: it looks once more before it gives up.

This module is long because the states of a rank between two images are one machine.

Not here: where the program can be captured (:mod:`ckpt.capture.places`), how long such a place is looked for
(:mod:`ckpt.capture.search`), freezing, fork and thawing (:mod:`ckpt.capture.taker`), the work of the child
(:mod:`ckpt.capture.writing`), the content of an image (:mod:`ckpt.image`), how an image becomes durable (:mod:`ckpt.store`).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Literal

from ckpt.capture import description
from ckpt.capture.places import Places, library_caller
from ckpt.capture.search import LOCK_WAIT_S, TICK_NS, LibraryUse, Search
from ckpt.capture.taker import Taker
from ckpt.capture.writing import report_failure

if TYPE_CHECKING:
    from ckpt import image
    from ckpt.capture.context import RankContext, ReplayedProgram
    from ckpt.image.frames.stack import Stack
    from ckpt.shared_memory.host import HostMemory
    from ckpt.transport.protocol.state import PortState

__all__ = ["Imager"]

_OWN_LIMIT_NS = 120_000_000_000


class Imager:
    """The images of one rank. All methods except :meth:`tick` and :meth:`where` are called under the runtime's lock."""

    _gathers = False
    """The main thread waits, in a look, for ranks that share memory with this one."""

    def __init__(self, runtime: RankContext) -> None:
        self._runtime = runtime
        self.epoch: int = runtime.spec["epoch"]
        self.wanted = self.epoch
        self.asked = 0
        """The epoch for which the controller asks whether this rank could be captured; 0: no question is open."""
        self.search = Search()
        self.taker = Taker(runtime)
        self.limit_ns: int = int(runtime.spec.get("options", {}).get("image_limit_ns") or _OWN_LIMIT_NS)
        self.places = Places(runtime, self._frames_to_skip())
        self._waiting: Sequence[int] = ()  # ranks whose programs wait for the round of this question
        self._awaited_epoch = 0  # the epoch of the round for which this rank's program waits; 0: none
        self.awaited_round_failed = False
        """The round that the program waits for will not commit."""

    @staticmethod
    def _frames_to_skip() -> tuple[CodeType, ...]:
        """Code of the functions of this class whose frames lie between a blocked library call and the capture."""
        return Imager._take.__code__, Imager.take.__code__, Imager.look.__code__, Imager.rehearse.__code__

    # ------------------------------------------------------------------ wanting

    @property
    def is_looking(self) -> bool:
        """Does the rank look for a place where the program can be captured?"""
        return self.wanted > self.epoch or bool(self.asked)

    def expect(self) -> None:
        """The program is about to wait for a round. :meth:`ask` will name its epoch."""
        self._awaited_epoch, self.awaited_round_failed = 0, False

    def ask(self, epoch: int, waiting: Sequence[int] = ()) -> None:
        """Could this rank be captured? It answers as soon as it could. ``waiting``: ranks whose programs await the round."""
        if self._runtime.rank in waiting:
            self._awaited_epoch = epoch
        if epoch >= self.asked:
            self._waiting = waiting
        if epoch <= max(self.wanted, self.asked) or not self._runtime.takes_images:
            return
        if self._runtime.explicit is not None:  # explicit ranks agree on a boundary after the round has begun
            self._report_ready(epoch)
        else:
            self.asked = epoch
            self._begin()

    def want(self, epoch: int, *, mode: str | None = None) -> None:
        """An image of ``epoch`` is due. It is taken at the next place where the program can be captured.
        ``mode``: see :mod:`ckpt.capture.choice`; ``None``: as before."""
        if epoch > self.wanted and not self._runtime.takes_images:
            self.wanted = epoch
            self._take_label_only()
        if epoch <= self.wanted:
            return
        self.taker.choose(mode)
        self._runtime.files.make_ready()
        is_first = self.wanted == self.epoch
        self.wanted, self.asked = epoch, 0
        if self._runtime.explicit is not None:
            self._begin(queue=False)
            self.search.reason = "the program has not come to the agreed boundary of its loops"
            self._runtime.explicit.wanted(epoch)
        elif is_first:
            self._begin()

    def _begin(self, *, queue: bool = True) -> None:
        """Look for a place from now on. ``queue``: have looks called between two instructions of the program."""
        self.search.begin(time.monotonic_ns())
        self.places.begin()
        self._runtime.look_at_mapped_files()
        assert self._runtime.port is not None
        self._runtime.port.attentive_ns = TICK_NS
        if queue and threading.current_thread() is not threading.main_thread():
            # In the main thread this runs inside a library call, which looks for itself when it waits.
            self.places.queue(self._at_check)

    def abort(self, epoch: int) -> None:
        """No line of ``epoch`` will ever commit: frames of that epoch may be processed without an image."""
        self.awaited_round_failed = self.awaited_round_failed or epoch == self._awaited_epoch
        if self.asked == epoch:
            self.asked = 0
        if self.epoch < epoch == self.wanted:
            self._take_label_only()  # which tells the undo log, too
        else:
            self._runtime.files.aborted(epoch)

    def abandon(self) -> None:
        """There is no controller any more: a round without this rank's vote can never commit."""
        self.asked = 0
        if self.wanted > self.epoch:
            self._take_label_only()

    def _take_label_only(self) -> None:
        port = self._runtime.port
        assert port is not None
        self.epoch = self.wanted
        self._runtime.files.label(self.epoch)
        port.advance(self.epoch)

    def _report_ready(self, epoch: int) -> None:
        self.asked = 0
        self._runtime.control.send({"m": "ready", "epoch": epoch})

    def wait_limit_ns(self) -> int | None:
        """How long a blocked library call may wait, in ns, before it must call :meth:`look` again; ``None``: no limit."""
        return self.search.retry_ns(time.monotonic_ns()) if self.is_looking else None

    # ------------------------------------------------------------------ looking

    def _at_check(self) -> bool:
        """Runs in the main thread between two instructions of the program (or of the library). ``True``: the interpreter is
        to call this function again at its next check."""
        runtime = self._runtime
        if not self.is_looking or runtime.in_hook or self._gathers or self.places.makes_no_calls():
            return False
        if caller := library_caller(imports=False):  # the library call looks itself when it waits
            self.places.queue_after(caller, self._at_check)
            return False
        if not runtime.lock.acquire(timeout=LOCK_WAIT_S):
            return False
        try:
            return not self.look("check") and self.places.looks_again()
        finally:
            runtime.lock.release()

    def look(self, at: Literal["call", "check"]) -> bool:
        """Look whether the program can be captured here; if it can, answer the question, or take the image that is wanted.
        ``True``: no image is wanted and no question is open any more."""
        if not self.is_looking or self._gathers:
            return True
        is_blocked = at == "call" and self.search.is_refused and self.places.is_blocked()
        if is_blocked and (self.places.has_obstacle() or self._stall(waits=True) is None):
            return self._give_up_if_stalled(waits=True)
        if self.wanted > self.epoch:
            return self.take(at)
        try:
            self.places.capture(at, transient=False)
        except Exception as failure:
            self.search.note_refusal(failure, time.monotonic_ns())
            return at == "call" and self._give_up_if_stalled(waits=True)
        self._report_ready(self.asked)
        return True

    def tick(self) -> None:
        """The housekeeping of the port's helper thread while the program is outside the library."""
        is_over = self._housekeep()
        if (is_over or self._stall(waits=False) is not None) and self._runtime.enter_from_outside():
            try:
                if is_over and self.wanted > self.epoch:
                    self.give_up()
                else:
                    self._give_up_if_stalled(waits=False)
            finally:
                self._runtime.lock.release()
        elif self.is_looking and self._runtime.explicit is None:
            self.places.queue(self._at_check)
            if self._is_in_long_c_call() and self._runtime.enter_from_outside():
                try:
                    if self._is_in_long_c_call():
                        self._report_ready(self.asked)
                finally:
                    self._runtime.lock.release()

    def _is_in_long_c_call(self) -> bool:
        return bool(self.asked) and self.search.is_in_long_c_call(time.monotonic_ns())

    def blocked(self) -> None:
        """The same as :meth:`tick`, while the main thread waits inside the library (under the lock)."""
        if (self.taker.is_writing or self.is_looking) and self._housekeep():
            self.give_up()

    def _housekeep(self) -> bool:
        """Reap image children; report a long search for a place. ``True``: the rank's own time limit has passed."""
        if self.taker.is_writing:
            self.taker.reap()
        port = self._runtime.port
        if port is None or not self.is_looking:
            if port is not None:
                port.attentive_ns = TICK_NS if self.taker.is_writing else 0
            return False
        now_ns = time.monotonic_ns()
        waited_ns = now_ns - self.search.since_ns
        port.attentive_ns = self.search.tick_ns(now_ns)
        if self.search.is_report_due(now_ns):
            where = self.where()
            reason = self.search.reason if self.search.is_refused else self.places.running(where)
            report = {"reason": reason or self.search.reason, "where": where, "since_ns": waited_ns}
            self._runtime.control.send({"m": "refused", "epoch": self.asked or self.wanted, **report})
        return waited_ns > self.limit_ns and self.wanted > self.epoch

    def _stall(self, *, waits: bool) -> tuple[str, int] | None:
        """See :meth:`ckpt.capture.search.Search.stall`. ``waits``: the program waits inside the library now."""
        port = self._runtime.port
        assert port is not None
        received = port.endpoint.counters()["messages_delivered"] if waits and self.asked else 0
        return self.search.stall(
            time.monotonic_ns(),
            LibraryUse(port.entries, received, waits),
            held_frames=port.endpoint.held if self.wanted > self.epoch else 0,
            waiting=self._waiting if self.asked else (),
            rank=self._runtime.rank,
        )

    def _give_up_if_stalled(self, *, waits: bool) -> bool:
        """Give up if the program may need, where it cannot be captured, what cannot come before its image is taken. Neither
        that nor the image would ever come. ``True``: the image, or the answer, has been given up."""
        stall = self._stall(waits=waits)
        if stall is not None:
            self.give_up(*stall)
        return stall is not None

    def give_up_here(self) -> bool:
        """The program itself waits for an image, at a place where it cannot be captured: give up the image.

        ``False``: nothing was given up, since the program may be captured here later.
        """
        if not (self.search.is_refused and self.is_looking and self.places.has_obstacle()):
            return False
        self.give_up(self.search.own_wait_reason())
        return True

    def give_up(self, reason: str | None = None, held_ns: int = 0) -> None:
        """There will be no image of this epoch: tell the controller, and take the label without an image.

        ``reason``: by default, that the rank's own time limit has passed. ``held_ns``: see :func:`report_failure`.
        """
        reason = reason or f"not possible within the limit: {self.search.reason}"
        report_failure(self._runtime, self.asked or self.wanted, reason, self.where(), held_ns)
        self.asked = 0
        if self.wanted > self.epoch:
            self._take_label_only()

    # ------------------------------------------------------------------ taking

    def take(self, at: Literal["call", "check"]) -> bool:
        """Capture the stack and take the image. ``False``: the program cannot be captured here; the rank tries again later.

        Tracing and profiling are off meanwhile: these calls shall appear neither in the program's profile nor in the child.
        """
        from ckpt.image.frames import _frames

        return _frames.untraced(functools.partial(self._take, at))

    def _take(self, at: Literal["call", "check"]) -> bool:
        from ckpt import image

        runtime = self._runtime
        if runtime.explicit is not None:
            return runtime.explicit.blocked()
        memory = runtime.memory_in_use
        if memory is not None and (missing := memory.rests(self.wanted)):
            self.search.reason = missing
            return False
        started_ns = time.perf_counter_ns()
        stack: Stack | None = None

        def prepare(state: PortState, noted: bytes | None) -> image.Prepared:
            commits = runtime.commits.taken(self.wanted)
            extras = description.extras(runtime, state, commits, is_in_call=at == "call", epoch=self.wanted)
            return image.prepare(stack, extras, noted)

        try:
            stack = self.places.capture(at)
        except image.Refused as refused:
            self.search.note_refusal(refused, time.monotonic_ns())
            return at == "call" and self._give_up_if_stalled(waits=True)
        except Exception as failure:
            return self._fail_round(failure)
        if memory is not None and not self._gather(memory):
            return False
        if not self._call_hooks():
            if memory is not None:
                memory.leave()
            return True
        others = None if stack is None else self.places.others(stack)
        return self._freeze_and_write(prepare, started_ns, others)

    def take_explicitly(self, program: ReplayedProgram) -> bool:
        """Take the image at the boundary of an explicit program that all ranks have agreed on. ``program``: that program.
        Always returns ``True``: the image has been taken or given up."""
        if problem := program.problem():
            self.give_up(problem)
        if problem or not self._call_hooks():
            return True
        started_ns = time.perf_counter_ns()
        program.before_image()
        return self._freeze_and_write(lambda state, noted: program.prepare(state), started_ns)

    def _freeze_and_write(
        self,
        prepare: Callable[[PortState, bytes | None], image.Prepared],
        started_ns: int,
        others: image.StoppedThreads | None = None,
    ) -> bool:
        """``True``: it has been taken or given up; ``False``: another thread cannot be captured now."""
        label, began_ns = (self.epoch, self.wanted), time.monotonic_ns()
        failed = self.taker.take(prepare, label, started_ns, self.search.since_ns, others)
        memory = self._runtime.memory_in_use
        if failed is not None and memory is not None and memory.is_refusal(failed):
            self.search.reason = str(failed)
            return False
        if failed is not None and others is not None and others.is_refusal(failed):
            self.search.note_refusal(failed, time.monotonic_ns())
            self.places.spend(began_ns)  # the program has stood still for it
            return False
        return failed is None or self._fail_round(failed)

    def _gather(self, memory: HostMemory) -> bool:
        """Wait for the ranks that share memory with this one; see :mod:`ckpt.shared_memory`. Without the lock."""
        wanted, self._gathers = self.wanted, True
        try:
            missing = memory.gather(wanted, lambda: self.epoch < wanted == self.wanted)
        finally:
            self._gathers = False
        self.search.reason = missing or self.search.reason
        return not missing

    def _call_hooks(self) -> bool:
        """Call the program's hooks, without the lock. ``False``: no image is to be taken now; a failure was reported."""
        runtime, called_for = self._runtime, self.epoch
        if not runtime.hooks.before or runtime.finished_code is not None:
            return True
        while self.epoch < self.wanted != called_for:  # meanwhile the round may end, or the next one begin
            called_for = self.wanted
            runtime.in_hook = True
            runtime.lock.release()
            try:
                runtime.hooks.call_before(called_for)
            except Exception as failure:
                problem: Exception | None = failure
            else:
                problem = None
            finally:
                runtime.lock.acquire()
                runtime.in_hook = False
            if problem is not None:
                if self.wanted > self.epoch:
                    self._fail_round(problem)
                return False
        return bool(self.wanted > self.epoch)

    def rehearse(self) -> None:
        """Do the work of a pause and discard the result: called when the program waits for messages anyway.

        After a fork, the first write to each page of this process causes a page fault; a change of a reference count is
        such a write. Without a rehearsal the next pause has these faults: 0.9 ms instead of 0.1 ms.
        """
        if not self.taker.is_cold or self._runtime.explicit is not None:
            return
        self.taker.is_cold = False
        try:
            self.places.rehearse()
            self.taker.rehearse()
        except Exception:
            return  # for example, no descriptor is left: the real image will fail and report it; the program must not

    def _fail_round(self, failure: Exception) -> bool:
        """The image cannot be taken, but the program goes on: report the failure and take the label. Always ``True``."""
        reason = getattr(failure, "reason", None) or f"{type(failure).__name__}: {failure}"
        report_failure(self._runtime, self.wanted, reason, getattr(failure, "path", None) or self.where())
        self._take_label_only()
        return True

    def where(self) -> str:
        """See :meth:`ckpt.capture.places.Places.where`."""
        return self.places.where()

"""★ The images of one rank: when one is wanted, and where the program can be captured.

::

    idle ──want(e)──▶ wanted ──captured──▶ writing (the child) ──▶ idle
                        │  ▲
             refused    └──┘  tried again at the next place; named, counted, bounded
                        └──abort(e) / own time limit──▶ idle, label e taken without an image

Rules (``PROTOCOL``: what makes the cut consistent)

- An image is taken *before* any frame of its epoch is processed: the endpoint holds such frames until
  :meth:`Endpoint.advance`.
- A rank that never voted for an epoch may take its label without an image, since a line needs every rank's vote. That is
  what an aborted round, a failed image and the rank's own time limit do, so that a program that cannot be captured
  never hangs the others.

Two places lead to an image: the main thread blocked in the library (``at="call"``) and a pending call at the interpreter's
own check between two instructions (``at="check"``), queued by the helper thread. A check that finds the main
thread inside the library does nothing: the library gets there by itself.

Not here: the taking itself, fork or not (:mod:`ckpt.taking`), what the child does (:mod:`ckpt.writing`), what an image
contains (:mod:`ckpt.image`), how it becomes durable (:mod:`ckpt.store`).
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from ckpt.taking import Taker
from ckpt.writing import say_failed

if TYPE_CHECKING:
    from ckpt import image
    from ckpt.explicit.way import ExplicitWay
    from ckpt.image.stack import Stack
    from ckpt.runtime import Runtime
    from transport.state import PortState

__all__ = ["Imager"]

_REPORT_AFTER_NS = 100_000_000
_REPORT_EVERY_NS = 1_000_000_000
_IMMEDIATE_RETRIES = 1600  # some 50 different checks; then the helper's next tick asks again
_OWN_LIMIT_NS = 120_000_000_000
_RETRY_NS = 2_000_000
_PASSING_NS = 2_000_000_000
"""So long an object that no image can hold, held by running functions at every place, is taken for one that goes soon."""


_HELD_UP_NS = 1_000_000_000
"""So long a rank waits in a place that cannot be captured, while messages are held back for its image."""


class Imager:
    """The images of one rank. All methods but :meth:`tick` and :meth:`where` are called under the runtime's lock."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.epoch: int = runtime.spec["epoch"]
        self.wanted = self.epoch
        self.refusals = 0
        self.refused_longest_ns = 0
        self.taker = Taker(runtime)
        self.limit_ns: int = int(runtime.spec.get("options", {}).get("image_limit_ns") or _OWN_LIMIT_NS)
        self._wanted_since_ns = 0
        self._reported_ns = 0
        self._tries = 0
        self._passing_since_ns = 0  # every refusal since then was for something that a function holds
        self._held_up_since_ns = 0
        self._place = (0, 0)  # frame and instruction of the last check that was looked at
        self._check_queued = False

    # ------------------------------------------------------------------ wanting

    def want(self, epoch: int, reason: str, *, mode: str | None = None) -> None:
        """An image of ``epoch`` is due; taken at the next place where the program can be captured."""
        if epoch <= self.wanted:
            return
        self.taker.choose(mode)
        if self.wanted == self.epoch:
            self._wanted_since_ns = time.monotonic_ns()
            self._reported_ns = 0
            self._tries = 0
            self._passing_since_ns = 0
        self._held_up_since_ns, self.wanted = 0, epoch
        assert self._runtime.port is not None
        self._runtime.port.attentive = True
        if self._runtime.explicit is not None:
            self._reason = "the program has not come to the agreed boundary of its loops"
            self._runtime.explicit.wanted(epoch)
        elif threading.current_thread() is not threading.main_thread():
            self._queue_check()  # the main thread is in the library if it hears of it itself, and waits there next

    def abort(self, epoch: int) -> None:
        """No line of ``epoch`` will ever commit: its frames may be processed without an image."""
        if self.epoch < epoch <= self.wanted and epoch == self.wanted:
            self._pass_over()

    def abandon(self) -> None:
        """There is no controller: a round that this rank has not voted in can never commit."""
        if self.wanted > self.epoch:
            self._pass_over()

    def _pass_over(self) -> None:
        port = self._runtime.port
        assert port is not None
        self.epoch = self.wanted
        port.advance(self.epoch)

    def wait_limit_ns(self) -> int | None:
        """How long a blocked call may wait before it must look here again; ``None``: until something happens."""
        return _RETRY_NS if self.wanted > self.epoch else None

    # ------------------------------------------------------------------ places

    def _queue_check(self) -> None:
        if self._check_queued:
            return
        from ckpt.image import _frames

        self._check_queued = True
        _frames.request(self._at_check)

    def _at_check(self) -> None:
        """Runs in the main thread between two instructions of the program (or of the library).

        The interpreter runs a call that was queued by the one before it at the very same check (up to 32 times), so a
        place that was looked at already is passed over.
        """
        self._check_queued = False
        if self.wanted <= self.epoch or self._runtime.in_hook:
            return
        frame = sys._getframe(1)
        place = (id(frame), frame.f_lasti)
        del frame
        if place != self._place:
            self._place = place
            # Inside the library: a waiting place of its own takes the image, or a check after it has returned does.
            # Never wait for the lock here: it may be this very thread that holds it.
            if not inside_library() and self._runtime.lock.acquire(blocking=False):
                try:
                    if self.wanted <= self.epoch or self.take("check"):
                        return
                finally:
                    self._runtime.lock.release()
        self._tries += 1
        if self._tries < _IMMEDIATE_RETRIES:
            self._queue_check()

    def tick(self) -> None:
        """The helper's housekeeping while the program is outside the library."""
        if self._housekeep() and self._runtime.lock.acquire(blocking=False):
            try:
                if self.wanted > self.epoch:
                    self.give_up()
            finally:
                self._runtime.lock.release()
        elif self.wanted > self.epoch and self._runtime.explicit is None:
            self._tries = 0
            self._place = (0, 0)
            self._queue_check()

    def blocked(self) -> None:
        """The same while the main thread waits inside the library (under the lock)."""
        if (self.taker.is_writing or self.wanted > self.epoch) and self._housekeep():
            self.give_up()

    def _housekeep(self) -> bool:
        """Reap image children, report a wait that has become long. ``True``: the rank's own limit has passed."""
        if self.taker.is_writing:
            self.taker.reap()
        if self.wanted <= self.epoch:
            if self._runtime.port is not None:
                self._runtime.port.attentive = self.taker.is_writing
            return False
        now_ns = time.monotonic_ns()
        waited_ns = now_ns - self._wanted_since_ns
        if waited_ns > _REPORT_AFTER_NS and now_ns - self._reported_ns > _REPORT_EVERY_NS:
            self._reported_ns = now_ns
            self._runtime.control.send(
                {
                    "m": "refused",
                    "epoch": self.wanted,
                    "reason": self._reason,
                    "where": self.where(),
                    "since_ns": waited_ns,
                }
            )
        return waited_ns > self.limit_ns

    def give_up(self, reason: str | None = None) -> None:
        """There will be no image of this epoch: by default, since the rank's own limit has passed."""
        reason = reason or f"not possible within the limit: {self._reason}"
        say_failed(self._runtime, self.wanted, reason, self.where())
        self._pass_over()

    _reason = "the program has not come to a place between two instructions"

    # ------------------------------------------------------------------ taking

    def take(self, at: Literal["call", "check"]) -> bool:
        """Capture the stack and let the image be taken. ``False``: refused here, to be tried again."""
        from ckpt import image

        runtime = self._runtime
        if runtime.explicit is not None:
            return runtime.explicit.blocked()
        started_ns = time.perf_counter_ns()
        tries, self._tries = self._tries, _IMMEDIATE_RETRIES  # no more checks meanwhile
        stack: Stack | None = None

        def prepare(state: PortState) -> image.Prepared:
            assert runtime.engine is not None
            predefined = runtime.engine.predefined
            extras = {
                "ckpt.engine": runtime.engine,
                "ckpt.predefined": {slot: comm.__getstate__() for slot, comm in predefined.items()},
                "ckpt.registered": runtime.registered,
                "ckpt.hooks": runtime.hooks,
                "ckpt.threads": list(runtime.threads.patterns),
                "ckpt.port": state,
                "ckpt.locked": at == "call",
                "ckpt.finished": runtime.finished_code,
            }
            return image.prepare(stack, extras)

        try:
            self._refuse_others()
            if runtime.finished_code is None:
                stack = image.capture(at=at, skip=_skipped_code())
                self._refuse_passing(stack)
        except image.Refused as refused:
            self._tries = tries
            if not refused.is_passing:
                self._passing_since_ns = 0
            self.refusals += 1
            self._reason = f"{refused.reason} ({refused.where})"
            self.refused_longest_ns = max(
                self.refused_longest_ns, time.monotonic_ns() - self._wanted_since_ns
            )
            if at == "call" and self._is_held_up():
                self.give_up(f"it waits for what was sent after another rank's image, where {self._reason}")
                return True
            return False
        except Exception as failure:
            return self._burn(failure)
        if runtime.hooks.before and runtime.finished_code is None and not self._call_hooks():
            return True
        failed = self.taker.take(
            prepare,
            previous=self.epoch,
            epoch=self.wanted,
            started_ns=started_ns,
            waited_since_ns=self._wanted_since_ns,
        )
        return self._burn(failed) if failed is not None else True

    def _refuse_passing(self, stack: Stack) -> None:
        """Raise Refused for what no image can hold, unless it has been met at every place for some seconds: it stays."""
        from ckpt import image

        now_ns = time.monotonic_ns()
        if self._passing_since_ns and now_ns - self._passing_since_ns > _PASSING_NS:
            return
        try:
            image.refuse_passing(stack)
        except image.Refused as refused:
            refused.is_passing = True
            self._passing_since_ns = self._passing_since_ns or now_ns
            raise

    def take_explicitly(self, way: ExplicitWay) -> bool:
        """At a boundary of an explicit program, where all ranks are. Always ``True``: taken, or given up."""
        problem = way.problem()
        if problem:
            self.give_up(problem)
            return True
        runtime = self._runtime
        if runtime.hooks.before and runtime.finished_code is None and not self._call_hooks():
            return True
        started_ns = time.perf_counter_ns()
        way.settle()
        failed = self.taker.take(
            way.prepare,
            previous=self.epoch,
            epoch=self.wanted,
            started_ns=started_ns,
            waited_since_ns=self._wanted_since_ns,
        )
        return self._burn(failed) if failed is not None else True

    def _is_held_up(self) -> bool:
        """Does the program wait, where it cannot be captured, for messages that are held back until it is? Then neither
        ever comes. Some patience, because the message may be another one."""
        port = self._runtime.port
        assert port is not None
        if not port.counters()["held_frames"]:
            return False
        now_ns = time.monotonic_ns()
        self._held_up_since_ns = self._held_up_since_ns or now_ns
        return now_ns - self._held_up_since_ns > _HELD_UP_NS

    def _call_hooks(self) -> bool:
        """Call the program's hooks, without the lock. ``False``: no image is to be taken now, and all is said."""
        runtime, called_for = self._runtime, self.epoch
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
                    self._burn(problem)
                return False
        return bool(self.wanted > self.epoch)

    def rehearse(self) -> None:
        """Do what a capture does, and forget it: called when the program waits for messages anyway.

        A fork leaves every page of this process to be faulted in again by the first write to it, reference counts
        included. Without a rehearsal the next pause pays for that: 0.9 ms instead of 0.1 ms.
        """
        if not self.taker.cold or self._runtime.explicit is not None:
            return
        self.taker.cold = False
        from ckpt import image
        from ckpt.image import moment

        try:
            self._refuse_others()
            image.refuse_passing(image.capture(at="call", skip=(Imager.rehearse.__code__, *_skipped_code())))
            image.look()
            moment.note()
        except Exception:
            return  # out of descriptors, say: the real image meets it too, and says so; the program must not suffer

    def _burn(self, failure: Exception) -> bool:
        """This image cannot be taken, and the program must not suffer from it: no vote, go on."""
        reason = getattr(failure, "reason", None) or f"{type(failure).__name__}: {failure}"
        say_failed(self._runtime, self.wanted, reason, getattr(failure, "path", None) or self.where())
        self._pass_over()
        return True

    def _refuse_others(self) -> None:
        """Only the main thread's stack is captured, and not with a handler between functions of the library."""
        if self._runtime.port is not None and self._runtime.port.interrupts.running:
            raise _refused("a signal handler of the program is running", self.where())
        for thread in self._runtime.threads.others():
            raise _refused(f"the application's thread {thread.name!r} is running", f"thread {thread.name}")

    def where(self) -> str:
        """Where the program is, as ``file:line function``, for status and for a round that waits. From any thread."""
        if self._runtime.finished_code is not None:
            return "finished, serving its peers"
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        inside = ""
        while frame is not None and is_library(frame):
            inside = f" (in {frame.f_code.co_name} of the library)"
            frame = frame.f_back
        if frame is None:
            return "starting"
        code = frame.f_code
        return f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}{inside}"


def inside_library() -> bool:
    """Is a function of this library on the main thread's stack, inside the program's base?"""
    from ckpt.image.stack import BASES

    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in BASES:
        if is_library(frame):
            return True
        frame = frame.f_back
    return False


def is_library(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__") or ""
    return name == "ckpt" or name.startswith(("ckpt.", "transport."))


def _refused(reason: str, where: str) -> image.Refused:
    from ckpt import image

    return image.Refused(reason, where)


@functools.cache
def _skipped_code() -> tuple[Any, ...]:
    from ckpt.runtime import frames_to_skip

    return (Imager.take.__code__, Imager._at_check.__code__, *frames_to_skip())

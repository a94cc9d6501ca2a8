"""★ Where the program can be captured: the looks at its stack, and what they may cost it.

Two places lead to an image: the main thread blocked in the library (``at="call"``) and the interpreter's own check between
two instructions (``at="check"``), for which the helper thread queues a look every few milliseconds. A check that finds the
main thread inside the library does nothing: the library gets there by itself.

A look that is refused names the frame that stands in the way (``Refused.obstacle``). Until that frame has left its
instruction, looks are a comparison in C (``_frames.look``); when it has, or now and then in any case, the whole stack is
looked at again. All of that is paid for from an :class:`~ckpt.capture.check_budget.Allowance`, so a program that can never
be captured runs on as if nobody had asked.

Not here: when an image is wanted (:mod:`ckpt.capture.imager`), what is captured (:mod:`ckpt.image`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Literal

from ckpt.capture.check_budget import Allowance

if TYPE_CHECKING:
    from ckpt import image
    from ckpt.capture.context import RankContext
    from ckpt.image.frames.stack import Stack

__all__ = ["Places", "inside_library", "is_library"]

_CHECKS = 16
"""Places that are looked at after each tick of the helper: some of them lie behind the obstacle."""
_WHOLE_EVERY = 32
"""Ticks after which the whole stack is looked at though the obstacle seems to be there: it may have come again."""
_PASSING_NS = 2_000_000_000
"""So long an object that no image can hold, held by running functions at every place, is taken for one that goes soon."""


class Places:
    """The looks at one rank's stack. Called under the runtime's lock, but for :meth:`queue` and :meth:`where`."""

    def __init__(self, runtime: RankContext, frames_to_skip: Sequence[CodeType]) -> None:
        """``frames_to_skip``: between a look and :meth:`capture`; like the runtime's own they are left out of an image."""
        self._runtime = runtime
        self._skipped = (Places.capture.__code__, *frames_to_skip, *runtime.frames_to_skip())
        self._allowance = Allowance()
        self._obstacle = (0, 0)
        self._ticks = 0
        self._passing_since_ns = 0  # every refusal since then was for something that a function holds

    def begin(self) -> None:
        """Looks are wanted from now on."""
        self._allowance.begin(time.monotonic_ns())
        self._obstacle = (0, 0)
        self._ticks = 0
        self._passing_since_ns = 0

    def queue(self, look: Callable[[], bool]) -> None:
        """Have ``look`` called at the main thread's next checks, and again while it returns ``True``. From any thread."""
        if not self._allowance.is_left(time.monotonic_ns()):
            return
        from ckpt.image.frames import _frames

        self._ticks += 1
        obstacle = (0, 0) if self._ticks % _WHOLE_EVERY == 0 else self._obstacle
        _frames.look(look, *obstacle, _CHECKS)

    def spend(self, since_ns: int) -> None:
        """The program was stopped since then (on ``time.monotonic_ns``)."""
        self._allowance.spend(time.monotonic_ns() - since_ns)

    def is_blocked(self) -> bool:
        """In the main thread: can nothing have changed since the last refusal, or is no time left to look?"""
        now_ns = time.monotonic_ns()
        if self._obstacle[0]:
            from ckpt.image.frames import _frames

            if _frames.on_stack(*self._obstacle):
                return True
        return not self._allowance.is_left(now_ns)

    def goes_on(self) -> bool:
        """Refused at a check: is it worth while to look at the next? What is no frame's fault does not change so soon."""
        is_near = bool(self._obstacle[0] or self._passing_since_ns)
        return is_near and self._allowance.is_left(time.monotonic_ns())

    def has_obstacle(self) -> bool:
        """Is it a frame that stands in the way?"""
        return bool(self._obstacle[0])

    def capture(self, at: Literal["call", "check"], *, passing: bool = True) -> Stack | None:
        """The stack; ``None``: the program has ended. Raises :class:`ckpt.image.Refused`.

        ``passing``: also for what a function holds, and no image can, but will be gone soon.
        """
        from ckpt import image

        began_ns = time.monotonic_ns()
        try:
            self._refuse_others()
            if self._runtime.finished_code is not None:
                return None
            stack = image.capture(at=at, skip=self._skipped)
            if passing:
                self._refuse_passing(stack)
        except image.Refused as refused:
            if not refused.is_passing:
                self._passing_since_ns = 0
            self._obstacle = refused.obstacle
            self.spend(began_ns)
            raise
        self._obstacle = (0, 0)
        return stack

    def rehearse(self) -> None:
        """Do what a capture does, and forget it. Raises whatever comes."""
        from ckpt import image
        from ckpt.image.process import moment

        self._refuse_others()
        image.refuse_passing(image.capture(at="call", skip=(Places.rehearse.__code__, *self._skipped)))
        image.look()
        moment.note()

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
    from ckpt.image.frames.stack import BASES

    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in BASES:
        if is_library(frame):
            return True
        frame = frame.f_back
    return False


def is_library(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__") or ""
    return name == "ckpt" or name.startswith("ckpt.")


def _refused(reason: str, where: str) -> image.Refused:
    from ckpt import image

    return image.Refused(reason, where)

"""Finds places where the program can be captured: looks at its stack, within a budget of time. (driver)

A *place* is a moment at which the stack can be captured. There are two kinds: the main thread is blocked in a library call
(``at="call"``), or the interpreter makes its check between two instructions (``at="check"``; CPython's eval breaker), for
which the helper thread queues a look every few milliseconds. A check that finds the main thread inside a library call has
the look called after that call (:func:`queue_after_call`), unless the call looks itself, when it waits. Where the main
thread waits in C (for a lock, a queue, the end of a thread, a descriptor, a time), the helper thread wakes it, and what is
queued is called there (:mod:`ckpt.image.threads.waking`).

The stacks of the program's other threads are captured at the same instant (:mod:`ckpt.image.threads.captured`).

A look that fails (``Refused``) names the *obstacle*: the frame of the stack that prevents the capture. Until that frame has
left its instruction, a look is a comparison in C (``_frames.look``). When the frame has left, and at every
`_WHOLE_EVERY`-th tick in any case, the whole stack is looked at again. The time for all looks comes from an
:class:`~ckpt.capture.check_budget.CheckBudget`, so a program that can never be captured is hardly slowed.

A *transient* obstacle is an object that no image can hold, referred to by a running function, which will drop it soon.

Not here: when an image is wanted (:mod:`ckpt.capture.imager`), what is captured (:mod:`ckpt.image`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Literal

from ckpt.capture.check_budget import CheckBudget
from ckpt.capture.threads import is_left_out, is_library
from ckpt.compat.stdlib import IMPORT_SYSTEM_FILES

if TYPE_CHECKING:
    from ckpt import image
    from ckpt.capture.context import RankContext
    from ckpt.image.frames.stack import Stack

__all__ = [
    "Places",
    "is_library",
    "library_caller",
    "queue_after_call",
    "queue_at_checks",
    "wake_main_thread",
]

_CHECKS = 512
"""Successive checks that may look after each tick of the helper: the program may pass the obstacle between them. It may be
a call in C of some microseconds that calls a function in Python with a loop. Only C code runs at those before it."""
_CHECKS_IN_IMPORT = 4
"""The same while an import is in progress, which does not end and begin again between two ticks. Ticks come by the clock: on
a busy machine, where a rank gets a small part of the time, so many looks doubled what imports took."""
_CHECKS_IN_CALL = 1024
"""The same where the program is inside a library call, which it may leave after some hundreds of checks. Only C code runs
at each of them."""
_STOP_NS = 10_000_000
"""So long may a thread that is to stop sleep in C, which takes no time of a processor."""
_WHOLE_EVERY = 32
"""At every so many ticks the whole stack is looked at, even if the obstacle seems to be there: it may be another call."""

_IMPORT = "an import is in progress"
"""It says itself, and where the program asked for it, whatever the imported module does just now."""


class Places:
    """The looks at one rank's stack. Methods are called under the runtime's lock, except :meth:`queue` and :meth:`where`."""

    def __init__(self, runtime: RankContext, frames_to_skip: Sequence[CodeType]) -> None:
        """``frames_to_skip``: code of functions whose frames lie between a look and :meth:`capture`.

        These frames and the runtime's own (:meth:`RankContext.frames_to_skip`) are left out of an image.
        """
        self._runtime = runtime
        self._skipped = (Places.capture.__code__, *frames_to_skip, *runtime.frames_to_skip())
        self._allowance = CheckBudget()
        self._pid = os.getpid()
        self._obstacle = (0, 0)
        self._is_import = False
        """The last look has met an import."""
        self._ticks = 0
        # Every look since then has met a transient obstacle that lasts so long at most; 0: the last one did not.
        self._transient_since_ns = 0
        self._transient_limit_ns = 0
        self.is_awaited = False
        """Does the main thread itself wait for the image? Then what it holds is there for as long as it waits."""

    def makes_no_calls(self) -> bool:
        """Must calls that were queued not be made? In a process that the program has forked, which has them, too; and while
        the interpreter ends, when nothing can be imported any more, and finalizers of the program still come to checks."""
        return os.getpid() != self._pid or sys.is_finalizing()

    def begin(self) -> None:
        """A search for a place begins."""
        self._allowance.begin(time.monotonic_ns())
        self._obstacle, self._is_import = (0, 0), False
        self._ticks = 0
        self._transient_since_ns = 0

    def queue(self, look: Callable[[], bool]) -> None:
        """Have ``look`` called at the main thread's next check, and again while it returns ``True``. From any thread."""
        if not self._allowance.is_left(time.monotonic_ns()):
            return
        from ckpt.image.frames import _frames

        self._ticks += 1
        obstacle = (0, 0) if self._ticks % _WHOLE_EVERY == 0 else self._obstacle
        queue_at_checks(_frames.look, look, obstacle, _CHECKS_IN_IMPORT if self._is_import else _CHECKS)
        wake_main_thread()

    def queue_after(self, caller: FrameType, look: Callable[[], bool]) -> None:
        """At a check inside a library call: have ``look`` called as by :meth:`queue`, once ``caller`` goes on
        (:func:`queue_after_call`)."""
        from ckpt.image.frames import _frames

        began_ns = time.monotonic_ns()
        queue_after_call(_frames.look, look, caller)
        self.spend(began_ns)

    def spend(self, since_ns: int, since_cpu_ns: int | None = None) -> None:
        """Take from the allowance: the program has been stopped since ``since_ns`` (on ``time.monotonic_ns``).

        ``since_cpu_ns``: on ``time.process_time_ns``, then. What is beyond the processor's time and `_STOP_NS`, others have
        had: on a machine with thirty processes for each core, one look at threads cost the looks of ten seconds.
        """
        took_ns = time.monotonic_ns() - since_ns
        if since_cpu_ns is not None:
            took_ns = min(took_ns, time.process_time_ns() - since_cpu_ns + _STOP_NS)
        self._allowance.spend(took_ns)

    def is_blocked(self) -> bool:
        """In the main thread: is the obstacle still on the stack, or is no time left to look?"""
        now_ns = time.monotonic_ns()
        if self._obstacle[0]:
            from ckpt.image.frames import _frames

            if _frames.on_stack(*self._obstacle):
                return True
        return not self._allowance.is_left(now_ns)

    def looks_again(self) -> bool:
        """After a look that failed at a check: is it useful to look at the next check?

        It is where the obstacle is a frame or a transient one. Other reasons (a thread, a handler) do not change so soon.
        """
        is_near = bool(self._obstacle[0] or self._transient_since_ns)
        return is_near and self._allowance.is_left(time.monotonic_ns())

    def has_obstacle(self) -> bool:
        """In the main thread: is the reason of the last failed look a frame that is still on the stack?"""
        from ckpt.image.frames import _frames

        return bool(self._obstacle[0]) and _frames.on_stack(*self._obstacle)

    def capture(self, at: Literal["call", "check"], *, transient: bool = True) -> Stack | None:
        """The stack; ``None``: the program has ended. Raises :class:`ckpt.image.Refused` if it cannot be captured here.

        ``transient``: raise for transient obstacles too, but not for other threads, which are to be stopped next
        (:meth:`others`). Otherwise they are stopped for a moment, to see whether they can be captured.
        """
        from ckpt import image

        began_ns, began_cpu_ns = time.monotonic_ns(), time.process_time_ns()
        try:
            if (layer := self._runtime.layer) is not None and (why := layer.obstacle()):
                raise image.Refused(why)
            self._refuse_handler()
            if self._runtime.finished_code is not None:
                return None
            stack = image.capture(at=at, skip=self._skipped)
            if transient:
                self._refuse_transient(stack)
            else:
                self._try_others(stack)
        except image.Refused as refused:
            if not refused.is_transient:
                self._transient_since_ns = 0
            importer = _importer(sys._getframe())
            self._is_import = bool(importer)
            if importer:
                refused.reason, refused.where = _IMPORT, importer
            self._obstacle = refused.obstacle
            self.spend(began_ns, began_cpu_ns)
            raise
        self._obstacle, self._is_import = (0, 0), False
        return stack

    def others(self, stack: Stack) -> image.StoppedThreads:
        """The program's other threads, which are to be stopped; ``stack``: of the main thread."""
        from ckpt import image

        image.look_at_libraries()
        left_out = image.LeftOut(is_left_out, image.refuse_running)
        return image.StoppedThreads(stack, self._others, image.refuse_transient, left_out)

    def _try_others(self, stack: Stack) -> None:
        """Stop the other threads for a moment. Raises Refused: one of them cannot be captured."""
        others = self.others(stack)
        try:
            others.stop()
        finally:
            others.go_on()

    def rehearse(self) -> None:
        """Do the work of a capture and discard the result. Exceptions pass through."""
        from ckpt import image

        self._refuse_handler()
        stack = image.capture(at="call", skip=(Places.rehearse.__code__, *self._skipped))
        image.refuse_transient(stack)
        self.others(stack)
        self._others()
        image.refresh_modules()

    def _refuse_transient(self, stack: Stack) -> None:
        """Raise Refused for a transient obstacle, unless every look for as long as such an obstacle lasts has met one."""
        from ckpt import image

        now_ns = time.monotonic_ns()
        try:
            image.refuse_transient(stack)
        except image.Refused as refused:
            limit_ns = refused.hooked_limit_ns if self._runtime.hooks.before else refused.limit_ns
            limit_ns = min(limit_ns, image.Refused.limit_ns) if self.is_awaited else limit_ns
            if limit_ns != self._transient_limit_ns:
                self._transient_since_ns, self._transient_limit_ns = 0, limit_ns
            if self._transient_since_ns and now_ns - self._transient_since_ns > limit_ns:
                image.forget()
                return
            refused.is_transient = True
            self._transient_since_ns = self._transient_since_ns or now_ns
            raise

    def _refuse_handler(self) -> None:
        """Raise Refused while a signal handler of the program runs: it may run between two functions of the library."""
        if self._runtime.port is not None and self._runtime.port.interrupts.running:
            raise _refused("a signal handler of the program is running", self.where())

    def _others(self) -> list[threading.Thread]:
        """The program's other threads that are to be captured. Raises Refused for one that has no thread object."""
        found = []
        for thread in self._runtime.threads.others():
            if not isinstance(thread, threading.Thread):
                raise _refused(
                    f"thread {thread.name!r} was not started by threading", f"thread {thread.name}"
                )
            found.append(thread)
        return found

    def where(self) -> str:
        """Where the program is, as ``file:line function``, for `ckpt status` and for reports of a round. From any thread."""
        if self._runtime.finished_code is not None:
            return "finished, serving its peers"
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        inside = ""
        while frame is not None and is_library(frame):
            inside = f" (in {frame.f_code.co_name} of the library)"
            frame = frame.f_back
        if frame is None:
            return "starting"
        return f"{_place(frame)}{inside}"

    def running(self, where: str) -> str:
        """What the main thread does at this place, for people; "": not known. From any thread."""
        from ckpt.image.frames import c_waits

        ident = threading.main_thread().ident or 0
        if importer := _importer(sys._current_frames().get(ident)):
            return f"{_IMPORT} ({importer})"
        found = c_waits.running(ident) if ident != threading.get_ident() else ""
        return f"{found} ({where})" if found else ""


def wake_main_thread() -> None:
    """Have the main thread make its queued calls, if it is inside of a call that only waits. An event loop is woken by its
    own means. From any thread."""
    from ckpt import image

    ident = threading.main_thread().ident
    if ident is None:
        return
    if "asyncio" in sys.modules:
        from ckpt.image.loops.event_loops import wake_loop

        if wake_loop(ident):
            return
    if image.is_waiting(ident):
        image.wake(ident)


def queue_at_checks(
    queue: Callable[[Callable[[], Any], int, int, int], object],
    call: Callable[[], Any],
    obstacle: tuple[int, int] = (0, 0),
    checks: int = _CHECKS,
) -> None:
    """Have ``call`` made at the next ``checks`` checks, until it says that it is done or the helper's next tick comes.
    ``queue``: the function of ``_frames`` that queues such calls."""
    queue(call, *obstacle, checks)


def queue_after_call(
    queue: Callable[[Callable[[], Any], int, int, int], object], call: Callable[[], Any], caller: FrameType
) -> None:
    """At a check inside a library call: have ``call`` made once ``caller`` goes on, the frame that has called the library.

    ``queue``: the function of ``_frames`` that queues such calls. A program that calls the library all the time without
    having to wait there, between long calls in C, is met by checks only where a call of the library has just begun.
    """
    from ckpt.image.frames import _frames

    queue(call, *_frames.frame_place(caller), _CHECKS_IN_CALL)


def library_caller(*, imports: bool = True) -> FrameType | None:
    """The frame, on the calling thread's stack above the base frame of the program, that has called this library, as a rule
    the program's; ``None``: no function of the library is there.

    The caller of this function and the frame of this function itself are not counted. ``imports``: count those of the
    library that the import system has called, around the code of each module (:mod:`ckpt.image.modules.package_baseline`).
    """
    from ckpt.image.frames.running import BASES

    found: FrameType | None = None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in BASES:
        if is_library(frame) and (imports or not _is_of_imports(frame.f_back)):
            found = frame.f_back or frame
        frame = frame.f_back
    return found


def _is_of_imports(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename in IMPORT_SYSTEM_FILES


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"


def _importer(frame: FrameType | None) -> str:
    """The place that imports: the caller of the outermost frame of the import system; "": nothing does."""
    from ckpt.image.frames.running import BASES

    found, is_import = "", False
    while frame is not None and frame.f_code not in BASES:
        was_import, is_import = is_import, _is_of_imports(frame)
        if was_import and not is_import:
            found = _place(frame)
        frame = frame.f_back
    return found


def _refused(reason: str, where: str) -> image.Refused:
    from ckpt import image

    return image.Refused(reason, where)

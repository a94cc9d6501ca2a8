"""The stacks of the program's other threads, captured at the instant at which the main thread's stack is.

The thread that captures holds the interpreter's lock (GIL), so no other thread runs Python code while stacks are read. A
thread can be captured if it stands at a check between two instructions, or is inside of a call that only waits or that
images answer (:mod:`ckpt.image.frames.c_waits`). One that is inside of other C code, or of this library, is refused by
name, and looked at again some milliseconds later.

::

    stop       each thread stops at the next line that it begins, or waits in C. From then on the lock may be released while
               the image is prepared: no thread changes anything
    capture    just before the fork: their stacks. A wait may have ended meanwhile; then its thread has stopped at the next
               line, which is right if nothing else than storing the result lies between
    go_on      the image has been taken, or given up

What belongs to one thread alone, besides its stack: the context, the values of ``threading.local``, the signal mask.

Not here: which threads are the program's (:mod:`ckpt.capture.threads`), how they begin again
(:mod:`ckpt.image.threads.restart`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from ckpt.compat import threads
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames, c_waits
from ckpt.image.frames.stack import CapturedThread, Stack, capture_thread
from ckpt.image.frames.suspended import location
from ckpt.image.threads.contexts import base_context
from ckpt.image.threads.places import Place, has_only_ended_its_wait, place_of
from ckpt.transport.records import NamedTuple

__all__ = [
    "LeftOut",
    "StoppedThreads",
    "capture_threads",
    "is_waiting",
    "keeping_the_lock",
    "set_switch_interval",
]

_SIGNALS = 64
_NEXT_WITHIN_S = 0.01
"""So long after one thread has stopped at its next line, or has gone on from one where it cannot be captured, it or another
one must have stopped: one that has not is in a long call in C. Time in which it is ready to run and gets no processor does
not count."""
_ALL_WITHIN_S = 0.2
_STEPS = 1000
"""So many lines may threads go on from where they cannot be captured until another one must have stopped. One whose C code
calls Python code all the time (``sum`` of a generator) comes to no other place."""
_STEPS_WITHIN_S = 1.0
"""The same bound in time, for a busy machine on which each line may take a turn of the scheduler."""
_STEPS_OUT = 200
"""So many lines all threads together may go on from where they hold what no image can have for the moment, as a transaction
of a database. One that stopped inside of its transaction kept others, which waited for its end, from stopping."""
_PAUSE_S = 0.00005
_LONG_PAUSE_S = 0.0005  # after `_NEXT_WITHIN_S`
_KEEP_S = 1000.0
_HALF_MICROSECOND_S = 0.5e-6
_THREAD_CLOCK = 6  # CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED, in the id of a clock (Linux, posix-timers.h)


def capture_threads(others: Iterable[threading.Thread]) -> list[CapturedThread]:
    """All of these threads, in their order. Raises :class:`Refused`, with the name of the thread and where it is."""
    return [_captured(thread) for thread in others]


@contextlib.contextmanager
def keeping_the_lock() -> Iterator[None]:
    """No thread asks this one for the interpreter's lock, as who waits for it does every 5 ms: in that time some thirty
    stacks are captured, and with more of them no try to fork would do. Who has begun to wait before asks once more."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_KEEP_S)
    try:
        yield
    finally:  # in the child, too
        set_switch_interval(interval_s)


def set_switch_interval(seconds: float) -> None:
    """To what `sys.getswitchinterval` has given. The interpreter cuts it to whole microseconds, and what it gives for 100 of
    them is a little less."""
    sys.setswitchinterval(seconds + _HALF_MICROSECOND_S)


class LeftOut(NamedTuple):
    """The threads that stop, but are no part of the image. ``includes(thread)``: is it one? ``refuse(thread)`` raises
    Refused where the thread does what an image would lose. It stops at its next line as all do, and changes nothing
    between two lines."""

    includes: Callable[[threading.Thread], bool]
    refuse: Callable[[threading.Thread], object]


class StoppedThreads:
    """The program's other threads, from when they have stopped until they go on."""

    def __init__(
        self,
        stack: Stack,
        find: Callable[[], Sequence[threading.Thread]],
        check: Callable[[Stack], object] = lambda stack: None,
        left_out: LeftOut | None = None,
    ) -> None:
        """``stack``: of the main thread; it gets the stacks of the others. ``find()``: the threads that are to be stopped.
        ``check(stack)`` raises Refused if no image can be taken of what the threads do."""
        self._stack = stack
        self._find = find
        self._check = check
        self._left_out = left_out or LeftOut(lambda thread: False, lambda thread: None)
        self._others: Sequence[threading.Thread] = ()
        self._threads: Sequence[threading.Thread] = ()
        self._places: dict[int, Place] = {}
        self._steps_out = 0

    def stop(self) -> None:
        """Stop them. Raises :class:`Refused`, and none is stopped: one does not come to its next line in time, or cannot be
        captured there."""
        found = self._find()
        if not found:
            return
        self._others = [thread for thread in found if self._left_out.includes(thread)]
        self._threads = [thread for thread in found if thread not in self._others] if self._others else found
        try:
            idents = tuple(thread.ident or 0 for thread in found)
            if not _frames.stop(idents, threads.registry_lock()):
                raise Refused("a thread of the program begins, ends, or is traced")
            self._wait_until_they_stand()
            if {id(thread) for thread in self._find()} != {id(thread) for thread in found}:
                raise Refused("a thread has begun or ended meanwhile")
            self._places = {thread.ident or 0: place_of(thread.ident or 0) for thread in self._threads}
            self.capture()
            self._check(self._stack)
        except BaseException:
            self.go_on()
            raise

    def _wait_until_they_stand(self) -> None:
        since_s = latest_s = stopped_s = time.monotonic()
        self._steps_out = _STEPS_OUT
        left, steps = len(self._threads) + 1, 0
        running = list(self._threads)
        had_s: list[float] = []
        while True:
            looks = {thread: self._look_at(thread.ident or 0) for thread in running}
            running = [thread for thread, look in looks.items() if look != "stands"]
            if not running and not threads.is_registry_locked():
                return
            now_s = time.monotonic()
            stepping = [thread for thread, look in looks.items() if look == "steps"]
            if len(running) < left:
                left, stopped_s, steps = len(running), now_s, 0
            elif stepping:
                steps += 1
                if steps > _STEPS or now_s - stopped_s > _STEPS_WITHIN_S:
                    raise _running(stepping[0])
            if stepping or stopped_s == now_s:
                latest_s = now_s
                had_s = [_processor_s(thread) for thread in running]
            is_late = now_s - latest_s > _NEXT_WITHIN_S
            if is_late and (
                now_s - since_s > _ALL_WITHIN_S or not any(map(_lacks_a_processor, running, had_s))
            ):
                raise _running(running[0]) if running else Refused("a thread begins or ends")
            time.sleep(_LONG_PAUSE_S if is_late else _PAUSE_S)

    def _look_at(self, ident: int) -> Literal["stands", "steps", "runs"]:
        """stands: the thread will do nothing but end its wait (one that waits for a table of threads would keep others
        out). steps: it had stopped at a line where it cannot be captured, under C code that called it, or where it holds
        what no image can have for the moment, and goes on to the next."""
        if _frames.has_stopped(ident):
            is_whole = False
            try:
                stack = capture_thread(ident)
                is_whole = True
                if self._steps_out > 0:
                    self._check(stack)
            except Refused:
                self._steps_out -= is_whole
                _frames.step(ident)
                return "steps"
            return "stands"
        if c_waits.is_answered(ident):
            return "stands"
        found = c_waits.waits_for(ident)
        runs = found is None or any(found is lock for lock in threads.own_locks())
        return "runs" if runs else "stands"

    @property
    def are_there(self) -> bool:
        """Are there such threads?"""
        return bool(self._threads or self._others)

    def capture(self) -> int:
        """Put their stacks into the main thread's. Returns the number for which they are valid
        (:func:`ckpt.image.frames._frames.switches`). Raises :class:`Refused`: a wait has ended in the middle of a line."""
        switches = _frames.switches()
        for thread in self._threads:
            ident = thread.ident or 0
            if not has_only_ended_its_wait(self._places[ident], place_of(ident)):
                raise _running(thread)
        for thread in self._others:
            self._left_out.refuse(thread)
        self._stack.threads = capture_threads(self._threads)
        return switches

    @staticmethod
    def is_refusal(failure: Exception) -> bool:
        """Does the failure say that a thread cannot be captured now?"""
        return isinstance(failure, Refused)

    def go_on(self) -> None:
        """Have them go on; where none is stopped, nothing happens."""
        self._threads, self._others, self._places = (), (), {}
        _frames.go_on()


def _processor_s(thread: threading.Thread) -> float:
    """How long the thread has run so far; 0: it has ended."""
    try:
        return time.clock_gettime((~(thread.native_id or 0) << 3) | _THREAD_CLOCK)
    except OSError:
        return 0.0


def _lacks_a_processor(thread: threading.Thread, had_s: float) -> bool:
    """Is the thread ready to run, and has it hardly run since ``had_s``? On a busy machine it waits for others there."""
    try:
        is_ready = _frames.system_call(thread.native_id or 0).startswith("running")
    except OSError:
        return False
    return is_ready and _processor_s(thread) - had_s < _NEXT_WITHIN_S


def _running(thread: threading.Thread) -> Refused:
    try:
        capture_thread(thread.ident or 0)
    except Refused as refused:
        return _refused(thread, f"cannot be captured here: {refused.reason}", refused.where)
    at = [location(code, max(0, lasti)) for _, code, lasti, _ in _frames.places(thread.ident or 0, 1)]
    return _refused(thread, "has not come to the beginning of a line", at[0] if at else "")


def is_waiting(ident: int) -> bool:
    """Is this thread, another one, inside of a call that only waits?"""
    return c_waits.waits_for(ident) is not None


def _holds_an_item(thread: threading.Thread) -> bool:
    ident = thread.ident or 0
    if _frames.has_stopped(ident) or not threads.hands_over(c_waits.waits_for(ident)):
        return False
    try:
        return threads.has_been_woken(_frames.system_call(thread.native_id or 0))
    except OSError:  # the kernel does not tell
        return False


def _may_have_read(thread: threading.Thread) -> bool:
    """Is the thread in a call that takes something from a pipe or socket, and may have done so already? While it sleeps in
    the kernel it has not."""
    ident = thread.ident or 0
    if _frames.has_stopped(ident) or c_waits.is_answered(ident):
        return False
    descriptor = c_waits.reads_from(ident)
    if descriptor < 0:
        return False
    try:
        number, *fields = _frames.system_call(thread.native_id or 0).split()
    except OSError:  # the kernel does not tell
        return True
    if not number.isdigit() or not fields:
        return True
    return int(number) != threads.POLL_CALL and int(fields[0], 16) != descriptor


def _captured(thread: threading.Thread) -> CapturedThread:
    ident = thread.ident
    if ident is None:
        raise _refused(thread, "is being started")
    if threads.is_foreign(thread):
        raise _refused(thread, "was started by C code, not by threading")
    try:
        stack = capture_thread(ident)
        if _holds_an_item(thread):
            raise Refused("it is being given what it waits for")
        if _may_have_read(thread):
            raise Refused("it has just read something")
        key, context = _frames.thread_values(ident)
        context = base_context(context, stack.context_runs())
        blocked = _signals(_frames.blocked_signals(thread.native_id or 0))
    except Refused as refused:
        raise _refused(thread, f"cannot be captured here: {refused.reason}", refused.where) from None
    except (LookupError, OSError):
        raise _refused(thread, "begins or ends") from None
    if not stack.frames or stack.frames[0].code is not threads.FIRST_CODE:
        raise _refused(thread, "was not started by threading.Thread.start()")
    return CapturedThread(thread, stack, context, blocked, threads.pool_queue(thread), key)


def _refused(thread: threading.Thread, reason: str, where: str = "") -> Refused:
    return Refused(f"thread {thread.name!r} {reason}", where)


def _signals(mask: int) -> tuple[int, ...]:
    return tuple(number for number in range(1, _SIGNALS + 1) if mask >> (number - 1) & 1)

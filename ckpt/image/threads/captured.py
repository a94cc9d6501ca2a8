"""The stacks of the program's other threads, captured at the instant at which the main thread's stack is.

The thread that captures holds the interpreter's lock (GIL), so no other thread runs Python code while stacks are read. A thread
can be captured if it stands at a check between two instructions, or is inside of a call that only waits
(:mod:`ckpt.image.frames.c_waits`). One that is inside of other C code, or of this library, is refused by name, and looked at
again some milliseconds later.

::

    capture_threads     could all be captured now? Nobody is stopped
    stop_threads        reads the stacks, and stops the threads where they are (``frames_threads.c``): from then on the lock
                        may be released while the image is prepared, and all stand still together
    go_on               the image has been taken, or given up

What belongs to one thread alone, besides its stack: the context, the values of ``threading.local``, the signal mask.

Not here: which threads are the program's (:mod:`ckpt.capture.threads`), how they begin again (:mod:`ckpt.image.threads.restart`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from ckpt.compat import threads
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames, c_waits
from ckpt.image.frames.stack import CapturedThread, capture_thread

__all__ = ["capture_threads", "go_on", "is_waiting", "stop_threads"]

_SIGNALS = 64
_TRIES = 20
_PAUSE_S = 0.0005

go_on = _frames.go_on
"""Have the stopped threads go on; none: nothing happens."""


def capture_threads(others: Iterable[threading.Thread]) -> list[CapturedThread]:
    """All of these threads, in their order. Raises :class:`Refused`, with the name of the thread and where it is."""
    return [_captured(thread) for thread in others]


def stop_threads(find: Callable[[], Iterable[threading.Thread]]) -> list[CapturedThread]:
    """Capture the threads that ``find`` returns, and stop them until :func:`go_on`. Raises :class:`Refused`: one cannot be
    captured, or they cannot be stopped at this moment; none is stopped then."""
    refused = Refused("the program's other threads could not be stopped together")
    for _ in range(_TRIES):
        switches = _frames.switches()
        try:
            captured = capture_threads(find())
        except Refused as failure:
            refused = failure
        else:
            if not captured:
                return captured
            if _frames.stop(tuple(each.stack.ident for each in captured), switches):
                if not threads.is_registry_locked():
                    return captured
                go_on()
        time.sleep(_PAUSE_S)  # they run meanwhile
    raise refused


def is_waiting(ident: int) -> bool:
    """Is this thread, another one, inside of a call that only waits?"""
    frames = _frames.walk((), (), False, ident)[0]
    return bool(frames) and c_waits.waits(frames[0])


def _captured(thread: threading.Thread) -> CapturedThread:
    ident = thread.ident
    if ident is None:
        raise _refused(thread, "is being started")
    if threads.is_foreign(thread):
        raise _refused(thread, "was started by C code, not by threading")
    try:
        stack = capture_thread(ident)
        key, context = _frames.thread_values(ident)
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

"""The stacks of the program's other threads, captured at the instant at which the main thread's stack is.

The thread that captures holds the interpreter's lock (GIL), so no other thread runs Python code meanwhile: all stand still
together, wherever they are. A thread can be captured if it stands at a check between two instructions, or is inside of a call
that only waits (:mod:`ckpt.image.frames.c_waits`). One that is inside of other C code, or of this library, is refused by name,
and looked at again some milliseconds later; none is stopped for that.

What belongs to one thread alone, besides its stack: the context, the values of ``threading.local``, the signal mask.

Not here: which threads are the program's (:mod:`ckpt.capture.threads`), how they begin again (:mod:`ckpt.image.threads.restart`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ckpt.compat import threads
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames, c_waits
from ckpt.image.frames.stack import CapturedThread, capture_thread

__all__ = ["capture_threads", "is_waiting"]

_SIGNALS = 64


def capture_threads(others: Iterable[threading.Thread]) -> list[CapturedThread]:
    """All of these threads, in their order. Raises :class:`Refused`, with the name of the thread and where it is."""
    return [_captured(thread) for thread in others]


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
        blocked = _blocked_signals(thread.native_id)
    except Refused as refused:
        raise _refused(thread, f"cannot be captured here: {refused.reason}", refused.where) from None
    except (LookupError, OSError):
        raise _refused(thread, "begins or ends") from None
    if not stack.frames or stack.frames[0].code is not threads.FIRST_CODE:
        raise _refused(thread, "was not started by threading.Thread.start()")
    return CapturedThread(thread, stack, context, blocked, threads.pool_queue(thread), key)


def _refused(thread: threading.Thread, reason: str, where: str = "") -> Refused:
    return Refused(f"thread {thread.name!r} {reason}", where)


def _blocked_signals(native_id: int | None) -> tuple[int, ...]:
    """The signal mask of a thread of this process. Raises OSError: there is no such thread."""
    with open(f"/proc/self/task/{native_id}/status", "rb", buffering=0) as file:
        text: bytes = file.read(8192) or b""
    mask = int(text.partition(b"SigBlk:\t")[2][:16], 16)
    return tuple(number for number in range(1, _SIGNALS + 1) if mask >> (number - 1) & 1)

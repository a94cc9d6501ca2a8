"""Wakes the main thread from a call in C that only waits, so that it makes the calls that are queued for it.

CPython makes queued calls between instructions, and in waits for locks that a signal interrupts. Other waits (``select``,
``poll``, ``time.sleep``, ``os.read``) only call the Python handlers of the signals that have arrived, and wait on. So the
signal that is used here has a handler: a function in C that makes the queued calls. It adds no frame, so a capture finds the
wait itself as what the thread does.

    prepared      a signal that nothing uses, of the real-time ones, has the handler
    taken         the program, or a library in C, has set another one since: nothing is sent any more

Neither the program nor an image sees the handler (:func:`ckpt.compat.signals.hide`). A program that reads the numbers of
signals from ``signal.set_wakeup_fd`` gets that of this one, too.

Not here: which calls are waits (:mod:`ckpt.image.frames.c_waits`), what is queued.
"""

from __future__ import annotations

import contextlib
import signal

from ckpt.compat import signals
from ckpt.compat.accelerators import signal as signal_in_c
from ckpt.image.frames import _frames

__all__ = ["prepare", "wake"]

_prepared: list[tuple[int, int]] = []
"""The signal, and the function in C of handlers in Python: so a library in C that has set its own is told."""


def prepare() -> None:
    """From now on :func:`wake` can be called. In the main thread, before the program runs. Does nothing where no signal is
    left, or where frames cannot be captured."""
    if not _frames.SUPPORTED:
        return
    signals.hide(_frames.make_queued_calls)
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN - 1, -1):
        if signal_in_c.getsignal(number) == signal.SIG_DFL and not _frames.signal_function(number):
            signal_in_c.signal(number, _frames.make_queued_calls)
            _prepared[:] = [(number, _frames.signal_function(number))]
            return


def wake(ident: int) -> None:
    """Have the main thread, whose identifier this is, make its queued calls, where it waits. From another thread."""
    for number, function in _prepared:
        if (
            signal_in_c.getsignal(number) is _frames.make_queued_calls
            and _frames.signal_function(number) == function
        ):
            # no more signals may wait (RLIMIT_SIGPENDING): asked again soon
            with contextlib.suppress(BlockingIOError):
                signal.pthread_kill(ident, number)

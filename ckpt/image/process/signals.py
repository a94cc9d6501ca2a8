"""Signals of the program: handlers, the mask, interval timers.

At load the handlers are put in force while much of the program is not there yet, and what calls them would come before
its time: a timer that was about to end, a signal from outside. So signals are held back, blocked, from
:func:`put_in_force` until the innermost frame of the program runs again, which is where the interpreter calls the handler
then; timers are started just before.

Not here: signals of the job's own (none in ranks but SIGKILL).
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Timing", "let_through", "note", "put_in_force", "release"]

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Timing(NamedTuple):
    """``timers``: for each kind, seconds until its signal, and between the next. ``blocked``: numbers of signals."""

    timers: tuple[tuple[float, float], ...]
    blocked: tuple[int, ...]


_held: Timing | None = None


def note(timing: Timing) -> dict[str, Any]:
    handlers: dict[int, Any] = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if handler is None or isinstance(handler, signal.Handlers):
            handlers[int(number)] = None if handler is None else int(handler)
        else:
            handlers[int(number)] = handler
    return {"handlers": handlers, "timers": timing.timers, "blocked": timing.blocked}


def put_in_force(saved: dict[str, Any]) -> None:
    """The handlers; their signals wait for the program."""
    global _held
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _held = Timing(saved["timers"], saved["blocked"])
    for number, handler in saved["handlers"].items():
        if handler is None:
            continue
        present = signal.getsignal(number)
        if present is handler or (isinstance(present, signal.Handlers) and int(present) == handler):
            continue
        with contextlib.suppress(OSError):  # SIGKILL and its like, which nobody can have changed either
            signal.signal(number, handler)


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """For code of the program's that runs before its frames do; what it starts shall have the program's mask."""
    if _held is None:
        yield
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def release() -> tuple[int, ...] | None:
    """Start the timers. Returns the signals to be blocked by whoever lets the program run; None: as they are."""
    global _held
    timing, _held = _held, None
    if timing is None:
        return None
    for kind, (first, interval) in zip(_TIMERS, timing.timers, strict=True):
        if first or interval:
            signal.setitimer(kind, first, interval)
    return timing.blocked

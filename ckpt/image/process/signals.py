"""Signals of the program: handlers, the signal mask, interval timers, and signals whose handlers have not been called yet.

The handlers are set during the load, when much of the program does not exist yet. A signal from outside, or from a timer,
would then call a handler too early. So all signals are blocked from :func:`set_handlers` until the innermost frame of the
program runs again; the interpreter then calls the handlers of the signals that have arrived. Just before that the timers are
started, and signals that had arrived before the image are sent again (:func:`start_timers`). A one-shot timer that is over
while a look at the program is under way would otherwise be lost, and a program that waits for it would wait for ever.

Not here: signals of the job's own (none in ranks but SIGKILL).
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from ckpt.compat.signals import signal_handlers
from ckpt.transport.records import NamedTuple

__all__ = ["TIMERS", "Timing", "declare_deferred", "program_mask", "note", "set_handlers", "start_timers"]

TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Timing(NamedTuple):
    """The interval timers and the signal mask of a process. ``timers``: for real, virtual and profiling timer, (seconds
    until the signal, interval in seconds), as :func:`signal.getitimer`. ``blocked``: numbers of the blocked signals.
    ``arrived``: numbers of the signals that have arrived, and whose handlers have not been called. ``woken``: the descriptor
    of :func:`signal.set_wakeup_fd`, -1: none."""

    timers: tuple[tuple[float, float], ...]
    blocked: tuple[int, ...]
    arrived: tuple[int, ...] = ()
    woken: int = -1


_timing: Timing | None = None
_OF_THE_JOB = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""They end the job: a restart, which the user has asked for, does not repeat them."""

deferred_signals: Callable[[], tuple[int, ...]] = tuple


def declare_deferred(function: Callable[[], tuple[int, ...]]) -> None:
    """``function()`` returns the numbers of the signals that have arrived, and whose handlers others will call later."""
    global deferred_signals
    deferred_signals = function


def note(timing: Timing) -> dict[str, Any]:
    """The state of signals for an image. A handler is a number (SIG_DFL, SIG_IGN), an object of the program, or None: it was
    not set from Python.
    """
    handlers = signal_handlers()
    arrived = tuple(
        number
        for number in timing.arrived
        if number not in _OF_THE_JOB and (number in timing.blocked or callable(handlers.get(number)))
    )
    return {
        "handlers": handlers,
        "timers": timing.timers,
        "blocked": timing.blocked,
        "arrived": arrived,
        "woken": _woken(),
    }


def _woken() -> int:
    """The descriptor by which signals wake the program (trio, twisted). Only a new one tells which is set."""
    found = signal.set_wakeup_fd(-1)
    if found != -1:
        with contextlib.suppress(OSError, ValueError):  # in a forked copy another file has this number
            signal.set_wakeup_fd(found, warn_on_full_buffer=False)
    return found


def set_handlers(saved: dict[str, Any]) -> None:
    """Block all signals and set the handlers."""
    global _timing
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _timing = Timing(saved["timers"], saved["blocked"], saved.get("arrived", ()), saved.get("woken", -1))
    present = signal_handlers()
    for number, handler in saved["handlers"].items():
        now = present.get(number)
        if handler is None or now is handler or (type(now) is int and now == handler):
            continue
        # SIGKILL and SIGSTOP cannot be set; the program has not changed them either
        with contextlib.suppress(OSError):
            signal.signal(number, handler)


@contextlib.contextmanager
def program_mask() -> Iterator[None]:
    """A context in which code of the program runs before its frames do (hooks): the program's own signal mask is set, so
    that threads and processes which this code starts inherit it.
    """
    if _timing is None:
        yield
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, _timing.blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def start_timers() -> tuple[int, ...] | None:
    """Start the timers, and send the signals again that had arrived. Returns the numbers of the signals that the caller must
    block when it lets the program run; None: the mask stays as it is, because no image was loaded.
    """
    global _timing
    timing, _timing = _timing, None
    if timing is None:
        return None
    for timer, (first, interval) in zip(TIMERS, timing.timers, strict=True):
        if first or interval:
            signal.setitimer(timer, first, interval)
    # A loop of asyncio has set its own, which has another number by now.
    if timing.woken != -1 and _woken() == -1:
        with contextlib.suppress(OSError, ValueError):  # the program has closed it
            signal.set_wakeup_fd(timing.woken, warn_on_full_buffer=False)
    for number in timing.arrived:
        signal.raise_signal(number)  # it is blocked until the program runs
    return timing.blocked

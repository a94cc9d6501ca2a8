"""★ What signals do to an agent, and that none of it is handed on to its ranks.

    SIGCHLD                         wakes the loop: an adopted orphan is reaped at once
    SIGTERM                         wakes the loop, and means something only while there is no controller
    SIGINT, SIGHUP, SIGQUIT, …      nothing: whoever signals all processes of a job (a batch system, a service manager)
                                    signals the controller too, and that one decides

A rank starts as a program does that the user has started: what was ignored there is ignored (`nohup`, a shell's background
job), everything else is as by default, nothing is blocked. But for SIGCHLD: ignored, no death of a child could be
noticed.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

_NOT_OURS: Final = (
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
)
_WAKES: Final = (signal.SIGCHLD, signal.SIGTERM)


class Dispositions:
    """Those of an agent, from its making on."""

    def __init__(self) -> None:
        self._ignored = {n for n in (*_NOT_OURS, signal.SIGTERM) if signal.getsignal(n) is signal.SIG_IGN}
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in _NOT_OURS:
            signal.signal(number, signal.SIG_IGN)
        for number in _WAKES:
            signal.signal(number, _wakes)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Readable when `received` has something."""
        return self._reading

    def received(self) -> set[int]:
        """Numbers of the signals that have come."""
        try:
            return set(os.read(self._reading, 1 << 12))
        except BlockingIOError:
            return set()

    def restore(self) -> None:
        """In a forked rank: as the user's program would have found it."""
        signal.set_wakeup_fd(-1)
        os.close(self._reading)
        os.close(self._writing)
        for number in (*_NOT_OURS, *_WAKES):
            signal.signal(number, signal.SIG_IGN if number in self._ignored else signal.SIG_DFL)


def _wakes(_number: int, _frame: FrameType | None) -> None:
    """The descriptor is what counts."""

"""The agent's signal dispositions; its ranks do not inherit them.

    SIGCHLD                         wakes the loop: an adopted orphan is reaped at once
    SIGTERM                         wakes the loop; it has an effect only while there is no controller
    SIGINT, SIGHUP, SIGQUIT, …      ignored: a batch system or service manager that signals all processes of a job signals
                                    the controller too, and the controller decides

A rank starts with the dispositions of a program that the user has started: a signal that was ignored when the agent started
stays ignored (`nohup`, a shell's background job), all others have the default action, and none is blocked. SIGCHLD always
has the default action: if it were ignored, no process could learn of the death of a child.
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
    """The dispositions of an agent. The constructor sets them."""

    def __init__(self) -> None:
        self._ignored = {n for n in (*_NOT_OURS, signal.SIGTERM) if signal.getsignal(n) is signal.SIG_IGN}
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in _NOT_OURS:
            signal.signal(number, signal.SIG_IGN)
        for number in _WAKES:
            signal.signal(number, _wakes)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """A descriptor that is readable when `received` would return a signal."""
        return self._reading

    def received(self) -> set[int]:
        """Numbers of the signals that have come since the last call."""
        try:
            return set(os.read(self._reading, 1 << 12))
        except BlockingIOError:
            return set()

    def restore(self) -> None:
        """In a forked rank: set the dispositions that a program started by the user has."""
        signal.set_wakeup_fd(-1)
        os.close(self._reading)
        os.close(self._writing)
        for number in (*_NOT_OURS, *_WAKES):
            signal.signal(number, signal.SIG_IGN if number in self._ignored else signal.SIG_DFL)


def _wakes(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing: `signal.set_wakeup_fd` writes the number to the pipe."""

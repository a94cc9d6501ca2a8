"""Signals to the controller, and their effects on the job.

    SIGINT SIGTERM SIGHUP SIGQUIT   stop the job (`StopRequested`); they are passed on to the ranks
    SIGUSR1 SIGUSR2                 passed on to the ranks that have a handler for them; no other effect
    SIGTSTP (Ctrl-Z)                the ranks are stopped, then this process; `fg` or SIGCONT: all of them go on

A signal that was ignored when this process started stays ignored (`nohup`, a background job of a script). Signals arrive
through `signal.set_wakeup_fd`, so that no signal interrupts the controller's code. A signal that the parent had blocked is
unblocked.

Not here: how a job is stopped (`supervisor`).
"""

from __future__ import annotations

import os
import signal
import socket
from types import FrameType
from typing import Any, Final

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSES: Final = (signal.SIGUSR1, signal.SIGUSR2)
SUSPENDS: Final = signal.SIGTSTP


class SignalSource:
    """The signals to this process, from the constructor on until `restore`."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        numbers = [n for n in (*STOPS, *PASSES, SUSPENDS) if signal.getsignal(n) is not signal.SIG_IGN]
        self._before: dict[int, Any] = {number: signal.signal(number, _noted) for number in numbers}
        self._fd_before = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._mask_before = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def fileno(self) -> int:
        """A descriptor that is readable when `received` would return a signal."""
        return self._reading.fileno()

    def received(self) -> list[signal.Signals]:
        """The signals that have come since the last call, in order."""
        try:
            return [signal.Signals(number) for number in self._reading.recv(64) if number in self._before]
        except BlockingIOError:
            return []

    def suspend(self) -> None:
        """Stop this process as Ctrl-Z asked; returns when the process is continued.

        The kernel does not stop an orphaned process group (one without a shell): then this returns at once.
        """
        signal.signal(SUSPENDS, signal.SIG_DFL)
        os.kill(os.getpid(), SUSPENDS)
        signal.signal(SUSPENDS, _noted)

    def restore(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reading.close()
        self._writing.close()


def _noted(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing: `signal.set_wakeup_fd` writes the number to the descriptor."""

"""★ Signals that the controller gets, and what they are to the job.

    SIGINT SIGTERM SIGHUP SIGQUIT   stop the job (`StopRequested`); they are passed on to the ranks
    SIGUSR1 SIGUSR2                 passed on to the ranks that have a handler for them; nothing else
    SIGTSTP (Ctrl-Z)                the ranks are stopped, then this process; `fg` or SIGCONT: all go on

One that was ignored when this process started stays ignored (`nohup`, a background job of a script). They come through a
wake-up descriptor, so that none interrupts anything; one that the parent had blocked is let through. Not here: what a stop
means (`supervisor`).
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
    """From its making until `restore`."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        numbers = [n for n in (*STOPS, *PASSES, SUSPENDS) if signal.getsignal(n) is not signal.SIG_IGN]
        self._before: dict[int, Any] = {number: signal.signal(number, _noted) for number in numbers}
        self._fd_before = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._mask_before = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def fileno(self) -> int:
        """Readable when `received` has something."""
        return self._reading.fileno()

    def received(self) -> list[signal.Signals]:
        """Those that have come, in order."""
        try:
            return [signal.Signals(number) for number in self._reading.recv(64) if number in self._before]
        except BlockingIOError:
            return []

    def suspend(self) -> None:
        """Stop this process as the terminal wanted; returns when it goes on. A group without a shell is not stopped."""
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
    """The descriptor is what counts."""

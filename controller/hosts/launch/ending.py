"""Signals that stop the job, while its hosts dial in: no rank runs that could be told of them. (driver)

    SIGINT SIGTERM SIGHUP SIGQUIT   end what is under way, by an exception: so agents and the engine's commands are ended

What must not be cut in two, as the start of a command and the note of it, is done in `whole`: the exception comes behind it.

Not here: signals once ranks run (`ckpt.controller.service.signals`).
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

__all__ = ["Ending"]

_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Ending:
    """From `until_joined` on. Signals that were ignored stay ignored, and so do handlers of whoever has called."""

    def __init__(self) -> None:
        self._is_held = False
        self._came: int | None = None

    @contextlib.contextmanager
    def until_joined(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in _STOPS}
        ours = [n for n, how in before.items() if how in (signal.SIG_DFL, signal.default_int_handler)]
        for number in ours:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number in ours:
                signal.signal(number, before[number])

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._came is not None:
            self._end(self._came)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self._is_held:
            self._came = number
        else:
            self._end(number)

    @staticmethod
    def _end(number: int) -> None:
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

"""Programs that are long enough for what is done to them, however fast the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.system.support import EndedEarly

T = TypeVar("T")

_LONGER = 5
_TRIES = 6


def long_enough(loops: int, attempt: Callable[[int], T]) -> T:
    """What `attempt(loops)` returns; while that raises EndedEarly, it is made again with five times as many loops."""
    for turn in range(_TRIES):
        try:
            return attempt(loops * _LONGER**turn)
        except (EndedEarly, ProcessLookupError):  # the latter: it has ended when it was to be killed
            if turn == _TRIES - 1:
                raise
    raise AssertionError("unreachable")

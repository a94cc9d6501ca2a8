"""The time budget for looks whether a program can be captured: a share of the time that passes. Pure.

A *look* at the stack stops the program, and a rank whose program could not be captured has to look again. So each rank has
an allowance of time for looks: the allowance grows by 1/`_SHARE` of the time that passes, up to `_MOST_NS`, and each look
takes its duration from the allowance. Each search for a place begins with at least enough for a handful of looks
(`_FIRST_NS`, less what earlier looks took too much), so a program that cannot be captured for a moment only is captured
without delay.
"""

from __future__ import annotations

__all__ = ["CheckBudget"]

_SHARE = 64
_FIRST_NS = 2_000_000
_MOST_NS = 1_000_000


class CheckBudget:
    """The time that one rank may still spend on looks. All times are in nanoseconds, on one monotonic clock."""

    def __init__(self) -> None:
        self._left_ns = 0
        self._since_ns = 0

    def begin(self, now_ns: int) -> None:
        """An image is wanted, or the controller asks whether one could be taken. Time that was overspent stays owed."""
        self._earn(now_ns)
        self._left_ns = min(self._left_ns + _FIRST_NS, _FIRST_NS)

    def is_left(self, now_ns: int) -> bool:
        """May the rank look at the stack now?"""
        self._earn(now_ns)
        return self._left_ns > 0

    def spend(self, took_ns: int) -> None:
        """A look has taken ``took_ns``."""
        self._left_ns -= took_ns

    def _earn(self, now_ns: int) -> None:
        earned_ns = (now_ns - self._since_ns) // _SHARE
        self._since_ns = now_ns
        if self._left_ns < _MOST_NS:
            self._left_ns = min(self._left_ns + earned_ns, _MOST_NS)

"""How much time may go into looking whether a program can be captured: a share of the time that passes. Pure.

A rank that is refused has to look again, and each look stops the program. So looks are paid for: what time passes earns a
share of itself, up to a limit, and what a look takes is spent. Each begin starts with enough for a handful of looks, so
that a program that is refused for a moment only is captured as soon as ever.
"""

from __future__ import annotations

__all__ = ["Allowance"]

_SHARE = 64
_FIRST_NS = 2_000_000
_MOST_NS = 1_000_000


class Allowance:
    """Of one rank. All times on one monotonic clock."""

    def __init__(self) -> None:
        self._left_ns = 0
        self._since_ns = 0

    def begin(self, now_ns: int) -> None:
        """An image is wanted, or readiness for one asked for. What was spent too much before is not forgotten."""
        self._earn(now_ns)
        self._left_ns = min(self._left_ns + _FIRST_NS, _FIRST_NS)

    def is_left(self, now_ns: int) -> bool:
        """May one look now?"""
        self._earn(now_ns)
        return self._left_ns > 0

    def spend(self, took_ns: int) -> None:
        """A look has taken so long."""
        self._left_ns -= took_ns

    def _earn(self, now_ns: int) -> None:
        earned_ns = (now_ns - self._since_ns) // _SHARE
        self._since_ns = now_ns
        if self._left_ns < _MOST_NS:
            self._left_ns = min(self._left_ns + earned_ns, _MOST_NS)

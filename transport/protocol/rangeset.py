"""A set of integers as disjoint half-open ranges: the bytes of a message, or the sequence numbers, that have arrived.

Invariant: the ranges are sorted, disjoint, not adjacent, and none is empty. Adding at the end, the usual case, is O(1);
elsewhere O(n).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """A set of integers as ranges [start, stop)."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def add(self, start: int, stop: int) -> int:
        """Add [start, stop); returns how many integers are new. An empty range adds nothing."""
        if start >= stop:
            return 0
        starts, stops = self._starts, self._stops
        if not stops or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            return stop - start
        if start == stops[-1]:
            stops[-1] = stop
            return stop - start
        first = bisect_left(stops, start)  # first range that touches or follows start
        last = bisect_right(starts, stop)  # one past the last range that touches stop
        if first == last:
            starts.insert(first, start)
            stops.insert(first, stop)
            return stop - start
        covered = sum(stops[i] - starts[i] for i in range(first, last))
        merged = min(start, starts[first]), max(stop, stops[last - 1])
        starts[first:last] = [merged[0]]
        stops[first:last] = [merged[1]]
        return merged[1] - merged[0] - covered

    def covers(self, start: int, stop: int) -> bool:
        """Whether all of [start, stop) is in the set."""
        if start >= stop:
            return True
        i = bisect_right(self._starts, start) - 1
        return i >= 0 and self._stops[i] >= stop

    def __contains__(self, number: int) -> bool:
        return self.covers(number, number + 1)

    def __len__(self) -> int:
        return sum(self._stops) - sum(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._stops, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._starts == other._starts and self._stops == other._stops

    def __hash__(self) -> int:
        return hash((tuple(self._starts), tuple(self._stops)))

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def copy(self) -> RangeSet:
        """An independent copy."""
        new = RangeSet()
        new._starts, new._stops = self._starts.copy(), self._stops.copy()
        return new

"""RangeSet against a plain set of integers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ckpt.transport.protocol.rangeset import RangeSet

pairs = st.tuples(st.integers(0, 40), st.integers(0, 40))


@given(st.lists(pairs), pairs)
def test_behaves_like_a_set_of_integers(ranges: list[tuple[int, int]], probe: tuple[int, int]) -> None:
    ours, plain = RangeSet(), set[int]()
    for start, stop in ranges:
        new = set(range(start, stop)) - plain
        assert ours.add(start, stop) == len(new)
        plain |= new
    assert len(ours) == len(plain)
    assert {n for a, b in ours for n in range(a, b)} == plain
    assert ours.covers(*probe) == (set(range(*probe)) <= plain)
    assert (probe[0] in ours) == (probe[0] in plain)
    assert bool(ours) == bool(plain)


@given(st.lists(pairs))
def test_ranges_are_sorted_and_do_not_touch(ranges: list[tuple[int, int]]) -> None:
    found = list(RangeSet(ranges))
    assert all(a < b for a, b in found)
    assert all(first[1] < second[0] for first, second in pairwise(found))


def test_value() -> None:
    one = RangeSet([(0, 3), (5, 7)])
    copy = one.copy()
    assert copy == one and hash(copy) == hash(one)
    copy.add(3, 5)
    assert list(copy) == [(0, 7)] and list(one) == [(0, 3), (5, 7)]
    assert one != copy
    assert repr(one) == "RangeSet([(0, 3), (5, 7)])"

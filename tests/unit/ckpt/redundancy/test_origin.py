"""Where an error began: the first wrong message of a plane, by the times at which its ranks have sent."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.redundancy.origin import Origin, origin

NOTHING: list[dict[str, int]] = [{}, {}]


def rows(text: str, first: int = 1, ns: int = 0) -> list[tuple[int, str, int]]:
    return [(first + at, digest, ns + at) for at, digest in enumerate(text)]


def test_the_earliest_wrong_message_is_where_it_began() -> None:
    odd = [{"point": rows("abX", ns=100)}, {"point": rows("aYY", ns=50)}]
    right = [{"point": rows("abc")}, {"point": rows("abc")}]
    assert origin(odd, right, NOTHING) == Origin(1, "point", 2)


def test_planes_that_agree_have_no_origin() -> None:
    same = [{"point": rows("abc")}, {"point": rows("ab")}]
    assert origin(same, same, NOTHING) is None


def test_what_differs_only_behind_messages_that_are_not_remembered_says_nothing() -> None:
    odd = [{"point": rows("XX", first=100)}, {}]
    right = [{"point": rows("ab", first=100)}, {"point": rows("a")}]
    assert origin(odd, right, NOTHING) is None
    assert origin(odd, right, [{"point": 99}, {}]) == Origin(0, "point", 100)


def test_all_streams_count() -> None:
    odd = [{"point": rows("ab", ns=10), "0.1": rows("X", ns=5)}]
    right = [{"point": rows("aZ"), "0.1": rows("y")}]
    assert origin(odd, right, [{}]) == Origin(0, "0.1", 1)


VICTIM = {"point": rows("aX", ns=100)}
"""Its second message differs, at 101 ns."""


def test_nobody_is_named_while_another_rank_has_not_told_what_it_had_sent_before() -> None:
    right: list[Any] = [{"point": rows("ab")}, {"point": rows("pq")}]
    assert origin([VICTIM, {"point": rows("pq", ns=50)}], right, NOTHING) == Origin(0, "point", 2)
    assert origin([VICTIM, None], right, NOTHING) is None


@pytest.mark.parametrize(("last_ns", "found"), [(50, None), (102, Origin(0, "point", 2))])
def test_so_it_is_where_the_other_planes_have_not_come_so_far(last_ns: int, found: Origin | None) -> None:
    odd = [VICTIM, {"point": [(1, "p", 10), (2, "q", last_ns)]}]
    assert origin(odd, [{"point": rows("ab")}, {"point": rows("p")}], NOTHING) == found


@pytest.mark.parametrize(("last_ns", "found"), [(50, None), (102, Origin(0, "point", 2))])
def test_so_it_is_where_it_has_sent_more_than_it_tells(last_ns: int, found: Origin | None) -> None:
    odd = [VICTIM, {"point": [(1, "p", 10), (2, "q", last_ns)]}]
    right = [{"point": rows("ab")}, {"point": rows("pqr")}]
    assert origin(odd, right, NOTHING, [None, {"point": 2}]) is not None
    assert origin(odd, right, NOTHING, [None, {"point": 3}]) == found
    assert origin(odd, right, NOTHING, [None, {"point": 2, "0.1": 1}]) is None


def test_a_message_that_agrees_proves_those_before_it_that_nobody_remembers() -> None:
    odd = [VICTIM, {"point": rows("pqr", ns=10)}]
    assert origin(odd, [{"point": rows("ab")}, {"point": rows("r", first=3)}], NOTHING) == Origin(
        0, "point", 2
    )

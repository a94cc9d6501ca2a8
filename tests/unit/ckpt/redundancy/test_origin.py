"""Where an error began: the first wrong message of a plane, by the times at which its ranks have sent."""

from __future__ import annotations

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
    odd = [{"point": rows("XX", first=100)}, None]
    right = [{"point": rows("ab", first=100)}, {"point": rows("a")}]
    assert origin(odd, right, NOTHING) is None
    assert origin(odd, right, [{"point": 99}, {}]) == Origin(0, "point", 100)


def test_all_streams_count() -> None:
    odd = [{"point": rows("ab", ns=10), "0.1": rows("X", ns=5)}]
    right = [{"point": rows("aZ"), "0.1": rows("y")}]
    assert origin(odd, right, [{}]) == Origin(0, "0.1", 1)

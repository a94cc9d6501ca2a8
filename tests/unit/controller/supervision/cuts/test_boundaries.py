"""Where explicit ranks stop: one boundary that none of them has passed, and only when all are there."""

from __future__ import annotations

from itertools import permutations

from ckpt.controller.supervision.cuts.boundaries import Agreement


def test_the_boundary_is_the_next_one_of_the_foremost_rank() -> None:
    agreement = Agreement()
    assert agreement.heard(0, 7, False, captured=(), size=3) is None
    assert agreement.heard(1, 9, False, captured=(), size=3) is None
    assert agreement.heard(2, 8, False, captured=(), size=3) == {"at": 10, "take": False}


def test_nobody_takes_an_image_before_all_are_there() -> None:
    for order in permutations(range(3)):
        agreement = Agreement()
        for rank in range(3):
            agreement.heard(rank, 5, False, captured=(), size=3)
        answers = [agreement.heard(rank, 6, True, captured=(), size=3) for rank in order]
        assert answers == [None, None, {"at": 6, "take": True}]


def test_saying_it_again_changes_nothing() -> None:
    agreement = Agreement()
    agreement.heard(0, 5, False, captured=(), size=2)
    assert agreement.heard(0, 9, False, captured=(), size=2) is None
    assert agreement.heard(1, 5, False, captured=(), size=2) == {"at": 6, "take": False}
    agreement.heard(0, 6, True, captured=(), size=2)
    assert agreement.heard(0, 6, True, captured=(), size=2) is None
    assert agreement.heard(1, 6, True, captured=(), size=2) == {"at": 6, "take": True}
    assert agreement.heard(1, 6, True, captured=(), size=2) is None


def test_a_rank_without_more_boundaries_holds_nobody_back() -> None:
    agreement = Agreement()
    agreement.heard(0, -1, True, captured=(), size=2)
    assert agreement.heard(1, 3, False, captured=(), size=2) == {"at": 4, "take": False}
    assert agreement.heard(1, 4, True, captured=(), size=2) == {"at": 4, "take": True}


def test_when_all_have_ended_the_image_is_taken_at_once() -> None:
    agreement = Agreement()
    agreement.heard(0, -1, True, captured=(), size=2)
    assert agreement.heard(1, -1, True, captured=(), size=2) == {"at": 0, "take": True}

"""Columns of sums: every set of deaths on small grids, and sequences of them; the parts that come back are the true ones."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from ckpt.abft.decisions.columns import HOPELESS, Layout, first_layout
from ckpt.abft.errors import TooManyLost
from tests.seeds import seed_of_the_commit


def held(layout: Layout, parts: np.ndarray) -> np.ndarray:
    return np.tensordot(np.array(layout.weights), parts, 1)


def is_right(layout: Layout, parts: np.ndarray) -> bool:
    found = layout.parts(held(layout, parts)[: layout.Q])
    return bool(np.abs(found - parts).max() <= 1e-13 * layout.condition * np.abs(parts).max())


@pytest.mark.parametrize("P", [1, 2])
@pytest.mark.parametrize(("Q", "redundant"), [(1, 1), (2, 1), (3, 1), (3, 2), (4, 3), (5, 2)])
def test_as_many_columns_as_there_are_checksums_may_be_lost_at_once(P: int, Q: int, redundant: int) -> None:
    """Any ranks may die: the data are there if no more columns of data are lost than there are checksums left."""
    ranks = P * (Q + redundant)
    layout = first_layout(tuple(range(ranks)), P, Q, redundant)
    parts = np.random.default_rng(1).normal(size=(Q, 5))
    for count in range(1, redundant + 2):
        for dead in combinations(range(ranks), count):
            living = set(range(ranks)).difference(dead)
            lost = [sum(not living.issuperset(each) for each in of) for of in (layout.data, layout.checks)]
            if lost[0] > redundant - lost[1]:
                with pytest.raises(TooManyLost, match=f"{lost[0]} columns of data are gone"):
                    layout.after(living, range(Q, Q + redundant))
                continue
            found, happened = layout.after(living, range(Q, Q + redundant))
            assert is_right(found, parts) and found.condition < 1000
            assert found.replaced == lost[0] == sum(name == "replaced" for name, _ in happened)
            assert found.ranks == tuple(sorted(living)) and found.lost == dead
            whole = [rank for column in found.columns for rank in column]
            assert living.issuperset(whole) and len(set(whole)) == len(whole)


def test_new_checksums_are_of_what_is_held() -> None:
    choose = random.Random(seed_of_the_commit())
    for _ in range(200):
        P, Q = choose.randint(1, 3), choose.randint(1, 6)
        redundant = choose.randint(1, min(3, Q))
        layout = first_layout(tuple(range(P * (Q + redundant) + choose.randint(0, 8))), P, Q, redundant)
        parts = np.random.default_rng(choose.randrange(1000)).normal(size=(Q, 7))
        for _ in range(5):
            dead = choose.choice(layout.ranks)
            living = set(layout.ranks) - {dead}
            try:
                layout, _ = layout.after(living, range(Q, len(layout.columns)))
            except TooManyLost:
                assert not layout.checks
                break
            formed = layout.formed()
            assert formed.data == layout.data and formed.condition < HOPELESS
            have = held(layout, parts)
            for v in range(len(layout.columns), len(formed.columns)):
                made = np.tensordot(formed.mixture(v), have[:Q], 1)
                assert np.abs(made - held(formed, parts)[v]).max() < 1e-9 * layout.condition
            assert is_right(formed, parts)
            layout = formed


def test_checksums_that_are_not_complete_replace_nothing() -> None:
    layout = first_layout((0, 1, 2, 3), 1, 2, 2)
    found, happened = layout.after({0, 1, 2, 3}, {3})
    assert found.checks == ((3,),) and found.idle == (2,) and happened == (("checksums lost", 2),)
    with pytest.raises(TooManyLost, match="1 columns of data are gone, and 0 complete"):
        layout.after({1, 2, 3}, ())


def test_weights_that_are_as_good_as_singular_are_refused() -> None:
    layout = first_layout((0, 1, 2, 3), 1, 2, 2)
    same = Layout(
        *(1, 2, layout.data, layout.checks, ()),
        weights=(*layout.weights[:3], layout.weights[2]),
        degrees=(0, 1),
    )
    with pytest.raises(TooManyLost, match=r"cannot be told apart: .* condition number"):
        same.after({2, 3}, (2, 3))


def test_before_anything_is_computed_places_are_given_anew() -> None:
    layout = first_layout(tuple(range(7)), 2, 2, 1)
    assert layout.data == ((0, 3), (1, 4)) and layout.checks == ((2, 5),) and layout.idle == (6,)
    again = first_layout((0, 1, 2, 3, 5, 6), 2, 2, 1, layout)
    assert again.data == ((0, 3), (1, 6)) and again.checks == ((2, 5),) and again.lost == (4,)
    again = first_layout((0, 1, 2, 3, 5), 2, 2, 1, again)
    assert len(again.data) == 2 and not again.checks and len(again.idle) == 1
    with pytest.raises(TooManyLost, match="3 ranks are left of the 2 × 2"):
        first_layout((0, 1, 2), 2, 2, 1, again)

"""Every order of the loads and stores of a ring that C11 allows; and what goes wrong when one of the orders is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.model.ring_memory import RuleBroken, Rules, explore

Count = Callable[[str, int], None]


@pytest.mark.parametrize("dies", [False, True], ids=["", "the writer may die at any step"])
def test_every_record_is_read_once_and_no_wake_up_is_lost(figures: Count, dies: bool) -> None:
    states = explore(Rules(peer_dies=dies))
    figures("states of a ring's memory", states)
    assert states > 1_000


@pytest.mark.nightly
@pytest.mark.parametrize("dies", [False, True], ids=["", "the writer may die at any step"])
def test_the_same_with_more_records_in_more_slots(figures: Count, dies: bool) -> None:
    figures("states of a ring's memory", explore(Rules(peer_dies=dies, records=3, slots=2)))


@pytest.mark.parametrize(
    "left_out", [rule.name for rule in dataclasses.fields(Rules) if rule.default is True]
)
def test_without_one_of_the_orders_a_record_is_lost_or_damaged(left_out: str) -> None:
    with pytest.raises(RuleBroken):
        explore(dataclasses.replace(Rules(records=3, slots=2), **{left_out: False}))

"""A payload that both sides of a ring copy: every order that C11 allows, and what goes wrong without one of the rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.model.ring_share import RuleBroken, Rules, explore


def test_in_every_order_the_program_gets_the_whole_payload(figures: Callable[[str, int], None]) -> None:
    states = explore(Rules())
    figures("states of a payload that two processes copy", states)
    assert states > 1_000


@pytest.mark.parametrize(
    "left_out", [rule.name for rule in dataclasses.fields(Rules) if rule.default is True]
)
def test_without_one_of_the_rules_it_goes_wrong(left_out: str) -> None:
    with pytest.raises(RuleBroken):
        explore(dataclasses.replace(Rules(), **{left_out: False}))

"""Images of ranks that share memory: every order of steps within small bounds is right, and each rule is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ckpt.shared_memory.rules import STANDING, TOGETHER, Table
from tests.model.shared_memory import RuleBroken, World, explore


class CopiesAtOnce(Table):
    """A rank copies as soon as it stands."""

    def is_together(self, me: int) -> bool:
        if self.slots[me].phase == STANDING:
            self.slots[me].phase = TOGETHER
        return super().is_together(me)


class GoesOnAtOnce(Table):
    """A rank goes on when it has copied, whatever the others do."""

    def waits_for(self, me: int) -> list[int]:
        return []


class ForgetsTheSlow(Table):
    """A rank that has copied for too long has an image all the same."""

    def copied(self, me: int) -> bool:
        super().copied(me)
        return True


class StoresWhenAllAreMembers(World):
    """A rank stores as soon as all have become members."""

    @staticmethod
    def may_store(told: list[list[int]]) -> bool:
        return len(told) > 0


class StoresAfterOneTime(World):
    """A rank stores when all have told the same epoch once."""

    @staticmethod
    def may_store(told: list[list[int]]) -> bool:
        return len(told) > 0 and len(set(told[-1])) == 1


@pytest.mark.parametrize("late", [frozenset(), frozenset({1}), frozenset({0, 1})])
def test_every_order_of_two_ranks_is_right(late: frozenset[int], figures: Callable[[str, int], None]) -> None:
    states, lines = explore(2, Table, most=1 if late else 2, late=late)
    assert lines > 10
    figures("states of ranks that share memory", states)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("late", [frozenset(), frozenset({2})])
def test_every_order_of_three_ranks_is_right(late: frozenset[int]) -> None:
    _, lines = explore(3, Table, late=late)
    assert lines > 10


@pytest.mark.parametrize("rule", [CopiesAtOnce, GoesOnAtOnce, ForgetsTheSlow])
def test_each_rule_is_needed(rule: type[Table]) -> None:
    with pytest.raises(RuleBroken):
        explore(2, rule)


@pytest.mark.parametrize("rule", [StoresWhenAllAreMembers, StoresAfterOneTime])
def test_nobody_stores_to_new_memory_too_early(rule: type[World]) -> None:
    with pytest.raises(RuleBroken):
        explore(2, Table, late=frozenset({1}), world=rule)

"""Images of ranks that share memory: every order of steps within small bounds is right, and each rule is needed."""

from __future__ import annotations

from collections.abc import Callable, Collection

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


class ByFile(World):
    by_file = True


class ForgetsThePassedOver(Table):
    """A rank takes its image although another one, which has mapped the same file, has had its image before."""

    def is_passed_over(self, me: int, epoch: int) -> bool:
        return False


class ForgetsTheDead(Table):
    """What a rank had done before it died does not count."""

    def drop(self, dead: Collection[int]) -> None:
        super().drop(dead)
        for number in dead:
            del self.slots[number]


@pytest.mark.parametrize("late", [frozenset(), frozenset({1}), frozenset({0, 1})])
def test_every_order_of_two_ranks_with_a_mapped_file_is_right(late: frozenset[int]) -> None:
    assert explore(2, Table, most=2, late=late, world=ByFile)[1] > 10


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("late", [frozenset(), frozenset({2}), frozenset({1, 2})])
def test_every_order_of_three_ranks_with_a_mapped_file_is_right(late: frozenset[int]) -> None:
    assert explore(3, Table, late=late, world=ByFile)[1] > 10


@pytest.mark.parametrize("rule", [ForgetsThePassedOver, ForgetsTheDead])
def test_each_rule_of_mapped_files_is_needed(rule: type[Table]) -> None:
    with pytest.raises(RuleBroken):
        explore(2, rule, late=frozenset({1}), world=ByFile)


@pytest.mark.parametrize("rule", [CopiesAtOnce, GoesOnAtOnce, ForgetsTheSlow])
def test_each_rule_is_needed(rule: type[Table]) -> None:
    with pytest.raises(RuleBroken):
        explore(2, rule)


@pytest.mark.parametrize("rule", [StoresWhenAllAreMembers, StoresAfterOneTime])
def test_nobody_stores_to_new_memory_too_early(rule: type[World]) -> None:
    with pytest.raises(RuleBroken):
        explore(2, Table, late=frozenset({1}), world=rule)

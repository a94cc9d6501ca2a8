"""Long collectives whose members read each other's memory: orders of steps of the shipped code, and each rule taken out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.direct_reads import Edit, RuleBroken, explore, shipped, walk
from tests.seeds import seed_of_the_commit

MUTANTS: dict[str, tuple[Edit, ...]] = {
    "a member that leaves by an error does not take its offer back": (
        ("    finally:\n        _take_back(exchange, number)\n", "    finally:\n        pass\n"),
    ),
    "nobody waits until all have read": (
        ("        found = exchange.run(WHOLE if", "        return is_whole\n        found = exchange.run(WHOLE if"),
    ),
    "a member that has all does not care whether the others have": (
        ("return is_whole and all(answer == WHOLE for answer, _ in found.values())", "return is_whole"),
    ),
}  # fmt: skip


@pytest.mark.rotate(2)
def test_orders_by_chance_are_right(figures: Callable[[str, int], None]) -> None:
    first = 1000 * seed_of_the_commit()
    for size, count in ((2, 600), (3, 300)):
        whole = sum(walk(size, shipped(), range(first, first + count)))
        assert 0 < whole < count
        figures("orders of steps of members that read each other's memory", count)


@pytest.mark.nightly
@pytest.mark.parametrize("happens", [("revoked",), ("restart",)])
def test_every_order_of_two_members_is_right(happens: tuple[str, ...]) -> None:
    assert explore(2, shipped(), happens) > 100


@pytest.mark.parametrize("name", MUTANTS)
def test_each_rule_is_needed(name: str) -> None:
    with pytest.raises(RuleBroken):
        for _ in walk(2, shipped(*MUTANTS[name]), range(2000)):
            pass


def test_that_the_offer_stands_is_looked_at_after_reading() -> None:
    with pytest.raises(RuleBroken):
        for _ in walk(2, shipped(), range(2000), is_checked=False):
            pass

"""Long collectives whose members read each other's memory: orders of steps of the shipped code, and each rule taken out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.direct_reads import Edit, RuleBroken, explore, shipped, walk
from tests.seeds import seed_of_the_commit

TAKE_NOTHING_BACK = "exchange.engine.offers.end(number)", "pass"
MUTANTS: dict[str, tuple[Edit, ...]] = {
    "a member that leaves by an error does not take its offer back": (
        TAKE_NOTHING_BACK,
    ),
    "nobody waits until all have read": (
        ("        found = exchange.run(WHOLE if", "        return is_whole\n        found = exchange.run(WHOLE if"),
    ),
    "a member that has all does not care whether the others have": (
        ("return is_whole and _all_are_whole(found)", "return is_whole"),
    ),
}  # fmt: skip
COMBINED = """        answers = exchange.run(WHOLE if is_well else ORDINARY, b"", others, others, look_ns=look_ns)
        is_well = is_well and """
READS = "_read_all(exchange, found, into, size)\n        answers"
SUMS: dict[str, tuple[Edit, ...]] = {
    "a member that leaves an allreduce by an error does not take its offer back": (
        TAKE_NOTHING_BACK,
    ),
    "results are read before all have combined": (
        (COMBINED + "_all_are_whole(answers) and ", COMBINED[COMBINED.index("        is_well") :]),
    ),
    "nobody waits until all have read the results": (
        (READS, READS.replace("answers", "return is_well\n        answers")),
    ),
    "a member that has all results does not care whether the others have": (
        ("return is_well and _all_are_whole(answers)", "return is_well"),
    ),
    "values are combined where they were sent from": (
        ("combine(combined, value, datatype, total)", "combine(combined, value, datatype, mine)"),
    ),
}  # fmt: skip
FUNCTIONS = ("_exchange", "allreduce", "reduce")


@pytest.mark.rotate(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_orders_by_chance_are_right(name: str, figures: Callable[[str, int], None]) -> None:
    first = 1000 * seed_of_the_commit()
    for size, count in ((2, 600), (3, 300)):
        whole = sum(walk(size, shipped(name=name), range(first, first + count)))
        assert 0 < whole < count
        figures("orders of steps of members that read each other's memory", count)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name, happens",
    [
        ("_exchange", ("revoked",)),
        ("_exchange", ("restart",)),
        ("allreduce", ("restart",)),
        ("reduce", ("restart",)),
    ],
)
def test_every_order_of_two_members_is_right(name: str, happens: tuple[str, ...]) -> None:
    assert explore(2, shipped(name=name), happens) > 100


@pytest.mark.nightly
def test_many_orders_of_an_allreduce_are_right() -> None:
    """Every order of one that is revoked would take an hour."""
    assert sum(walk(2, shipped(name="allreduce"), range(30_000))) > 1000


@pytest.mark.parametrize("rule", [*MUTANTS, *SUMS])
def test_each_rule_is_needed(rule: str) -> None:
    edits, name = (MUTANTS[rule], "_exchange") if rule in MUTANTS else (SUMS[rule], "allreduce")
    with pytest.raises(RuleBroken):
        for _ in walk(2, shipped(*edits, name=name), range(2000)):
            pass


def test_that_the_offer_stands_is_looked_at_after_reading() -> None:
    with pytest.raises(RuleBroken):
        for _ in walk(2, shipped(), range(2000), is_checked=False):
            pass

"""Every interleaving of the production endpoints within small bounds, and what happens when a rule is
missing.

    scripts   epochs   states                  what
    1+0       2           98 000               everything, the finished state reachable from every state included
    2+0       1          141 000               the same
    1+1       1          109 000 (reduced)     safety
    2+0       2          350 000 (reduced)     safety; soak

1+0: rank 0 sends one message to rank 1, which sends none. Not here: frames that are
gone for good (one that never arrives stands for them), crashes with frames of the former
incarnation still under way, frozen ports, fragments, credit, more ranks: the simulation has those.
"""

from __future__ import annotations

import pytest

from tests.model.explore import Explorer, RuleBroken
from tests.simulation import mutants
from tests.simulation.mutants import Mutant

Scripts = list[list[tuple[int, bytes]]]

ONE: Scripts = [[(1, b"a")], []]
TWO: Scripts = [[(1, b"a"), (1, b"b")], []]
BOTH: Scripts = [[(1, b"a")], [(0, b"x")]]


@pytest.mark.parametrize(
    ("scripts", "rounds", "least"), [(ONE, 2, 50_000), (TWO, 1, 80_000)], ids=["1+0", "2+0"]
)
def test_every_line_stands_and_the_end_stays_in_reach(scripts: Scripts, rounds: int, least: int) -> None:
    assert Explorer(scripts, rounds).explore() > least


def test_every_line_stands_with_messages_both_ways() -> None:
    assert Explorer(BOTH, 1).explore_safety() > 50_000


@pytest.mark.soak
def test_every_line_stands_with_two_messages_and_two_rounds() -> None:
    assert Explorer(TWO, 2).explore_safety() > 200_000


@pytest.mark.parametrize(
    ("mutant", "scripts"),
    [
        (mutants.EPOCH_RULE_MESSAGES, ONE),
        (mutants.EPOCH_RULE_ACKS, ONE),
        (mutants.OLD_STAMP, TWO),
        (mutants.ACK_UNDELIVERED, ONE),
        (mutants.RX_ARRIVED, TWO),
        (mutants.UNACKED_UNSAVED, ONE),
        (mutants.DUPLICATE_TAKEN, TWO),
        (mutants.ORDER_IGNORED, TWO),
    ],
    ids=str,
)
def test_without_the_rule_there_is_a_counterexample(mutant: Mutant, scripts: Scripts) -> None:
    with pytest.raises((RuleBroken, ValueError)):
        Explorer(scripts, 1, mutant.endpoint()).explore_safety()


def test_without_acks_of_duplicates_the_end_is_out_of_reach() -> None:
    with pytest.raises(RuleBroken, match=r"the end cannot be reached|restored and run"):
        Explorer(ONE, 1, mutants.DUPLICATE_SILENT.endpoint()).explore()

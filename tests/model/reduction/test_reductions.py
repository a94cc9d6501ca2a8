"""Every schedule of small reductions, random ones of larger; and what happens without one of the rules.

The code is that which ships: every rank's messages, tasks and memory, the master and who follows it (world.py has the
properties). `make nightly` looks at all of `LARGE` and at 100 000 random schedules of up to 64 ranks.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

import pytest

from ckpt.reduction.messages import Contract
from tests.model.reduction.explore import Search
from tests.model.reduction.mutants import MUTANTS, Mutant, apply
from tests.model.reduction.random_runs import run, runs
from tests.model.reduction.world import RuleBroken
from tests.seeds import seed_of_the_commit

Count = Callable[[str, int], None]

SMALL = {
    "two ranks, a death, a copy": lambda: Search(2, Contract(), 1),
    "three ranks": lambda: Search(3, Contract(copies=0), 0),
    "three ranks, two deaths, no copies": lambda: Search(3, Contract(copies=0), 2),
    "three ranks, two deaths, no copies, to a root": lambda: Search(3, Contract(copies=0, root=2), 2),
    "three ranks, two deaths, no copies, any contributors": lambda: Search(
        3, Contract(copies=0, on_loss="partial"), 2
    ),
    "three ranks, a quorum of two, a death": lambda: Search(3, Contract(copies=0, quorum=2), 1),
    "three ranks, a deadline": lambda: Search(3, Contract(copies=0, deadline_ns=1), 0, expires=True),
    "four ranks": lambda: Search(4, Contract(copies=0), 0),
    "two ranks, a death, a copy, memory that others read": lambda: Search(2, Contract(), 1, direct=True),
    "three ranks, two deaths, no copies, memory that others read": lambda: Search(
        3, Contract(copies=0), 2, direct=True
    ),
}
LARGE = {
    "three ranks, two deaths, a copy": lambda: Search(3, Contract(), 2),
    "three ranks, two deaths, two copies": lambda: Search(3, Contract(copies=2), 2),
    "three ranks, two deaths, a copy, to a root": lambda: Search(3, Contract(root=1), 2),
    "three ranks, two deaths, a copy, to the next root": lambda: Search(
        3, Contract(root=1, on_root_loss="next"), 2
    ),
    "three ranks, two deaths, a copy, by readiness": lambda: Search(3, Contract(order="ready"), 2),
    "three ranks, two deaths, a copy, any contributors": lambda: Search(3, Contract(on_loss="partial"), 2),
    "three ranks, two deaths, a quorum": lambda: Search(3, Contract(quorum=2), 2),
    "three ranks, two deaths, a deadline": lambda: Search(
        3, Contract(deadline_ns=1, copies=0), 2, expires=True
    ),
    "three ranks, two deaths, a copy, memory that others read": lambda: Search(3, Contract(), 2, direct=True),
    "three ranks, a death, a copy, to a root, memory that others read": lambda: Search(
        3, Contract(root=1), 1, direct=True
    ),
    "three ranks, two deaths, by readiness, memory that others read": lambda: Search(
        3, Contract(order="ready", copies=0), 2, direct=True
    ),
    "four ranks, a death": lambda: Search(4, Contract(copies=0), 1),
    "four ranks, two deaths": lambda: Search(4, Contract(copies=0), 2),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_schedule(name: str, figures: Count) -> None:
    found = SMALL[name]().run()
    assert found.ends
    figures("states of small reductions", found.states)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LARGE)
def test_every_schedule_of_larger_bounds(name: str, figures: Count) -> None:
    figures("states of small reductions", LARGE[name]().run().states)


def test_random_schedules(figures: Count) -> None:
    first = seed_of_the_commit() * 1000
    found = runs(range(first, first + 1000)) + runs(range(first, first + 10), largest=64)
    assert found["whole"] and found["partial"] and found["ContributionLost"]
    figures("random schedules of reductions", found.total())


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_random_schedules_by_the_hundred_thousand(figures: Count) -> None:
    first = seed_of_the_commit() * 1_000_000
    found = runs(range(first, first + 97_000)) + runs(range(first, first + 3_000), largest=64)
    figures("random schedules of reductions", found.total())


def test_nobody_dies_and_nothing_is_lost() -> None:
    """Without deaths, and where everybody is waited for, the result always has everybody."""
    for number in range(200):
        for order in ("tree", "ready"):
            assert run(number, contract=Contract(order=order, copies=number % 3), deaths=0) == "whole"


@contextlib.contextmanager
def an_end(cpu_s: float = 2.0) -> Iterator[None]:
    """A run that goes around in circles within one step breaks a rule, too."""

    def give_up(number: int, frame: object) -> None:
        raise RuleBroken("no end")

    former = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


@pytest.mark.rotate(3)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_rule_is_needed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(monkeypatch, mutant)
    with pytest.raises((RuleBroken, AssertionError, KeyError, ValueError)):
        if mutant.exhaustive:
            Search(mutant.size, mutant.contract, mutant.deaths, direct=mutant.direct).run()
        else:
            for number in range(mutant.first, mutant.first + 5_000):
                with an_end():
                    run(number, mutant.size, mutant.contract, mutant.deaths)

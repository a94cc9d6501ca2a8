"""What all do after a death: every death there can be, on small grids; random ones in sequence on larger ones; mutants."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ckpt.abft.decisions import copies, plan, steps
from ckpt.abft.decisions.encoding import Replacement
from ckpt.abft.decisions.grid import Column, Roles, Shape
from ckpt.abft.errors import TooManyLost
from tests.seeds import seed_of_the_commit
from tests.unit.ckpt.abft.decisions import model

pytestmark = pytest.mark.turns(2)


def explore(P: int, Q: int, blocks: int, spares: int, factors: bool = False) -> tuple[int, int]:
    """One death of every rank in every state; (states, deaths that differ)."""
    ranks = P * (Q + 1) + spares
    run = model.begin(Shape(P, Q, blocks, 1), ranks, "recover" if factors else "hot", factors)
    run.run()
    run.check()
    states, seen = 0, set()
    for cut in model.cuts(run):
        states += 1
        for dead in range(ranks):
            key = dead, *(run.history[rank][done].state() for rank, done in cut.items() if rank != dead)
            if key not in seen:
                seen.add(key)
                following = model.after_death(run, cut, (dead,))
                following.run()
                following.check()
    return states, len(seen)


@pytest.mark.parametrize(
    ("P", "Q", "blocks", "spares"),
    [
        (2, 1, 3, 0),
        (1, 2, 4, 0),
        (1, 2, 4, 1),
        (1, 3, 3, 0),
        pytest.param(2, 2, 2, 0, marks=pytest.mark.nightly),
        pytest.param(2, 2, 4, 0, marks=pytest.mark.nightly),
        pytest.param(2, 1, 4, 1, marks=pytest.mark.nightly),
        pytest.param(2, 3, 3, 0, marks=pytest.mark.nightly),
        pytest.param(3, 1, 3, 0, marks=pytest.mark.nightly),
    ],
)
def test_after_any_one_death_the_factorisation_is_the_right_one(
    P: int, Q: int, blocks: int, spares: int, figures: Callable[[str, int], None]
) -> None:
    states, deaths = explore(P, Q, blocks, spares)
    figures("abft: states in which a rank may die, visited", states)
    figures("abft: deaths that differ", deaths)


@pytest.mark.parametrize(
    ("P", "Q", "blocks", "spares"),
    [
        (2, 1, 3, 0),
        (1, 2, 4, 1),
        pytest.param(2, 1, 4, 1, marks=pytest.mark.nightly),
        pytest.param(1, 3, 6, 1, marks=pytest.mark.nightly),
        pytest.param(2, 2, 4, 0, marks=pytest.mark.nightly),
    ],
)
def test_after_any_one_death_the_factors_are_there(
    P: int, Q: int, blocks: int, spares: int, figures: Callable[[str, int], None]
) -> None:
    """Every column that should keep a copy of a panel has the one that all have applied."""
    states, deaths = explore(P, Q, blocks, spares, factors=True)
    figures("abft: states in which a rank may die, visited", states)
    figures("abft: deaths that differ", deaths)


def a_cut(run: model.Run, choose: random.Random) -> dict[int, int]:
    """A random state of the run, often with columns far apart."""
    cut = dict.fromkeys(run.history, 0)
    eager = {rank: choose.random() ** 3 + 0.01 for rank in cut}
    for _ in range(choose.randint(0, sum(map(len, run.needs.values())))):
        can = []
        for rank, done in cut.items():
            need = run.needs[rank][done] if done < len(run.needs[rank]) else (rank, done + 1)
            if need is None or cut[need[0]] >= need[1]:
                can.append(rank)
        if not can:
            break
        cut[choose.choices(can, [eager[rank] for rank in can])[0]] += 1
    return cut


def one_after_the_other(seed: int) -> int:
    """A random grid, and deaths until too many are lost; the number of those that were borne."""
    choose = random.Random(seed)
    P, Q = choose.choice([(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (1, 5), (2, 5)])
    shape = Shape(P, Q, Q * choose.randint(1, 4), 1)
    ranks, on_loss = P * (Q + 1) + choose.randint(0, 5), choose.choice(["hot", "hot", "recover"])
    run = model.begin(shape, ranks, on_loss, on_loss == "recover")
    run.run()
    run.check()
    for borne in range(6):
        cut = a_cut(run, choose)
        dead = tuple(choose.sample(sorted(run.history), 1 if choose.random() < 0.9 else 2))
        try:
            if choose.random() < 0.8:
                run = model.after_death(run, cut, dead)
            else:
                run = model.after_death(run, cut, (), dead)
        except TooManyLost:
            complete = borne == 0 or is_complete(run, cut)
            assert not complete or len(dead) == 2, f"seed {seed}: complete checksums bear one death"
            return borne
        run.run()
        run.check()
    return 6


def is_complete(run: model.Run, cut: dict[int, int]) -> bool:
    check = run.course.roles.check
    if check is None:
        return False
    return max(run.history[rank][cut[rank]].step for rank in check.ranks) >= run.course.ready


def test_deaths_in_sequence_with_spares(figures: Callable[[str, int], None]) -> None:
    first = seed_of_the_commit()
    figures(
        "abft: deaths in sequence that were borne", sum(map(one_after_the_other, range(first, first + 25)))
    )


FOUND = {
    145344548: "shares that have counted at a meeting count at later ones",
    6014: "shares count when another column has applied the panel that was made of recovered blocks",
    5097: "the same, in a later step",
}


@pytest.mark.parametrize("seed", FOUND, ids=str)
def test_seeds_that_have_found_faults(seed: int) -> None:
    one_after_the_other(seed)


def test_what_has_counted_counts_for_good() -> None:
    """The column of checksums alone had shown that the shares of step 2 are done; then it is lost."""
    roles = Roles((Column((0,)), Column((2,), since=2)), Column((3,)), (4,))
    replaced = Replacement(1, 2, 0, frozenset())
    course = plan.Course(
        *(Shape(1, 2, 8, 1), roles, True, "hot"), base=3, ready=3, counted=3, replacements=(replaced,)
    )
    states = {0: plan.State(0, 3, 2, 0, 3), 2: plan.State(2, 2, 1, 0, 3), 4: plan.State(4)}
    decision = plan.decide(course, states)
    assert decision.course.counted == 3 and decision.course.base == 3


@pytest.mark.soak
def test_deaths_in_sequence_for_ten_minutes(figures: Callable[[str, int], None]) -> None:
    end, seed, borne = time.monotonic() + 600, seed_of_the_commit() + 1000, 0
    while time.monotonic() < end:
        borne += one_after_the_other(seed)
        seed += 1
    figures("abft: deaths in sequence that were borne", borne)


# ---- mutants -----------------------------------------------------------------------------------------------

MUTANTS = {
    "replace in the middle of an update": (
        plan,
        "transfers = _align(course, whole, steps, states)",
        "transfers = []",
    ),
    "the hindmost column says how far all are": (
        plan,
        "base = max(steps.values())",
        "base = min(steps.values())",
    ),
    "columns behind get no panels": (
        plan,
        "transfers += _panels(course, whole, steps, base, states)",
        "transfers += []",
    ),
    "what was factorised is replaced too": (
        plan,
        "for group in range(shape.groups) if group * shape.Q + d >= base",
        "for group in range(shape.groups)",
    ),
    "what was factorised is not recovered": (
        plan,
        "open_groups=frozenset(range(shape.groups)) - ahead",
        "open_groups=frozenset()",
    ),
    "the group under way is forgotten": (steps, "or group in open_groups:", "or False:"),
    "shares that were begun count": (plan, "and k < counted", "and k <= counted"),
    "shares are not undone": (plan, "        counted=counted,\n", "        counted=shape_blocks(course),\n"),
    "checksums count before they are complete": (
        plan,
        "if steps.get(shape.Q, course.ready) < course.ready:",
        "if False:",
    ),
    "what was turned back is still replaced": (plan, "last._replace(groups=last.groups - done)", "last"),
    "a panel of recovered blocks proves nothing": (
        plan,
        "*(k + 1 for k in range(base) if course.shape.owner(k) == last.column),",
        "",
    ),
    "what is turned back is transformed at the end": (
        plan,
        "last._replace(groups=last.groups - back)",
        "last",
    ),
    "the root answers before all have come": (
        steps,
        'found += [Op("get rows", k, (row, v)) for row in others]',
        "found += []",
    ),
    "factorised blocks are turned back": (
        plan,
        "ahead = group in last.groups and group * shape.Q + last.column >= k",
        "ahead = group in last.groups",
    ),
    "checksums get no right-hand sides": (
        plan,
        "transfers += _right_hand_sides(course, whole, steps, base)",
        "transfers += []",
    ),
    "copies are not made again": (plan, "transfers += _copies(course, states, forming)", "transfers += []"),
    "new checksums are believed to have copies": (
        plan,
        "held |= {rank: set() for rank in course.roles.check.ranks}",
        "pass",
    ),
    "one copy is enough": (copies, "return k % Q, (k + 1) % Q if Q > 1 else Q", "return k % Q, k % Q"),
    "panels are kept for one step": (steps, "WINDOW = 4", "WINDOW = 0"),
}


def mutated(module: ModuleType, old: str, new: str) -> dict[str, Any]:
    """The module's names, made of its source with a rule taken out."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert source.count(old) >= 1, f"found 0 times: {old}"
    names: dict[str, Any] = {"__name__": module.__name__, "shape_blocks": lambda course: course.shape.blocks}
    exec(compile(source.replace(old, new), str(module.__file__), "exec"), names)
    names |= {name: each for name, each in vars(module).items() if isinstance(each, type)}  # the same classes
    return names


@pytest.mark.rotate(6)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, old, new = MUTANTS[name]
    names = mutated(module, old, new)
    for each in module.__all__:
        monkeypatch.setattr(module, each, names[each])
    with pytest.raises((AssertionError, KeyError, TooManyLost, ValueError, StopIteration, TypeError)):
        for small in ((2, 1, 3, 0), (1, 2, 4, 1), (1, 3, 6, 0)):
            explore(*small)
        for small in ((2, 1, 3, 0), (1, 2, 4, 1)):
            explore(*small, factors=True)
        for seed in (*FOUND, *range(200)):
            one_after_the_other(seed)

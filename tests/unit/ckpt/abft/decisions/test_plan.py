"""What all do after a death: every death there can be, on small grids; random ones in sequence on larger ones; mutants."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ckpt.abft.decisions import copies, course, plan, shares, steps
from ckpt.abft.decisions.grid import Column, Roles, Shape
from ckpt.abft.errors import TooManyLost
from tests.seeds import seed_of_the_commit
from tests.unit.ckpt.abft.decisions.exploration import explore, explore_second, one_after_the_other

pytestmark = pytest.mark.turns(6)


@pytest.mark.parametrize("ahead", [0, 1])
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
        # more than 100,000 deaths: two minutes of an idle processor
        pytest.param(2, 3, 3, 0, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)]),
        pytest.param(3, 1, 3, 0, marks=pytest.mark.nightly),
    ],
)
def test_after_any_one_death_the_factorisation_is_the_right_one(
    P: int, Q: int, blocks: int, spares: int, ahead: int, figures: Callable[[str, int], None]
) -> None:
    states, deaths = explore(P, Q, blocks, spares, ahead=ahead)
    figures("abft: states in which a rank may die, visited", states)
    figures("abft: deaths that differ", deaths)


@pytest.mark.parametrize("ahead", [0, 1])
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
    P: int, Q: int, blocks: int, spares: int, ahead: int, figures: Callable[[str, int], None]
) -> None:
    """Every column that should keep a copy of a panel has the one that all have applied."""
    states, deaths = explore(P, Q, blocks, spares, factors=True, ahead=ahead)
    figures("abft: states in which a rank may die, visited", states)
    figures("abft: deaths that differ", deaths)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(
    ("P", "Q", "blocks", "spares", "redundant", "factors"),
    [
        (1, 2, 2, 0, 2, False),
        pytest.param(1, 2, 4, 0, 2, False, marks=pytest.mark.nightly),
        pytest.param(1, 2, 4, 1, 2, False, marks=pytest.mark.nightly),
        pytest.param(1, 3, 3, 0, 2, False, marks=pytest.mark.nightly),
        pytest.param(1, 2, 4, 0, 2, True, marks=pytest.mark.nightly),
    ],
)
def test_after_any_two_deaths_at_once_with_two_columns_of_checksums(
    P: int,
    Q: int,
    blocks: int,
    spares: int,
    redundant: int,
    factors: bool,
    ahead: int,
    figures: Callable[[str, int], None],
) -> None:
    states, deaths = explore(P, Q, blocks, spares, factors, redundant, ahead)
    figures("abft: states in which two ranks may die, visited", states)
    figures("abft: pairs of deaths that differ", deaths)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(
    ("grid", "factors", "corrupt"),
    [
        ((1, 2, 2, 0, 2), False, False),
        ((1, 2, 2, 0, 2), True, False),
        ((1, 2, 2, 0, 2), False, True),
        ((1, 2, 2, 1, 1), False, False),
        *(
            pytest.param(grid, factors, corrupt, marks=pytest.mark.nightly)
            for grid, factors, corrupt in [
                ((1, 2, 4, 0, 2), False, False),
                ((1, 2, 4, 0, 2), True, False),
                ((1, 2, 4, 0, 2), False, True),
                ((1, 2, 4, 1, 2), False, False),
                ((1, 2, 4, 1, 1), False, False),
                ((2, 1, 2, 1, 1), False, False),
            ]
        ),
    ],
)
def test_after_a_second_death_while_the_first_is_handled(
    grid: tuple[int, int, int, int, int],
    factors: bool,
    corrupt: bool,
    ahead: int,
    figures: Callable[[str, int], None],
) -> None:
    """`grid`: P, Q, blocks, spares, columns of checksums. `corrupt`: the second rank finds wrong numbers instead."""
    once, twice = explore_second(*grid, factors=factors, corrupt=corrupt, ahead=ahead)
    figures("abft: first deaths that differ", once)
    figures("abft: second deaths that differ", twice)


def test_deaths_in_sequence_with_spares(figures: Callable[[str, int], None]) -> None:
    first = seed_of_the_commit()
    figures(
        "abft: deaths in sequence that were borne", sum(map(one_after_the_other, range(first, first + 25)))
    )


@pytest.mark.nightly
def test_many_deaths_in_sequence() -> None:
    first = seed_of_the_commit() + 100
    for seed in range(first, first + 100):
        one_after_the_other(seed)


def shares_count_one_by_one() -> None:
    """Columns 1 and 2 compute a block of step 6 back: one has applied its panel, the other may not have begun."""
    true = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    held = (true[0], (1.0, 1.0, 1.0), (1.0, 2.0, 3.0))
    both = tuple(steps.Share("subtract", 0, v, (), true[v]) for v in (1, 2))
    roles = Roles(tuple(Column((v,), 2, (held[v],) * 4) for v in range(3)))
    places = {(1, 0): true[1], (2, 0): true[2]}
    of = course.Course(Shape(1, 3, 12, 1), roles, 2, base=6, shares={6: both}, open=places)
    found = shares.settle(of, {0: 7, 1: 7, 2: 6}, 7)
    assert found.settled == {(1, 0)} and dict(found.open) == {(2, 0): true[2]}
    assert found.roles.rows(0) == (true[0], true[1], held[2]) and found.roles.rows(1) == held
    found = shares.settle(of, {0: 7, 1: 6, 2: 7}, 7)
    assert found.settled == {(1, 0), (2, 0)}, "the second one needs what the first has computed"
    assert shares.settle(of, {0: 7, 1: 6, 2: 6}, 7).settled == frozenset()


def the_foremost_column_is_lost_before_the_others_have_its_panels() -> None:
    """Column 0 is replaced from step 11 on, which column 1 has reached; then that is lost too, and all others are at step 9:
    the block column 9 of column 0 is not factorised."""
    shape = Shape(1, 3, 12, 1)
    first = plan.first_course(shape, tuple(range(5)), 2)
    states = {rank: course.State(rank, step=9, update=8, high=9) for rank in (2, 3, 4)}
    foremost = course.State(1, step=11, update=10, high=11)
    then = plan.decide(first, {1: foremost, **states}).course
    assert then.base == 11 and then.roles.data[0].since == 11 and (0, 3) in then.open
    last = plan.decide(then, states).course
    assert last.base == 9 and [column.since for column in last.roles.data] == [9, 9, 0]
    assert set(last.open) == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)}


def copies_outlive_as_many_columns_as_may_be_lost() -> None:
    for Q in range(1, 6):
        for redundant in range(1, Q + 1):
            for k in range(2 * Q):
                found = copies.holders(Q, k, redundant)
                assert found[0] == k % Q and len(set(found)) == redundant + 1
                assert all(v <= Q for v in found)


def the_solution_is_lost_after_two_deaths() -> None:
    """Rank 1 alone has the solution when rank 0 dies; a spare dies while it is given, and then rank 1 itself."""
    first = plan.first_course(Shape(1, 2, 2, 1), tuple(range(5)), 2)
    states = {rank: course.State(rank, step=2, update=1, high=2) for rank in (1, 2, 3)}
    states |= {1: states[1]._replace(solved=True), 4: course.State(4)}
    then = plan.decide(first, states)
    del states[4]
    again = plan.decide(then.course, states)
    assert then.what == again.what == "finish"
    assert course.is_protected(then.course) and course.is_protected(again.course), (
        "two columns of checksums are whole"
    )
    less = replace(again.course, lost=(*again.course.lost, 2))
    assert course.is_protected(less) is False, "one is, for one column of data"
    del states[1]
    last = plan.decide(again.course, states)
    assert last.what == "go on" and last.course.lost == (0, 4, 1) and last.course.former is None
    assert [column.ranks for column in last.course.roles.data] in ([(2,), (3,)], [(3,), (2,)])


def a_panel_made_ahead_is_made_before_the_shares_of_its_step() -> None:
    """Panel 8 is made in step 7: that somebody has applied it does not say that the shares of step 8 are done; and a block
    is not turned back in the step of its panel, except in the first step of a course."""
    true = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    share = steps.Share("subtract", 0, 2, (), true[2])
    roles = Roles((Column((0,)), Column((1,)), Column((2,), 2, ((1.0, 1.0, 1.0),) * 4)))
    of = course.Course(
        Shape(1, 3, 12, 1), roles, 1, base=6, shares={8: (share,)}, open={(2, 0): true[2]}, ahead=1
    )
    assert shares.settle(of, {0: 9, 1: 8}, 9).settled == frozenset()
    assert shares.settle(replace(of, ahead=0), {0: 9, 1: 8}, 9).settled == {(2, 0)}

    roles = Roles((Column((0,)), Column((1,), 0, ((1.0, 1.0),) * 4)), (Column((2,)),))
    for ahead, expected in ((0, {1}), (1, set())):
        late = course.Course(Shape(1, 2, 8, 1), roles, 1, base=2, ahead=ahead)
        assert set(shares.turned_back(late, 1, 3)) == expected, "column 1 makes panel 3"


def nothing_stays_replaced_where_there_are_spares() -> None:
    """A column that is lost at any step is turned back before it makes a panel, so no transformation is left at the end."""
    for Q, groups, ahead in itertools.product((1, 2, 3, 10), (1, 2, 3, 9), (0, 1)):
        shape = Shape(1, Q, Q * groups, 1)
        first = plan.first_course(shape, tuple(range(Q + 2)), 1, ahead=ahead)
        for base, lost in itertools.product(range(1, shape.blocks), range(Q)):
            states = {
                rank: course.State(rank, step=base, update=base - 1, high=base)
                if rank <= Q
                else course.State(rank)
                for rank in range(Q + 2)
                if rank != lost
            }
            then = plan.decide(first, states).course
            assert then.roles.checks and not course.final_rows(then), (Q, groups, ahead, base, lost)


def test_nothing_stays_replaced_where_there_are_spares() -> None:
    nothing_stays_replaced_where_there_are_spares()


def test_a_panel_made_ahead_is_made_before_the_shares_of_its_step() -> None:
    a_panel_made_ahead_is_made_before_the_shares_of_its_step()


def test_the_solution_is_lost_after_two_deaths() -> None:
    the_solution_is_lost_after_two_deaths()


def test_shares_count_one_by_one() -> None:
    shares_count_one_by_one()


def test_the_foremost_column_is_lost_before_the_others_have_its_panels() -> None:
    the_foremost_column_is_lost_before_the_others_have_its_panels()


def test_copies_outlive_as_many_columns_as_may_be_lost() -> None:
    copies_outlive_as_many_columns_as_may_be_lost()


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
        "if group * shape.Q + d < base:",
        "if False:",
    ),
    "what is not factorised is recovered too": (
        plan,
        "if group * shape.Q + d < base:",
        "if True:",
    ),
    "recovered to what it held last": (plan, "behind.setdefault(", "behind.__setitem__("),
    "the group under way is forgotten": (steps, "or group in open_groups:", "or False:"),
    "shares that were begun count": (
        shares,
        "if k < known.get(share.column, 0)",
        "if k <= known.get(share.column, 0)",
    ),
    "shares of later columns prove nothing": (
        shares,
        "and (k, number) <= last",
        "and k < steps.get(share.column, 0)",
    ),
    "later shares of a step count": (shares, "(k, number) <= last", "k <= last[0]"),
    "checksums count before they are complete": (
        plan,
        "if steps[v] < whole[v].ready and v >= shape.Q]",
        "if False]",
    ),
    "what was turned back is still open": (shares, "if place not in done", ""),
    "a panel of recovered blocks proves nothing": (
        shares,
        "known[shape.owner(k)] = max(known.get(shape.owner(k), 0), made + 1)",
        "pass",
    ),
    "a panel proves the shares of the step that it is for": (
        shares,
        "made = made_in(k, course.base, course.ahead)",
        "made = k",
    ),
    "the last groups are turned back first": (
        shares,
        "key=lambda group: (_is_finished(shape, group, base), group)",
        "reverse=True",
    ),
    "finished groups are turned back first": (shares, "(_is_finished(shape, group, base), group)", "group"),
    "blocks of which the panel is made ahead are turned back": (
        shares,
        "and made_in(group * Q + v, course.base, course.ahead) >= k",
        "and group * Q + v >= k",
    ),
    "the first panel of a course is made ahead too": (
        steps,
        "return k - ahead if k > base else k",
        "return k - ahead",
    ),
    "a panel is made ahead of the row exchange": (
        steps,
        'found.append(Op("ahead", following))',
        'found.insert(0, Op("ahead", following))',
    ),
    "what is turned back is transformed at the end": (course, 'if share.kind == "subtract"', "if False"),
    "each block is computed back as if it were the only one": (shares, "            rows[v] = row\n", ""),
    "the root answers before all have come": (
        steps,
        'found += [Op("get rows", k, (row, v)) for row in others]',
        "found += []",
    ),
    "factorised blocks are turned back": (
        shares,
        " and made_in(group * Q + v, course.base, course.ahead) >= k",
        "",
    ),
    "checksums get no right-hand sides": (
        plan,
        "transfers += _right_hand_sides(course, forming, whole, steps)",
        "transfers += []",
    ),
    "what was factorised stays so when its panel is lost": (
        plan,
        "_receded(shares.settle(course, steps, base), base)",
        "shares.settle(course, steps, base)",
    ),
    "copies are not made again": (plan, "transfers += _copies(course, states, forming)", "transfers += []"),
    "new checksums are believed to have copies": (
        plan,
        "held |= {rank: set() for rank in course.roles.column(v).ranks}",
        "pass",
    ),
    "one copy is enough": (copies, "min(Q, redundant + 1)", "min(Q, 1)"),
    "panels are kept for one step": (steps, "WINDOW = 4", "WINDOW = 0"),
    "what is held is forgotten when somebody has the solution": (
        plan,
        "if course.former is not None:",
        "if False:",
    ),
    "who had died when somebody had the solution is believed to live": (
        plan,
        "dead = tuple(rank for rank in roles.ranks() if rank not in states)",
        "dead = died",
    ),
    "only the last course without a solution is gone back to": (
        plan,
        "former = course if course.former is None else course.former",
        "former = course",
    ),
}


def mutated(module: ModuleType, old: str, new: str) -> dict[str, Any]:
    """The module's names, made of its source with a rule taken out."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert source.count(old) >= 1, f"found 0 times: {old}"
    names: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(old, new), str(module.__file__), "exec"), names)
    names |= {name: each for name, each in vars(module).items() if isinstance(each, type)}  # the same classes
    return names


@pytest.mark.rotate(12)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, old, new = MUTANTS[name]
    names = mutated(module, old, new)
    for each in module.__all__:
        monkeypatch.setattr(module, each, names[each])
    with pytest.raises((AssertionError, KeyError, TooManyLost, ValueError, StopIteration, TypeError)):
        shares_count_one_by_one()
        copies_outlive_as_many_columns_as_may_be_lost()
        the_solution_is_lost_after_two_deaths()
        a_panel_made_ahead_is_made_before_the_shares_of_its_step()
        nothing_stays_replaced_where_there_are_spares()
        the_foremost_column_is_lost_before_the_others_have_its_panels()
        for small in ((2, 1, 3, 0), (1, 2, 4, 1), (1, 3, 6, 0)):
            explore(*small)
        for small in ((2, 1, 3, 0), (1, 2, 4, 1)):
            explore(*small, ahead=1)
        for small in ((2, 1, 3, 0), (1, 2, 4, 1)):
            explore(*small, factors=True)
        explore(1, 2, 4, 0, redundant=2)
        explore_second(1, 2, 2, 0, 2)
        explore_second(1, 2, 2, 1, 1)
        for seed in range(200):
            one_after_the_other(seed)

"""Processes that are started while a solve goes on: every death before, in and after their joining; mutants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.abft.decisions import course, joining, plan
from ckpt.abft.decisions.grid import Shape
from ckpt.abft.errors import TooManyLost
from tests.unit.ckpt.abft.decisions.exploration import explore_early, explore_joining, explore_second
from tests.unit.ckpt.abft.decisions.test_plan import mutated

pytestmark = pytest.mark.turns(4)


@pytest.mark.parametrize(
    ("P", "Q", "blocks", "redundant", "reserve"),
    [
        (1, 2, 4, 1, 1),
        (2, 1, 3, 1, 2),
        (1, 2, 2, 2, 2),
        pytest.param(1, 3, 6, 1, 2, marks=pytest.mark.nightly),
        pytest.param(2, 2, 2, 1, 2, marks=pytest.mark.nightly),
        pytest.param(1, 2, 4, 2, 2, marks=pytest.mark.nightly),
    ],
)
def test_after_any_death_new_processes_protect_again_whoever_dies_while_they_join(
    P: int, Q: int, blocks: int, redundant: int, reserve: int, figures: Callable[[str, int], None]
) -> None:
    once, twice = explore_joining(P, Q, blocks, redundant, reserve)
    figures("abft: deaths that differ", once)
    figures("abft: deaths while processes join", twice)


@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize(
    ("P", "Q", "blocks", "reserve"),
    [
        (1, 2, 2, 2),
        pytest.param(2, 1, 2, 1, marks=pytest.mark.nightly),
        pytest.param(1, 2, 4, 2, marks=pytest.mark.nightly),
        pytest.param(2, 1, 2, 2, marks=pytest.mark.nightly),
    ],
)
def test_after_a_second_death_of_whoever_is_there(
    P: int, Q: int, blocks: int, reserve: int, factors: bool, figures: Callable[[str, int], None]
) -> None:
    once, twice = explore_second(P, Q, blocks, 0, 1, factors=factors, reserve=reserve)
    figures("abft: first deaths that differ", once)
    figures("abft: second deaths that differ", twice)


@pytest.mark.parametrize(("P", "Q", "blocks"), [(1, 2, 4), (2, 1, 3), (1, 3, 3)])
def test_what_begins_without_checksums_is_protected_after_the_first_panel(
    P: int, Q: int, blocks: int
) -> None:
    assert explore_early(P, Q, blocks)


AnyMeeting = joining.Meeting[Any, Any, Any]


def meeting(begun: course.Course, states: Any) -> AnyMeeting:
    return joining.Meeting(begun, states, joining.Reserve(True), lambda *given: plan.decide(*given))


# ---- the calls of a meeting --------------------------------------------------------------------------------


def all_orders(lives: tuple[int, ...], reserve: int, deaths: int) -> Iterator[Any]:
    """Every way that meetings of these ranks of 1 × 2 processes can take: each agreement is one step of all that live, and
    some die before it. Asserts that all that live do the same, and come to the same end."""
    first = plan.first_course(Shape(1, 2, 8, 1), (0, 1, 2, 3), 2, began=4)
    states = {rank: course.State(rank, step=4, update=3, high=4) for rank in lives}
    meetings = {rank: meeting(first, states) for rank in lives}
    yield from _ways(meetings, states, frozenset(), reserve, deaths, 0)


def _ways(
    meetings: dict[int, AnyMeeting], states: Any, new: frozenset[int], left: int, deaths: int, steps: int
) -> Iterator[Any]:
    assert steps < 20, "without an end"
    actions = {(each.action, each.counts) for each in meetings.values()}
    assert len(actions) <= 1, f"they do not do the same: {actions}"
    if not actions:
        return
    action, counts = actions.pop()
    if action == "follow":
        ends = {repr((each.decision, each.reserve, each.states)) for each in meetings.values()}
        assert len(ends) == 1, "they do not decide the same"
        yield next(iter(meetings.values()))
        return
    living = (*meetings, *(-1 - place for place in new))
    for count in range(deaths + 1):
        for dead in itertools.combinations(living, count):
            rest = {rank: clone(each) for rank, each in meetings.items() if rank not in dead}
            there = frozenset(place for place in new if -1 - place not in dead)
            said = {rank: state for rank, state in states.items() if rank in rest}
            for outcome in ("told", "interrupted") if action == "ask" and dead else ("told",):
                branch = {rank: clone(each) for rank, each in rest.items()}
                try:
                    yield from _after(
                        branch, action, outcome, counts, said, there, left, deaths - count, steps + 1
                    )
                except TooManyLost:
                    assert len({0, 1, 2, 3}.intersection(rest)) < 2, "two are enough"


def _after(
    meetings: dict[int, AnyMeeting],
    action: str,
    outcome: str,
    counts: tuple[int, ...],
    said: Any,
    new: frozenset[int],
    left: int,
    deaths: int,
    steps: int,
) -> Iterator[Any]:
    if action == "merge":
        everybody = [*said.values(), *sorted(new)]
        for each in meetings.values():
            each.merged(everybody)
        first = next(iter(meetings.values()), None)
        states, new = (first.states if first else {}), frozenset()
        first_new = 4 + (first.course.started - first._count if first else 0)
        for place in (each for each in everybody if isinstance(each, int)):
            brief = first.course if first else None
            if (
                brief is not None
            ):  # a new process begins with the course of before, and the same that all have said
                begun = plan.replace(brief, started=first_new - 4)
                then, all_states = joining.joined(begun, everybody, first._count)  # type: ignore[union-attr]
                meetings[first_new + place] = meeting(then, all_states)
        yield from _ways(meetings, states, new, left, deaths, steps)
    elif outcome == "interrupted":
        for each in meetings.values():
            each.met(said)
        yield from _ways(meetings, said, new, left, deaths, steps)
    else:
        fits = [count for count in counts if count <= left]
        for count in {None, max(fits, default=None)}:  # they may always be refused
            branch = {rank: clone(each) for rank, each in meetings.items()}
            for each in branch.values():
                each.asked(count)
            started = frozenset(range(count or 0))
            yield from _ways(branch, said, started, left - (count or 0), deaths, steps)


def clone(meeting: AnyMeeting) -> AnyMeeting:
    other = object.__new__(joining.Meeting)
    other.__dict__.update(meeting.__dict__)
    return other


def test_all_that_live_take_the_same_way_whoever_dies_at_which_call() -> None:
    """Two columns of checksums, one of four ranks is dead; up to two more die, new ones too."""
    ends = list(all_orders((0, 2, 3), 3, 2))
    assert len(ends) > 100
    assert {len(end.course.lost) + end.course.started for end in ends} >= {0, 1, 2}


# ---- rules -------------------------------------------------------------------------------------------------


def at_step(step: int, *ranks: int) -> dict[int, course.State]:
    return {rank: course.State(rank, step=step, update=step - 1, high=step) for rank in ranks}


def begun(redundant: int = 1) -> course.Course:
    return plan.first_course(Shape(1, 2, 8, 1), tuple(range(2 + redundant)), redundant, began=2 + redundant)


def new_ranks_fill_nothing() -> None:
    """All ranks have wrong numbers, so places are filled anew, and the new rank 3 gets none."""
    then, states = joining.joined(begun(), [*at_step(4, 0, 2).values(), 0], 1)
    decision = plan.decide(then, states)
    assert decision.course.roles.checks[0].ranks == (3,)
    wrong = {rank: course.State(rank, corrupt=True) for rank in (0, 2, 3)}
    again = plan.decide(decision.course, wrong)
    assert again.what == "start" and again.course.roles.idle == (3,) and not again.course.roles.checks
    assert again.course.began == 3 and again.course.started == 1
    assert plan.ends_early(joining.Reserve(True), again) is False, "there is an idle one"
    assert course.Course(again.course.shape, again.course.roles, 1).having((3, 1)) == (1, 3)


def a_number_is_used_once() -> None:
    """The first new process dies before the merge, and has the number 3 all the same; of two, the second one has 5."""
    then, states = joining.joined(begun(), list(at_step(4, 0, 2).values()), 1)
    assert sorted(states) == [0, 2]
    then, states = joining.joined(then, [*at_step(4, 0, 2).values(), 1], 2)
    assert sorted(states) == [0, 2, 5] and then.started == 3
    # the solution is lost: all go on from the course before it, and do not forget the numbers
    solved = plan.decide(then, {0: at_step(8, 0)[0]._replace(solved=True), 2: at_step(8, 2)[2]}).course
    assert solved.former is not None
    last = plan.decide(plan.replace(solved, started=4), at_step(8, 0, 2))
    assert last.what == "go on" and last.course.started == 4


def as_many_as_are_missing() -> None:
    first = begun(2)
    two_gone = plan.decide(first, at_step(4, 2, 3))
    may = joining.Reserve(True)
    assert may.wanted(two_gone) == (1, 2)
    assert joining.Reserve(False).wanted(two_gone) == ()
    assert may.after(True).wanted(two_gone) == (1, 2), "one refusal may be a death"
    assert may.after(True).after(True).wanted(two_gone) == ()
    assert may.after(True).after(False).after(True).wanted(two_gone) == (1, 2)
    assert may.wanted(plan.decide(first, at_step(8, 2, 3))) == (), "there is nothing left to protect"
    rows = plan.first_course(Shape(3, 1, 4, 1), tuple(range(6)), 1, began=6)
    assert may.wanted(plan.decide(rows, at_step(2, 1, 2, 3, 4, 5))) == (1,), "two of the column are idle"
    late = plan.first_course(Shape(1, 2, 8, 1), (0, 1), 1, began=3)
    assert plan.ends_early(may, course.Decision("start", late))
    assert not plan.ends_early(may.after(True).after(True), course.Decision("start", late))
    assert not plan.ends_early(may, course.Decision("go on", late))


def alone_they_end() -> None:
    """Of three processes and a new one all others have died."""
    then, states = joining.joined(begun(2), [*at_step(4, 0, 2).values(), 0, 1], 2)
    decision = plan.decide(then, states)
    with pytest.raises(TooManyLost, match="all ranks that have begun"):
        meeting(decision.course, {rank: states[rank] for rank in (4, 5)})


RULES = (new_ranks_fill_nothing, a_number_is_used_once, as_many_as_are_missing, alone_they_end)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[], None]) -> None:
    rule()


MUTANTS = {
    "new ranks fill places": (
        plan,
        "able = course.shape, course.having(states)",
        "able = course.shape, tuple(sorted(states))",
    ),
    "those that fill nothing are forgotten": (
        plan,
        "idle=(*roles.idle, *sorted(set(states).difference(able)))",
        "idle=roles.idle",
    ),
    "numbers are used again": (joining, "course.with_started(count)", "course.with_started(0)"),
    "numbers are used again after the solution was lost": (plan, ", started=course.started)", ")"),
    "numbers are used again after a new start": (plan, "        started=course.started,\n", ""),
    "who had begun is forgotten at a new start": (plan, "        began=course.began,\n", ""),
    "idle ranks do not count": (
        joining,
        "count * lack.ranks - lack.idle",
        "count * lack.ranks",
    ),
    "all columns or none": (joining, "range(1, lack.columns + 1)", "range(lack.columns, lack.columns + 1)"),
    "refusals do not count": (joining, "self.refused + 1 if refused else 0", "0"),
    "refusals are not forgotten": (joining, "self.refused + 1 if refused else 0", "self.refused + refused"),
    "one refusal is enough": (joining, "REFUSALS = 2", "REFUSALS = 1"),
    "asked for where there are none": (joining, "self.has and", ""),
    "a start goes to its end": (plan, 'reserve.may and decision.what == "start"', "False"),
    "alone they go on": (joining, "if not self.course.having(self.states):", "if False:"),
}


@pytest.mark.rotate(6)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, old, new = MUTANTS[name]
    if module is joining:  # the rules are in its classes
        source = Path(str(joining.__file__)).read_text(encoding="utf-8")
        assert old in source
        names: dict[str, Any] = {"__name__": joining.__name__}
        exec(compile(source.replace(old, new), str(joining.__file__), "exec"), names)
    else:
        names = mutated(module, old, new)
    for each in module.__all__:
        monkeypatch.setattr(module, each, names[each])
    with pytest.raises(
        (AssertionError, KeyError, TooManyLost, ValueError, StopIteration, TypeError, IndexError)
    ):
        for rule in RULES:
            rule()

"""Products on the grid: a simulation of ranks that carry out what is decided, with deaths at any point, and processes that
are started. Numbers are real, so what columns hold is compared with what their weights say; mutants."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt.abft.decisions import summa
from ckpt.abft.decisions.joining import Meeting, Reserve
from ckpt.abft.decisions.progress import Progress
from ckpt.abft.errors import TooManyLost
from tests.seeds import seed_of_the_commit

BLOCKS = 6


class Rank:
    """`b`, `c`: numbers that stand for its parts of B and C: C has `step` times those of B. `a`: the place whose blocks of A
    it has."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.step, self.done, self.checked = -1, False, 0
        self.a: Any = None
        self.b = self.c = 0.0
        self.place: Any = None

    def said(self) -> Progress:
        return Progress(self.number, self.step, self.done, self.checked)


class Product:
    """A product of ranks that live, from meeting to meeting. `reserve`: so many processes may be started."""

    def __init__(
        self, choose: random.Random, P: int, Q: int, redundant: int, ranks: int, reserve: int
    ) -> None:
        self.choose, self.reserve = choose, reserve
        self.ranks = {number: Rank(number) for number in range(ranks)}
        self.course = summa.Course(P, Q, redundant, BLOCKS, ranks)
        self.truth = np.random.default_rng(choose.randrange(1000)).normal(size=(P, Q))
        self.meetings = 0

    def meet(self) -> summa.Decision:
        said = {number: rank.said() for number, rank in self.ranks.items()}
        meeting: Any = Meeting(
            self.course, said, Reserve(self.reserve > 0), lambda *given: summa.decide(*given)
        )
        while meeting.action != "follow":
            count = max((count for count in meeting.counts if count <= self.reserve), default=None)
            meeting.asked(count)
            if count is None:
                continue
            self.reserve -= count
            places = [place for place in range(count) if self.choose.random() < 0.8]
            before = {*meeting.states}
            meeting.merged([*meeting.states.values(), *places])
            self.ranks |= {number: Rank(number) for number in meeting.states if number not in before}
        decision: summa.Decision = meeting.decision
        return decision

    def run(self, deaths: int) -> None:
        """To the result, at all that live; so many die at random points. Raises TooManyLost."""
        while True:
            decision = self.meet()
            if not decision.died and all(
                rank.done and rank.checked == self.meetings for rank in self.ranks.values()
            ):
                return
            self.course = decision.course
            self.meetings += 1
            for rank in self.ranks.values():
                if decision.drops(rank.number):
                    rank.step, rank.a = -1, None
            dies = deaths > 0 and self.choose.random() < 0.9
            points = self.choose.randrange(40) if dies else 10**9
            if not self._go(decision, points):
                deaths -= 1
                del self.ranks[self.choose.choice([*self.ranks])]
                if not self.ranks:
                    raise TooManyLost("nobody is left")

    def _go(self, decision: summa.Decision, points: int) -> bool:
        """False: interrupted after so many operations of single ranks, which come in any order that they may."""
        for operation in self._operations(decision):
            if points == 0:
                return False
            points -= 1
            operation()
        return True

    def _operations(self, decision: summa.Decision) -> Any:
        course, layout = decision.course, decision.course.layout
        assert layout is not None and {*layout.ranks} == {*self.ranks}, "somebody would wait for ever"
        if decision.what == "finish":
            for rank in self._shuffled():
                yield lambda rank=rank: self._end(rank)
            return
        for rank in self._shuffled():
            yield lambda rank=rank: self._fill(rank, decision)
        assert {course.began <= rank for rank in course.givers()} <= {True}
        for number, giver in course.givers().items():
            assert giver < course.began and giver in self.ranks
            yield lambda number=number: setattr(self.ranks[number], "a", layout.place(number))
        old = [self.ranks[number] for column in layout.columns for number in column]
        old = [rank for rank in old if rank.place.v not in course.joining]
        steps = dict(course.steps)
        yield from self._steps(old, course.top, steps)
        for v in course.joining:
            mixture = layout.mixture(v)
            for p, number in enumerate(layout.columns[v]):
                yield lambda v=v, p=p, number=number, mixture=mixture: self._encode(v, p, number, mixture)
        everybody = [self.ranks[number] for column in layout.columns for number in column]
        yield from self._steps(everybody, BLOCKS, steps)
        self._look_at_columns()
        for rank in self._shuffled():
            yield lambda rank=rank: self._end(rank)

    def _shuffled(self) -> list[Rank]:
        return self.choose.sample([*self.ranks.values()], len(self.ranks))

    def _fill(self, rank: Rank, decision: summa.Decision) -> None:
        course, layout = decision.course, decision.course.layout
        assert layout is not None
        place = layout.place(rank.number)
        joins = place is not None and place.v in course.joining
        if place is not None and not joins:
            if rank.step < 0:
                assert rank.number < course.began, "it has no functions to fill from"
                rank.b, rank.c, rank.step = (
                    float(np.dot(layout.weights[place.v], self.truth[place.p])),
                    0.0,
                    0,
                )
            if rank.number < course.began and place.v < layout.Q:
                rank.a = place
        rank.place = place

    def _steps(self, ranks: list[Rank], end: int, steps: Mapping[int, int]) -> Any:
        """All come to this step; each needs the panels of those that own them."""
        for rank in self.choose.sample(ranks, len(ranks)):
            for k in range(BLOCKS):
                if k < end and rank.step <= k:
                    assert steps.get(rank.number, -1) <= k, "nobody sends it the panels of this step"
                    yield lambda rank=rank, k=k: self._add(rank, k)

    def _add(self, rank: Rank, k: int) -> None:
        layout = self.course.layout
        assert layout is not None and rank.step == k
        owner = self.ranks[layout.data[k % layout.Q][rank.place.p]]
        assert owner.a == owner.place, "who is to send a panel of A does not have it"
        rank.c += rank.b
        rank.step += 1

    def _encode(self, v: int, p: int, number: int, mixture: np.ndarray) -> None:
        layout, rank = self.course.layout, self.ranks[number]
        assert layout is not None
        held = [self.ranks[column[p]] for column in layout.data]
        assert {each.step for each in held} == {self.course.top}, "not all are at one step"
        rank.b = float(sum(much * each.b for much, each in zip(mixture, held, strict=True)))
        rank.c = float(sum(much * each.c for much, each in zip(mixture, held, strict=True)))
        rank.step = self.course.top

    def _look_at_columns(self) -> None:
        layout = self.course.layout
        assert layout is not None
        for v, column in enumerate(layout.columns):
            for p, number in enumerate(column):
                wanted, rank = float(np.dot(layout.weights[v], self.truth[p])), self.ranks[number]
                close = 1e-9 * max(1.0, layout.condition)
                assert abs(rank.b - wanted) < close and abs(rank.c - BLOCKS * wanted) < BLOCKS * close
        held = np.array([[self.ranks[number].c for number in column] for column in layout.data])
        assert np.abs(layout.parts(held).T - BLOCKS * self.truth).max() < 1e-7 * layout.condition

    def _end(self, rank: Rank) -> None:
        rank.done, rank.checked = True, self.meetings


def simulated(seed: int) -> tuple[bool, int]:
    """Did it come to its end, and how many processes were started?"""
    choose = random.Random(seed)
    P, Q = choose.randint(1, 3), choose.randint(1, 4)
    redundant = choose.randint(0, min(2, Q))
    ranks, reserve = P * (Q + redundant) + choose.randint(0, 2), choose.choice([0, 2, 6, 6])
    product = Product(choose, P, Q, redundant, ranks, reserve)
    try:
        product.run(choose.randint(0, 5))
    except TooManyLost:
        return False, product.course.started
    return True, product.course.started


def test_whoever_dies_the_product_is_right_or_too_many_are_lost(figures: Callable[[str, int], None]) -> None:
    first = seed_of_the_commit() * 10**6
    found = [simulated(first + seed) for seed in range(2000)]
    ended, started = sum(done for done, _ in found), sum(count > 0 for _, count in found)
    assert 700 < ended < 2000 and started > 100
    figures("abft: products with deaths", len(found))


def begun_with(ranks: int) -> summa.Course:
    """1 × 2 processes and one column of checksums."""
    course = summa.Course(1, 2, 1, BLOCKS, ranks)
    return summa.decide(course, {rank: Progress(rank) for rank in range(ranks)}).course


def layout_after(*deaths: int, reserve: int) -> summa.Course:
    """1 × 2 processes and one column of checksums, of which these die one after the other, at step 3."""
    product = Product(random.Random(0), 1, 2, 1, 3, reserve)
    product.choose.random = lambda: 0.0  # type: ignore[method-assign]
    product.course = product.meet().course
    for dead in deaths:
        del product.ranks[dead]
        for rank in product.ranks.values():
            rank.step = 3
        product.course = product.meet().course
    return product.course


def test_a_started_process_protects_and_then_takes_the_place_of_the_next_one_that_dies() -> None:
    once = layout_after(0, reserve=2)
    assert once.layout is not None and once.layout.data == ((2,), (1,)) and once.layout.checks == ((3,),)
    assert once.joining == (2,) and once.started == 1 and once.givers() == {}
    twice = layout_after(0, 1, reserve=2)
    assert twice.layout is not None and twice.layout.data == ((2,), (3,)) and twice.layout.checks == ((4,),)
    assert twice.givers() == {3: 2}, "3 has not the function that gives A"


def test_who_joins_new_checksums_holds_nothing_also_if_another_one_dies_at_once() -> None:
    """Rank 0 of 2 × 2 processes and two that are idle: with one of these it joins new checksums. Before it has them, rank 4
    dies, and the column was taken for complete."""
    begun = summa.decide(summa.Course(2, 2, 1, BLOCKS, 8), {rank: Progress(rank) for rank in range(8)}).course
    held = {rank: Progress(rank, step=3 if rank < 6 else -1) for rank in range(8) if rank != 3}
    once = summa.decide(begun, held)
    assert once.course.layout is not None and once.course.layout.checks == ((0, 6),) and once.drops(0)
    assert not once.drops(1) and once.drops(7)
    held = {rank: said._replace(step=-1) if once.drops(rank) else said for rank, said in held.items()}
    del held[7]
    twice = summa.decide(once.course, held)
    assert twice.course.joining == (2,), "they are formed again"
    assert twice.course.layout is not None and twice.course.layout.checks == ((0, 6),)


def test_nobody_is_started_when_nothing_is_left_to_add() -> None:
    begun = begun_with(3)
    late = summa.decide(begun, {rank: Progress(rank, step=BLOCKS) for rank in (1, 2)}).course
    assert late.lack().columns == 0
    early = summa.decide(begun, {rank: Progress(rank, step=1) for rank in (1, 2)}).course
    assert early.lack().columns == 1
    done = summa.decide(begun, {1: Progress(1, 2, done=True), 2: Progress(2, 2)})
    assert done.what == "finish"
    spare = {rank: Progress(rank, step=BLOCKS if rank < 3 else -1) for rank in (1, 2, 3)}
    assert summa.decide(begun_with(4), spare).course.joining == ()


def test_when_nobody_has_the_result_any_more_all_go_on_from_the_layout_before() -> None:
    begun = begun_with(4)
    states = {rank: Progress(rank, step=BLOCKS if rank < 3 else -1) for rank in range(4)}
    given = summa.decide(begun, states | {0: Progress(0, BLOCKS, done=True)}).course
    assert given.layout is not None and given.layout.columns == ((), ()) and given.former == begun.layout
    del states[0]
    again = summa.decide(given, states)
    assert again.what == "go on" and not again.is_new and again.course.former is None
    assert again.course.layout is not None and again.course.layout.data == ((2,), (1,))


def test_a_rank_of_the_data_that_has_filled_nothing_gets_all_panels() -> None:
    """It is slow, and the others have added panels of their own meanwhile."""
    states = {0: Progress(0, 2), 1: Progress(1), 2: Progress(2, 1)}
    found = summa.decide(begun_with(4), states)
    assert not found.is_new and found.course.steps == {0: 2, 1: 0, 2: 1} and found.died == (3,)


def test_they_that_have_begun_are_dead() -> None:
    course = layout_after(0, 1, reserve=2)
    with pytest.raises(TooManyLost, match="all ranks that have begun"):
        Meeting(course, {3: Progress(3, 4), 4: Progress(4, 4)}, Reserve(True), summa.decide)


MUTANTS = {
    "new ranks fill places": (
        "able = course.having(states)",
        "able = tuple(sorted(states))",
    ),
    "new ranks are forgotten at a new start": (
        "layout = layout.with_idle(rank for rank in states if rank not in able)",
        "pass",
    ),
    "new ranks are forgotten": (
        "before = before.with_idle(rank for rank in states if rank not in before.ranks)",
        "pass",
    ),
    "checksums that are not complete count": (
        "if all(steps.get(rank, -1) >= 0 for rank in column)",
        "if True",
    ),
    "the layout before the result is forgotten": (
        "before, former = former, None",
        "pass",
    ),
    "blocks of A are not given": (
        "if rank >= self.began]",
        "if False]",
    ),
    "who begins with nothing gets no panels": (
        "steps |= {",
        "dict() | {",
    ),
    "asked for when nothing is left": ("self.top >= self.blocks", "False"),
    "formed when nothing is left": ("layout.formed() if course.top < course.blocks else layout", "layout.formed()"),
    "nothing is formed first": ("joining=joining, steps", "steps"),
    "who joins a column says that it holds what it held before": (" or place.v in self.course.joining", ""),
}  # fmt: skip


@pytest.mark.rotate(3)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = MUTANTS[name]
    source = Path(str(summa.__file__)).read_text(encoding="utf-8")
    assert source.count(old) == 1
    names: dict[str, Any] = {"__name__": summa.__name__}
    exec(compile(source.replace(old, new), str(summa.__file__), "exec"), names)
    for each in summa.__all__:
        monkeypatch.setattr(summa, each, names[each])
    with pytest.raises((AssertionError, KeyError, IndexError, AttributeError, TypeError, ValueError)):
        for seed in range(600):
            simulated(seed)
        test_a_started_process_protects_and_then_takes_the_place_of_the_next_one_that_dies()
        test_when_nobody_has_the_result_any_more_all_go_on_from_the_layout_before()
        test_who_joins_new_checksums_holds_nothing_also_if_another_one_dies_at_once()
        test_a_rank_of_the_data_that_has_filled_nothing_gets_all_panels()
        test_nobody_is_started_when_nothing_is_left_to_add()

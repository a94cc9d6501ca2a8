"""Explores the model (model.py): every state of a run, every death in it, a second one in what follows; random sequences."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from ckpt.abft.decisions import joining, plan
from ckpt.abft.decisions.course import Course, Decision
from ckpt.abft.decisions.grid import Roles, Shape
from ckpt.abft.errors import TooManyLost
from tests.unit.ckpt.abft.decisions.model import Run
from tests.unit.ckpt.abft.decisions.process import Process, expect


def begin(
    shape: Shape,
    ranks: int,
    on_loss: str = "hot",
    keep: bool = False,
    redundant: int = 1,
    solution: bool = False,
    ahead: int = 0,
    reserve: int = 0,
) -> Run:
    first = plan.first_course(shape, tuple(range(ranks)), redundant, on_loss, keep, ahead, began=ranks)
    processes = {rank: Process(rank) for rank in range(ranks)}
    return Run(shape, processes, Decision("start", first), solution, reserve)


def cuts(run: Run) -> Iterator[dict[int, int]]:
    """Every combination of calls done in which what was received has been sent; run has come to its end."""
    ranks = list(run.history)
    start = (0,) * len(ranks)
    seen, stack = {start}, [start]
    while stack:
        cut = stack.pop()
        yield dict(zip(ranks, cut, strict=True))
        for place, rank in enumerate(ranks):
            done = cut[place]
            if done == len(run.needs[rank]):
                continue
            need = run.needs[rank][done]
            if need is not None and cut[ranks.index(need[0])] < need[1]:
                continue
            following = (*cut[:place], done + 1, *cut[place + 1 :])
            if following not in seen:
                seen.add(following)
                stack.append(following)


def after_death(
    run: Run,
    cut: Mapping[int, int],
    dead: tuple[int, ...],
    corrupt: tuple[int, ...] = (),
    absent: tuple[int, ...] = (),
) -> Run:
    """The run that begins with the meeting after these deaths, and these ranks found wrong numbers. Raises TooManyLost.
    `absent`: who dies before the first merge with new processes, these are -1, -2, …"""
    processes = {rank: run.history[rank][done].copy() for rank, done in cut.items() if rank not in dead}
    for process in processes.values():
        process.given = {}
    for rank in corrupt:
        processes[rank].step, processes[rank].update = -1, None
    states = {rank: process.state()._replace(corrupt=rank in corrupt) for rank, process in processes.items()}
    meeting, left = joining.Meeting(run.course, states, joining.Reserve(run.left > 0), _decide), run.left
    while meeting.action != "follow":
        count = max((count for count in meeting.counts if count <= left), default=None)
        meeting.asked(count)
        if count is None:
            continue
        left, first = left - count, meeting.course.began + meeting.course.started
        places = [place for place in range(count) if -1 - place not in absent]
        meeting.merged([*(state for state in meeting.states.values() if state.rank not in absent), *places])
        processes |= {first + place: Process(first + place) for place in places}
        processes = {rank: process for rank, process in processes.items() if rank not in absent}
        absent = ()
    return Run(run.shape, processes, meeting.decision, run.solution, left)


def _decide(course: Any, states: Any) -> Any:
    return plan.decide(course, states)


def explore(
    P: int, Q: int, blocks: int, spares: int, factors: bool = False, redundant: int = 1, ahead: int = 0
) -> tuple[int, int]:
    """As many deaths at once as columns of checksums, of all ranks in every state; (states, deaths that differ)."""
    ranks = P * (Q + redundant) + spares
    run = begin(
        Shape(P, Q, blocks, 1), ranks, "recover" if factors else "hot", factors, redundant, ahead=ahead
    )
    run.run()
    run.check()
    known: dict[Any, int] = {}  # a number for each state: a cut is met a million times, a state made but once
    numbers = {
        rank: [known.setdefault(each.state(), len(known)) for each in of] for rank, of in run.history.items()
    }
    states, seen = 0, set()
    for cut in cuts(run):
        states += 1
        for dead in combinations(range(ranks), redundant):
            key = dead, *(numbers[rank][done] for rank, done in cut.items() if rank not in dead)
            if key not in seen:
                seen.add(key)
                following = after_death(run, cut, dead)
                following.run()
                following.check()
    return states, len(seen)


class Seen:
    """States that were looked at. What a process is gets a number, which is the same for what is the same."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.runs: set[Any] = set()

    def number(self, of: Any) -> int:
        return self.numbers.setdefault(of, len(self.numbers))

    def is_new(self, run: Run) -> bool:
        """Did no run begin like this one?"""
        begins = ((rank, self.number(history[0].content())) for rank, history in sorted(run.history.items()))
        key = self._course(run.course), run.decision.what, run.decision.transfers, tuple(begins)
        key = *key, run.left, run.course.started
        new = key not in self.runs
        self.runs.add(key)
        return new

    def _course(self, of: Course | None) -> Any:
        if of is None:
            return None
        found = of.roles, of.base, of.encoding, sorted(of.settled), sorted(of.shares.items())
        return self.number(repr((*found, sorted(of.open.items()), of.replaced))), self._course(of.former)


def after_deaths(run: Run, count: int, seen: Seen, corrupt: bool = False) -> Iterator[Run]:
    """The runs after so many deaths at once, of all ranks in every state of this one; each goes to its end, and is right.
    `corrupt`: they do not die, but find wrong numbers."""
    numbers = {rank: [seen.number(each.content()) for each in of] for rank, of in run.history.items()}
    tried = set()
    for cut in cuts(run):
        for dead in combinations(run.history, count):
            state = dead, *(numbers[rank][done] for rank, done in cut.items() if corrupt or rank not in dead)
            if state in tried:
                continue
            tried.add(state)
            try:
                following = after_death(run, cut, *(((), dead) if corrupt else (dead,)))
            except TooManyLost:
                assert lost_columns(run, dead) > complete(run, cut, dead), "enough checksums are complete"
                continue
            if seen.is_new(following):
                following.run()
                following.check()
                yield following


def explore_second(
    P: int,
    Q: int,
    blocks: int,
    spares: int,
    redundant: int,
    factors: bool = False,
    corrupt: bool = False,
    ahead: int = 0,
    reserve: int = 0,
) -> tuple[int, int]:
    """One death in every state, and one more in every state of what follows it: of the handling, of what is computed back
    and encoded, of the solution that is given; (first deaths, second deaths that differ). `corrupt`: the second rank does
    not die, but finds wrong numbers."""
    ranks, on_loss = P * (Q + redundant) + spares, "recover" if factors else "hot"
    shape = Shape(P, Q, blocks, 1)
    run = begin(shape, ranks, on_loss, factors, redundant, solution=True, ahead=ahead, reserve=reserve)
    run.run()
    run.check()
    seen, once, twice = Seen(), 0, 0
    for following in after_deaths(run, 1, seen):
        once += 1
        twice += sum(1 for _ in after_deaths(following, 1, seen, corrupt))
    return once, twice


def explore_joining(P: int, Q: int, blocks: int, redundant: int, reserve: int) -> tuple[int, int]:
    """One death in every state, and one of a rank or of a new process while that is taken in: (deaths, pairs)."""
    run = begin(Shape(P, Q, blocks, 1), P * (Q + redundant), redundant=redundant, reserve=reserve)
    run.run()
    run.check()
    seen, once, twice = Seen(), 0, 0
    for cut in cuts(run):
        for dead in run.history:
            following = after_death(run, cut, (dead,))
            if not seen.is_new(following):
                continue
            course, once = following.course, once + 1
            if following.decision.what == "go on" and course.base < blocks:
                expect(len(course.roles.checks) == redundant, "not protected again")
            following.run()
            following.check()
            count = reserve - following.left
            for absent in (*run.history, *range(-count, 0)) if count else ():
                gone = (dead, absent) if 0 <= absent != dead else (dead,)
                try:
                    other = after_death(run, cut, (dead,), absent=(absent,))
                except TooManyLost:
                    assert lost_columns(run, gone) > complete(run, cut, gone), "enough checksums are complete"
                    continue
                if seen.is_new(other):
                    twice += 1
                    other.run()
                    other.check()
    return once, twice


def explore_early(P: int, Q: int, blocks: int) -> int:
    """A rank is missing from the start; all meet when some have applied the first panel. How many states there are then."""
    run = begin(Shape(P, Q, blocks, 1), P * (Q + 1) - 1, reserve=2)
    expect(plan.ends_early(joining.Reserve(True), run.decision), "nobody asks for a process")
    run.run()
    run.check()
    seen, states = Seen(), 0
    for cut in cuts(run):
        if max(run.history[rank][done].step for rank, done in cut.items()) == 1:
            following = after_death(run, cut, ())
            if seen.is_new(following):
                expect(len(following.course.roles.checks) == 1, "not protected")
                following.run()
                following.check()
                states += 1
    return states


def a_cut(run: Run, choose: random.Random) -> dict[int, int]:
    """A random state of the run, often with columns far apart."""
    cut = dict.fromkeys(run.history, 0)
    eager = {rank: choose.random() ** 3 + 0.01 for rank in cut}
    most = sum(map(len, run.needs.values()))
    for _ in range(choose.randint(0, most if choose.random() < 0.6 else min(most, 12))):
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
    shape, redundant = Shape(P, Q, Q * choose.randint(1, 4), 1), min(Q, choose.choice([1, 1, 2, 3]))
    ranks, on_loss = P * (Q + redundant) + choose.randint(0, 5), choose.choice(["hot", "hot", "recover"])
    run = begin(shape, ranks, on_loss, on_loss == "recover", redundant, ahead=choose.randint(0, 1))
    run.run()
    run.check()
    for borne in range(6):
        cut = a_cut(run, choose)
        most = min(len(run.history) - 1, redundant + 1)
        dead = tuple(
            choose.sample(sorted(run.history), 1 if choose.random() < 0.8 else choose.randint(1, most))
        )
        try:
            if choose.random() < 0.8:
                run = after_death(run, cut, dead)
            else:
                run = after_death(run, cut, (), dead)
        except TooManyLost:
            assert lost_columns(run, dead) > complete(run, cut, dead), (
                f"seed {seed}: enough checksums are complete"
            )
            return borne
        run.run()
        run.check()
    return 6


def held(run: Run, dead: tuple[int, ...]) -> tuple[Roles, set[int]]:
    """Who holds what the factors are made of, when these have died too; and who of them does not live."""
    roles = (run.course.former or run.course).roles
    return roles, {*dead, *set(roles.ranks()).difference(run.history)}


def lost_columns(run: Run, dead: tuple[int, ...]) -> int:
    roles, gone = held(run, dead)
    return sum(bool(gone.intersection(column.ranks)) for column in roles.data)


def complete(run: Run, cut: dict[int, int], dead: tuple[int, ...]) -> int:
    """How many columns of checksums can replace one of data."""
    roles, gone = held(run, dead)
    return sum(
        max(run.history[rank][cut[rank]].step for rank in check.ranks) >= check.ready
        for check in roles.checks
        if not gone.intersection(check.ranks)
    )

"""Threads that wait in the library at once: whoever leads, none sleeps on when what it waits for has come.

The class that ships is explored in every order of steps of three threads that wait, the main thread, the helper thread, a
thread that only looks in, and the messages they wait for. No time limit ends a wait here: it would hide a lost wake-up. Each
rule left out must be caught.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from ckpt.transport.driver.waiters import Waiters

MAIN, HELPER, VISITOR = 7, 8, 9
OUTSIDE, INSIDE, ENTERED, ASLEEP, DONE = "outside", "inside", "entered", "asleep", "done"

RULES = (
    "all who may go on are woken",
    "a thread enters before it lets go of the lock",
    "the main thread enters too",
    "a visitor wakes whom it has served",
    "the helper leads when the main thread is elsewhere",
)


class Bell:
    """Rung or not; equal in copies of a world."""

    def __init__(self, owner: int, rung: set[int]) -> None:
        self.owner, self._rung = owner, rung

    def release(self) -> None:
        assert self.owner not in self._rung, "rung twice for one wait"
        self._rung.add(self.owner)


class World:
    """All threads and what has come. ``at``: where each thread is. ``wire``: whose messages have not been handled;
    ``come``: whose have."""

    def __init__(self, threads: int, without: str | None) -> None:
        self.without = without
        self.waiters = Waiters()
        self.rung: set[int] = set()
        self.bells = {each: Bell(each, self.rung) for each in (*range(threads), MAIN)}
        self.at = dict.fromkeys((*self.bells, VISITOR), OUTSIDE)
        self.owner: int | None = None
        self.wire: set[int] = set()
        self.sent: set[int] = set()
        self.come: set[int] = set()

    def key(self) -> Any:
        entries = tuple((bell.owner, wait.is_woken) for bell, wait in self.waiters.entries.items())  # type: ignore[attr-defined]
        sets = (frozenset(each) for each in (self.rung, self.wire, self.sent, self.come))
        return entries, self.owner, tuple(self.at.items()), *sets

    def keeps(self, rule: str) -> bool:
        assert rule in RULES
        return rule != self.without

    # -- what one step does

    def pump(self, *, tells: bool = True) -> None:
        """Progress, by the thread that has the lock."""
        if not self.wire:
            return
        self.come |= self.wire
        self.wire.clear()
        if tells:
            served = (
                (lambda who: who in self.come)
                if self.keeps(RULES[0])
                else (lambda who: who == min(self.come))
            )
            self.waiters.wake(served)

    def enter(self, who: int) -> None:
        if who != MAIN:
            self.waiters.enter(self.bells[who], who, is_hungry=True)
        elif self.keeps(RULES[2]):
            self.waiters.enter(self.bells[who])

    def step_inside(self, who: int) -> None:
        """The lock is held: look, and wait if nothing has come."""
        if who == VISITOR:
            self.pump(tells=self.keeps(RULES[3]))
        elif who == MAIN:
            self.pump()
        if who == VISITOR or who in self.come:
            self.at[who], self.owner = DONE, None
        elif self.keeps(RULES[1]):
            self.enter(who)
            self.at[who] = ENTERED
        else:
            self.at[who], self.owner = ENTERED, None

    def step_entered(self, who: int) -> None:
        if self.keeps(RULES[1]):
            self.owner = None
        else:
            self.enter(who)
        self.at[who] = ASLEEP

    def step_awake(self, who: int) -> None:
        """The lock is taken again."""
        self.owner = who
        self.waiters.leave(self.bells[who])
        self.rung.discard(who)
        self.at[who] = INSIDE

    # -- which steps there are

    def steps(self) -> Iterator[tuple[str, int]]:
        yield from (("send", who) for who in self.bells if who not in self.sent)
        for who, at in self.at.items():
            if at == OUTSIDE and self.owner is None:
                yield "take", who
            elif at == INSIDE:
                yield "inside", who
            elif at == ENTERED:
                yield "entered", who
            elif at == ASLEEP and self.owner is None and (who in self.rung or (who == MAIN and self.wire)):
                yield "awake", who
        leads = self.at[MAIN] in (OUTSIDE, DONE) and self.keeps(RULES[4])
        if leads and self.owner is None and self.wire:
            yield "help", HELPER

    def after(self, step: tuple[str, int]) -> World:
        world = copy.deepcopy(self)
        what, who = step
        if what == "send":
            world.sent.add(who)
            world.wire.add(who)
        elif what == "take":
            world.owner, world.at[who] = who, INSIDE
        elif what == "help":
            world.pump()
        else:
            getattr(world, f"step_{what}")(who)
        return world


def stuck(threads: int, without: str | None = None) -> tuple[int, list[Any]]:
    """How many states there are, and those in which nothing can happen any more and a thread still waits."""
    first = World(threads, without)
    seen, waiting, found = {first.key()}, [first], []
    while waiting:
        world = waiting.pop()
        steps = list(world.steps())
        if not steps and set(world.at.values()) != {DONE}:
            found.append(world.key())
            if without is not None:
                break
        for step in steps:
            after = world.after(step)
            if after.key() not in seen:
                seen.add(after.key())
                waiting.append(after)
    return len(seen), found


@pytest.mark.parametrize("threads", [1, 2, pytest.param(3, marks=pytest.mark.nightly)])
def test_no_order_of_steps_leaves_a_thread_asleep(threads: int) -> None:
    states, found = stuck(threads)
    assert states > 4**threads * 20 and not found, found[:3]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    assert stuck(2 if rule == RULES[0] else 1, rule)[1]


def test_a_bell_is_rung_once_for_each_wait_and_in_the_order_of_coming() -> None:
    waiters, rung = Waiters(), []

    class Ring:
        def release(self) -> None:
            rung.append(self)

    first, second = Ring(), Ring()
    waiters.enter(first, "a", is_hungry=True)
    waiters.enter(second)
    assert waiters.are_hungry
    waiters.wake(lambda awaited: False)
    assert rung == [second], "it waits for any progress"
    waiters.wake(lambda awaited: awaited == "a")
    waiters.wake(lambda awaited: True)
    assert rung == [second, first]
    waiters.leave(first)
    waiters.leave(first)  # one that waits since before a restart has not entered
    assert not waiters.are_hungry and list(waiters.entries) == [second]

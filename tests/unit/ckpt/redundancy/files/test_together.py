"""Changes of files that replicas make together: in every order of messages, steps and losses each change is made once, when
no living replica has still to see what was there before; and each rule is needed."""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest

from ckpt.redundancy.agreement.order import MISSING
from ckpt.redundancy.files import together
from ckpt.redundancy.files.together import ARRIVED, Together
from tests.unit.ckpt.redundancy.agreement.losing import Replicas, explore

pytestmark = pytest.mark.turns(2)

Make = Callable[[int, list[int]], Together]


class World(Replicas):
    """Replicas that append to one file: first what is there is told to all, then the leader appends. `odd`: a replica that
    means another change, and is found by the vote some time later."""

    OPTIONAL = frozenset()  # the others wait until the odd one is found

    def __init__(
        self, replicas: int, changes: int, losses: tuple[int, ...], odd: int | None, make: Make
    ) -> None:
        super().__init__(replicas, losses)
        self.together = {k: make(k, list(range(replicas))) for k in range(replicas)}
        self.at = dict.fromkeys(range(replicas), 0)  # questions done: two for each change
        self.decided: dict[int, set[int]] = {k: set() for k in range(replicas)}
        self.seen: dict[int, dict[int, int]] = {k: {} for k in range(replicas)}
        self.file: list[int] = []
        self.changes, self.odd = changes, odd

    def saved(self) -> Callable[[], World]:
        """The class of a mutant cannot be pickled; copies take longer."""
        is_mutant = type(self.together[0]) is not Together
        return functools.partial(copy.deepcopy, self) if is_mutant else super().saved()

    def key(self) -> str:
        """In what order the others have arrived makes no difference; with it, three replicas had fifty times the states."""
        return repr((
            [vars(each) for each in self.orders.values()],
            [vars(each) | {"arrived": sorted(each.arrived.items())} for each in self.together.values()],
            self.queues, self.at, self.decided, self.seen, self.file, self.losses, self.dead, self.told,
        ))  # fmt: skip

    def step(self, k: int) -> bool:
        """Replica k arrives, makes the change if it may, or goes on."""
        at, order = self.at[k], self.orders[k]
        if at == 2 * self.changes:
            return False
        key = ("q", at)
        value = order.look_up(key)
        if value is MISSING:
            digest = "" if at % 2 else f"{at} {k == self.odd}"
            arrived = self.together[k].arrive(at, digest)
            self.send(k, arrived)
            if not order.leads or not self.together[k].is_agreed(at, digest):
                return bool(arrived)
            value = self.look(k, at)
            self.send(k, order.decide(key, value))
        self.seen[k][at] = value
        self.at[k] += 1
        self.send(k, order.follow(key))
        return True

    def look(self, k: int, at: int) -> int:
        if at % 2 == 0:
            self.decided[k].add(at)
            return len(self.file)
        assert k != self.odd, "a change that others do not mean"
        assert all(self.at[each] >= at for each in self.living), (
            "somebody has still to see what was there before"
        )
        seen, again = self.seen[k][at - 1], at - 1 not in self.decided[k]
        if not (again and len(self.file) > seen):
            self.file.append(at)
        return len(self.file)

    def hears(self, k: int, gone: list[int]) -> None:
        self.send(k, self.orders[k].lost(gone, wrong=self.odd in gone))
        self.together[k].lost(gone)

    def takes(self, a: int, b: int, message: Any) -> None:
        if message[0] == ARRIVED:
            self.together[b].receive(a, message)
        else:
            super().takes(a, b, message)

    def check_end(self) -> None:
        assert all(self.at[k] == 2 * self.changes for k in self.living), "somebody waits for ever"
        assert self.file == [2 * number + 1 for number in range(self.changes)], self.file


@pytest.mark.parametrize(
    ("replicas", "changes", "losses", "odd"),
    [(2, 2, (), None), (2, 1, (0,), None), (2, 1, (1,), None), (2, 1, (0,), 0)],
)
def test_each_change_is_made_once_and_not_before_all_have_come_to_it(
    replicas: int, changes: int, losses: tuple[int, ...], odd: int | None
) -> None:
    assert explore(World(replicas, changes, losses, odd, Together)) > 20


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("replicas", "changes", "losses", "odd"),
    [(3, 1, (0,), None), (3, 1, (0,), 0), (3, 1, (1,), 1), (2, 2, (0,), None), (2, 2, (1,), None)],
)
def test_the_same_within_larger_bounds(
    replicas: int, changes: int, losses: tuple[int, ...], odd: int | None
) -> None:
    assert explore(World(replicas, changes, losses, odd, Together)) > 300


MUTANTS = {
    "all have come": ("and not self.missing(kind)", ""),
    "all mean the same": ("!= here}", "is None or self.arrived[kind, each][0] != here[0]}"),
    "who is lost is not waited for": ("self.living -= set(replicas) - {self.me}", "pass"),
    "who has come is known": ("self.arrived[kind, source] = number, digest", "pass"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name: str) -> None:
    old, new = MUTANTS[name]
    source = inspect.getsource(together)
    assert source.count(old) == 1, old
    module = types.ModuleType(together.__name__)
    exec(compile(source.replace(old, new), f"{together.__name__} without a rule", "exec"), module.__dict__)
    with pytest.raises(AssertionError):
        for losses, odd in (((), None), ((0,), None), ((0,), 0)):
            explore(World(2, 1, losses, odd, module.Together))


def test_a_copy_that_is_being_made_is_waited_for_and_told_where_the_others_are() -> None:
    one = Together(0, [0, 1])
    assert one.arrive(4, "a") == [(1, (ARRIVED, 4, "a"))] and one.arrive(4, "a") == []
    one.expect_image(3, after=6)
    one.receive(1, (ARRIVED, 4, "a"))
    assert one.is_agreed(4, "a"), "before its image nobody waits for it"
    one.captured(6)
    assert one.is_agreed(4, "a"), "nor after the image of a checkpoint that was under way already"
    one.captured(7)
    assert not one.is_agreed(4, "a") and one.missing() == {3}
    one.join(3)
    assert one.arrive(4, "a") == [(1, (ARRIVED, 4, "a")), (3, (ARRIVED, 4, "a"))]
    one.receive(3, (ARRIVED, 4, "a"))
    assert one.is_agreed(4, "a")
    one.expect_image(4, after=7)
    one.captured(8)
    one.let_go(4)
    assert one.is_agreed(4, "a")

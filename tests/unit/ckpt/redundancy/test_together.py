"""Changes of files that replicas make together: in every order of messages, steps and losses each change is made once, when
no living replica has still to see what was there before; and each rule is needed."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ckpt.redundancy.files import together
from ckpt.redundancy.files.together import ARRIVED, Together
from ckpt.redundancy.order import MISSING, Order

pytestmark = pytest.mark.turns(2)

Make = Callable[[int, list[int]], Together]


class World:
    """Replicas that append to one file: first what is there is told to all, then the leader appends. `odd`: a replica that
    means another change, and is found by the vote some time later."""

    def __init__(
        self, replicas: int, changes: int, losses: tuple[int, ...], odd: int | None, make: Make
    ) -> None:
        self.orders = {k: Order(k, replicas) for k in range(replicas)}
        self.together = {k: make(k, list(range(replicas))) for k in range(replicas)}
        self.queues: dict[tuple[int, int], list[Any]] = {
            (a, b): [] for a in range(replicas) for b in range(replicas) if a != b
        }
        self.at = dict.fromkeys(range(replicas), 0)  # questions done: two for each change
        self.decided: dict[int, set[int]] = {k: set() for k in range(replicas)}
        self.seen: dict[int, dict[int, int]] = {k: {} for k in range(replicas)}
        self.file: list[int] = []
        self.changes, self.odd = changes, odd
        self.losses, self.dead = list(losses), list[int]()
        self.told = dict.fromkeys(range(replicas), 0)

    def key(self) -> str:
        return repr((
            [vars(each) for each in (*self.orders.values(), *self.together.values())],
            self.queues, self.at, self.decided, self.seen, self.file, self.losses, self.dead, self.told,
        ))  # fmt: skip

    @property
    def living(self) -> list[int]:
        return [k for k in self.orders if k not in self.dead]

    def send(self, k: int, messages: list[Any]) -> None:
        for to, message in messages:
            self.queues[k, to].append(message)

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

    def tell(self, k: int) -> bool:
        if self.told[k] == len(self.dead):
            return False
        self.told[k] += 1
        gone = self.dead[: self.told[k]]
        self.send(k, self.orders[k].lost(gone, wrong=self.odd in gone))
        self.together[k].lost(gone)
        return True

    def deliver(self, a: int, b: int) -> bool:
        if not self.queues[a, b] or b in self.dead:
            return False
        message = self.queues[a, b].pop(0)
        if message[0] == ARRIVED:
            self.together[b].receive(a, message)
        else:
            self.send(b, self.orders[b].receive(a, message))
        return True

    def lose(self) -> bool:
        if not self.losses:
            return False
        self.dead.append(self.losses.pop(0))
        return True

    def forget(self, dead: int, to: int) -> bool:
        """What a dead replica had sent is lost on the way."""
        if dead not in self.dead or not self.queues[dead, to]:
            return False
        self.queues[dead, to].clear()
        return True

    def moves(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for k in self.living:
            yield "step", (k,)
            yield "tell", (k,)
        for a, b in self.queues:
            yield "deliver", (a, b)
            yield "forget", (a, b)
        yield "lose", ()


def explore(world: World) -> int:
    """Every order. Raises AssertionError."""
    seen, stack = {world.key()}, [world]
    while stack:
        world, is_last = stack.pop(), True
        for name, arguments in world.moves():
            after = copy.deepcopy(world)
            if not getattr(after, name)(*arguments):
                continue
            is_last = False
            key = after.key()
            if key not in seen:
                seen.add(key)
                stack.append(after)
        if is_last:
            assert all(world.at[k] == 2 * world.changes for k in world.living), "somebody waits for ever"
            assert world.file == [2 * number + 1 for number in range(world.changes)], world.file
    return len(seen)


@pytest.mark.parametrize(
    ("replicas", "changes", "losses", "odd"),
    [(2, 2, (), None), (2, 1, (0,), None), (2, 1, (1,), None), (2, 1, (0,), 0)],
)
def test_each_change_is_made_once_and_not_before_all_have_come_to_it(
    replicas: int, changes: int, losses: tuple[int, ...], odd: int | None
) -> None:
    assert explore(World(replicas, changes, losses, odd, Together)) > 20


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("replicas", "changes", "losses", "odd"),
    [(3, 1, (0,), None), (3, 1, (0,), 0), (3, 1, (1,), 1), (2, 2, (0,), None), (2, 2, (1,), None)],
)
def test_the_same_within_larger_bounds(
    replicas: int, changes: int, losses: tuple[int, ...], odd: int | None
) -> None:
    assert explore(World(replicas, changes, losses, odd, Together)) > 1000


MUTANTS = {
    "all have come": ("and not self.missing()", ""),
    "all mean the same": ("!= here}", "is None or self.arrived[each][0] != here[0]}"),
    "who is lost is not waited for": ("self.living -= set(replicas) - {self.me}", "pass"),
    "who has come is known": ("self.arrived[source] = number, digest", "pass"),
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
    one.hold(3)
    one.receive(1, (ARRIVED, 4, "a"))
    assert one.is_agreed(4, "a"), "before its image nobody waits for it"
    one.captured()
    assert not one.is_agreed(4, "a") and one.missing() == {3}
    one.join(3)
    assert one.arrive(4, "a") == [(1, (ARRIVED, 4, "a")), (3, (ARRIVED, 4, "a"))]
    one.receive(3, (ARRIVED, 4, "a"))
    assert one.is_agreed(4, "a")
    one.hold(4)
    one.captured()
    one.let_go(4)
    assert one.is_agreed(4, "a")

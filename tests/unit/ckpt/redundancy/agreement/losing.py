"""Replicas that exchange messages and are lost, as a world to be explored in every order: what the worlds of choices
(test_order.py, test_order_copies.py) and of changes that are made together (files/test_together.py) have in common.

Messages between two replicas keep their order. A replica that is lost sends nothing more; what it had sent may be lost on
the way, and the others hear of the loss, each at its own time."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

from ckpt.redundancy.agreement.order import Order


class Replicas:
    """`losses`: who is lost, one after the other, at any time. `told`: of how many losses each has heard."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"lose"})
    """Moves that nobody may wait for."""

    def __init__(self, replicas: int, losses: tuple[int, ...], make: Callable[..., Order] = Order) -> None:
        self.orders = {k: make(k, replicas) for k in range(replicas)}
        self.queues: dict[tuple[int, int], list[Any]] = {
            (a, b): [] for a in range(replicas) for b in range(replicas) if a != b
        }
        self.losses = list(losses)
        self.dead: list[int] = []
        self.told = dict.fromkeys(range(replicas), 0)

    @property
    def living(self) -> list[int]:
        return [k for k in self.orders if k not in self.dead]

    def send(self, k: int, messages: list[Any]) -> None:
        for to, message in messages:
            self.queues[k, to].append(message)

    # ---- what every world says of itself -------------------------------------------------------------

    def key(self) -> str:
        """Worlds with equal keys go on alike."""
        raise NotImplementedError

    def step(self, k: int) -> bool:
        """Replica k goes on. As of every move: False, it has nothing to do."""
        raise NotImplementedError

    def hears(self, k: int, gone: list[int]) -> None:
        """Replica k is told that these are lost."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises AssertionError in a state that must not be."""

    def check_end(self) -> None:
        """Raises AssertionError if nobody can go on, and somebody has not come to the end."""
        raise NotImplementedError

    def saved(self) -> Callable[[], Self]:
        """Makes copies of this state."""
        state = pickle.dumps(self)
        return lambda: pickle.loads(state)

    # ---- moves ---------------------------------------------------------------------------------------

    def takes(self, a: int, b: int, message: Any) -> None:
        """Replica b handles a message of replica a."""
        self.send(b, self.orders[b].receive(a, message))

    def tell(self, k: int) -> bool:
        if self.told[k] == len(self.dead):
            return False
        self.told[k] += 1
        self.hears(k, self.dead[: self.told[k]])
        return True

    def deliver(self, a: int, b: int) -> bool:
        if not self.queues[a, b] or b in self.dead:
            return False
        self.takes(a, b, self.queues[a, b].pop(0))
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


def explore(first: Replicas) -> int:
    """Every order; the number of states. Raises AssertionError."""
    first.check()
    known, states = {first.key()}, [first.saved()]
    while states:
        again, has_moved = states.pop(), False
        before = again()
        for name, arguments in before.moves():
            world = again()
            if not getattr(world, name)(*arguments):
                continue
            has_moved = has_moved or name not in world.OPTIONAL
            world.check()
            if (key := world.key()) not in known:
                known.add(key)
                states.append(world.saved())
        if not has_moved:
            before.check_end()
    return len(known)

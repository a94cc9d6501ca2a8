"""A copy of the leader is started while choices are made: in every order of messages, losses, steps and the copy's own, the
living follow the same choices, and nobody waits for ever."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from ckpt.redundancy.agreement import order as module
from ckpt.redundancy.agreement.order import NONE, Order
from tests.unit.ckpt.redundancy.agreement import test_order
from tests.unit.ckpt.redundancy.agreement.losing import explore

COPY = 2


class World(test_order.World):
    """As that of orders; and replica COPY is started from an image of the leader. Packets of the controller come to every
    replica in one order (`packets`), to each at its own time (`told`)."""

    OPTIONAL = frozenset({"lose", "begin"})

    def __init__(self, make: type[Order], losses: tuple[int, ...], wrong: bool) -> None:
        super().__init__(2, losses, wrong, make)
        self.make = make
        self.packets: list[tuple[str, Any]] = []
        self.image: Any = None
        self.has_joined = False
        self.keeps_on = False
        """The copy of a donor that is lost before the copy joins is not given up."""

    def key(self) -> str:
        return super().key() + repr((self.packets, self.image, self.has_joined))

    def begin(self) -> bool:
        """The controller asks all to hold."""
        if (self.packets and self.packets[0][0] == "hold") or self.image or self.dead:
            return False
        self.packets.append(("hold", None))
        return True

    def take(self) -> bool:
        """All hold: the leader gives its image."""
        if self.image is not None or ("hold", None) not in self.packets:
            return False
        donor = min(self.living)
        if any(self.told[k] < len(self.packets) for k in self.living) or not self.orders[donor].leads:
            return False
        self.image = copy.deepcopy((self.orders[donor].state(), self.done[donor], self.living))
        return True

    def start(self) -> bool:
        """The copy is there, and the controller tells everybody."""
        if self.image is None or self.has_joined:
            return False
        state, done, then = self.image
        self.has_joined = True
        for other in self.orders:
            self.queues[other, COPY], self.queues[COPY, other] = [], []
        self.orders[COPY] = self.make.copy(COPY, then, state)
        self.done[COPY], self.told[COPY] = list(done), len(self.packets)
        self.packets.append(("join", [k for k in self.living if k != COPY]))
        return True

    def lose(self) -> bool:
        if not self.losses or (len(self.living) < 2):
            return False
        led = min(self.living)
        self.dead.append(self.losses.pop(0))
        if self.image is not None and not self.has_joined and led in self.dead and not self.keeps_on:
            self.packets.append(("let go", None))
            self.has_joined = True  # there is none
        self.packets.append(("lost", tuple(self.dead)))
        return True

    def tell(self, k: int) -> bool:
        if self.told[k] >= len(self.packets):
            return False
        what, of = self.packets[self.told[k]]
        self.told[k] += 1
        order = self.orders[k]
        if what == "hold":
            order.hold(COPY)
        elif what == "let go":
            order.let_go(COPY)
        elif what == "lost":
            self.send(k, order.lost(of, wrong=self.wrong))
        else:
            self.send(k, order.joined(of) if k == COPY else order.join(COPY))
        return True

    def step(self, k: int) -> bool:
        """What the leader has chosen holds at once: that it may not is explored with the other orders."""
        return super().step(k) and (k not in self.holding or self.hold(k))

    def moves(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from (move for move in super().moves() if move[0] != "hold")
        yield from (("begin", ()), ("take", ()), ("start", ()))


@pytest.fixture(autouse=True)
def everybody_tells_at_once_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLOOR_EVERY", 1)
    monkeypatch.setattr(test_order, "QUESTIONS", 1)


def test_a_copy_follows_the_same_choices() -> None:
    assert explore(World(Order, (), False)) > 1000


@pytest.mark.nightly
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("losses", [(0,), (1,), (2,), (0, 1)])
def test_a_copy_follows_the_same_choices_whoever_is_lost_when(losses: tuple[int, ...], wrong: bool) -> None:
    assert explore(World(Order, losses, wrong)) > 1000


@pytest.mark.nightly
def test_the_same_with_two_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_order, "QUESTIONS", 2)
    assert explore(World(Order, (), False)) > 10_000


class HoldsNothing(Order):
    def hold(self, replica: int) -> None:
        self.floors.setdefault(replica, dict.fromkeys(NONE, 1 << 30))


class SendsNothing(Order):
    def join(self, replica: int) -> Any:
        super().join(replica)
        return []


class KnowsNothing(Order):
    def state(self) -> dict[str, Any]:
        return {**super().state(), "known": {}}


@pytest.mark.nightly
def test_the_copy_of_a_donor_that_was_lost_before_it_joins_must_be_given_up() -> None:
    """It has followed what the donor has chosen last, and nobody else may have learnt that."""
    world = World(Order, (0,), False)
    world.keeps_on = True
    with pytest.raises(AssertionError):
        explore(world)


@pytest.mark.parametrize(
    "mutant", [HoldsNothing, SendsNothing, pytest.param(KnowsNothing, marks=pytest.mark.nightly)]
)
def test_every_rule_is_needed(mutant: type[Order]) -> None:
    with pytest.raises(AssertionError):
        explore(World(mutant, (0,), False))

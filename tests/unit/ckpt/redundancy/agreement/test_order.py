"""Choices of replicas: in every order of messages, losses and steps, the living follow the same choices, and nobody waits
for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ckpt.redundancy.agreement.order import MISSING, Order
from tests.unit.ckpt.redundancy.agreement.losing import Replicas, explore

pytestmark = pytest.mark.turns(2)

QUESTIONS = 2


class World(Replicas):
    """Replicas that each make the same choices one after the other."""

    def __init__(
        self, replicas: int, losses: tuple[int, ...], wrong: bool, make: Callable[..., Order]
    ) -> None:
        super().__init__(replicas, losses, make)
        self.done: dict[int, list[Any]] = {k: [] for k in range(replicas)}
        self.wrong = wrong
        self.holding: dict[int, Any] = {}
        self.careless = False

    def key(self) -> str:
        return repr((
            [(k, vars(order)) for k, order in self.orders.items()],
            self.queues, self.done, self.losses, self.dead, self.told, self.holding,
        ))  # fmt: skip

    def step(self, k: int) -> bool:
        """Replica k makes its next choice, or finds the leader's, which may not hold there yet."""
        order, at = self.orders[k], len(self.done[k])
        if at == QUESTIONS or k in self.holding:
            return False
        key = ("q", at)
        value = order.look_up(key)
        if value is not MISSING:
            self.holding[k] = value
            return True
        if not order.leads:
            return False
        value = f"{k} chose"
        self.send(k, order.decide(key, value))
        self.done[k].append(value)
        self.send(k, order.follow(key))
        return True

    def hold(self, k: int) -> bool:
        """What the leader has chosen holds at replica k, which follows it, if it has not been taken back meanwhile."""
        if k not in self.holding:
            return False
        order, key = self.orders[k], ("q", len(self.done[k]))
        value = self.holding.pop(k)
        if self.careless or order.look_up(key) == value:
            self.done[k].append(value)
            self.send(k, order.follow(key))
        return True

    def hears(self, k: int, gone: list[int]) -> None:
        self.send(k, self.orders[k].lost(gone, wrong=self.wrong))

    def moves(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from super().moves()
        yield from (("hold", (k,)) for k in self.living)

    def check(self) -> None:
        """The living follow the same choices."""
        for at in range(QUESTIONS):
            values = {self.done[k][at] for k in self.living if len(self.done[k]) > at}
            assert len(values) <= 1, (at, self.key())

    def check_end(self) -> None:
        assert all(len(self.done[k]) == QUESTIONS for k in self.living), self.key()


@pytest.mark.parametrize(("losses", "wrong"), [((), False), ((0,), False)])
def test_the_living_follow_the_same_choices_whoever_is_lost_when(
    losses: tuple[int, ...], wrong: bool
) -> None:
    assert explore(World(3, losses, wrong, Order)) > 20


@pytest.mark.nightly
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("losses", [(0,), (1,), (0, 1), (0, 2), (1, 0), (2, 0)])
def test_the_same_with_more_losses(losses: tuple[int, ...], wrong: bool) -> None:
    assert explore(World(3, losses, wrong, Order)) > 100


class NoGathering(Order):
    """A new leader leads at once."""

    def lost(self, replicas: Any, *, wrong: bool) -> Any:
        found = super().lost(replicas, wrong=wrong)
        self.gathering = set()
        return found


class TakesFromTheDead(Order):
    """What a lost leader has told late still counts."""

    def receive(self, source: int, message: Any) -> Any:
        if message[0] == "d":
            self.known.setdefault(message[2], message[3])
            return []
        return super().receive(source, message)


class TellsNothing(Order):
    """A follower does not tell the new leader what it knows."""

    def receive(self, source: int, message: Any) -> Any:
        return super().receive(source, (*message[:2], {}) if message[0] == "s" else message)


class DropsEarly(Order):
    """What comes of a newer view before the loss is known is dropped."""

    def receive(self, source: int, message: Any) -> Any:
        return [] if message[1] > self.view else super().receive(source, message)


@pytest.mark.parametrize("mutant", [NoGathering, TakesFromTheDead, TellsNothing, DropsEarly])
def test_every_rule_is_needed(mutant: type[Order]) -> None:
    with pytest.raises(AssertionError):
        explore(World(3, (0,), False, mutant))


def test_a_choice_that_was_taken_back_while_somebody_waited_for_it_must_not_be_followed() -> None:
    world = World(3, (0,), True, Order)
    world.careless = True
    with pytest.raises(AssertionError):
        explore(world)


def test_a_choice_of_a_wrong_leader_that_nobody_has_followed_is_made_anew() -> None:
    order = Order(1, 3)
    order.receive(0, ("d", 0, ("q", 0), "followed"))
    order.receive(0, ("d", 0, ("q", 1), "perhaps impossible"))
    order.follow(("q", 0))
    order.lost([0], wrong=True)
    assert order.look_up(("q", 0)) == "followed"
    assert order.look_up(("q", 1)) is MISSING


def test_choices_that_all_have_followed_are_forgotten() -> None:
    leader, follower = Order(0, 2), Order(1, 2)
    for at in range(1000):
        for _, message in leader.decide(("q", at), at):
            follower.receive(0, message)
        for _, message in leader.follow(("q", at)):
            follower.receive(0, message)
        for _, message in follower.follow(("q", at)):
            leader.receive(1, message)
    assert len(leader.known) <= 200 and len(follower.known) <= 200

"""Requests to windows are handled in the leader's order, and `Cancel` withdraws a receive in all replicas or in none."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest

from ckpt.errors import NotReplicable
from ckpt.layer import ANY_SOURCE, WINDOW, Engine, pack
from ckpt.redundancy.agreement.order import MISSING
from ckpt.redundancy.agreement.turns import Turns
from tests.unit.ckpt.redundancy.agreement.test_choices import Replica, gone_on

Handled = list[tuple[int, bytes]]


def handled_by(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> Handled:
    """What this replica's windows handle from now on."""
    found: Handled = []
    windows = replica.engine.windows
    monkeypatch.setattr(
        type(windows), "handle", lambda self, src, data: found.append((src, bytes(data)[-1:]))
    )
    return found


def request(source: int, content: int) -> bytes:
    return pack(WINDOW, source, 1, 28, content) + bytes([content])


def pass_on(sender: Replica, receiver: Replica) -> None:
    for _, message in sender.sent:
        receiver.choices.receive(0, message)
    sender.sent.clear()


STREAMS = [[request(1, 10), request(1, 11)], [request(2, 20), request(2, 21)]]


@pytest.mark.parametrize("orders", list(itertools.product(["0011", "0101", "0110", "1100"], repeat=2)))
@pytest.mark.parametrize("told", ["before", "between", "after"])
def test_a_follower_handles_requests_in_the_order_of_the_leader_whatever_comes_when(
    orders: tuple[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = Replica(0), Replica(1)

    def arrive(replica: Replica, order: str, after: Any = lambda at: None) -> Handled:
        found = handled_by(replica, monkeypatch)
        left = [list(stream) for stream in STREAMS]
        for at, which in enumerate(order):
            replica.engine.windows.on_message(int(which) + 1, left[int(which)].pop(0))
            after(at)
        return found

    first = arrive(leader, orders[0])
    assert [source for source, _ in first] == [int(which) + 1 for which in orders[0]]
    if told == "before":
        pass_on(leader, follower)
    second = arrive(follower, orders[1], lambda at: pass_on(leader, follower) if at == 1 else None)
    pass_on(leader, follower)
    assert second == first


def test_answers_need_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Replica(1)
    found = handled_by(follower, monkeypatch)
    follower.engine.windows.on_message(1, pack(WINDOW, 1, 13, 28, 7))
    follower.engine.windows.on_message(1, request(1, 9))
    assert len(found) == 1


def test_from_a_look_until_the_next_call_no_request_changes_the_memory() -> None:
    turns, known = Turns(), {}
    turns.add(1, b"a")
    turns.still = True
    assert turns.take(lambda key: known.get(key, MISSING), leads=True) is None
    assert turns.begin_period() and not turns.begin_period()
    assert turns.take(lambda key: known.get(key, MISSING), leads=True) == (("o", 0), 1, b"a", True)


def test_a_request_of_a_later_period_waits_until_the_program_is_there() -> None:
    turns, known = Turns(), {("o", 0): (1, 1)}
    turns.add(1, b"a")
    assert turns.take(lambda key: known.get(key, MISSING), leads=False) is None
    assert not turns.is_behind(lambda key: known.get(key, MISSING))
    turns.still = True
    turns.begin_period()
    assert turns.is_behind(lambda key: known.get(key, MISSING))
    assert turns.take(lambda key: known.get(key, MISSING), leads=False) == (("o", 0), 1, b"a", False)


def test_a_new_leader_takes_no_request_before_it_has_come_to_the_questions_that_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader before it had handled none when it looked: one that handled some would wait for ever."""
    replica = Replica(1)
    found = handled_by(replica, monkeypatch)
    replica.choices.receive(0, ("d", 0, ("q", 0), 0))
    replica.choices.lost([0], wrong=False)
    assert replica.choices.leads
    replica.engine.windows.on_message(1, request(1, 9))
    assert not found
    replica.choices.still()
    assert not found
    replica.choices.called()
    assert len(found) == 1


def test_what_waits_in_an_image_is_handled_with_replicas_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Replica(0)
    leader.choices.still()
    leader.engine.windows.on_message(1, request(1, 9))
    image = image_of(leader)
    alone, again = gone_on(image, 0, 1), gone_on(image, 0, 2)
    found = handled_by(alone, monkeypatch)
    alone.choices.go_on_serving()
    assert found == [(1, bytes([9]))]
    again.choices.go_on_serving()
    assert len(found) == 1
    again.choices.called()
    assert len(found) == 2


def image_of(replica: Replica) -> bytes:
    replica.engine.progress = replica.engine.lock = None  # type: ignore[assignment]
    return pickle.dumps((replica.engine, replica.choices, replica.receives))


# ---- Cancel ----------------------------------------------------------------------------------------------


class Pair:
    """A leader and a follower, of which one waits for the other in `cancel`: then the other one's call is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.both = [Replica(0), Replica(1)]
        monkeypatch.setattr(Engine, "block", lambda engine, hungry=False: self.exchange())

    def exchange(self) -> None:
        for me, other in ((0, 1), (1, 0)):
            messages, self.both[me].sent[:] = list(self.both[me].sent), []
            for _, message in messages:
                self.both[other].choices.receive(me, message)

    def cancel(self) -> list[bool | None]:
        """What each replica answers for its only receive, asked by turns."""
        keys = [each.choices._next("q") for each in self.both]
        found: list[bool | None] = [None, None]
        for _ in range(4):
            for at, each in enumerate(self.both):
                if found[at] is None:
                    found[at] = each.choices._try_cancel(keys[at], each.receives[0])
                self.exchange()
        return found


@pytest.mark.parametrize("source", [3, ANY_SOURCE])
def test_a_receive_that_has_no_message_anywhere_is_cancelled_in_all_replicas(
    monkeypatch: pytest.MonkeyPatch, source: int
) -> None:
    pair = Pair(monkeypatch)
    for each in pair.both:
        each.post(source, 5)
    assert pair.cancel() == [True, True]
    for each in pair.both:
        each.post(3, 5)
        each.arrive(3, 5, 7)
        assert each.got() == [None, 7] and not each.choices.matcher.questioned
        assert each.choices._order.followed["w"] == (source == ANY_SOURCE)


@pytest.mark.parametrize("who", [0, 1])
def test_one_that_one_replica_has_got_a_message_for_is_kept_in_all(
    monkeypatch: pytest.MonkeyPatch, who: int
) -> None:
    pair = Pair(monkeypatch)
    for each in pair.both:
        each.post(3, 5)
    pair.both[who].arrive(3, 5, 7)
    assert pair.cancel() == [False, False]
    pair.both[1 - who].arrive(3, 5, 7)
    assert [each.got() for each in pair.both] == [[7], [7]]


def test_a_message_that_comes_to_a_follower_meanwhile_goes_to_the_next_receive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair(monkeypatch)
    for each in pair.both:
        each.post(3, 5)
        each.post(3, 5)
    follower = pair.both[1]
    key = follower.choices._next("q")
    assert follower.choices._try_cancel(key, follower.receives[0]) is None
    follower.arrive(3, 5, 7)
    follower.arrive(3, 5, 8)
    assert follower.got() == [None, None]
    pair.exchange()
    leader = pair.both[0]
    assert leader.choices._try_cancel(leader.choices._next("q"), leader.receives[0]) is True
    pair.exchange()
    assert follower.choices._try_cancel(key, follower.receives[0]) is True
    assert follower.got() == [None, 7]


def test_a_replica_that_has_a_message_where_all_others_have_cancelled_says_so() -> None:
    follower = Replica(1)
    follower.post(3, 5)
    follower.arrive(3, 5, 7)
    follower.choices.receive(0, ("d", 0, ("q", 0), True))
    with pytest.raises(NotReplicable, match="Cancel"):
        follower.choices.cancel(follower.receives[0])

"""Receives from ANY_SOURCE: a follower matches every receive with the leader's message, in whatever order messages
arrive."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from typing import Any

import pytest

from ckpt.errors import IncompatibleImage
from ckpt.layer import ANY_SOURCE, ANY_TAG, EAGER, Engine, Matcher, Receive
from ckpt.mpi.base.envelope import pack
from ckpt.redundancy.agreement.choices import LAYOUT, ReplicaChoices

CONTEXT = 0


class Silent:
    """The `Progress` of a rank that nobody calls."""

    rank, size, lock = 0, 4, contextlib.nullcontext()

    def poll(self) -> None:
        pass

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        pass


class Replica:
    """One replica: an engine with its choices; `sent`: what it tells the other."""

    def __init__(self, me: int) -> None:
        self.engine = Engine(Silent())  # type: ignore[arg-type]
        self.sent: list[tuple[int, Any]] = []
        self.choices = ReplicaChoices(self.engine)
        self.choices.begin(me, 2, lambda to, message: self.sent.append((to, message)))
        self.receives: list[Receive] = []

    def post(self, source: int, tag: int) -> None:
        receive = Receive(CONTEXT, source, tag)
        self.receives.append(receive)
        self.engine.start_receive(self.engine.matcher.context(CONTEXT), receive, source)

    def arrive(self, source: int, tag: int, content: int) -> None:
        self.engine.on_messages(source, [pack(EAGER, source, tag, CONTEXT) + bytes([content])])

    def got(self) -> list[int | None]:
        return [bytes(each.data)[-1] if each.data is not None else None for each in self.receives]


def orders(queues: list[list[Any]]) -> list[tuple[int, ...]]:
    """Orders in which the items of several queues may come."""
    return sorted(set(itertools.permutations([at for at, queue in enumerate(queues) for _ in queue])))


def run(replica: Replica, posts: list[Any], messages: list[list[Any]], order: tuple[int, ...]) -> None:
    left = [list(posts), *map(list, messages)]
    for at in order:
        item = left[at].pop(0)
        if at == 0:
            replica.post(*item)
        else:
            replica.arrive(at - 1, *item)


CASES = {
    "wildcards": ([(ANY_SOURCE, 5), (ANY_SOURCE, 5)], [[(5, 1), (5, 2)], [(5, 3)]]),
    "a wildcard before a receive that names its source": (
        [(ANY_SOURCE, ANY_TAG), (0, 5)],
        [[(5, 1), (5, 2)], [(5, 3)]],
    ),
    "one with any tag behind a wildcard": ([(ANY_SOURCE, 5), (0, ANY_TAG)], [[(5, 1), (6, 2)], [(5, 3)]]),
    "wildcards of two tags": ([(ANY_SOURCE, 6), (ANY_SOURCE, ANY_TAG)], [[(5, 1), (6, 2)], [(6, 3)]]),
    "three sources": ([(ANY_SOURCE, 5), (1, 5)], [[(5, 1)], [(5, 2), (5, 3)], [(5, 4)]]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_follower_matches_as_the_leader_whatever_comes_when(name: str) -> None:
    posts, messages = CASES[name]
    everything = orders([posts, *messages])
    for number, order in enumerate(everything):
        leader = Replica(0)
        run(leader, posts, messages, order)
        told = [message for _, message in leader.sent]
        for other in everything[number % 9 :: 9]:
            for early in (0, len(told)):  # choices come before everything, or after
                follower = Replica(1)
                for message in told[:early]:
                    follower.choices.receive(0, message)
                run(follower, posts, messages, other)
                for message in told[early:]:
                    follower.choices.receive(0, message)
                assert follower.got() == leader.got(), (order, other, early)
                assert not follower.choices.matcher.held


def test_a_follower_that_becomes_the_leader_matches_what_it_has_held() -> None:
    follower = Replica(1)
    run(follower, [(ANY_SOURCE, 5), (0, 5)], [[(5, 1), (5, 2)]], (1, 0, 0, 1))
    assert follower.got() == [None, None]
    follower.choices.lost([0], wrong=False)
    assert follower.got() == [1, 2]


def test_a_choice_that_only_a_wrong_leader_could_make_leaves_a_follower_stuck_and_it_says_so() -> None:
    follower = Replica(1)
    follower.post(ANY_SOURCE, 5)
    follower.choices.receive(0, ("d", 0, ("w", 0), 3))
    follower.choices.lost([0], wrong=True)
    assert follower.choices.is_stuck()
    follower.arrive(3, 5, 1)
    assert not follower.choices.is_stuck()


def test_what_a_leader_finds_done_a_follower_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = Replica(0), Replica(1)
    assert leader.choices.answer(lambda: True, lambda done: True)
    for _, message in leader.sent:
        follower.choices.receive(0, message)
    tries = iter([False, True])
    monkeypatch.setattr(Engine, "block", lambda self, hungry=False: None)
    assert follower.choices.answer(lambda: False, lambda done: next(tries))


def test_a_follower_makes_progress_though_it_has_the_leaders_answers_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader, follower = Replica(0), Replica(1)
    progress: list[Engine] = []
    monkeypatch.setattr(Engine, "make_progress", lambda engine: progress.append(engine))
    for _ in range(3):
        assert not leader.choices.answer(lambda: False, lambda done: True)
    for _, message in leader.sent:
        follower.choices.receive(0, message)
    assert not progress, "the leader's look does that itself"
    for _ in range(3):
        assert not follower.choices.answer(lambda: True, lambda done: True)
    assert progress == [follower.engine] * 3
    leader.choices.value(lambda: 1)
    follower.choices.receive(0, leader.sent[-1][1])
    assert follower.choices.value(lambda: 2) == 1 and len(progress) == 3, "a value needs none"


def gone_on(image: bytes, me: int, replicas: int) -> Replica:
    """A replica that goes on from an image."""
    replica = object.__new__(Replica)
    replica.engine, replica.choices, replica.receives = pickle.loads(image)
    replica.engine.progress, replica.sent = Silent(), []  # type: ignore[assignment]
    if replicas > 1:
        replica.choices.begin(me, replicas, lambda to, message: replica.sent.append((to, message)))
    return replica


def image_of(replica: Replica) -> bytes:
    replica.engine.progress = replica.engine.lock = None  # type: ignore[assignment]
    return pickle.dumps((replica.engine, replica.choices, replica.receives))


@pytest.mark.parametrize("name", CASES)
def test_all_replicas_go_on_alike_from_an_image_of_the_leader_taken_anywhere(name: str) -> None:
    posts, messages = CASES[name]
    everything = orders([posts, *messages])
    for number, order in enumerate(everything[:: max(1, len(everything) // 12)]):
        for at in range(len(order) + 1):
            first = Replica(0)
            run(first, posts, messages, order[:at])
            image = image_of(first)
            left = [queue[order[:at].count(which) :] for which, queue in enumerate([list(posts), *messages])]
            rests = orders(left)
            leader = gone_on(image, 0, 2)
            run(leader, left[0], left[1:], rests[number % len(rests)])
            follower = gone_on(image, 1, 2)
            run(follower, left[0], left[1:], rests[-1])
            for _, message in leader.sent:
                follower.choices.receive(0, message)
            assert follower.got() == leader.got(), (order, at)
            assert not follower.choices.matcher.held and not follower.choices.matcher.open


def test_an_image_can_be_gone_on_from_without_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the call that waits has begun under replicas: it leads then."""
    leader = Replica(0)
    leader.post(ANY_SOURCE, 5)
    leader.choices._next("q")
    alone = gone_on(image_of(leader), 0, 1)
    assert type(alone.engine.matcher) is Matcher and alone.engine.choices is None
    alone.arrive(2, 5, 7)
    assert alone.got() == [7]
    looks = iter([None, 4])
    monkeypatch.setattr(Engine, "block", lambda self, hungry=False: None)
    assert alone.choices.wait(lambda: next(looks), lambda value: True) == 4


def test_a_question_that_waits_in_an_image_is_the_same_one_in_all_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Replica(0)
    for _ in range(3):
        first.choices.answer(lambda: True, lambda done: True)
    key = first.choices._next("q")
    image = image_of(first)
    leader, follower = gone_on(image, 0, 2), gone_on(image, 1, 2)
    assert leader.choices._try(key, lambda: 1, lambda value: True) == 1
    for _, message in leader.sent:
        follower.choices.receive(0, message)
    assert follower.choices._try(key, lambda: 2, lambda value: True) == 1
    leader.choices.answer(lambda: "next", lambda value: True)
    for _, message in leader.sent:
        follower.choices.receive(0, message)
    assert follower.choices.answer(lambda: "other", lambda value: True) == "next"


def test_an_image_of_another_layout_is_refused_by_name() -> None:
    state = Replica(0).choices.__getstate__()
    for layout in (0, LAYOUT + 1):
        text = f"another ckpt: what replicas keep in it has layout {layout}, and this ckpt reads {LAYOUT}"
        with pytest.raises(IncompatibleImage, match=text):
            ReplicaChoices.__new__(ReplicaChoices).__setstate__({**state, "layout": layout})


def test_what_replicas_keep_in_an_image_is_what_its_layout_says() -> None:
    """Something else: `LAYOUT` gets another number, unless images without it are gone on from rightly."""
    kept = {"asking", "beside", "counts", "engine", "former", "layout", "turns"}
    assert (LAYOUT, Replica(0).choices.__getstate__().keys()) == (1, kept)

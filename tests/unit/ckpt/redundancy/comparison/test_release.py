"""Messages that are held until their rank agrees on them: in every order of sends, digests, losses and one flip, no program
gets a wrong message, and nobody waits for ever."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ckpt.redundancy.comparison.digests import Digests
from ckpt.redundancy.comparison.release import Releases
from ckpt.redundancy.membership import Lineage

pytestmark = pytest.mark.turns(6)


@dataclass(frozen=True)
class Logical:
    """Message of `rank` in `stream` for rank `to`, sent when the messages `after` have been received."""

    rank: int
    stream: str
    to: int
    after: tuple[int, ...] = ()


ONE_WAY = (Logical(0, "p", 1), Logical(0, "p", 1))
"""Two messages of one rank."""

HALOS = (Logical(0, "p", 1), Logical(1, "p", 0), Logical(0, "p", 1, (1,)), Logical(1, "p", 0, (0,)))
"""Two ranks, two steps."""

CROSSING = (
    Logical(0, "a", 1),
    Logical(2, "b", 3),
    Logical(2, "a", 3, (0, 4)),
    Logical(0, "b", 1, (1, 5)),
    Logical(1, "a", 2, (0,)),
    Logical(3, "b", 0, (1,)),
)
"""Rank 0 starts `a` by itself and `b` after what rank 2 has started; rank 2 the other way round."""


class World:
    def __init__(
        self,
        program: tuple[Logical, ...],
        replicas: int,
        *,
        flip: tuple[int, int] | None = None,
        deaths: tuple[int, ...] = (),
        at_once: bool = False,
        make: Callable[..., Any] = Releases,
    ) -> None:
        """`flip`: plane and message; `deaths`: planes that may be lost at any time; `at_once`: digests take no time."""
        self.at_once = at_once
        self.program, self.replicas, self.flip = program, replicas, flip
        self.ranks = 1 + max(rank for each in program for rank in (each.rank, each.to))
        self.releases = {(r, k): make(k, replicas) for r in range(self.ranks) for k in range(replicas)}
        self.sent: dict[int, set[int]] = {k: set() for k in range(replicas)}
        self.got: dict[int, dict[int, int]] = {k: {} for k in range(replicas)}
        self.on_way: dict[tuple[int, int, int], list[Any]] = {}
        self.deaths, self.dead = list(deaths), set[int]()
        self.untold: set[tuple[int, int, int]] = set()
        """(rank, replica, lost plane): not told of that loss yet."""

    def key(self) -> str:
        return repr((
            [_key(each) for each in self.releases.values()], sorted(self.on_way.items()),
            self.sent, {k: sorted(got.items()) for k, got in self.got.items()}, self.deaths, sorted(self.untold),
        ))  # fmt: skip

    def moves(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for k in self.sent:
            if k not in self.dead:
                for number, each in enumerate(self.program):
                    if number not in self.sent[k] and self._is_due(k, number, each):
                        yield "send", (k, number)
        for way in self.on_way:
            if way[2] not in self.dead:
                yield "hear", way
        for plane in self.deaths:
            yield "die", (plane,)
        for where in sorted(self.untold):
            yield "told", where

    def _is_due(self, k: int, number: int, each: Logical) -> bool:
        before = [
            n
            for n, other in enumerate(self.program[:number])
            if (other.rank, other.stream) == (each.rank, each.stream)
        ]
        return set(before) <= self.sent[k] and set(each.after) <= self.got[k].keys()

    def send(self, k: int, number: int) -> None:
        each = self.program[number]
        self.sent[k].add(number)
        digest = number + (100 * (1 + k) if self._is_wrong(k, number) else 0)
        releases = self.releases[each.rank, k]
        out = releases.hold(each.stream, digest, (number, digest))
        rows = [(each.stream, self._place(k, number, each), [digest])]
        for other in range(self.replicas):
            if other != k and other not in self.dead:
                self.on_way.setdefault((each.rank, k, other), []).append(rows)
        self._deliver(each.rank, k, out)
        while self.at_once and self.on_way:
            self.hear(*min(self.on_way))

    def _is_wrong(self, k: int, number: int) -> bool:
        each = self.program[number]
        return (
            self.flip is not None
            and self.flip[0] == k
            and (
                number == self.flip[1]
                or any(self.got[k].get(n, n) != n for n in each.after)
                or self._follows_flip(number, each)
            )
        )

    def _place(self, k: int, number: int, each: Logical) -> int:
        """The number of this message in its stream."""
        stream = each.rank, each.stream
        return sum(
            (self.program[n].rank, self.program[n].stream) == stream for n in self.sent[k] if n <= number
        )

    def _follows_flip(self, number: int, each: Logical) -> bool:
        assert self.flip is not None
        first = self.program[self.flip[1]]
        return number > self.flip[1] and (first.rank, first.stream) == (each.rank, each.stream)

    def hear(self, rank: int, k: int, other: int) -> None:
        way = self.on_way[rank, k, other]
        rows = way.pop(0)
        if not way:
            del self.on_way[rank, k, other]
        self._deliver(rank, other, self.releases[rank, other].hear(k, rows))

    def die(self, plane: int) -> None:
        self.deaths.remove(plane)
        self.dead.add(plane)
        self.untold |= {(r, k, plane) for r, k in self.processes() if k not in self.dead}
        self.untold -= {(r, plane, lost) for r, _, lost in self.untold}

    def told(self, rank: int, k: int, plane: int) -> None:
        self.untold.discard((rank, k, plane))
        self._deliver(rank, k, self.releases[rank, k].lost([plane]))

    def _deliver(self, rank: int, k: int, out: list[tuple[int, int]]) -> None:
        for number, digest in out:
            self.got[k][number] = digest
            is_alone = len(self.releases[rank, k].living) == 1
            assert digest == number or is_alone, f"plane {k} got message {number} with a wrong content"

    def processes(self) -> Iterable[tuple[int, int]]:
        """Rank and plane of all that hold messages."""
        return self.releases

    def of_plane(self, k: int) -> list[Any]:
        """All that holds messages of this plane."""
        return [self.releases[rank, k] for rank in range(self.ranks)]

    def check_end(self) -> None:
        """Nobody can go on: all has come, or somebody says that his rank does not agree."""
        wrong = self.flip[0] if self.flip else None
        living = set(self.sent) - self.dead
        right = [k for k in living if k != wrong]
        stuck = any(each.is_stuck for k in living for each in self.of_plane(k))
        all_came = all(len(self.got[k]) == len(self.program) for k in right)
        if wrong in living and len(right) >= self.replicas // 2 + 1:
            assert all_came and stuck, "a wrong replica of three holds nobody up, and knows it"
        assert all_came or stuck, "all wait, and nobody knows why"


def _key(releases: Releases) -> list[Any]:
    told = {stream: sorted(each.items()) for stream, each in releases.told.items()}
    queue = getattr(releases, "queue", [])
    return [
        queue,
        releases.living,
        *(sorted(each.items()) for each in (releases.held, releases.released, told)),
    ]


def explore(world: World) -> int:
    todo, seen = [pickle.dumps(world)], {world.key()}
    while todo:
        state = todo.pop()
        after = pickle.loads(state)
        moves = list(after.moves())
        optional = all(name == "die" for name, _ in moves)
        if optional:
            after.check_end()
        for number, (name, arguments) in enumerate(moves):
            after = pickle.loads(state) if number else after
            getattr(after, name)(*arguments)
            key = after.key()
            if key not in seen:
                seen.add(key)
                todo.append(pickle.dumps(after))
    return len(seen)


@pytest.mark.parametrize("message", [0, 1])
def test_nobody_gets_a_flipped_message_of_three(message: int) -> None:
    assert explore(World(ONE_WAY, 3, flip=(2, message))) > 100


@pytest.mark.parametrize("flip", [None, (0, 0), (1, 2)])
@pytest.mark.parametrize("deaths", [(), (0,), (1,)])
def test_two_replicas_in_every_order(flip: tuple[int, int] | None, deaths: tuple[int, ...]) -> None:
    assert explore(World(HALOS, 2, flip=flip, deaths=deaths)) > 10


@pytest.mark.parametrize("deaths", [(0,), (2,)])
def test_a_loss_and_a_flip_among_three(deaths: tuple[int, ...]) -> None:
    assert explore(World(ONE_WAY[:1], 3, flip=(2, 0), deaths=deaths)) > 30


def crossed(make: Callable[..., Any] = Releases) -> World:
    """Replica 2 has told the first messages of ranks 0 and 2, and is lost then; 0 and 1 send on in different orders."""
    world = World(CROSSING, 3, at_once=True, deaths=(2,), make=make)
    for k, number in [
        (2, 0),
        (2, 1),
        (0, 0),
        (2, 4),
        (0, 4),
        (0, 2),
        (0, 1),
        (1, 1),
        (2, 5),
        (1, 5),
        (1, 3),
        (1, 0),
    ]:
        assert world._is_due(k, number, CROSSING[number])
        world.send(k, number)
    world.die(2)
    return world


def test_streams_that_cross_do_not_wait_for_one_another() -> None:
    assert explore(crossed()) > 10
    assert explore(World(CROSSING, 2, at_once=True)) >= 100


class OneQueue(Releases):
    """Messages of all streams leave in the order in which they were sent: each of these ranks has one destination."""

    def __init__(self, me: int, replicas: int) -> None:
        super().__init__(me, replicas)
        self.queue: list[str] = []
        self.may: dict[str, list[Any]] = {}

    def hold(self, stream: str, digest: int, message: Any) -> list[Any]:
        self.queue.append(stream)
        return self._in_order(super().hold(stream, digest, (stream, message)))

    def hear(self, replica: int, rows: Any) -> list[Any]:
        return self._in_order(super().hear(replica, rows))

    def lost(self, replicas: Any) -> list[Any]:
        return self._in_order(super().lost(replicas))

    def _in_order(self, found: list[Any]) -> list[Any]:
        for stream, message in found:
            self.may.setdefault(stream, []).append(message)
        out = []
        while self.queue and self.may.get(self.queue[0]):
            out.append(self.may[self.queue.pop(0)].pop(0))
        return out


class Hasty(Releases):
    """Does not wait for the others."""

    def _judge(self, stream: str) -> str:
        return "released"


class Trusting(Releases):
    """The last one that is left releases what another one has contradicted."""

    def _judge(self, stream: str) -> str:
        return "released" if self.living == {self.me} else super()._judge(stream)


class Forgetful(Releases):
    """Waits for who is lost."""

    def lost(self, replicas: Any) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("make", "world"),
    [
        (Hasty, {"program": HALOS[:3], "replicas": 3, "flip": (2, 0)}),
        (Forgetful, {"program": HALOS, "replicas": 2, "deaths": (0,)}),
    ],
)
def test_mutants_are_caught(make: Callable[..., Any], world: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        explore(World(**world, make=make))


def test_one_queue_for_all_streams_would_wait_for_ever() -> None:
    with pytest.raises(AssertionError, match="nobody knows why"):
        explore(crossed(OneQueue))


def test_the_last_one_left_does_not_release_what_another_has_contradicted() -> None:
    for make, expected in ((Releases, []), (Trusting, ["message"])):
        replica = make(0, 2)
        assert replica.hold("p", 1, "message") == []
        assert replica.hear(1, [("p", 1, [2])]) == []
        assert replica.lost([1]) == expected
    assert Releases(0, 2).is_stuck is False


def test_a_copy_is_told_what_it_has_missed_and_is_taken_for_all_before_its_image() -> None:
    """Replica 3 begins with the image of 0, after two messages; 1 still holds these, what 0 had told was lost."""
    lineage = Lineage()
    lineage.copied(3, 0, 1)
    other, copy = Releases(1, 3, lineage), Releases(3, 3, lineage)
    made, of_copy = Digests(), Digests()
    for message in (1, 2):
        assert other.hold("p", 10 + message, message) == []
    made.keep({"p": (1, [11, 12])})
    copy.living = {1, 3}
    copy.go_on({"p": 2})
    of_copy.go_on({"p": (2, 12)})
    other.join(3)
    assert other.lost([0, 2]) == []
    assert other.hold("p", 13, 3) == [] and other.missing("p") == {3}
    assert made.add("p", 3, 13) == 1 and made.rows() == [("p", 3, [13])] and made.rows() == []
    assert other.hear(3, of_copy.rows()) == [1, 2]
    assert copy.hold("p", 13, 3) == [] and of_copy.add("p", 3, 13) == 1
    assert made.since({"p": 2}) == [("p", 3, [13])] and made.since({}) == [("p", 1, [11, 12, 13])]
    assert copy.hear(1, made.since({"p": 2})) == [3] == other.hear(3, of_copy.rows())
    assert copy.hear(1, made.since({})) == []
    assert not other.is_stuck and other.released == copy.released == {"p": 3}
    made.forget()
    assert made.since({}) == []


def test_a_copy_whose_image_has_sent_something_else_proves_nothing() -> None:
    other = Releases(1, 3)
    other.hold("p", 1, "one"), other.hold("p", 2, "two")
    other.join(3)
    assert other.hear(3, [("p", 2, [7])]) == [] and other.missing("p") == {0, 2}
    other.lost([0, 2])
    assert other.state("p") == "contested" and list(other.heads()) == [("p", 1)]


def test_a_replica_that_agrees_with_its_own_copy_outvotes_nobody() -> None:
    lineage = Lineage()
    lineage.copied(3, 1, 1)
    states = []
    for me, digests in ((1, {2: 6, 3: 5}), (2, {1: 5, 3: 5}), (3, {1: 5, 2: 6})):
        replica = Releases(me, 3, lineage)
        replica.lost([0])
        replica.join(3)
        assert replica.hold("p", 6 if me == 2 else 5, "message") == []
        for other, digest in digests.items():
            assert replica.hear(other, [("p", 1, [digest])]) == []
        states.append(replica.state("p"))
    assert states == ["contested"] * 3

"""Messages that are held where they arrive, until the replicas of the rank that has made them agree: in every order of
sends, arrivals, digests, losses and one flip, no program gets a wrong message, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from ckpt.redundancy.chain import chained, number_of
from ckpt.redundancy.comparison.arrivals import Arrivals
from ckpt.redundancy.comparison.release import Releases
from tests.unit.ckpt.redundancy.comparison.test_release import (
    HALOS,
    ONE_WAY,
    Forgetful,
    Hasty,
    Logical,
    Trusting,
    World,
    explore,
)

pytestmark = pytest.mark.turns(4)


class Receiving(World):
    """As `World`, but a message leaves at once, and is held where it arrives. `data`: by sending rank, plane and receiving
    rank, what is under way; `on_way`: by sending rank, its replica, the plane that is told, and the receiving rank, its
    digests. `watched`: the planes whose receivers are looked at, where these have no effect on one another."""

    def __init__(
        self,
        program: tuple[Logical, ...],
        replicas: int,
        watched: tuple[int, ...] = (0, 1, 2),
        **options: Any,
    ) -> None:
        super().__init__(program, replicas, **options)
        self.watched = watched
        make = options.get("make", Releases)
        self.releases = {}  # nothing is held where it is sent
        self.arrivals = {
            (src, k, dst): Arrivals(dst, make(k, replicas), 0, has_begun=True)
            for src, dst in sorted({(each.rank, each.to) for each in program})
            for k in range(replicas)
        }
        self.data: dict[tuple[int, int, int], list[tuple[str, bytes]]] = {}
        self.pairs: dict[tuple[int, int, int, str], tuple[int, bytes]] = {}

    def key(self) -> str:
        holding = [
            sorted(each.items())
            for arrivals in self.arrivals.values()
            for releases in [arrivals.releases]
            for each in (releases.held, releases.released, *releases.told.values())
        ]
        living = [(arrivals.releases.living, sorted(arrivals._states)) for arrivals in self.arrivals.values()]
        return repr((super().key(), holding, living, sorted(self.data.items()), sorted(self.pairs.items())))

    def moves(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield from super().moves()
        for way in self.data:
            if way[1] not in self.dead:
                yield "arrive", way

    def send(self, k: int, number: int) -> None:
        each = self.program[number]
        is_wrong = self._is_wrong(k, number)
        self.sent[k].add(number)
        content = b"%d" % (number + 100 * (1 + k) * is_wrong)
        pair = each.rank, k, each.to, each.stream
        count, state = self.pairs.get(pair, (0, b""))
        self.pairs[pair] = count, state = count + 1, chained(state, each.to, content, None)
        rows = [(each.stream, count, [number_of(state)])]
        for other in range(self.replicas):
            if other != k and other not in self.dead and other in self.watched:
                self.on_way.setdefault((each.rank, k, other, each.to), []).append(rows)
        if k in self.watched:
            self.data.setdefault((each.rank, k, each.to), []).append((each.stream, content))

    def arrive(self, rank: int, k: int, to: int) -> None:
        way = self.data[rank, k, to]
        stream, content = way.pop(0)
        if not way:
            del self.data[rank, k, to]
        self._get(rank, k, to, self.arrivals[rank, k, to].take(stream, content, 0))

    def hear(self, rank: int, k: int, other: int, to: int = 0) -> None:
        way = self.on_way[rank, k, other, to]
        rows = way.pop(0)
        if not way:
            del self.on_way[rank, k, other, to]
        found = self.arrivals[rank, other, to].releases.hear(k, rows)
        self._get(rank, other, to, [data for data, _ in found])

    def told(self, rank: int, k: int, plane: int) -> None:
        self.untold.discard((rank, k, plane))
        for (src, replica, dst), arrivals in self.arrivals.items():
            if (dst, replica) == (rank, k):
                found = arrivals.releases.lost([plane])
                self._get(src, k, rank, [data for data, _ in found])

    def processes(self) -> Iterable[tuple[int, int]]:
        return {(dst, k) for _, k, dst in self.arrivals}

    def _get(self, rank: int, k: int, to: int, found: list[Any]) -> None:
        for content in found:
            value = int(content)
            self.got[k][value % 100] = value
            is_alone = self.arrivals[rank, k, to].releases.living == {k}
            assert value < 100 or is_alone, f"plane {k} got message {value % 100} with a wrong content"

    def check_end(self) -> None:
        wrong = self.flip[0] if self.flip else None
        right = self.sent.keys() - self.dead - {wrong}
        living = {k for k in self.watched if k in self.sent.keys() - self.dead}
        stuck = {
            k for (_, k, _), arrivals in self.arrivals.items() if k in living and arrivals.releases.is_stuck
        }
        came = {k for k in living if len(self.got[k]) == len(self.program)}
        if len(right) >= self.replicas // 2 + 1:
            assert came >= right & living, "a wrong replica of three holds the others up"
            assert stuck == {wrong} & living, "who gets from it does not know it"
        assert stuck or came >= right & living, "all wait, and nobody knows why"


@pytest.mark.parametrize("message", [0, 1])
def test_nobody_gets_a_flipped_message_of_three(message: int) -> None:
    for watched in range(3):
        assert explore(Receiving(ONE_WAY, 3, (watched,), flip=(2, message))) > 100


@pytest.mark.parametrize("flip", [None, (0, 0), (1, 1)])
@pytest.mark.parametrize("deaths", [(), (0,), (1,)])
def test_two_replicas_in_every_order(flip: tuple[int, int] | None, deaths: tuple[int, ...]) -> None:
    if not deaths:
        assert explore(Receiving(HALOS, 2, flip=flip)) > 10
        return
    for watched in range(2):  # the first two messages depend on nothing
        assert explore(Receiving(HALOS[:2], 2, (watched,), flip=flip, deaths=deaths)) > 10


@pytest.mark.parametrize("deaths", [(0,), (2,)])
def test_a_loss_and_a_flip_among_three(deaths: tuple[int, ...]) -> None:
    for watched in range(3):
        assert explore(Receiving(ONE_WAY[:1], 3, (watched,), flip=(2, 0), deaths=deaths)) > 10


def test_streams_that_cross_do_not_wait_for_one_another() -> None:
    crossing = Logical(0, "a", 1), Logical(0, "b", 1), Logical(0, "a", 1)
    assert explore(Receiving(crossing, 2, (0,))) >= 100


@pytest.mark.parametrize(
    ("make", "world"),
    [
        (Hasty, {"program": ONE_WAY[:1], "replicas": 3, "flip": (2, 0)}),
        (Forgetful, {"program": ONE_WAY, "replicas": 2, "deaths": (0,)}),
    ],
)
def test_mutants_are_caught(make: Callable[..., Any], world: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        explore(Receiving(**world, make=make))


def test_the_last_one_left_does_not_get_what_another_has_contradicted() -> None:
    for make, expected in ((Releases, []), (Trusting, [(b"message", 0)])):
        arrivals = Arrivals(1, make(0, 2), 0, has_begun=True)
        assert arrivals.take("p", b"message", 0) == []
        assert arrivals.releases.hear(1, [("p", 1, [2])]) == []
        assert arrivals.releases.lost([1]) == expected


def test_what_was_under_way_in_an_image_is_not_compared_and_what_comes_behind_it_is() -> None:
    arrivals = Arrivals(1, Releases(0, 2), 0, has_begun=False)
    assert arrivals.take("p", b"third", 5) == [b"third"]
    state = chained(b"", 1, b"all three", None)
    arrivals.begin({"p": (3, state)})
    assert arrivals.take("p", b"fourth", 9) == [] and arrivals.take(None, b"of the engine", 9) == [
        b"of the engine"
    ]
    assert arrivals.held() == [b"fourth"] and arrivals.gap_ns("p") == 9
    digest = number_of(chained(state, 1, b"fourth", None))
    assert arrivals.releases.hear(1, [("p", 3, [number_of(state), digest])]) == [(b"fourth", 9)]
    assert arrivals.held() == [] and arrivals.releases.released == {"p": 4}

"""Agreement: the same value at all survivors, whoever dies when. Every interleaving of few members, random ones
of more."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from ckpt.mpi.engine.agreement import DECIDE, Agreement


def combine(contributions: dict[int, Any], failed: frozenset[int]) -> Any:
    return tuple(sorted(contributions.items())), tuple(sorted(failed))


class World:
    """Members 0 … size-1, channels that keep their order, and a failure detector that tells everybody in the
    end."""

    def __init__(self, size: int, deaths: int) -> None:
        self.size = size
        self.members = {rank: Agreement(rank, set()) for rank in range(size)}
        self.channels: dict[tuple[int, int], list[Any]] = {}
        self.notices: set[tuple[int, int]] = set()  # (who is to hear, of whose death)
        self.dead: set[int] = set()
        self.deaths_left = deaths
        self.decided: dict[int, Any] = {}  # also of those who died after

    def put(self, src: int, out: Any) -> None:
        for dst, message in out:
            self.channels.setdefault((src, dst), []).append(message)

    def moves(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for rank, member in self.members.items():
            if rank in self.dead:
                continue
            if not member.started:
                found.append(("start", rank))
            if self.deaths_left:
                found.append(("die", rank))
        found += [
            ("deliver", *pair) for pair, queue in self.channels.items() if queue and pair[1] not in self.dead
        ]
        found += [("notice", *pair) for pair in sorted(self.notices) if pair[0] not in self.dead]
        return found

    def do(self, move: tuple[Any, ...]) -> None:
        kind, rank = move[0], move[1]
        if kind == "start":
            self.put(rank, self.members[rank].start(tuple(range(self.size)), rank * 10, combine, 0))
        elif kind == "die":
            self.dead.add(rank)
            self.deaths_left -= 1
            self.notices |= {(other, rank) for other in range(self.size) if other not in self.dead}
        elif kind == "deliver":
            message = self.channels[rank, move[2]].pop(0)
            self.put(move[2], self.members[move[2]].receive(rank, message))
        else:
            self.notices.discard((rank, move[2]))
            self.channels.pop((move[2], rank), None)  # the link to the dead is dropped
            self.put(rank, self.members[rank].lost(move[2]))
        self.check()

    def check(self) -> None:
        for rank, member in self.members.items():
            if member.decided:
                self.decided.setdefault(rank, member.value)
                assert self.decided[rank] == member.value, "a decision never changes"
        assert len(set(map(repr, self.decided.values()))) <= 1, self.decided
        for contributions, _ in self.decided.values():
            missing = set(range(self.size)) - {rank for rank, _ in contributions}
            assert missing <= self.dead, "made without the contribution of somebody alive"

    def key(self) -> str:
        members = {
            rank: [getattr(member, name) for name in member.__slots__ if name != "combine"]
            for rank, member in self.members.items()
            if rank not in self.dead
        }
        queues = {
            pair: queue for pair, queue in sorted(self.channels.items()) if queue and pair[1] not in self.dead
        }
        return repr(
            (members, queues, sorted(self.notices), sorted(self.dead), self.deaths_left, self.decided)
        )


def everything_from(world: World, seen: set[str]) -> int:
    """Explore all orders; every run that can go no further must have decided everywhere."""
    stack = [world]
    ends = 0
    while stack:
        here = stack.pop()
        key = here.key()
        if key in seen:
            continue
        seen.add(key)
        moves = here.moves()
        if not [move for move in moves if move[0] != "die"]:
            ends += 1
            for rank, member in here.members.items():
                assert rank in here.dead or member.decided, f"rank {rank} hangs"
                if rank not in here.dead:
                    agreed_dead = set(member.value[1])
                    assert agreed_dead <= member.failed, f"rank {rank} waits in Agree_failed for ever"
        for move in moves:
            following = copy.deepcopy(here)
            following.do(move)
            stack.append(following)
    return ends


@pytest.mark.parametrize(
    ("size", "deaths"), [(1, 0), (2, 1), (3, 1), (3, 2), pytest.param(4, 1, marks=pytest.mark.soak)]
)
def test_all_survivors_decide_the_same_in_every_order_of_events(size: int, deaths: int) -> None:
    seen: set[str] = set()
    assert everything_from(World(size, deaths), seen) > 0
    assert len(seen) >= size


@pytest.mark.parametrize("batch", range(4))
def test_and_so_they_do_in_random_orders_of_more_members_and_deaths(batch: int) -> None:
    for seed in range(batch * 400, batch * 400 + 400):
        choose = random.Random(seed)
        size = choose.randint(3, 6)
        world = World(size, choose.randint(1, size - 1))
        reluctant = choose.choice([1, 5, 20])
        while True:
            moves = world.moves()
            if not [move for move in moves if move[0] != "die"]:
                break
            lively = [move for move in moves if move[0] != "die" or not choose.randrange(reluctant)]
            world.do(choose.choice(lively or moves))
        for rank, member in world.members.items():
            assert rank in world.dead or member.decided, f"seed {seed}: rank {rank} hangs"


def test_the_coordinator_that_dies_after_telling_one_leaves_its_decision_behind() -> None:
    world = World(3, 1)
    for rank in range(3):
        world.do(("start", rank))
    for _ in range(5):
        for src, dst in list(world.channels):
            while world.channels[src, dst] and world.channels[src, dst][0][0] != DECIDE:
                world.do(("deliver", src, dst))
    world.do(("deliver", 0, 2))
    assert set(world.decided) == {0, 2}
    world.do(("die", 0))
    for move in (("notice", 1, 0), ("notice", 2, 0), ("deliver", 2, 1)):
        world.do(move)
    assert world.decided[1] == world.decided[2]


def test_a_mutant_that_decides_before_all_have_accepted_is_caught() -> None:
    class Hasty(Agreement):
        __slots__ = ()

        def _propose(self, others: list[int]) -> Any:
            out = super()._propose(others)
            self.accepted = set(others)
            return out

    world = World(3, 2)
    world.members = {rank: Hasty(rank, set()) for rank in range(3)}
    with pytest.raises(AssertionError):
        everything_from(world, set())

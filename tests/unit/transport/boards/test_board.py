"""Boards: the C module beside the oracle, each posting to and reading from the other, on the very same memory."""

from __future__ import annotations

import mmap
import os
from random import Random
from typing import Any

import pytest

from ckpt.transport.boards import board
from tests.seeds import seed_of_the_commit

pytestmark = pytest.mark.skipif(not board.available(), reason="the C module of boards is not built")

SIZE = 3
SIZES = (0, 1, board.SMALL_BYTES, board.SMALL_BYTES + 1, 1000, board.SLOT_BYTES, board.SLOT_BYTES + 1)


class Common:
    """What waits to be sent: nothing."""

    __slots__ = ("dirty", "flush_due")

    def __init__(self) -> None:
        self.dirty: list[Any] = []
        self.flush_due = False


class Member:
    """Both ends of one member, of the same state: the one in C has the memory, the oracle a view of it.

    What the oracle does is done to a copy of the area; then both areas, and both answers, have to be equal."""

    def __init__(self, rank: int) -> None:
        from ckpt.transport.boards import _board
        from ckpt.transport.rings._ring import Inbox

        self.rank = rank
        self.host = _board.Host(Inbox(), Common(), 0, 0, 0)
        self.c = _board.Board(self.host, SIZE, rank)
        self.memory = mmap.mmap(self.c.fd, board.area_bytes())
        self.oracle = board.Board(SIZE, rank, bytearray(self.memory[:]))

    def look_at(self, other: Member) -> None:
        self.c.add(other.rank, other.c.fd)
        self.oracle.add(other.rank, other.oracle.area)

    def both(self, name: str, *args: Any) -> Any:
        found = getattr(self.c, name)(*args)
        assert found == getattr(self.oracle, name)(*args), name
        assert self.memory[:] == bytes(self.oracle.area), name
        return found

    def epochs(self, name: str, epoch: int) -> None:
        getattr(self.host, name)(epoch)
        getattr(self.oracle, name)(epoch)
        assert self.memory[:] == bytes(self.oracle.area), name


def test_both_do_the_same() -> None:
    random = Random(seed_of_the_commit())
    members = [Member(rank) for rank in range(SIZE)]
    numbers, published, captured = [0] * SIZE, [0] * SIZE, [0] * SIZE
    unmapped = [(me, other) for me in members for other in members if me is not other]
    random.shuffle(unmapped)
    for _ in range(1500):
        me = random.choice(members)
        rank = me.rank
        action = random.choice(
            ("post", "post", "take", "take", "finish", "finish", "arm", "disarm", "epoch", "settle", "map")
        )
        if action == "post":
            others = (1 << SIZE) - 1 & ~(1 << rank)
            data = random.randbytes(random.choice(SIZES))
            me.both("post", numbers[rank], random.randint(0, 1), data, random.randint(0, 7) & others)
            numbers[rank] += 1
        elif action == "take":
            number, member = max(0, random.choice(numbers) - random.randint(1, 5)), random.choice(range(SIZE))
            if member != rank:
                me.both("has", number, member)
                me.both("take", number, member)
        elif action == "finish":
            me.both("finish", max(0, min(numbers) - 1))
        elif action in ("arm", "disarm"):
            me.both(action)
        elif action == "settle":
            me.both("settle", random.randint(0, 7))
        elif action == "map" and unmapped and random.random() < 0.3:
            who, other = unmapped.pop()
            who.look_at(other)
        elif action == "epoch" and random.random() < 0.2:
            if published[rank] == captured[rank] or random.random() < 0.5:
                published[rank] += 1
                me.epochs("publish", published[rank])
            else:
                captured[rank] = published[rank]
                me.epochs("advance", captured[rank])
        assert me.c.is_complete == me.oracle.is_complete
    for member in members:
        member.memory.close()
        member.c.close()


def test_an_area_that_could_change_its_size_is_refused() -> None:
    me = Member(0)
    fd = os.memfd_create("area", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, board.area_bytes())
    with pytest.raises(ValueError, match="another size"):
        me.c.add(1, fd)
    os.close(fd)
    me.memory.close()


def test_what_cannot_be_is_named_and_bounded() -> None:
    """A member that writes garbage into its area: other numbers are waited for, a length that cannot be raises."""
    me, broken = Member(0), Member(1)
    me.c.add(1, broken.c.fd)
    random = Random(seed_of_the_commit())
    for _ in range(200):
        broken.memory[board.PUBLISHED_AT : board.DATA_AT] = random.randbytes(
            board.DATA_AT - board.PUBLISHED_AT
        )
        broken.memory[board.PUBLISHED_AT : board.PUBLISHED_AT + 8] = bytes(8)
        at = board.SLOTS_AT + 64 * random.randrange(board.SLOTS)
        number = random.choice((5, 6, 7, 8))
        broken.memory[at : at + 8] = (number + 1).to_bytes(8, "little")
        me.c.post(number, 0, b"mine", 6)
        try:
            taken = me.c.take(number, 1)
        except ValueError as damage:
            assert "contribution of" in str(damage)
        else:
            assert taken is None or len(taken[1]) <= board.SLOT_BYTES
    me.memory.close()
    broken.memory.close()


def test_a_forked_process_has_no_board() -> None:
    me, other = Member(0), Member(1)
    me.look_at(other)
    other.c.post(0, 0, b"x", 1)
    pid = os.fork()
    if not pid:
        is_empty = (
            me.c.post(0, 0, b"y", 2) == 2
            and not me.c.has(0, 1)
            and me.c.take(0, 1) is None
            and me.c.settle(7) == []
        )
        me.c.close()
        os._exit(0 if is_empty else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert me.c.has(0, 1)
    me.memory.close()
    other.memory.close()

"""The wire of ZeroMQ by itself, over the loop of this machine."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.transport.errors import TooManyConnections, UnknownRank
from ckpt.transport.wires.zmqwire import ZmqLimits, ZmqWire


@pytest.fixture
def wires() -> Iterator[list[ZmqWire]]:
    both = [ZmqWire("tcp://127.0.0.1:*") for _ in range(2)]
    yield both
    for wire in both:
        wire.close()


def test_a_connection_is_begun_anew_any_number_of_times_in_a_row(wires: list[ZmqWire]) -> None:
    """The name of the monitor was the address of its socket in memory, which the next one may have: "Address already in use"
    ended a rank whose connection was reset a few times."""
    mine, peer = wires
    for _ in range(100):
        mine.connect(1, peer.address)
        mine.send(1, (b"",))
    for _ in range(100):
        mine._reconnect(1)
    assert mine.counters()["connections_renewed"] == 100


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def sent(wire: ZmqWire, rank: int, frame: bytes) -> None:
    for _ in range(10_000):
        if wire.send(rank, (frame,)):
            return
        time.sleep(0.001)
    raise AssertionError(f"rank {rank} was not connected within ten seconds")


def until(found: Callable[[], object]) -> None:
    for _ in range(10_000):
        if found():
            return
        time.sleep(0.001)
    raise AssertionError("not within ten seconds")


def test_a_connection_is_opened_by_the_first_frame(wires: list[ZmqWire]) -> None:
    mine, peer = wires
    before = descriptors()
    for rank in range(1, 100):
        mine.connect(rank, peer.address)
    assert descriptors() == before
    mine.renew(1)  # no connection is open that could be renewed
    assert descriptors() == before
    sent(mine, 7, b"first")
    until(lambda: peer.receive() == (b"first",))
    assert before < descriptors() <= before + 6
    with pytest.raises(UnknownRank):
        mine.send(100, (b"",))


def test_another_address_takes_the_place_of_a_connection_at_the_next_frame(wires: list[ZmqWire]) -> None:
    mine, peer = wires
    sent_to_former = ZmqWire("tcp://127.0.0.1:*")
    try:
        mine.connect(1, sent_to_former.address)
        sent(mine, 1, b"to the former")
        until(lambda: sent_to_former.receive() == (b"to the former",))
        mine.connect(1, peer.address)
        sent(mine, 1, b"to the new one")
        until(lambda: peer.receive() == (b"to the new one",))
        assert sent_to_former.receive() is None
    finally:
        sent_to_former.close()


def test_more_peers_than_the_sockets_that_zeromq_makes_by_default(tmp_path: Path) -> None:
    """ZeroMQ's 1023 sockets were 1020 peers, or 340 over tcp; then: "Too many open files", with 20 000 allowed."""
    peers = 1100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * peers:
        pytest.skip(f"this system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * peers), hard))
    mine = ZmqWire(f"ipc://{tmp_path}/mine", limits=ZmqLimits(peers=peers))
    try:
        for rank in range(peers):
            mine.connect(rank, f"ipc://{tmp_path}/nobody")
            assert not mine.send(rank, (b"",))
    finally:
        mine.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
@pytest.mark.parametrize("left", range(8))
def test_no_room_for_a_connection_is_an_error_that_says_so(left: int, kind: str, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    mine = ZmqWire("tcp://127.0.0.1:*" if kind == "tcp" else f"ipc://{tmp_path}/mine")
    opened = os.open("/", os.O_RDONLY)
    others = []
    try:
        for rank in range(9):
            mine.connect(rank, "tcp://127.0.0.1:9" if kind == "tcp" else f"ipc://{tmp_path}/nobody")
        highest = max(map(int, os.listdir("/proc/self/fd")))  # `opened` may have filled a gap
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                others.append(os.dup(opened))
        for _ in range(left):
            os.close(others.pop())
        with pytest.raises(TooManyConnections, match=r"no connection to rank \d: .*ulimit -n"):
            for rank in range(9):
                mine.send(rank, (b"",))
    finally:
        for number in (opened, *others):
            os.close(number)
        mine.close()  # and does not wait for a socket that was left
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

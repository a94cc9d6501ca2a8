"""The port with ranks on another host: real sockets, rings beside them, the hot way in C for both.

Ranks 0 and 2 are on one host, rank 1 on another: its address says so.
"""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.transport.driver import port as port_module
from ckpt.transport.driver.port import Port
from ckpt.transport.protocol.endpoint import EndpointConfig
from ckpt.transport.rings.ringwire import RingWire
from ckpt.transport.wires.hostwire import HostWire, this_host
from ckpt.transport.wires.zmqwire import ZmqWire
from tests.seeds import seed_of_the_commit

pytest.importorskip("ckpt.transport.driver._express", reason="the C modules are not built")

FAR = 1
LIMIT_S = 60


class Ranks:
    """Three ports, and what has come to each from each."""

    def __init__(self, directory: Path) -> None:
        self.ports: list[Port] = []
        self.received: list[dict[int, list[bytes]]] = [{other: [] for other in range(3)} for _ in range(3)]
        addresses = []
        for rank in range(3):
            socket = ZmqWire(f"ipc://{directory}/{rank}")
            rings = RingWire(socket, rank, b"key" * 10, capacity=1 << 16)
            wire = HostWire(rings, socket.listen_also("tcp://127.0.0.1:*"))
            addresses.append(
                wire.address if rank != FAR else wire.address.replace(this_host(), "elsewhere", 1)
            )
            port = Port(EndpointConfig(job=1, rank=rank, size=3), wire)
            port.use_rings(rings, (wire.far_ranks, socket))
            port.on_messages = lambda source, messages, rank=rank: self._take(rank, source, messages)
            port.lock.acquire()
            self.ports.append(port)
        for rank, port in enumerate(self.ports):
            for other in range(3):
                if other != rank:
                    # For the far one the two others are far, too.
                    address = addresses[other]
                    if rank == FAR:
                        address = address.replace(this_host(), "there", 1)
                    port.set_peer(other, address, 0)

    def _take(self, rank: int, source: int, messages: list[Any]) -> None:
        self.received[rank][source] += map(bytes, messages)
        self.ports[rank].endpoint.consumed(source, sum(map(len, messages)), len(messages))

    def until(self, done: Callable[[], bool], look: tuple[int, ...] = (0, 1, 2)) -> None:
        """All make progress, these by a look first, as a blocking call does."""
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < deadline
            for rank, port in enumerate(self.ports):
                if not (rank in look and port.glance()):
                    port.wait(1_000_000)


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    for port in made.ports:
        port.lock.release()
        port.close()


def test_a_short_message_to_another_host_takes_the_hot_way_there_and_is_found_by_a_look(ranks: Ranks) -> None:
    near, far = ranks.ports[0], ranks.ports[FAR]
    near.send(FAR, b"the connection is opened by this one")
    ranks.until(lambda: bool(ranks.received[FAR][0]) and near.endpoint.idle())
    express = far.express
    assert express is not None
    sent, number, deadline = near.counters()["express_sent"], 0, time.monotonic() + LIMIT_S
    received = far.counters()["express_received"]
    while far.counters()["express_received"] == received:
        assert time.monotonic() < deadline
        number += 1
        near.send(FAR, b"%d" % number)
        express.look(time.monotonic_ns() + 1_000_000, 0)  # it may come too late
        ranks.until(lambda: len(ranks.received[FAR][0]) == number + 1)  # noqa: B023
        far.send(0, b"%d" % number)
        ranks.until(lambda: len(ranks.received[0][FAR]) == number)  # noqa: B023
    assert ranks.received[FAR][0][1:] == ranks.received[0][FAR] == [b"%d" % at for at in range(1, number + 1)]
    assert near.counters()["express_sent"] > sent


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many threads run: the helper, unless a test says something else."""
    found = [1]
    monkeypatch.setattr(port_module, "running_count", lambda: found[0])
    return found


@pytest.fixture
def two(tmp_path: Path, threads: list[int]) -> Iterator[tuple[Port, Port, list[bytes]]]:
    """The only ranks of their hosts, connected; and what has come to the second one."""
    ports, addresses, came = [], [], list[bytes]()
    for rank in range(2):
        socket = ZmqWire(f"ipc://{tmp_path}/{rank}")
        wire = HostWire(RingWire(socket, rank, b"key" * 10), socket.listen_also("tcp://127.0.0.1:*"))
        addresses.append(wire.address.replace(this_host(), f"host-{rank}", 1))
        port = Port(EndpointConfig(job=1, rank=rank, size=2), wire)
        port.use_rings(wire._inner, (wire.far_ranks, socket))  # type: ignore[arg-type]
        port.on_messages = lambda source, messages: came.extend(map(bytes, messages))
        port.lock.acquire()
        ports.append(port)
    for rank, port in enumerate(ports):
        port.set_peer(1 - rank, addresses[1 - rank], 0)
    ports[0].send(1, b"first")
    deadline = time.monotonic() + LIMIT_S
    while not came or not ports[0].endpoint.idle():
        assert time.monotonic() < deadline
        for port in ports:
            port.wait(1_000_000)
    yield ports[0], ports[1], came
    for port in ports:
        port.lock.release()
        port.close()


def test_who_waits_for_another_host_alone_sleeps_in_its_look(
    two: tuple[Port, Port, list[bytes]], threads: list[int]
) -> None:
    """An answer that took longer than a core is looked for had to pass through a wait, which took as long again."""
    near, far, came = two
    far._spin_ns = 0  # earlier waits were long
    threads[0] = 2  # the helper, and a thread of the program
    near.send(1, b"later")
    select.select([far.wire.fileno()], [], [], LIMIT_S)
    assert not far.glance() and len(came) == 1, "that one would wait for the lock"
    threads[0] = 1
    slept = far.counters()["waits_slept"]
    deadline = time.monotonic() + LIMIT_S
    while len(came) < 2:
        assert time.monotonic() < deadline
        far.glance()
    assert came[1:] == [b"later"]
    assert far.counters()["waits_slept"] == slept


def test_such_a_look_needs_no_python(two: tuple[Port, Port, list[bytes]]) -> None:
    """Unless a timer is due, or it is time to look for control traffic."""
    near, far, came = two
    express, deadline = far.express, time.monotonic() + LIMIT_S
    assert express is not None
    before, spun = express.seen, far.counts["waits_spun"]
    while express.seen == before:
        assert time.monotonic() < deadline
        near.send(1, b"%d" % len(came))
        far.control_checked_ns = far.clock() + 10**9
        far._spin_ns = 0
        came_before = len(came)
        if far.glance():
            assert len(came) > came_before and far._spin_ns == far._spin_longest_ns
        for port in (near, far):
            port.progress()
    assert far.counts["waits_spun"] - spun < len(came)


def test_control_traffic_ends_a_look_that_sleeps(
    two: tuple[Port, Port, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, far, _ = two
    monkeypatch.setattr(port_module, "FAR_LOOK_NS", 3600 * 10**9)
    inner, outer = os.pipe()
    heard: list[bytes] = []
    far.on_control = lambda: heard.append(os.read(inner, 10))
    far.control_fd = inner
    try:
        for late in (0, 10**9):  # is it time to look for it, or not?
            far.control_checked_ns = far.clock() + late
            os.write(outer, b"checkpoint")
            assert not far.glance(), "it is the wait that hears it"
            far.wait()
            assert heard.pop() == b"checkpoint"
    finally:
        far.control_fd = None
        os.close(inner)
        os.close(outer)


def test_messages_of_all_lengths_between_near_and_far_ranks_arrive_once_and_in_order(ranks: Ranks) -> None:
    seed = seed_of_the_commit()
    chance = random.Random(seed)
    sent: dict[tuple[int, int], list[bytes]] = {(a, b): [] for a in range(3) for b in range(3) if a != b}
    for _ in range(400):
        pair = chance.choice(list(sent))
        length = chance.choice((0, 1, 100, 3000, 9000, 70_000, 200_000))
        sent[pair].append(chance.randbytes(length))
        ranks.ports[pair[0]].send(pair[1], sent[pair][-1])
        if chance.random() < 0.5:
            port = ranks.ports[chance.randrange(3)]
            chance.choice((port.progress, port.glance, lambda: port.wait(100_000)))()  # noqa: B023
    ranks.until(
        lambda: all(len(ranks.received[b][a]) == len(messages) for (a, b), messages in sent.items()),
        look=(0,),
    )
    for (a, b), messages in sent.items():
        assert ranks.received[b][a] == messages, seed

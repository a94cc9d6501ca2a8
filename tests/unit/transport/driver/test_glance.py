"""A look for the next message does the same in C (`hot_glance`, _express.c) and in Python (`Port.glance`).

Random situations of two ports with rings between them, one after the other: what the look returns, what has arrived, and
what it has changed in the port.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ckpt.transport.driver.port import Port
from ckpt.transport.protocol.endpoint import EndpointConfig
from ckpt.transport.rings.ringwire import RingWire
from ckpt.transport.wires.zmqwire import ZmqWire
from tests.seeds import seed_of_the_commit

pytest.importorskip("ckpt.transport.driver._express", reason="the C modules are not built")

LONG_NS = 3600 * 10**9
SHORT_NS = 20_000
LIMIT_S = 60


class Two:
    """Rank 0, which looks, and rank 1, which sends; between two situations nothing is under way."""

    def __init__(self, directory: Path, *, hot: bool) -> None:
        self.ports: list[Port] = []
        self.came: list[bytes] = []
        for rank in range(2):
            wire = RingWire(ZmqWire(f"ipc://{directory}/{rank}"), rank, b"key" * 10, capacity=1 << 20)
            port = Port(EndpointConfig(job=1, rank=rank, size=2), wire, spin_longest_ns=SHORT_NS)
            port.use_rings(wire)
            port.lock.acquire()
            self.ports.append(port)
        for rank, port in enumerate(self.ports):
            port.on_messages = lambda source, messages, rank=rank: self._take(rank, source, messages)
            port.set_peer(1 - rank, self.ports[1 - rank].wire.address, 0)
        self.looking = self.ports[0]
        if not hot:
            self.looking.glance = lambda: Port.glance(self.looking)  # type: ignore[method-assign]
        self.settle()

    def _take(self, rank: int, source: int, messages: list[Any]) -> None:
        if rank == 0:
            self.came += map(bytes, messages)
        self.ports[rank].endpoint.consumed(source, sum(map(len, messages)), len(messages))

    def settle(self) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not all(port.endpoint.idle() for port in self.ports):
            for port in self.ports:
                port.progress()
            assert time.monotonic() < deadline_s

    def look(self, situation: dict[str, Any]) -> tuple[Any, ...] | None:
        """None: a timer of the port was due meanwhile, which is not part of the situation."""
        port, sender = self.looking, self.ports[1]
        self.came.clear()
        port._spin_ns = situation["spin_ns"]
        port._glanced = False
        now_ns = port.clock()
        port.control_checked_ns = now_ns + (LONG_NS if situation["control checked"] else -LONG_NS)
        port.helper_watching = situation["watching"]
        port.fail(ValueError("kept")) if situation["pending"] else None
        if situation["woken"]:
            port.wake()
        for length in situation["lengths"]:
            sender.send(0, bytes(length))
        sender.progress()
        if situation["answers"]:
            port.endpoint.hungry(True, now_ns)
            port.send(1, b"to be sent")
            port.send(1, b"this waits for the next progress")
        before = port.entries, port.counters()["waits_spun"]
        deadline_ns = port.endpoint.marks.deadline_ns
        found = port.glance()
        is_late = deadline_ns <= port.clock()
        after = port.entries - before[0], port.counters()["waits_spun"] - before[1]
        state = port._spin_ns, port._glanced, port._has_pending, port.helper_watching
        happened = found, after, state, list(map(len, self.came))
        if situation["pending"]:
            with pytest.raises(ValueError, match="kept"):
                port.progress()
        self.settle()
        assert list(map(len, self.came)) == situation["lengths"]
        return None if is_late else happened


def situations(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        yield {
            "spin_ns": chance.choice([0, SHORT_NS, SHORT_NS, SHORT_NS // 2]),
            "control checked": chance.random() < 0.7,
            "watching": chance.random() < 0.1,
            "pending": chance.random() < 0.1,
            "woken": chance.random() < 0.2,
            "lengths": [
                chance.choice([0, 8, 1000, 100_000, 200_000])
                for _ in range(chance.choice([0, 1, 1, 1, 2, 5]))
            ],
            "answers": chance.random() < 0.2,
        }


@contextmanager
def two(*, hot: bool) -> Iterator[Two]:
    with TemporaryDirectory() as directory:
        made = Two(Path(directory), hot=hot)
        try:
            yield made
        finally:
            for port in made.ports:
                port.lock.release()
                port.close()


def test_a_look_in_c_does_what_the_one_in_python_does() -> None:
    seed = seed_of_the_commit()
    seen: Counter[Any] = Counter()
    with two(hot=True) as first, two(hot=False) as second:
        for number, situation in enumerate(situations(random.Random(seed), 120)):
            mine, other = first.look(situation), second.look(situation)
            if mine is not None and other is not None:
                assert mine == other, f"seed {seed}, situation {number}: {situation}"
                seen[mine[0], mine[2][1]] += 1
    assert len(seen) == 3, seen

"""A parallel program whose result shows whether a message was lost, duplicated, reordered or changed.

All messages have one global random order; each rank's script is the part of it that concerns the rank, so the scripts cannot
deadlock. The content of every message depends on all messages that its sender has received before, and so does the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Self
from zlib import crc32

from ckpt.transport.protocol.endpoint import Endpoint
from ckpt.transport.protocol.simulation import Faults, Simulation
from ckpt.transport.protocol.state import Buffer

Op = tuple[str, int, int]
"""("send", target, length) or ("receive", source, 0)"""


def scripts(size: int, messages: int, seed: int) -> list[list[Op]]:
    """One script per rank."""
    random = Random(seed)
    ops: list[list[Op]] = [[] for _ in range(size)]
    for _ in range(messages):
        source, target = random.randrange(size), random.randrange(size)
        for _ in range(random.choice([1, 1, 1, 5])):
            length = random.choice([0, 1, 8, 8, 8, random.randrange(150), random.randrange(1000)])
            ops[source].append(("send", target, length))
            ops[target].append(("receive", source, 0))
    return ops


class Scripted:
    """One rank of it."""

    def __init__(self, rank: int, script: Sequence[Op]) -> None:
        self.rank = rank
        self.script = script
        self.at = 0
        self.digest = rank
        self.mailbox: dict[int, deque[Buffer]] = {}

    def deliver(self, source: int, messages: list[Buffer]) -> None:
        self.mailbox.setdefault(source, deque()).extend(messages)

    def step(self) -> tuple[str, int, bytes] | None:
        """What comes next, done as far as this rank is concerned; None: a message is missing, or the end."""
        if self.finished:
            return None
        what, peer, length = self.script[self.at]
        if what == "send":
            self.at += 1
            unit = b"%08x%04x" % (self.digest, self.at)
            return "send", peer, (unit * (length // 12 + 1))[:length]
        if not self.mailbox.get(peer):
            return None
        self.at += 1
        message = self.mailbox[peer].popleft()
        self.digest = crc32(message, self.digest ^ len(message))
        return "received", peer, bytes(message)

    def run(self, port: Endpoint) -> None:
        while (done := self.step()) is not None:
            what, peer, message = done
            if what == "received":
                port.consumed(peer, len(message), 1)
            elif len(message) > 100:
                port.send(peer, message[:40], memoryview(message)[40:])
            else:
                port.send(peer, message)

    def copy(self) -> Self:
        new = type(self)(0, self.script)
        new.at, new.digest = self.at, self.digest
        new.mailbox = {source: messages.copy() for source, messages in self.mailbox.items()}
        return new

    @property
    def finished(self) -> bool:
        return self.at == len(self.script)


def undisturbed(work: list[list[Op]]) -> list[int]:
    """Every rank's result if all messages arrive in order."""
    ranks = [Scripted(rank, script) for rank, script in enumerate(work)]
    moved = True
    while moved:
        moved = False
        for source, rank in enumerate(ranks):
            while (done := rank.step()) is not None:
                moved = True
                if done[0] == "send":
                    ranks[done[1]].deliver(source, [done[2]])
    assert all(rank.finished for rank in ranks)
    return [rank.digest for rank in ranks]


def run_seed(seed: int, endpoint: type[Endpoint] = Endpoint, *, messages: int = 120) -> Simulation:
    """One seed: run with drawn faults, run every committed line to its end, finish, compare."""
    random = Random(seed)
    size = random.choice([2, 2, 3, 4])
    work = scripts(size, messages, seed)
    expected = undisturbed(work)
    simulation = Simulation(
        size,
        lambda rank: Scripted(rank, work[rank]),
        seed=seed,
        faults=Faults.drawn(random),
        endpoint=endpoint,
    )

    def check_line(epoch: int, line: dict[int, object]) -> None:
        again = Simulation(
            size,
            lambda rank: Scripted(rank, work[rank]),
            seed=seed,
            faults=Faults(),
            endpoint=endpoint,
            line=line,  # type: ignore[arg-type]
        )
        again.finish()
        compare(again, expected, f"restored from line {epoch}")

    if simulation.faults.round_every_ns:
        simulation.on_commit = check_line  # type: ignore[assignment]
    simulation.run(600_000_000)
    simulation.finish()
    compare(simulation, expected, "at the end")
    return simulation


def compare(simulation: Simulation, expected: list[int], when: str) -> None:
    """Fail the simulation unless every rank's result is the undisturbed one."""
    found = [process.program.digest for process in simulation.processes]  # type: ignore[attr-defined]
    if found != expected:
        simulation.fail(f"wrong results {when}: {found}, expected {expected}")

"""Whatever comes from the wire: a typed outcome, bounded memory, and genuine traffic is unharmed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from ckpt.transport.protocol.config import EndpointConfig
from ckpt.transport.protocol.endpoint import Endpoint
from tests.fuzz.frames import DRAIN, JOB, SIZE, Hostile, Victim, decode, throw
from tests.fuzz.guided import guided, seeds
from tests.seeds import seed_of_the_commit

Count = Callable[[str, int], None]
Soaked = Callable[..., None]
FRAMES = 220_000
SOAK_FRAMES = 10_000_000
EPISODE = 2_000
"""Frames until a victim that was told of absurd epochs and incarnations is replaced by a fresh one."""


def attack(seed: int, count: int) -> dict[str, int]:
    """Throw `count` frames at endpoints; how many of each kind the codec let through or refused."""
    hostile = Hostile(seed)
    outcomes: dict[str, int] = {}
    victim = Victim()
    for number in range(count):
        if number % EPISODE == 0:
            victim = Victim()
        kind, parts = hostile.draw()
        outcome = decode(parts)
        victim.take(parts)
        outcomes[f"{kind}: {outcome}"] = outcomes.get(f"{kind}: {outcome}", 0) + 1
    return outcomes


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_hostile_frames_have_a_typed_outcome(part: int, figures: Count) -> None:
    outcomes = attack(seed_of_the_commit() + part, FRAMES // 4)
    figures("hostile frames", FRAMES // 4)
    assert outcomes["random: refused"] and outcomes["damaged: refused"] and outcomes["parts: refused"]
    for kind in ("messages", "fragment", "ack", "probe", "nack"):
        assert outcomes[f"forged: {kind}"] and outcomes[f"replayed: {kind}"], kind


def test_histories_of_hostile_frames_as_the_guided_search_throws_them(figures: Count) -> None:
    """The inputs that it begins with, and the same with bytes changed at random."""
    random = Random(seed_of_the_commit())
    thrown = 0
    for number in range(300):
        data = bytearray(b"".join(random.choices(seeds(), k=1 + number % 40)))
        for _ in range(number % 20):
            data[random.randrange(len(data))] = random.randrange(256)
        thrown += throw(bytes(data))
    figures("hostile frames", thrown)
    assert all(throw(data) >= 1 for data in seeds())
    assert thrown > 1000


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_very_many_hostile_frames_guided_by_coverage(figures: Count, soaked: Soaked) -> None:
    pytest.importorskip("atheris", reason="no atheris for this Python (pip install atheris)")
    thrown, found = guided(seed_of_the_commit(), SOAK_FRAMES)
    figures("hostile frames, guided by coverage", thrown)
    soaked("frames", thrown, **found)
    assert thrown >= SOAK_FRAMES and found["branches"] > 400


def test_memory_is_bounded() -> None:
    """Not only what the endpoint counts: all the memory that Python has handed out."""
    hostile, victim = Hostile(seed_of_the_commit()), Victim()
    for _ in range(DRAIN):
        victim.take(hostile.draw()[1])
    tracemalloc.start()
    try:
        for number in range(20_000):
            if number % EPISODE == 0:
                victim = Victim()
            victim.take(hostile.draw()[1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_what_is_not_of_the_job_changes_nothing() -> None:
    """Garbage, damaged frames, other jobs, replays of all that was ever sent, between two ranks that talk."""
    seed = seed_of_the_commit()
    hostile = Hostile(seed)
    ranks = [
        Endpoint(EndpointConfig(JOB, rank, SIZE, 2, rto_min_ns=1, rto_initial_ns=1)) for rank in range(2)
    ]
    for rank in ranks:
        for peer in range(2):
            rank.set_peer(peer, 2, 0)
    received: list[bytes] = []
    sent = [b"%d" % number * (number % 50 + 1) for number in range(300)]
    recorded: list[tuple[int, tuple[bytes, ...]]] = []
    now_ns = 0
    while len(received) < len(sent) or not ranks[0].idle():
        now_ns += 1_000_000
        assert now_ns < 20_000_000_000, f"seed {seed}: {len(received)} messages"
        if ranks[0].tx(1) < len(sent):
            ranks[0].send(1, sent[ranks[0].tx(1)])
        for rank in ranks:
            rank.tick(now_ns)
            for target, parts in rank.transmit(now_ns):
                recorded.append((target, tuple(map(bytes, parts))))
                ranks[target].receive(parts, now_ns)
            for _ in range(3):
                kind, parts = hostile.draw()
                if kind in ("random", "damaged", "foreign", "parts"):
                    rank.receive(parts, now_ns)
                target, old = hostile.random.choice(recorded) if recorded else (0, (b"",))
                ranks[target].receive(old, now_ns)
        for source, messages in ranks[1].delivered():
            received += [bytes(message) for message in messages]
            ranks[1].consumed(source, sum(map(len, messages)), len(messages))
    assert received == sent
    dropped = ranks[1].counters()
    assert dropped["dropped_malformed"] and dropped["dropped_foreign"]

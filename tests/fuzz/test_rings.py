"""Hostile rings: whatever another process writes into a ring has a bounded outcome, the same in C and in Python.

A process of the same user, or a rank that is broken, writes anything at any moment: random numbers in the header, records
of any lengths, bytes changed in what was well-formed. What must hold: nothing is raised; a frame has one to three parts and
is at most half as long as the ring; the ring is damaged from the first number on that cannot be; both readers, and both
writers, agree.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from random import Random

import pytest

from ckpt.transport.rings import ring
from tests.fuzz.frames import EXTREMES
from tests.seeds import seed_of_the_commit

pytestmark = pytest.mark.skipif(not ring.available(), reason="the C module of rings is not built")

Count = Callable[[str, int], None]
Soaked = Callable[..., None]
CAPACITY = ring.LEAST_BYTES
EPISODE = 24
"""Hostile acts on one ring, which then is replaced by a new one."""
ACTS = 12_000
SOAK_ACTS = 10_000_000
_HEAD_AT, _TAIL_AT, _WORD_AT = 64, 128, 192


def number(random: Random, bits: int) -> int:
    value = random.choice((random.choice(EXTREMES), random.getrandbits(random.randint(1, bits))))
    if random.random() < 0.6:
        value = value // 16 * 16 % (2 * CAPACITY)
    return value % (1 << bits)


def act(random: Random, memory: memoryview) -> None:
    """One act of another process."""
    match random.randrange(5):
        case 0:
            struct.pack_into("<Q", memory, random.choice((_HEAD_AT, _TAIL_AT)), number(random, 64))
        case 1:
            struct.pack_into(
                "<I", memory, _WORD_AT, number(random, 32) if random.random() < 0.5 else random.randrange(4)
            )
        case 2:
            at = ring.DATA_AT + random.randrange(CAPACITY // 16) * 16
            parts = random.randint(0, 4)
            total = number(random, 32)
            fields = (
                total,
                parts,
                total if parts == 1 else number(random, 32),
                0 if parts == 1 else number(random, 32),
            )
            struct.pack_into("<IIII", memory, at, *fields)
        case 3:
            memory[random.randrange(len(memory))] = random.randrange(256)
        case 4:
            head = struct.unpack_from("<Q", memory, _HEAD_AT)[0]
            struct.pack_into("<Q", memory, _HEAD_AT, (head + 16 * random.randint(1, 64)) % (1 << 64))


def attack(seed: int, acts: int) -> dict[str, int]:
    """Attack a reader and a writer `acts` times; how often each outcome came."""
    from ckpt.transport.rings import _ring

    random = Random(seed)
    outcomes = dict.fromkeys(("frame", "nothing", "damaged reader", "taken", "full", "broken writer"), 0)
    for _ in range(acts // EPISODE):
        owner = _ring.Writer(CAPACITY)
        mapped = mmap.mmap(owner.fd, ring.DATA_AT + CAPACITY)
        memory = memoryview(mapped)
        copy = memoryview(bytearray(memory))
        readers = _ring.Reader(owner.fd, CAPACITY), ring.Reader(copy)
        writers = owner, ring.Writer(copy)
        for _ in range(EPISODE):
            state = random.getstate()
            act(random, memory)
            random.setstate(state)
            act(random, copy)
            if random.random() < 0.5:
                mine, other = (reader.receive() for reader in readers)
                if mine is not None:
                    outcomes["frame"] += 1
                    assert 1 <= len(mine) <= 3 and sum(map(len, mine)) < CAPACITY // 2
                else:
                    outcomes["damaged reader" if readers[0].damaged else "nothing"] += 1
            else:
                frame = (random.randbytes(random.choice((0, 8, 3000, CAPACITY // 2 - 16))),)
                mine, other = (writer.send(frame) for writer in writers)
                outcomes[("full", "taken", "taken", "", "broken writer")[mine]] += 1
            assert mine == other
            assert (readers[0].damaged, writers[0].damaged) == (readers[1].damaged, writers[1].damaged)
            assert memory == copy
        memory.release()
        mapped.close()
    return outcomes


def test_hostile_rings_have_a_bounded_outcome_and_the_same_in_c_and_python(figures: Count) -> None:
    outcomes = attack(seed_of_the_commit(), ACTS)
    figures("hostile acts on rings", ACTS)
    assert all(outcomes.values()), outcomes


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_very_many_hostile_rings(figures: Count, soaked: Soaked) -> None:
    outcomes = attack(seed_of_the_commit() + 1, SOAK_ACTS)
    figures("hostile acts on rings", SOAK_ACTS)
    soaked("rings", SOAK_ACTS, **outcomes)

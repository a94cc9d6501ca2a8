"""Rings in shared memory: the C module beside the Python one, on the very same memory, and each against the other."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from ckpt.transport.rings import ring
from tests.seeds import seed_of_the_commit

pytestmark = pytest.mark.skipif(not ring.available(), reason="the C module of rings is not built")

CAPACITY = ring.LEAST_BYTES


class Both:
    """One ring in memory: ends in C and in Python can be made of it, one writer and one reader."""

    def __init__(self) -> None:
        from ckpt.transport.rings import _ring

        self.c = _ring
        self.in_c = _ring.Writer(CAPACITY)
        self.map = mmap.mmap(self.in_c.fd, ring.DATA_AT + CAPACITY)
        self.memory = memoryview(self.map)

    def ends(self, writer: str, reader: str) -> tuple[Any, Any]:
        write: Any = self.in_c if writer == "C" else ring.Writer(self.memory)
        read: Any = self.c.Reader(self.in_c.fd, CAPACITY) if reader == "C" else ring.Reader(self.memory)
        return write, read

    def close(self) -> None:
        self.memory.release()
        self.map.close()
        self.in_c.close()


@pytest.fixture
def made() -> Iterator[Callable[[], Both]]:
    all_made: list[Both] = []

    def make() -> Both:
        all_made.append(Both())
        return all_made[-1]

    yield make
    for both in all_made:
        both.close()


def a_frame(random: Random) -> tuple[bytes, ...]:
    sizes = [random.choice((0, 1, 15, 16, 17, 100, 1000, CAPACITY // 4, CAPACITY // 2)) for _ in range(3)]
    return tuple(random.randbytes(random.randint(0, size)) for size in sizes[: random.randint(1, 3)])


def history(writer: Any, reader: Any, seed: int, steps: int) -> tuple[list[Any], int]:
    """Random calls of both ends, and all that they returned; and how many frames came."""
    random = Random(seed)
    outcomes: list[Any] = []
    sent: list[tuple[bytes, ...]] = []
    for _ in range(steps):
        match random.randrange(6):
            case 0 | 1 | 2:
                frame = a_frame(random)
                outcomes.append(writer.send(frame))
                if outcomes[-1] in (ring.TAKEN, ring.TAKEN_ASLEEP):
                    sent.append(frame)
            case 3 | 4:
                frame = reader.receive()
                outcomes.append(frame)
                if frame is not None:
                    assert frame == sent.pop(0)
            case 5:
                outcomes.append(reader.arm() if random.random() < 0.5 else reader.disarm())
    return outcomes, writer.records


@pytest.mark.parametrize("seed", range(8))
def test_c_and_python_do_the_same_in_every_combination_and_leave_the_same_bytes(
    made: Callable[[], Both], seed: int
) -> None:
    seed += seed_of_the_commit()
    found = []
    for writer, reader in (("C", "C"), ("C", "Python"), ("Python", "C"), ("Python", "Python")):
        both = made()
        found.append((*history(*both.ends(writer, reader), seed, 600), bytes(both.memory)))
    assert all(other == found[0] for other in found[1:])
    outcomes = {outcome for outcome in found[0][0] if isinstance(outcome, int)}
    assert {ring.TAKEN, ring.TAKEN_ASLEEP, ring.FULL} <= outcomes


@pytest.mark.parametrize("kind", ["C", "Python"])
def test_a_frame_longer_than_half_the_ring_is_not_taken(made: Callable[[], Both], kind: str) -> None:
    writer, reader = made().ends(kind, kind)
    assert writer.send((bytes(CAPACITY // 2 - 16),)) == ring.TAKEN
    assert writer.send((bytes(CAPACITY // 2 - 15),)) == ring.TOO_LONG
    assert len(reader.receive()[0]) == CAPACITY // 2 - 16


@pytest.mark.parametrize("kind", ["C", "Python"])
@pytest.mark.parametrize("frame", [(), (b"",) * 4])
def test_a_frame_of_no_or_four_parts_is_a_mistake(made: Callable[[], Both], kind: str, frame: Any) -> None:
    writer, _ = made().ends(kind, kind)
    with pytest.raises(ValueError, match="one to three parts"):
        writer.send(frame)


@pytest.mark.parametrize("kind", ["C", "Python"])
def test_what_a_dead_writer_had_half_written_is_never_seen(made: Callable[[], Both], kind: str) -> None:
    both = made()
    writer, reader = both.ends(kind, kind)
    writer.send((b"whole",))
    at = ring.DATA_AT + 32
    both.memory[at : at + 16] = struct.pack("<IIII", 1000, 1, 1000, 0)
    assert reader.receive() == (b"whole",)
    assert reader.receive() is None
    assert not reader.damaged


@pytest.mark.parametrize("kind", ["C", "Python"])
@pytest.mark.parametrize("head", [1, 8, 15, 17, CAPACITY + 16, 1 << 63, (1 << 64) - 16])
def test_a_head_that_cannot_be_damages_the_ring(made: Callable[[], Both], kind: str, head: int) -> None:
    both = made()
    _, reader = both.ends(kind, kind)
    both.memory[64:72] = struct.pack("<Q", head)
    assert reader.receive() is None
    assert reader.damaged
    both.memory[64:72] = struct.pack("<Q", 0)
    assert reader.receive() is None, "a damaged ring is not used again"


@pytest.mark.parametrize("kind", ["C", "Python"])
@pytest.mark.parametrize(
    "record",
    [
        (5, 0, 5, 0),
        (5, 4, 5, 0),
        (5, 1, 4, 0),
        (5, 1, 5, 1),
        (5, 2, 3, 1),
        (5, 3, 3, 3),
        (1 << 31, 1, 1 << 31, 0),
        ((1 << 32) - 1, 1, (1 << 32) - 1, 0),
        (17, 1, 17, 0),
        (5, 3, (1 << 32) - 1, 6),
    ],
)
def test_a_record_that_cannot_be_damages_the_ring(
    made: Callable[[], Both], kind: str, record: tuple[int, ...]
) -> None:
    both = made()
    _, reader = both.ends(kind, kind)
    both.memory[ring.DATA_AT : ring.DATA_AT + 16] = struct.pack("<IIII", *record)
    both.memory[64:72] = struct.pack("<Q", 32)
    assert reader.receive() is None
    assert reader.damaged


@pytest.mark.parametrize("kind", ["C", "Python"])
@pytest.mark.parametrize("tail", [8, 1 << 20, (1 << 64) - 16])
def test_a_tail_that_cannot_be_damages_the_ring(made: Callable[[], Both], kind: str, tail: int) -> None:
    both = made()
    writer, _ = both.ends(kind, kind)
    assert writer.send((bytes(CAPACITY // 2 - 16),)) == ring.TAKEN
    assert writer.send((bytes(CAPACITY // 2 - 16),)) == ring.TAKEN
    assert writer.send((b"no room",)) == ring.FULL
    both.memory[128:136] = struct.pack("<Q", tail)
    assert writer.send((b"?",)) == ring.BROKEN
    assert writer.damaged


@pytest.mark.parametrize("kind", ["C", "Python"])
def test_a_writer_sees_that_nobody_reads_any_more(made: Callable[[], Both], kind: str) -> None:
    writer, reader = made().ends(kind, kind)
    assert writer.send((b"1",)) == ring.TAKEN
    reader.close()
    assert writer.send((b"2",)) == ring.BROKEN
    assert not writer.damaged


def test_a_file_that_is_no_ring_or_could_become_shorter_is_not_mapped(made: Callable[[], Both]) -> None:
    """Memory that vanishes would be a SIGBUS in this process."""
    from ckpt.transport.rings._ring import Reader

    whole = ring.DATA_AT + CAPACITY
    fd = os.memfd_create("none", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, whole)
        with pytest.raises(ValueError, match="could change it"):
            Reader(fd, CAPACITY)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        with pytest.raises(ValueError, match="magic"):
            Reader(fd, CAPACITY)
        with pytest.raises(ValueError, match="another size"):
            Reader(fd, 2 * CAPACITY)
        with pytest.raises(ValueError, match="a ring of 16383 bytes"):
            Reader(fd, CAPACITY - 1)
        with pytest.raises(OSError):
            Reader(1 << 20, CAPACITY)
    finally:
        os.close(fd)
    with pytest.raises(PermissionError):
        os.ftruncate(made().in_c.fd, whole - 1)


def test_a_forked_process_has_no_ring_and_takes_nothing_down_with_it(made: Callable[[], Both]) -> None:
    writer, reader = made().ends("C", "C")
    writer.send((b"before",))
    child = os.fork()
    if child == 0:
        failed = 0
        for call in (lambda: writer.send((b"x",)), reader.receive, reader.arm):
            try:
                call()
            except RuntimeError:
                failed += 1
        writer.close()
        reader.close()
        with open("/proc/self/maps") as maps:
            # The memory of the test itself (`made`) is inherited, that of both ends is not.
            mapped = sum("ckpt-ring" in line for line in maps)
        os._exit(10 * failed + mapped)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 31
    assert reader.receive() == (b"before",)
    assert writer.send((b"after",)) == ring.TAKEN

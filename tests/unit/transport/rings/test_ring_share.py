"""A payload that both sides of a ring copy: the receiver reads pieces, and the sender that waits writes others."""

from __future__ import annotations

import mmap
import os
import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ckpt.compat.memory import address_of
from ckpt.transport.rings import ring
from ckpt.transport.wires import crossmemory

pytestmark = pytest.mark.skipif(not ring.available(), reason="the C module of rings is not built")
PIECE = 128 << 10
WORK_AT, WRITTEN_AT, FAILED_AT, SIZE_AT, PIECE_AT, PID_AT = 256, 320, 328, 400, 408, 416
SIZE = 64 * PIECE
CONTENT = bytes(range(256)) * (SIZE // 256)
SENDER = """
import mmap, sys
from ckpt.compat.memory import address_of
from ckpt.transport.wires import crossmemory
from ckpt.transport.rings._ring import Writer

crossmemory.consent()
badge, writer, payload = crossmemory.Badge(), Writer(1 << 16), bytes(range(256)) * (int(sys.argv[1]) // 256)
written = memoryview(mmap.mmap(writer.fd, 4096))[320:328].cast("Q")
print(badge.packed.hex(), writer.fd, address_of(payload), flush=True)
for word in sys.stdin:
    if word == "count\\n":
        written[0] += 1
        continue
    act = writer.help if word == "help\\n" else writer.take
    while not (done := act()):
        pass
    print(int(done), flush=True)
"""


@dataclass
class Sides:
    """Both in this process, each in a thread; `numbers`: the page that they share."""

    writer: ring._ring.Writer
    reader: ring._ring.Reader
    numbers: mmap.mmap
    own: bytes

    def get(self, at: int) -> int:
        return int.from_bytes(self.numbers[at : at + 8], "little")

    def put(self, at: int, value: int) -> None:
        self.numbers[at : at + 8] = value.to_bytes(8, "little")


@pytest.fixture
def sides() -> Iterator[Sides]:
    writer = ring._ring.Writer(1 << 16)
    reader = ring._ring.Reader(writer.fd, 1 << 16)
    numbers = mmap.mmap(writer.fd, ring.DATA_AT)
    badge = crossmemory.Badge()
    yield Sides(writer, reader, numbers, badge.packed)
    writer.close(), reader.close()


class Sender:
    """Another process, which has CONTENT and the writing side of a ring."""

    def __init__(self) -> None:
        words = (sys.executable, "-uc", SENDER, str(SIZE))
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        badge, fd, address = self._line().split()
        self.badge, self.address = bytes.fromhex(badge), int(address)
        memory = os.open(f"/proc/{self.process.pid}/fd/{fd}", os.O_RDWR)
        self.reader = ring._ring.Reader(memory, 1 << 16)
        os.close(memory)
        crossmemory.consent()
        self._own = crossmemory.Badge()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def answers(self) -> bool:
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def answer(self) -> int:
        return int(self._line())

    def copy(self, into: bytearray) -> bool:
        return self.reader.copy(self._own.packed, self.badge, self.address, into)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.reader.close()


@pytest.fixture
def sender() -> Iterator[Sender]:
    made = Sender()
    yield made
    made.end()


def test_without_help_the_reader_reads_everything(sides: Sides) -> None:
    for size in (0, 1, PIECE, PIECE + 1, 40 * PIECE + 7):
        payload, into = os.urandom(size), bytearray(size)
        assert sides.reader.copy(sides.own, sides.own, address_of(payload), into)
        assert into == payload
        assert not sides.writer.help()


def test_both_copy_and_every_byte_is_right(sides: Sides) -> None:
    helped, is_over = 0, threading.Event()

    def help_always() -> None:
        nonlocal helped
        while not is_over.is_set():
            helped += sides.writer.help()

    thread = threading.Thread(target=help_always)
    thread.start()
    try:
        for turn in range(20):
            size = random.Random(turn).randrange(4 * PIECE, 80 * PIECE)
            payload, into = os.urandom(size), bytearray(size)
            assert sides.reader.copy(sides.own, sides.own, address_of(payload), into)
            assert into == payload
            into[:] = bytes(size)  # what is written from now on would be seen
            time.sleep(0.0005)
            assert not any(into)
    finally:
        is_over.set()
        thread.join()
    assert helped


def test_another_process_helps(sender: Sender) -> None:
    into = bytearray(SIZE)
    for _ in range(5):
        sender.ask("help")
        while not sender.answers():
            into[:] = bytes(SIZE)
            assert sender.copy(into)
            assert into == CONTENT
        assert sender.answer() > 0


def test_pieces_that_the_writer_cannot_write_are_read(sides: Sides) -> None:
    payload, into = os.urandom(40 * PIECE), bytearray(40 * PIECE)
    is_over = threading.Event()

    def fail_always() -> None:
        while not is_over.is_set():
            if sides.writer.take():
                sides.put(FAILED_AT, sides.get(WORK_AT) >> 32)
                sides.put(WRITTEN_AT, sides.get(WRITTEN_AT) + 1)

    thread = threading.Thread(target=fail_always)
    thread.start()
    try:
        while not sides.get(FAILED_AT):
            into[:] = bytes(len(into))
            assert sides.reader.copy(sides.own, sides.own, address_of(payload), into)
            assert into == payload
    finally:
        is_over.set()
        thread.join()
    turn = sides.get(WORK_AT) >> 32
    assert sides.reader.copy(sides.own, sides.own, address_of(payload), into)
    assert sides.get(WORK_AT) >> 32 == turn, "it is asked again"


def test_a_writer_that_counts_what_it_has_not_taken_damages_the_ring(sides: Sides) -> None:
    payload, into = os.urandom(40 * PIECE), bytearray(40 * PIECE)
    sides.put(WRITTEN_AT, 1 << 40)
    is_over = threading.Event()

    def take_always() -> None:
        while not is_over.is_set():
            sides.writer.take()

    thread = threading.Thread(target=take_always)
    thread.start()
    try:
        while sides.reader.copy(sides.own, sides.own, address_of(payload), into):
            assert not sides.reader.damaged
    finally:
        is_over.set()
        thread.join()
    assert sides.reader.damaged


def test_a_piece_that_a_stopped_writer_has_taken_is_waited_for(sender: Sender) -> None:
    into, done = bytearray(SIZE), []
    thread = _copied_until_one_is_taken(sender, into, done)
    thread.join(0.3)
    assert thread.is_alive()
    sender.ask("count")  # it has written it now
    thread.join(20)
    assert not thread.is_alive()
    assert done[-1] is True


def test_a_writer_that_dies_with_a_piece_is_not_waited_for(sender: Sender) -> None:
    into, done = bytearray(SIZE), []
    thread = _copied_until_one_is_taken(sender, into, done)
    sender.process.kill()
    sender.process.wait()
    thread.join(20)
    assert not thread.is_alive()
    assert done[-1] is False


def _copied_until_one_is_taken(sender: Sender, into: bytearray, done: list[bool]) -> threading.Thread:
    """A thread copies, again and again, until the sender has taken a piece, which it does not copy."""
    is_taken = threading.Event()

    def copy() -> None:
        while not is_taken.is_set():
            done.append(sender.copy(into))

    sender.ask("take")
    thread = threading.Thread(target=copy)
    thread.start()
    assert sender.answer() == 1
    is_taken.set()
    return thread


@pytest.mark.parametrize("at", [WORK_AT, SIZE_AT, PIECE_AT, PID_AT])
def test_a_writer_helps_nobody_by_numbers_that_cannot_be(sides: Sides, at: int) -> None:
    payload, into = os.urandom(8 * PIECE), bytearray(8 * PIECE)
    assert sides.reader.copy(sides.own, sides.own, address_of(payload), into)
    into[:] = bytes(len(into))
    sides.put(WORK_AT, 1 << 32 | 8)  # again, but nobody reads
    sides.put(at, (1 << 32) - 1 if at == WORK_AT else 1 << 63)
    assert sides.writer.help() == -1
    assert not any(into)

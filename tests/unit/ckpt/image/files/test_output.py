"""What a full disk does not take of standard output is held back, in order, and written when there is room."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.image.files import output, standard_output
from ckpt.image.files.output import Output


class Disk:
    """A descriptor that is full until there is room."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open("/dev/full", os.O_WRONLY)
        self.said: list[str] = []
        self.output = Output(self.fd, "<stdout>")
        self.output.on_held_back = lambda what, stream, detail: self.said.append(f"{stream} {what}: {detail}")

    def free(self, *_: object) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(file, self.fd)
        os.close(file)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "out")
    yield made
    made.free()
    made.output.wait_until_written()
    os.close(made.fd)


def test_order_is_kept_and_begin_and_end_are_told_once(disk: Disk) -> None:
    for text in (b"one ", b"two ", b"three "):
        assert disk.output.write(text) == len(text)
    disk.free()
    disk.output.write(b"four")
    assert disk.path.read_bytes() == b"one two three four"
    assert disk.said == ["<stdout> held back: No space left on device", "<stdout> written: 18"]


def test_who_writes_much_waits_for_room(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST_HELD_BYTES", 10)
    monkeypatch.setattr(output, "_sleep", disk.free)
    disk.output.write(b"ten bytes.")
    assert not disk.path.exists(), "so much is held back without waiting"
    disk.output.write(b"more")
    assert disk.path.read_bytes() == b"ten bytes.more"


def test_the_end_does_not_wait_for_ever(disk: Disk) -> None:
    disk.output.write(b"x")
    assert not disk.output.wait_until_written(patience_s=0)


@pytest.mark.parametrize("is_disposable", [True, False])
def test_what_is_held_back_is_part_of_an_image(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, is_disposable: bool
) -> None:
    stream = io.TextIOWrapper(io.BufferedWriter(disk.output), line_buffering=True)
    monkeypatch.setattr(sys, "__stdout__", stream)
    stream.write("held\n")
    stream.write("buffered")
    found = standard_output.note_unwritten(is_disposable=is_disposable)["stdout"]
    assert found == (b"held\n", "buffered")
    if not is_disposable:
        disk.free()
        stream.flush()
        disk.output.wait_until_written()
        assert disk.path.read_bytes() == b"held\nbuffered"
    stream.detach()


def test_a_child_of_the_program_does_not_write_what_its_parent_holds_back(disk: Disk) -> None:
    disk.output.write(b"parent")
    child = os.fork()
    if child == 0:
        disk.free()
        disk.output.write(b"child ")
        os._exit(0)
    os.waitpid(child, 0)
    disk.free()
    disk.output.retry()
    assert disk.path.read_bytes() == b"child parent"

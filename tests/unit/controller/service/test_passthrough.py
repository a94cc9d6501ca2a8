"""The ranks' output: printed once, although a rollback produces some of it twice."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ckpt.controller.service.passthrough import BLOCK_BYTES, Passthrough, Printed, Tail, with_prefix


class Screen:
    """Collects what a Passthrough prints."""

    def __init__(self, path: Path, **options: bool) -> None:
        self.path = path
        self.text = b""
        self.said: list[str] = []
        self.passthrough = Passthrough([(0, "out", str(path))], self._emit, self.said.append, **options)

    def _emit(self, rank: int, stream: str, data: bytes) -> None:
        self.text += data

    def poll(self, times: int = 1) -> bytes:
        for _ in range(times):
            self.passthrough.poll()
        return self.text


def numbered(start: int, end: int) -> bytes:
    return b"".join(b"line %06d\n" % number for number in range(start, end))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.out"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def cut(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)


def test_a_file_that_is_not_there_yet(path: Path) -> None:
    screen = Screen(path)
    assert screen.poll() == b""
    append(path, b"hello\n")
    assert screen.poll() == b"hello\n"


def test_whole_lines_are_printed_and_the_rest_waits_for_a_while(path: Path) -> None:
    screen = Screen(path)
    append(path, b"one\ntwo")
    assert screen.poll() == b"one\n"
    append(path, b" three\n")
    assert screen.poll() == b"one\ntwo three\n"
    append(path, b"password: ")
    assert screen.poll(30).endswith(b"password: ")


@pytest.mark.parametrize("kept_lines", [0, 1, 100, 333, 999])
def test_what_comes_again_is_not_printed_again(path: Path, kept_lines: int) -> None:
    screen = Screen(path)
    append(path, numbered(0, 1000))
    screen.poll()
    cut(path, len(numbered(0, kept_lines)))
    screen.poll()
    for at in range(kept_lines, 1500, 50):
        append(path, numbered(at, min(at + 50, 1500)))
        screen.poll()
    screen.passthrough.finish()
    assert screen.text == numbered(0, 1500)
    assert screen.said == []


def test_what_comes_differently_is_said_and_printed(path: Path) -> None:
    screen = Screen(path)
    append(path, numbered(0, 500))
    screen.poll()
    cut(path, len(numbered(0, 100)))
    screen.poll()
    append(path, b"now for something different\n" * 200)
    screen.poll(3)
    assert len(screen.said) == 1 and "differs" in screen.said[0]
    assert b"something different\n" * 1 in screen.text
    block = len(numbered(0, 100)) // BLOCK_BYTES * BLOCK_BYTES
    assert screen.text == numbered(0, 500) + path.read_bytes()[block:]


def test_less_the_second_time_is_said(path: Path) -> None:
    screen = Screen(path)
    append(path, numbered(0, 1000))
    screen.poll()
    cut(path, 0)
    screen.poll()
    screen.passthrough.finish()
    assert len(screen.said) == 1 and "not produced again" in screen.said[0]


def test_a_new_controller_prints_only_what_comes_from_the_image_on(path: Path) -> None:
    append(path, numbered(0, 50))
    screen = Screen(path, from_end=True)
    assert screen.poll() == b""
    cut(path, len(numbered(0, 20)))
    screen.poll()
    append(path, numbered(20, 60))
    assert screen.poll() == numbered(20, 60)


def test_the_last_unfinished_line_is_printed_at_the_end(path: Path) -> None:
    screen = Screen(path)
    append(path, b"no newline")
    screen.passthrough.finish()
    assert screen.text == b"no newline"


def test_comparison_against_a_dumb_version() -> None:
    rng = random.Random(11)
    for _ in range(200):
        data = rng.randbytes(rng.randint(0, 4000))
        printed = Printed()
        position = 0
        while position < len(data):
            step = rng.randint(1, 700)
            printed.append(data[position : position + step])
            position += step
        assert printed.end == len(data)
        offset = printed.floor(rng.randint(0, len(data)))
        again = bytearray(data[offset:] + b"more")
        if rng.random() < 0.5 and len(data) > offset:
            again[rng.randrange(len(data) - offset)] ^= 1
        equal, differs = printed.compare(offset, bytes(again))
        same = bytes(again[: len(data) - offset]) == data[offset:]
        assert differs != same
        assert bytes(again[:equal]) == data[offset : offset + equal]
        if same:
            assert offset + equal == len(data)


def test_polling_slows_down_when_nothing_comes(path: Path) -> None:
    screen = Screen(path)
    append(path, b"x\n")
    screen.poll()
    busy_ns = screen.passthrough.interval_ns()
    screen.poll(200)
    assert screen.passthrough.interval_ns() == 10 * busy_ns


def test_prefix() -> None:
    assert with_prefix(3, b"a\n\nb", width=2) == b"[ 3] a\n[ 3] \n[ 3] b\n"


def test_a_tail_keeps_its_place_over_polls(path: Path) -> None:
    tail = Tail(str(path), "x", lambda text: None)
    append(path, b"abc")
    assert (tail.read(), tail.read()) == (b"abc", b"")


def test_a_file_that_cannot_be_read_by_a_descriptor_is_opened_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller ended with a traceback: on fusefat, a file that was opened before it had any bytes is never read."""
    said: list[str] = []
    tail = Tail(str(path), "rank 0 stdout", said.append)
    append(path, b"abc")
    refused = iter([True, False, True, True])

    def pread(fd: int, limit: int, offset: int) -> bytes:
        if next(refused):
            raise PermissionError(1, "Operation not permitted")
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, limit)

    monkeypatch.setattr(os, "pread", pread)
    assert tail.read() == b"abc" and not said
    append(path, b"def")
    assert (tail.read(), tail.read()) == (b"", b"")
    assert len(said) == 1 and "cannot be shown" in said[0] and str(path) in said[0]

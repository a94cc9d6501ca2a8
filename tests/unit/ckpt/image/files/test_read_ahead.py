"""A program that reads a file and meanwhile writes it anew goes on with what its file object had read ahead; so it does from
an image on."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_by_child, copy_of

LINES = [f"task {number}: ä{'x' * (number % 30)}" for number in range(60)]


def loop(file: Any) -> Callable[[], Any]:
    """Its next line as a ``for`` loop reads it, after which a text layer does not tell its position."""
    lines = iter(file)
    return lambda: next(lines, file.readline()[:0])


def calls(file: Any) -> Callable[[], Any]:
    return lambda: file.readline()


def changed(path: Path, how: str) -> None:
    if how == "shorter":
        path.write_text("\n".join(LINES[40:]).upper())
    elif how == "empty":
        path.write_bytes(b"")
    else:
        with path.open("r+b") as file:
            file.write(b"DONE\r\n" * 900)


@pytest.mark.parametrize("how", ["shorter", "empty", "in place"])
@pytest.mark.parametrize("reading", [calls, loop])
@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("rb", {}),
        ("rb", {"buffering": 100}),
        ("r", {"encoding": "utf-8"}),
        ("r", {"encoding": "utf-8", "newline": ""}),
        ("r", {"encoding": "utf-8-sig"}),
        ("r", {"encoding": "latin-1", "newline": "\n"}),
        ("r", {"encoding": "ascii", "errors": "surrogateescape"}),
        ("r+b", {}),
    ],
)
def test_what_was_read_of_a_file_that_has_changed_since_is_in_the_image(
    tmp_path: Path, mode: str, settings: dict[str, Any], reading: Callable[[Any], Callable[[], Any]], how: str
) -> None:
    """The lines came from the changed file, from the middle of one on; or the restart failed: "has 320 bytes; the image
    needs 390"; and in a loop over text there was no checkpoint."""
    path = tmp_path / "file"
    for end in ("\n", "\r\n"):
        path.write_bytes(end.join([*LINES, ""]).encode())
        with path.open(mode, **settings) as file:
            line = reading(file)
            for _ in range(7):
                line()
            changed(path, how)
            load = copy_by_child(file)
            expected = [line() for _ in range(99)]
        with load() as restored:
            line = reading(restored)
            assert [line() for _ in range(99)] == expected


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_wherever_its_pieces_end(tmp_path: Path, encoding: str) -> None:
    """In the middle of a character, between carriage return and line feed: a layer reads pieces of 8192 bytes."""
    path = tmp_path / "file"
    for seed in range(12):
        choose = random.Random(seed)
        begin = "x" * choose.randrange(8150, 8192)
        path.write_bytes((begin + "".join(choose.choices(["ä", "\r\n", "z"], k=60))).encode(encoding))
        for newline in (None, "", "\n"):
            with path.open(encoding=encoding, newline=newline) as file:
                file.read(choose.choice([1, 8000, len(begin) + 2]))
                with path.open("r+b") as other:
                    other.write(b"changed" * 1150)
                load = copy_by_child(file)
                expected = [file.read(1) for _ in range(len(begin))]
            with load() as restored:
                assert [restored.read(1) for _ in range(len(begin))] == expected, (seed, newline)


def test_without_fork_bytes_stay_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 20)
    with path.open("rb") as file:
        file.read(3)
        path.write_bytes(b"new")
        copy = copy_of(file)
        assert file.read(9) == copy.read(9) == b"345678901"


def test_what_is_the_same_in_the_file_is_read_again(tmp_path: Path) -> None:
    """So images have no copies of it, and a file that comes back otherwise is read as it is then."""
    path = tmp_path / "file"
    path.write_text("\n".join(LINES))
    for mode in ("rb", "r"):
        with path.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            file.readline()
            load = copy_by_child(file)
            place = file.tell()
            with path.open("r+b") as other:
                other.seek(place)
                before = other.read(4)
                other.seek(place)
                other.write(b"NEW!")
            with load() as restored:
                assert restored.read(4) in ("NEW!", b"NEW!")
            with path.open("r+b") as other:
                other.seek(place)
                other.write(before)


@pytest.mark.parametrize("mode", ["w+b", "r+b", "a+b"])
def test_what_was_not_written_is_not_written_by_a_restart(tmp_path: Path, mode: str) -> None:
    """Others would see it too soon: a restart put the position where it was, which writes."""
    path = tmp_path / "file"
    path.write_bytes(b"begin")
    with path.open(mode) as file:
        file.seek(0, os.SEEK_END)
        file.write(b"not yet")
        load = copy_by_child(file)
        left = path.read_bytes()
        with load() as restored:
            assert path.read_bytes() == left
            assert restored.tell() == file.tell()

"""A program that reads, or reads and writes, a file which is changed in place meanwhile (by itself through another file
object, by another rank) goes on from an image as it would have: with what it had read, reading the same pieces of the file
later, writing what it had not written."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_by_child

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "reader": ("rb", {}),
    "reader of short pieces": ("rb", {"buffering": 64}),
    "updater": ("r+b", {}),
    "updater of short pieces": ("r+b", {"buffering": 64}),
    "appender": ("a+b", {}),
    "text": ("r", {"encoding": "utf-8"}),
    "text as it is": ("r", {"encoding": "utf-16", "newline": ""}),
    "updated text": ("r+", {"encoding": "utf-8"}),
    "updated lines": ("r+", {"encoding": "latin-1", "newline": "\n"}),
    "appended text": ("a+", {"encoding": "utf-8"}),
}
STEPS = [
    "line",
    "line",
    "read",
    "next",
    "next",
    "poke",
    "poke",
    "poke",
    "back",
    "write",
    "seek",
    "place",
    "cut",
    "grow",
]


def contents(choose: random.Random, encoding: str) -> bytes:
    lines = [
        choose.choice([f"ä{n}", f"line {n}", "x" * (n % 40)]) + choose.choice(["\n", "\r\n"])
        for n in range(choose.choice([20, 300, 3000]))
    ]
    return "".join(lines).encode(encoding)


class Program:
    """Random steps on one open file, and what they give."""

    def __init__(self, file: Any, path: Path, *, is_text: bool) -> None:
        self.file, self.path, self.is_text = file, path, is_text
        self.lines: Iterator[Any] = iter(file)
        self.tells = True  # until a loop over its lines begins

    def step(self, name: str, a: float, b: float) -> Any:
        size = os.path.getsize(self.path)
        if name == "poke":
            with self.path.open("r+b", buffering=0) as other:
                other.seek(int(a * size) // 2 * 2)
                other.write(f"{int(b * 1000):03}\n".encode() * (1 + int(b * 10)))
        elif name == "grow":
            with self.path.open("ab", buffering=0) as other:
                other.write(b"more %d\n" % int(b * 10))
        elif name == "cut" and b < 0.1:
            os.truncate(self.path, int(a * size))
        else:
            return getattr(self, name, lambda a: None)(a)
        return None

    def line(self, a: float) -> Any:
        return self.file.readline()

    def read(self, a: float) -> Any:
        return self.file.read(1 + int(a * 60))

    def next(self, a: float) -> Any:
        self.tells = not self.is_text
        return next(self.lines, None)

    def write(self, a: float) -> Any:
        text = f"w{int(a * 100)}"
        return self.file.writable() and self.file.write(text if self.is_text else text.encode())

    def seek(self, a: float) -> Any:
        return None if self.is_text else self.file.seek(int(a * os.path.getsize(self.path)))

    def back(self, a: float) -> Any:
        return None if self.is_text else self.file.seek(-min(int(a * 50), self.file.tell()), io.SEEK_CUR)

    def place(self, a: float) -> Any:
        return self.file.tell() if self.tells else None

    def run(self, steps: list[tuple[str, float, float]]) -> list[Any]:
        given = []
        for step in steps:
            try:
                given.append(self.step(*step))
            except (OSError, UnicodeError) as error:
                given.append(type(error))
        return given


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_as_it_would_have(tmp_path: Path, kind: str) -> None:
    """Pieces that were read later began elsewhere, and had what the file had got meanwhile; what was unwritten went to
    another place; in a loop over text opened by "r+" there was no image."""
    mode, settings = KINDS[kind]
    path, is_text = tmp_path / "file", "b" not in mode
    for seed in range(25):
        choose = random.Random(seed)
        path.write_bytes(contents(choose, settings.get("encoding", "utf-8")))
        before, after = (
            [
                (choose.choice(STEPS), choose.random(), choose.random())
                for _ in range(choose.randrange(1, most))
            ]
            for most in (12, 25)
        )
        after += [("line", 0, 0)] * 4
        with path.open(mode, **settings) as file:
            program = Program(file, path, is_text=is_text)
            program.run(before)
            at = path.read_bytes()
            load = copy_by_child(file)
            assert path.read_bytes() == at
            tells, expected = program.tells, program.run(after)
        end = path.read_bytes()
        with path.open("r+b", buffering=0) as other:
            other.truncate(0)
            other.write(at)
        with load() as file:
            program = Program(file, path, is_text=is_text)
            program.tells = tells
            assert program.run(after) == expected, seed
        assert path.read_bytes() == end, seed


def test_a_file_for_appending_without_a_buffer_keeps_its_place(tmp_path: Path) -> None:
    """It was at the end of the file."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("a+b", buffering=0) as file:
        file.seek(4)
        with copy_by_child(file)() as restored:
            assert restored.read(2) == b"45"

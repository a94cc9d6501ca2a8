"""Files that are read and written through one object: as without replicas; a copy makes the same changes as the others."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpt.redundancy.files import images, objects
from ckpt.redundancy.files.changes import STATE
from ckpt.redundancy.files.notes import Notes
from tests.unit.ckpt.image.support import copy_by_child

MODES = ["r+", "w+", "a+", "x+", "r+b", "w+b", "a+b", "x+b"]
PROGRAMS = 40
Step = tuple[str, Any]


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bytes]:
    """The changes that this process makes; one that writes an image makes none."""
    made: list[bytes] = []
    process = os.getpid()

    def meet(content: bytes, act: Callable[[], Any]) -> Any:
        assert os.getpid() == process, "a change by the process that writes an image"
        made.append(content)
        return act()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(STATE, "meet", meet)
    monkeypatch.setattr(STATE, "notes", Notes(str(tmp_path / "notes")))
    return made


def random_steps(choose: random.Random, mode: str) -> list[Step]:
    """Where text is read behind a write, a seek comes between: ``BufferedRandom.read1`` forgets what is not written."""
    is_text, last, steps = "b" not in mode, "", list[Step]()
    for _ in range(choose.randrange(1, 16)):
        text: Any = "".join(choose.choices("xyz\n", k=choose.choice((0, 1, 5, 9, 40))))
        name, given = choose.choice(
            [
                ("write", text if is_text else text.encode()),
                ("write", text if is_text else text.encode()),
                ("read", choose.randrange(9)),
                ("seek", choose.randrange(40)),
                ("readline", -1),
                ("truncate", choose.randrange(30)),
                ("flush", None),
                ("tell", None),
            ]
        )
        does = {"read": "reads", "readline": "reads", "write": "writes", "seek": ""}.get(name, last)
        if (is_text and (last, does) == ("writes", "reads")) or (mode[0] == "a" and does != last and last):
            steps.append(("seek", choose.randrange(20)))
        last = does
        steps.append((name, given))
        if is_text and name == "truncate":  # no image has what the layer may have read ahead
            steps.append(("seek", choose.randrange(20)))
    return steps


def done(file: Any, steps: list[Step]) -> list[Any]:
    return [getattr(file, name)(*(() if given is None else (given,))) for name, given in steps]


def begin(name: str, mode: str) -> None:
    Path(name).unlink(missing_ok=True)
    if mode[0] in "ra":
        Path(name).write_text("0123456789\nabcdefgh\r\nABC\n" * 3)


@pytest.mark.parametrize("mode", MODES)
def test_such_files_are_as_without_replicas(changes: list[bytes], mode: str) -> None:
    for seed in range(PROGRAMS):
        choose = random.Random(f"{mode} {seed}")
        buffering = choose.choice([-1, 16] if "b" not in mode else [-1, 0, 3, 16])
        steps = random_steps(choose, mode)
        seen = []
        for open_file, name in ((objects.replica_open, "one"), (open, "two")):
            begin(name, mode)
            with open_file(name, mode, buffering) as file:
                found = [*done(file, steps), file.readable(), file.writable(), file.mode]
            seen.append([*found, Path(name).read_bytes()])
        assert seen[0] == seen[1], (seed, buffering, steps)


@pytest.mark.rotate(3)
@pytest.mark.parametrize("mode", [*MODES, "w", "a", "wb", "ab"])
@pytest.mark.parametrize("newline", [None, ""])
def test_a_copy_makes_the_same_changes(changes: list[bytes], mode: str, newline: str | None) -> None:
    for seed in range(PROGRAMS // 4):
        choose = random.Random(f"{mode} {seed}")
        size = choose.choice([-1, 16])
        steps = [
            each for each in random_steps(choose, mode) if "+" in mode or each[0] not in ("read", "readline")
        ]
        image = choose.randrange(len(steps) + 1)
        begin("file", mode)
        file = objects.replica_open("file", mode, size, newline=None if "b" in mode else newline)
        done(file, steps[:image])
        copy = copy_by_child(file)()
        images.go_on({"files": [copy]}, is_copy=True)
        then = Path("file").read_bytes()
        changes.clear()
        found = done(file, steps[image:])
        file.close()
        expected, left = changes[:], Path("file").read_bytes()
        Path("file").write_bytes(then)
        changes.clear()
        assert done(copy, steps[image:]) == found, (seed, size, image, steps)
        copy.close()
        assert changes == expected and Path("file").read_bytes() == left, (seed, size, image, steps)


def test_a_file_that_is_not_there_is_not_made_for_reading_and_writing(changes: list[bytes]) -> None:
    with pytest.raises(FileNotFoundError, match="'a'"):
        objects.replica_open("a", "r+")
    Path("b").write_text("12")
    with objects.replica_open("b", "r+") as file:
        value = int(file.read())
        file.seek(0)
        file.write(str(value + 1))
    assert Path("b").read_text() == "13"
    with pytest.raises(ValueError, match="closed file"):
        file.buffer.write(b"")

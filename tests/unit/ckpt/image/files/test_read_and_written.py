"""Files that are read and written (``r+``, ``w+``, ``a+``): an image has what the program has written and the kernel has not
got yet, with the place where the program has written it, and the program's position."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_by_child

BEGIN = "0123456789" * 5 + "\n" + "abcdefghij\n" * 3
PROGRAMS = 40
Step = tuple[str, Any]


def done(file: Any, steps: list[Step]) -> list[Any]:
    """What the methods of these names return."""
    return [getattr(file, name)(*given) for name, given in steps]


def random_steps(choose: random.Random, count: int, kind: str) -> Iterator[Step]:
    """Where a text file, or one that is appended to, is read behind a write, or written behind a read, a seek comes between:
    else what is read, and where it is written, depends on how much has been read ahead."""
    is_text, is_free = "b" not in kind, kind in ("r+b", "w+b")
    last = ""
    for _ in range(count):
        word = "".join(choose.choices("ABCDEFG\n", k=choose.choice((1, 2, 5, 30))))
        name, given = choose.choice(
            [
                ("read", (choose.randrange(40),)),
                ("seek", (choose.randrange(90),)),
                ("seek", (choose.randrange(90),)),
                ("write", (word if is_text else word.encode(),)),
                ("write", (word if is_text else word.encode(),)),
                ("readline", ()),
                ("flush", ()),
                # Of a file that is appended to it depends on when the buffer was full
                ("tell", ()) if kind[0] != "a" else ("flush", ()),
            ]
        )
        does = {"read": "reads", "readline": "reads", "write": "writes", "seek": ""}.get(name, last)
        if kind[0] == "a" and last == "writes" and does != last:
            yield "flush", ()  # what is appended is shown where it is not
        if not is_free and last and does and does != last:
            yield "seek", (choose.randrange(50),)
        last = does
        yield name, given


def check(path: Path, opened: Callable[[], Any], before: list[Step], after: list[Step]) -> None:
    """The program goes on as if there had been no image; and so it does from the image on, with the file of then."""
    path.write_text(BEGIN)
    file = opened()
    done(file, before)
    load = copy_by_child(file)
    then = path.read_bytes()
    expected = done(file, after)
    file.close()
    left = path.read_bytes()
    path.write_bytes(then)
    restored = load()
    assert done(restored, after) == expected
    restored.close()
    assert path.read_bytes() == left


@pytest.mark.parametrize(
    "before",
    [
        [("read", (10,)), ("seek", (5,)), ("write", (b"AB",))],
        [("read", (10,)), ("seek", (5,)), ("write", (b"AB",)), ("seek", (1,))],
        [("read", (10,)), ("write", (b"AB",)), ("seek", (3,)), ("write", (b"cd",)), ("seek", (20,))],
        [("read", ()), ("seek", (60,)), ("write", (b"A" * 50,)), ("seek", (2,))],
        [("read", (1,)), ("seek", (0,)), ("write", (b"A" * 20_000,)), ("seek", (3,)), ("write", (b"B",))],
    ],
)
def test_what_is_written_behind_a_seek_within_what_was_read_ahead_is_in_the_image(
    tmp_path: Path, before: list[Step]
) -> None:
    """It was lost without a word: a zip file to which the program appends lost its directory, so all its older members."""
    path = tmp_path / "file"
    check(path, lambda: path.open("r+b"), before, [("tell", ()), ("read", (3,)), ("write", (b"end",))])


def test_so_it_is_with_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before: list[Step] = [("read", (10,)), ("seek", (5,)), ("write", ("AB",))]
    check(path, lambda: path.open("r+"), before, [("tell", ()), ("read", (3,))])


@pytest.mark.rotate(4)
@pytest.mark.parametrize("kind", ["r+b", "w+b", "a+b", "r+", "w+", "a+"])
@pytest.mark.parametrize("size", [-1, 64])
def test_whatever_was_done_before_the_image(tmp_path: Path, kind: str, size: int) -> None:
    path = tmp_path / "file"
    for seed in range(PROGRAMS):
        choose = random.Random(f"{kind} {size} {seed}")
        steps = list(random_steps(choose, choose.randrange(2, 16), kind))
        image = choose.randrange(len(steps))
        try:
            check(path, lambda: path.open(kind, size), steps[:image], steps[image:])
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {steps}, image before {image}") from failure

"""Files that are read and written (``r+``, ``w+``, ``a+``): an image has what the program has written and the kernel has not
got yet, with the place where the program has written it, and the program's position."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_by_child, copy_of, pickled

BEGIN = "0123456789" * 5 + "\n" + "abcdefghij\n" * 3
PROGRAMS = 40
Step = tuple[str, Any]


def done(file: Any, steps: list[Step]) -> list[Any]:
    """What the methods of these names return."""
    return [getattr(file, name)(*given) for name, given in steps]


def random_steps(choose: random.Random, count: int, kind: str) -> Iterator[Step]:
    """Where a text file is read behind a write (``BufferedRandom.read1`` forgets what is not written), or one that is
    appended to is written behind a read, too, a seek comes between: else what is read depends on what the buffer has."""
    is_text = "b" not in kind
    free = {"r": ("reads", "writes"), "w": ("reads", "writes"), "a": ()}[kind[0]][: 1 if is_text else 2]
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
        if last not in free and last and does and does != last:
            yield "seek", (choose.randrange(50),)
        last = does
        yield name, given


def check(
    path: Path,
    opened: Callable[[], Any],
    before: list[Step],
    after: list[Step],
    content: bytes = BEGIN.encode(),
) -> None:
    """The program goes on as if there had been no image; and so it does from the image on, with the file of then."""
    path.write_bytes(content)
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
@pytest.mark.parametrize(
    "read", [[("readline", ())], [("read", (3,)), ("readline", ())], [("readline", ())] * 2]
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "shift-jis"])
@pytest.mark.parametrize("newline", [None, "", "\n", "\r\n"])
def test_text_that_is_written_behind_a_read_goes_where_the_layer_has_read_to(
    tmp_path: Path, read: list[Step], encoding: str, newline: str | None
) -> None:
    """A program that had read a line of a file, and wrote one at its end then, overwrote the next line after a restart,
    without a word."""
    path = tmp_path / "file"
    path.write_text("one\ntwo\r\nthree\nfour\r\n" * 3000, encoding=encoding, newline="")
    before = path.read_bytes()
    for image in range(len(read) + 1):
        for after in (
            [("write", ("NEW\n",)), ("tell", ())],
            [("readline", ()), ("write", ("NEW\n",))],
            [("tell", ()), ("read", (9,)), ("seek", (0,)), ("readline", ())],
        ):
            check(
                path,
                lambda: path.open("r+", encoding=encoding, newline=newline),
                read[:image],
                [*read[image:], *after],
                before,
            )


@pytest.mark.parametrize(
    "before",
    [
        [("readline", ())],
        [("readline", ()), ("readline", ())],
        [("read", (2,))],
        [("read", ())],
        [("seek", (4,)), ("read", (2,))],
        [("read", (1,)), ("seek", (2,))],
        [("readline", ()), ("read", (4,))],
    ],
)
@pytest.mark.parametrize("after", ["write", "read"])
@pytest.mark.parametrize("is_disposable", [True, False])
def test_so_it_is_over_memory(before: list[Step], after: str, is_disposable: bool) -> None:
    """Without fork the image changed the program itself in this way."""
    text, same = (io.TextIOWrapper(io.BytesIO(b"one\ntwo\r\nthree\n")) for _ in range(2))
    done(text, before)
    done(same, before)
    copy = copy_by_child(text)() if is_disposable else copy_of(text)
    steps: list[Step] = [("write", ("NEW",)), ("flush", ())] if after == "write" else [("read", (5,))]
    expected = done(same, steps)
    for each in (text, copy):
        assert done(each, steps) == expected
        assert each.buffer.getvalue() == same.buffer.getvalue()


def test_text_that_has_been_read_to_where_its_decoder_cannot_begin_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\r\ntwo\r\n")
    with path.open("r+", newline="") as file:
        assert file.read(4) == "one\r"
        with pytest.raises(PicklingError, match="its decoder cannot begin there"):
            pickled(file)
        assert file.read(1) == "\n"
        pickled(file)


@pytest.mark.rotate(6)
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

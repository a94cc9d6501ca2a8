"""Text files in the middle of a ``for`` loop over their lines, where ``tell`` does not say the position."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_by_child

ENDS = {"LF": ["\n"], "CRLF": ["\r\n"], "CR": ["\r"], "mixed": ["\n", "\r\n", "\r\n"]}
LINES = 2000


def opened(path: Path, encoding: str, newline: str | None) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding=encoding, newline=newline)
    return path.open(encoding=encoding, newline=newline)


@pytest.mark.rotate(4)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1250", "ascii"])
@pytest.mark.parametrize("newline", [None, ""])
def test_the_loop_goes_on_with_the_next_line(
    tmp_path: Path, ends: str, encoding: str, newline: str | None
) -> None:
    """Of files with the ends of line of Windows and other letters than those of ASCII, and of compressed ones in UTF-16, no
    image could be taken."""
    word = "line" if encoding == "ascii" else "ligné ß"
    content = "".join(f"{word} {n}{ENDS[ends][n % len(ENDS[ends])]}" for n in range(LINES)).encode(encoding)
    plain, packed = tmp_path / "file", tmp_path / "file.gz"
    plain.write_bytes(content)
    with gzip.open(packed, "wb") as file:
        file.write(content)
    for taken in (1, 700, LINES):
        for path in (plain, packed):
            text = opened(path, encoding, newline)
            for _ in range(taken):
                next(text)
            restored = copy_by_child(text)()
            assert list(restored) == list(text), (taken, path)


def test_what_comes_later_does_not_depend_on_the_ends_of_line_that_have_been_read(tmp_path: Path) -> None:
    """Of a layer in a loop, over an object that is no file, ``newline`` was guessed by the lines that were left."""
    path = tmp_path / "file.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"a line\n" * 3000 + b"another\r\n")
    with gzip.open(path, "rt", newline="") as text:
        next(text)
        restored = copy_by_child(text)()
        assert [*restored][-1] == "another\r\n"


def test_a_copy_has_an_open_file_of_its_own_also_where_an_earlier_copy_had_this_file(tmp_path: Path) -> None:
    """The copies of these tests shared the descriptor of what they were copied from, in one run of many: records of an
    earlier load were used, of a removed file whose inode number and descriptor another file had got."""
    path = tmp_path / "file"
    path.write_text("a line\n" * LINES)
    for is_open in (False, True):
        with path.open() as text:
            next(text)
            load = copy_by_child(text)
            if not is_open:
                text.close()
            with load() as restored:
                assert len([*restored]) == LINES - 1
            if is_open:
                assert len([*text]) == LINES - 1

"""What buffers and text layers hold over what is no file: saved with them, and nobody below hears of it.

Copies are made as without fork, where the program goes on with the very objects."""

from __future__ import annotations

import gzip
import io
import pickle
from typing import Any

import pytest

from ckpt.image.files.unwritten import caught_from
from tests.unit.ckpt.image.support import copy_of


class Kept(io.RawIOBase):
    """A raw file written in Python."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        self.parts.append(bytes(part))
        return len(part)


def test_a_buffer_over_a_raw_file_of_the_programs_own() -> None:
    raw = Kept()
    buffer = io.BufferedWriter(raw)
    buffer.write(b"one ")
    copied_raw, copied = copy_of([raw, buffer])
    assert raw.parts == copied_raw.parts == []
    for each in (buffer, copied):
        each.write(b"two")
        each.flush()
    assert raw.parts == copied_raw.parts == [b"one two"]
    assert sorted(vars(raw)) == ["parts"]


@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
def test_a_text_layer_over_a_buffer_of_the_programs_own(newline: str | None) -> None:
    raw = Kept()
    buffer = io.BufferedWriter(raw)
    text = io.TextIOWrapper(buffer, "utf-8", newline=newline)
    print("é one", file=text, end="\n\r\n")
    copied_raw, copied_buffer, copied = copy_of([raw, buffer, text])
    assert raw.parts == copied_raw.parts == [] and copied.buffer is copied_buffer
    for each in (text, copied):
        print("two", file=each, flush=True)
    expected = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=newline)
    print("é one\n\r\ntwo", file=expected, flush=True)
    assert raw.parts == copied_raw.parts == [expected.buffer.getvalue()]  # type: ignore[attr-defined]


def test_a_text_layer_over_a_gzip_file() -> None:
    """In the order in which they are met: the memory, the compressed file, the text over it."""
    memory = io.BytesIO()
    file = gzip.GzipFile(fileobj=memory, mode="wb", mtime=0)
    text = io.TextIOWrapper(file, "utf-8")
    copied_memory, copied = memory, text
    for number in range(3000):
        for each in (text, copied) if copied is not text else (text,):
            print("line", number * 7919 % 1009, file=each)
        if number == 1500:
            length = len(memory.getvalue())
            copied_memory, _, copied = copy_of([memory, file, text])
            assert len(memory.getvalue()) == length
    for each in (text, copied):
        each.close()
    expected = "".join(f"line {number * 7919 % 1009}\n" for number in range(3000)).encode()
    assert gzip.decompress(memory.getvalue()) == expected
    assert gzip.decompress(copied_memory.getvalue()) == expected


def test_without_fork_an_encoding_with_a_mark_at_its_beginning_is_named() -> None:
    text = io.TextIOWrapper(gzip.GzipFile(fileobj=io.BytesIO(), mode="wb"), "utf-16")
    with pytest.raises(pickle.PicklingError, match="over GzipFile needs fork, or utf-8"):
        copy_of(text)
    text.close()


def test_methods_of_an_instance_are_its_own_again() -> None:
    raw = Kept()
    mine = raw.__dict__["tell"] = lambda: 7
    with caught_from(raw) as caught:
        raw.write(b"x")
        assert raw.tell() == 0
    assert bytes(caught) == b"x" and raw.parts == []
    assert vars(raw) == {"parts": [], "tell": mine}


@pytest.mark.parametrize("form", ["gzip", "bz2", "lzma"])
def test_closed_ones_stay_closed(form: str) -> None:
    module: Any = __import__(form)
    packed = io.BytesIO(module.compress(b"text\n"))
    reader, text, writer = module.open(packed), module.open(packed, "rt"), module.open(io.BytesIO(), "wt")
    for each in (reader, text, writer):
        each.close()
    assert [each.closed for each in copy_of([reader, text, writer])] == [True] * 3


@pytest.mark.parametrize("done", [(), ("_fp",), ("_fp", "_eof", "_pos", "_size")], ids=len)
def test_a_reader_that_is_being_made_is_not_begun_again(done: tuple[str, ...]) -> None:
    kind: Any = gzip._GzipReader  # type: ignore[attr-defined]
    reader = kind.__new__(kind)
    reader.__dict__.update(dict.fromkeys(done))
    assert set(vars(copy_of(reader))) == set(done)

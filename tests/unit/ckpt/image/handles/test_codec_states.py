"""Codecs of East Asia in the middle of a text: copies go on alike."""

from __future__ import annotations

import codecs
import io
import pickle
from typing import Any

import pytest

from ckpt.compat import readers
from tests.unit.ckpt.image.support import copy_of

TEXT = "a\u3042b\u65e5c\n"
ENCODINGS = ["shift_jis", "iso2022_jp", "hz", "gb18030"]


def text_of(encoding: str) -> str:
    return TEXT.encode(encoding, "ignore").decode(encoding) * 3


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_incremental_coders(encoding: str) -> None:
    text = text_of(encoding)
    data = text.encode(encoding)
    for cut in range(0, len(data), 3):
        decoder = codecs.getincrementaldecoder(encoding)()
        before = decoder.decode(data[:cut])
        assert before + copy_of(decoder).decode(data[cut:], True) == text
    for cut in range(0, len(text), 3):
        encoder = codecs.getincrementalencoder(encoding)("replace")
        begun = encoder.encode(text[:cut])
        copy = copy_of(encoder)
        assert (begun + copy.encode(text[cut:], True), copy.errors) == (data, "replace")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_readers_and_writers(encoding: str) -> None:
    text = text_of(encoding)
    data = text.encode(encoding)
    for size in range(1, len(data), 4):
        reader = codecs.getreader(encoding)(io.BytesIO(data), "replace")
        before = reader.read(size)
        copy: Any = copy_of(reader)
        assert before + copy.read() == text
        assert copy.errors == "replace"
    writer = codecs.getwriter(encoding)(io.BytesIO())
    writer.write(text[:3])
    copy = copy_of(writer)
    copy.write(text[3:])
    copy.reset()
    assert copy.stream.getvalue().decode(encoding) == text


def test_a_class_of_the_program_and_a_loop_over_lines() -> None:
    class Counting(codecs.getreader("shift_jis")):  # type: ignore[misc]
        count = 0

    reader = Counting(io.BytesIO(text_of("shift_jis").encode("shift_jis")))
    reader.count = 1
    next(reader)
    copy = copy_of(reader)
    assert (copy.count, list(copy)) == (1, list(reader))


def test_another_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = codecs.getreader("big5")(io.BytesIO(b"a"))
    monkeypatch.setattr(readers, "instance_bytes", lambda cls: 0)
    with pytest.raises(pickle.PicklingError, match=r"encodings\.big5\.StreamReader .*open\(PATH, encoding="):
        copy_of(reader)


def test_half_of_a_character_in_a_writer_is_refused() -> None:
    writer = codecs.getwriter("big5hkscs")(io.BytesIO())
    writer.write("\u00ca")  # may be followed by an accent
    with pytest.raises(pickle.PicklingError, match="half of a character"):
        copy_of(writer)

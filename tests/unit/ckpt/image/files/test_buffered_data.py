"""What buffers and text layers hold over what is no file: saved with them, and nobody below hears of it.

Copies are made as without fork, where the program goes on with the very objects."""

from __future__ import annotations

import gzip
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from ckpt.image.files.buffered_data import caught_from
from ckpt.image.files.reopen import make_buffered
from tests.unit.ckpt.image.support import copy_by_child, copy_of


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


@pytest.mark.rotate(4)
@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
@pytest.mark.parametrize(
    ("encoding", "errors"), [("utf-8", None), ("us-ascii", "xmlcharrefreplace"), ("utf-16", None)]
)
@pytest.mark.parametrize("begin", ["", "first\n"])
@pytest.mark.parametrize("is_memory_first", [True, False])
def test_a_text_layer_over_memory_that_holds_unwritten_text(
    newline: str | None, encoding: str, errors: str | None, begin: str, is_memory_first: bool
) -> None:
    """Found by xml_etree of the sweep: where the memory was saved first, there were zeros in the place of that text."""
    memory = io.BytesIO()
    text = io.TextIOWrapper(memory, encoding, errors, newline=newline)
    print(begin, file=text, end="", flush=True)
    length = len(memory.getvalue())
    print("é one", file=text, end="\n\r\n")
    if is_memory_first:
        copied_memory, copied = copy_of([memory, text])
    else:
        copied, copied_memory = copy_of([text, memory])
    assert (
        len(memory.getvalue()) == len(copied_memory.getvalue()) == length and copied.buffer is copied_memory
    )
    for each in (text, copied):
        print("two", file=each, flush=True)
    reference = io.TextIOWrapper(io.BytesIO(), encoding, errors, newline=newline)
    print(begin + "é one\n\r\ntwo", file=reference, flush=True)
    expected = reference.buffer.getvalue()  # type: ignore[attr-defined]
    assert memory.getvalue() == expected and copied_memory.getvalue() == expected


def test_unwritten_text_over_memory_that_would_be_written_differently_is_refused() -> None:
    text = io.TextIOWrapper(io.BytesIO(), "iso2022_jp")
    text.write("\u3042")
    text.flush()
    text.write("\u3044")  # in the state that the encoder is in
    with pytest.raises(pickle.PicklingError, match="flush it"):
        copy_of(text)


def test_unwritten_bytes_of_a_random_buffer_over_memory_are_refused() -> None:
    """They were zeros after a restart."""
    memory = io.BytesIO()
    buffer: Any = io.BufferedRandom(memory)  # type: ignore[arg-type, unused-ignore]
    buffer.write(b"one ")
    with pytest.raises(pickle.PicklingError, match="flush it"):
        copy_of([memory, buffer])
    buffer.flush()
    copied_memory, copied = copy_of([memory, buffer])
    for each in (buffer, copied):
        each.write(b"two")
        each.flush()
    assert memory.getvalue() == copied_memory.getvalue() == b"one two"


class Raw(io.RawIOBase):
    """A raw file in Python."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = bytearray(content), 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, target: Any, /) -> int:
        data = self.content[self.at : self.at + len(target)]
        target[: len(data)] = data
        self.at += len(data)
        return len(data)

    def write(self, data: Any, /) -> int:
        self.content[self.at : self.at + len(data)] = data
        self.at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self.at = offset + (0, self.at, len(self.content))[whence]
        return self.at

    def tell(self) -> int:
        return self.at


def test_unwritten_bytes_of_a_random_buffer_over_a_raw_file_in_python_are_refused() -> None:
    """They were missing after a restart, without a word."""
    raw = Raw(b"0123456789")
    buffer: Any = io.BufferedRandom(raw)
    assert buffer.read(2) == b"01"
    copied = copy_of([raw, buffer])[1]
    assert copied.read(2) == b"23" and buffer.tell() == 2
    buffer.write(b"xx")
    with pytest.raises(pickle.PicklingError, match="over Raw holds unwritten bytes: flush it"):
        copy_of([raw, buffer])
    assert buffer.tell() == 4 and bytes(raw.content) == b"0123456789"
    buffer.flush()
    assert bytes(raw.content) == b"01xx456789"
    copied_raw, copied = copy_of([raw, buffer])
    for each in (buffer, copied):
        assert each.read(1) == b"4"
        each.write(b"y")
        each.flush()
    assert bytes(raw.content) == bytes(copied_raw.content) == b"01xx4y6789"


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


@pytest.mark.parametrize("nbytes", [16, 20_000, 20_001])
def test_what_was_not_written_stays_in_the_buffer_whatever_its_size(nbytes: int) -> None:
    """Since 3.13 a full buffer is written at once: at load, and so in front of what the file had got since the image."""
    raw = io.BytesIO()
    made = make_buffered(io.BufferedWriter, raw, None, b"x" * 20_000, nbytes)
    assert raw.getvalue() == b""
    made.flush()
    assert raw.getvalue() == b"x" * 20_000


class Source(io.RawIOBase):
    """A raw file written in Python that is read, and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        part = self.left[: len(target)]
        target[: len(part)] = part
        self.left = self.left[len(part) :]
        return len(part)


class Seekable(Source):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset if whence == 0 else self.tell() + offset if whence == 1 else len(self.data) + offset
        self.left = self.data[at:]
        return at

    def tell(self) -> int:
        return len(self.data) - len(self.left)


@pytest.mark.parametrize("cls", [Source, Seekable])
def test_what_a_buffer_has_read_ahead_from_a_raw_file_of_the_programs_own(cls: type[Source]) -> None:
    buffer = io.BufferedReader(cls(b"".join(b"line %d\n" % i for i in range(4000))))
    assert buffer.readline() == b"line 0\n"
    copied = copy_of(buffer)
    expected = b"".join(b"line %d\n" % i for i in range(1, 4000))
    assert copied.read() == buffer.read() == expected


@pytest.mark.parametrize("cls", [Source, Seekable])
@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
def test_what_a_text_layer_has_read_ahead_from_a_raw_file_of_the_programs_own(
    cls: type[Source], newline: str | None
) -> None:
    data = "".join(
        f"é {i}{end}" for i, end in zip(range(2500), ["\n", "\r", "\r\n"] * 900, strict=False)
    ).encode()
    text = io.TextIOWrapper(io.BufferedReader(cls(data)), "utf-8", newline=newline)
    reference = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=newline)
    assert text.read(2) == reference.read(2)
    for line in text:
        assert line == reference.readline()
        break
    buffer, copied = copy_of([text.buffer, text])
    assert copied.buffer is buffer
    expected = reference.read()
    assert copied.read() == text.read() == expected


@pytest.mark.parametrize("newline", [None, "", "\n"])
@pytest.mark.parametrize("copy", [copy_of, lambda obj: copy_by_child(obj)()], ids=["same process", "fork"])
def test_the_position_of_a_text_layer_over_a_raw_file_of_the_programs_own_that_can_seek(
    newline: str | None, copy: Callable[[Any], Any]
) -> None:
    """Where ends of line are translated ``tell`` said another one after a restart; after an image without fork, in the
    running program, too."""
    data = b"one\r\ntwo\nthree\r\nfour\r\n" * 2000
    text, same = (io.TextIOWrapper(io.BufferedReader(Seekable(data)), newline=newline) for _ in range(2))
    for _ in range(3):
        assert text.readline() == same.readline()
    copied, expected = copy(text), [same.tell(), same.readline(), same.tell(), same.read()]
    for each in (copied, text):
        assert [each.tell(), each.readline(), each.tell(), each.read()] == expected


def test_a_carriage_return_that_a_text_layer_has_read_may_still_get_its_line_feed() -> None:
    for rest, expected in ((b"\nnext", "\nnext"), (b"next", "\nnext")):
        text = io.TextIOWrapper(io.BufferedReader(Parts([b"one\r", rest])))
        assert text.read(3) == "one"
        copied = copy_of(text)
        assert copied.read() == text.read() == expected


def test_half_of_a_character_is_refused_by_name() -> None:
    text = io.TextIOWrapper(io.BufferedReader(Parts([b"one \xc3", b"\xa9"])), "utf-8")
    assert text.read(3) == "one"
    with pytest.raises(pickle.PicklingError, match="half of a character"):
        copy_of(text)


def test_an_encoding_with_a_state_is_refused_by_name() -> None:
    text = io.TextIOWrapper(io.BufferedReader(Parts(["one two".encode("utf-16")])), "utf-16")
    assert text.read(3) == "one"
    with pytest.raises(pickle.PicklingError, match="'utf-16'"):
        copy_of(text)


class Parts(Source):
    """Gives one part for each call."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    def readinto(self, target: Any) -> int:
        part = self.parts.pop(0) if self.parts else b""
        target[: len(part)] = part
        return len(part)


@pytest.mark.parametrize("newline", ["", "\n", "\r\n", None])
def test_the_newline_of_a_text_layer_over_an_object_that_can_seek(newline: str | None) -> None:
    """After a restart it was None: rows of a CSV file in gzip had other ends of line, without a word."""
    content = b"one\r\ntwo\nthree\rfour\r\n" * 2
    packed = io.BytesIO(gzip.compress(content))
    for lines in range(3):
        texts = []
        for _ in range(2):
            packed.seek(0)
            texts.append(
                io.TextIOWrapper(gzip.GzipFile(fileobj=io.BytesIO(packed.getvalue())), newline=newline)
            )
        for text in texts:
            for _ in range(lines):
                text.readline()
        expected = texts[1].read()
        assert copy_of(texts[0]).read() == expected
        assert texts[0].read() == expected, "the program goes on as if there had been no image"

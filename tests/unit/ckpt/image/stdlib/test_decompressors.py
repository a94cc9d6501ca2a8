"""bz2, lzma: a decompressor by itself is saved when it has met the end of its stream, and refused by name before. Those of
zlib are saved in the middle of a stream, too (test_inflate_state.py)."""

from __future__ import annotations

import bz2
import io
import lzma
import pickle
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_of

DATA = bytes(range(256)) * 300
KINDS: dict[str, tuple[bytes, Callable[[], Any]]] = {
    "zlib": (zlib.compress(DATA), zlib.decompressobj),
    "raw": (zlib.compress(DATA)[2:-4], lambda: zlib.decompressobj(-15)),
    "bz2": (bz2.compress(DATA), bz2.BZ2Decompressor),
    "xz": (lzma.compress(DATA), lzma.LZMADecompressor),
    "lzma": (lzma.compress(DATA, format=lzma.FORMAT_ALONE), lzma.LZMADecompressor),
    "xz with another check": (lzma.compress(DATA, check=lzma.CHECK_CRC32), lzma.LZMADecompressor),
}


def tells(decompressor: Any) -> list[Any]:
    """What an ended decompressor tells, and does from now on."""
    names = ("eof", "unused_data", "unconsumed_tail", "check", "needs_input")
    told: list[Any] = [getattr(decompressor, name, None) for name in names]
    for call in (
        lambda: decompressor.decompress(b"more"),
        lambda: decompressor.copy().eof,
        lambda: decompressor.flush(),
        lambda: decompressor.copy().eof,
        lambda: decompressor.unused_data,
    ):
        try:
            told.append(call())
        except (AttributeError, EOFError, ValueError, zlib.error) as error:
            told.append((type(error), str(error)))
    return told


@pytest.mark.parametrize("rest", [b"", b"behind it"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_ended_decompressor_is_saved(kind: str, rest: bytes) -> None:
    packed, make = KINDS[kind]
    ended = make()
    assert ended.decompress(packed + rest) == DATA
    assert tells(copy_of(ended)) == tells(ended)


def test_one_whose_memory_has_been_released() -> None:
    ended = zlib.decompressobj()
    assert ended.decompress(zlib.compress(DATA) + b"rest") + ended.flush() == DATA
    assert tells(copy_of(ended)) == tells(ended)


@pytest.mark.parametrize("kind, fed", [(kind, fed) for kind in ("bz2", "xz", "lzma") for fed in (0, 40)])
def test_one_in_the_middle_of_a_stream_is_named_with_a_remedy(kind: str, fed: int) -> None:
    packed, make = KINDS[kind]
    begun = make()
    begun.decompress(packed[:fed])
    with pytest.raises(pickle.PicklingError, match=r"ecompress.* in the middle of its stream .* gzip\.open"):
        copy_of(begun)


def test_the_remedy() -> None:
    with lzma.open(io.BytesIO(lzma.compress(DATA))) as reader:
        assert reader.read(1000) == DATA[:1000]
        assert copy_of(reader).read() == DATA[1000:]

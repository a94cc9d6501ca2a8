"""zlib's compressors in images: what comes out before and behind a restart is one stream with the same content."""

from __future__ import annotations

import copy
import pickle
import types
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.image.stdlib import compressors

RAW, ZLIB, GZIP = -15, 15, 31
TEXT = b"".join(b"line %d of %d\n" % (n, n * n * 7919 % 10007) for n in range(3000))


def saved_and_made(compressor: Any) -> Any:
    make, arguments = compressors.reduce_deflating(None, compressor)
    return make(*pickle.loads(pickle.dumps(arguments)))


@pytest.mark.rotate(2)
@given(
    wbits=st.sampled_from([RAW, -9, -12, ZLIB, 9, GZIP, 25]),
    level=st.integers(0, 9),
    strategy=st.integers(0, 4),
    memory=st.integers(1, 9),
    cuts=st.lists(st.integers(0, len(TEXT)), min_size=1, max_size=5),
    flushes=st.sampled_from(
        [zlib.Z_NO_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_BLOCK]
    ),
)
def test_the_content_is_the_same_wherever_it_was_saved_and_however_often(
    wbits: int, level: int, strategy: int, memory: int, cuts: list[int], flushes: int
) -> None:
    """The reader has no larger window than the compressor was given."""
    compressor: Any = zlib.compressobj(level, zlib.DEFLATED, wbits, memory, strategy)
    given_out, before = b"", 0
    for cut in sorted(cuts):
        given_out += compressor.compress(TEXT[before:cut]) + compressor.flush(flushes)
        compressor, before = saved_and_made(compressor), cut
    given_out += compressor.compress(TEXT[before:]) + compressor.flush()
    reader = zlib.decompressobj(wbits)
    assert reader.decompress(given_out) == TEXT
    assert reader.eof and not reader.unused_data


def test_it_is_left_alone_by_being_saved() -> None:
    both = zlib.compressobj(), zlib.compressobj()
    given_out = [each.compress(TEXT[:5000]) for each in both]
    compressors.reduce_deflating(None, both[0])
    given_out = [
        out + each.compress(TEXT[5000:]) + each.flush() for out, each in zip(given_out, both, strict=True)
    ]
    assert given_out[0] == given_out[1]


@pytest.mark.parametrize("level", [0, 1, 2, 3, 4, 5, 6, 7, 9])
@pytest.mark.parametrize("wbits", [RAW, ZLIB, GZIP])
def test_its_level_is_found(level: int, wbits: int) -> None:
    compressor = zlib.compressobj(level, zlib.DEFLATED, wbits)
    compressor.compress(TEXT)
    assert saved_and_made(compressor).settings == (level, RAW, 8)


def test_a_window_or_strategy_that_is_not_found_goes_on_with_the_smallest_window() -> None:
    for options in ({"wbits": -14}, {"strategy": zlib.Z_FILTERED}, {"memLevel": 3}):
        assert saved_and_made(zlib.compressobj(**options)).settings == (-1, -9, 8)


def test_a_stream_with_a_dictionary_goes_on() -> None:
    compressor: Any = zlib.compressobj(zdict=TEXT[:100])
    given_out = compressor.compress(TEXT[:200])
    compressor = saved_and_made(compressor)
    given_out += compressor.compress(TEXT[200:]) + compressor.flush()
    assert zlib.decompressobj(zdict=TEXT[:100]).decompress(given_out) == TEXT


@pytest.mark.parametrize("times", [1, 2])
def test_one_that_has_ended_stays_so(times: int) -> None:
    compressor: Any = saved_and_made(zlib.compressobj()) if times == 2 else zlib.compressobj()
    compressor.flush()
    compressor = saved_and_made(compressor)
    for use in (compressor.flush, lambda: compressor.compress(b"x")):
        with pytest.raises(zlib.error, match="inconsistent stream state"):
            use()


def test_a_call_that_fails_loses_nothing() -> None:
    compressor: Any = zlib.compressobj()
    given_out = compressor.compress(TEXT)
    compressor = saved_and_made(compressor)
    with pytest.raises(TypeError):
        compressor.compress("text")
    assert zlib.decompress(given_out + compressor.flush()) == TEXT


@pytest.mark.parametrize("copied", [lambda each: each.copy(), copy.copy, copy.deepcopy])
def test_copies_go_their_own_way(copied: Any) -> None:
    compressor: Any = zlib.compressobj()
    given_out = compressor.compress(b"one ")
    compressor = saved_and_made(compressor)
    given_out += compressor.compress(b"two ") + compressor.flush(zlib.Z_SYNC_FLUSH)
    other = copied(compressor)
    assert zlib.decompress(given_out + compressor.compress(b"three") + compressor.flush()) == b"one two three"
    assert zlib.decompress(given_out + other.flush()) == b"one two "


def test_methods_on_a_stack_are_those_of_what_comes_in_its_place() -> None:
    compressor: Any = zlib.compressobj()
    methods = [getattr(type(compressor), name) for name in ("compress", "flush", "copy")]
    found = [
        make(*arguments) for make, arguments in (compressors.reduce_method(None, each) for each in methods)
    ]
    for each in (zlib.compressobj(), saved_and_made(compressor)):
        compress, flush, copied = (types.MethodType(method, each) for method in found)
        given_out = compress(b"text") + flush(zlib.Z_SYNC_FLUSH)
        assert zlib.decompress(given_out + copied().flush()) == b"text"
    assert compressors.reduce_method(None, str.join) is NotImplemented


def test_a_zlib_that_ends_otherwise_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        def copy(self) -> Odd:
            return self

        def compress(self, data: bytes) -> bytes:
            return b""

        def flush(self, mode: int = zlib.Z_FINISH) -> bytes:
            return b"\x03\x00trailer"

    with pytest.raises(pickle.PicklingError, match="cannot be saved with this zlib"):
        compressors.reduce_deflating(None, Odd())

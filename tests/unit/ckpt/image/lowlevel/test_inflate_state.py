"""Decompressors of zlib anywhere in their streams: copies that go on alike, and libraries of which nothing is copied."""

from __future__ import annotations

import pickle
import random
import zlib
from typing import Any

import pytest

from ckpt.image.errors import RestoreError
from ckpt.image.lowlevel import inflate_state
from ckpt.image.lowlevel.inflate_state import make_with_state, state_of
from ckpt.image.stdlib import compressors
from tests.unit.ckpt.image.support import copy_of

STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY]


def text_of(chance: random.Random) -> bytes:
    pieces = [bytes(chance.choices(b"abcdefgh \n", k=chance.choice([1, 5, 300, 20_000]))) for _ in range(5)]
    return b"".join(pieces) + chance.randbytes(2000) + pieces[0] + pieces[-1]


@pytest.mark.parametrize(
    "bits, own", [(15, 15), (31, 31), (-15, -15), (31, 47), (15, 0), (9, 9), (-9, -9), (25, 25)]
)
@pytest.mark.parametrize("seed", range(2))
def test_copies_of_copies_go_on_alike(bits: int, own: int, seed: int) -> None:
    chance = random.Random(f"{seed} {bits} {own}")
    data = text_of(chance)
    compressor = zlib.compressobj(chance.choice([0, 1, 9]), zlib.DEFLATED, bits, 8, chance.choice(STRATEGIES))
    rest = compressor.compress(data) + compressor.flush() + b"behind"
    decompressor, found, length = zlib.decompressobj(own), b"", len(rest)
    while not decompressor.eof:
        size, tail = chance.choice([1, 3, 200, 3000]), decompressor.unconsumed_tail
        found += decompressor.decompress(tail or rest[:size], chance.choice([0, 70]))
        rest = rest if tail else rest[size:]
        if not decompressor.eof and chance.random() < 20 / length * size:
            decompressor = copy_of(decompressor)
    assert found == data
    assert decompressor.unused_data + rest == b"behind"


@pytest.mark.parametrize("bits", [15, -15])
def test_a_dictionary_and_damage(bits: int) -> None:
    words = b"some words that are known to both"
    compressor = zlib.compressobj(zdict=words, wbits=bits)
    packed = compressor.compress(words[5:] + b"and new") + compressor.flush()
    for cut in range(len(packed)):
        decompressor = zlib.decompressobj(bits, words)
        decompressor.decompress(packed[:cut])
        copy = copy_of(decompressor)
        assert copy.decompress(packed[cut:]) == decompressor.decompress(packed[cut:])
        assert copy.eof
    damaged = zlib.decompressobj()
    with pytest.raises(zlib.error):
        damaged.decompress(b"no stream")
    assert state_of(damaged) is None


def begun() -> Any:
    made = zlib.decompressobj()
    made.decompress(zlib.compress(text_of(random.Random(1)))[:5000])
    return made


def test_nothing_is_copied_of_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    original = begun()
    with monkeypatch.context() as patch:
        patch.setattr(zlib, "ZLIB_RUNTIME_VERSION", "1.3.0.zlib-ng")
        assert state_of(original) is None
        with pytest.raises(pickle.PicklingError, match=r"zlib\.decompressobj\) in the middle of its stream"):
            copy_of(original)
    state = state_of(original)
    assert state is not None
    with monkeypatch.context() as patch:
        patch.setattr(zlib, "ZLIB_RUNTIME_VERSION", "1.4")
        with pytest.raises(RestoreError, match="the zlib of this machine"):
            compressors.go_on_with(tuple(state))
    assert make_with_state(state) is not None


@pytest.mark.parametrize("name", ["_MODES", "_OBJECT_BYTES", "_FIELDS_AT"])
def test_nothing_is_copied_of_a_memory_that_is_laid_out_otherwise(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = begun()
    monkeypatch.setattr(inflate_state, name, range(3) if name == "_MODES" else 1 << 62)
    assert state_of(original) is None


def test_what_does_not_go_on_alike_is_no_copy() -> None:
    state = state_of(begun())
    assert state is not None
    assert make_with_state(state._replace(answers=state.answers[1:])) is None

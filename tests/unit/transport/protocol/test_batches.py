"""Bodies of frames: what is joined is split again, nothing else is, and C does what Python says."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.transport.protocol import batches
from ckpt.transport.protocol.batches import VARIED

IMPLEMENTATIONS: list[Any] = [(batches._common_length, batches._join, batches._split)]
if batches.join is not batches._join:
    IMPLEMENTATIONS.append((batches.common_length, batches.join, batches.split))

MESSAGES = st.one_of(
    st.lists(st.binary(max_size=40), min_size=1, max_size=50),
    st.lists(st.binary(min_size=7, max_size=7), min_size=1, max_size=50),
    st.lists(st.just(b""), min_size=1, max_size=5),
)


@pytest.mark.parametrize("way", IMPLEMENTATIONS)
@given(messages=MESSAGES, head=st.binary(max_size=80))
def test_what_is_joined_is_split_again(way: Any, messages: list[bytes], head: bytes) -> None:
    common_length, join, split = way
    length = common_length(messages)
    assert (length == VARIED) == (len({*map(len, messages)}) > 1 or (len(messages) > 1 and not messages[0]))
    frame = join(head, messages, length)
    assert int.from_bytes(frame[:4], "little") == zlib.crc32(frame[4:]) and frame[4:].startswith(head)
    assert split(frame, 4 + len(head), len(messages), length) == messages
    for wrong in (frame + b"x", frame[:-1] if messages[-1] else frame[:2]):
        assert split(wrong, 4 + len(head), len(messages), length) is None


@given(messages=MESSAGES, head=st.binary(max_size=80))
def test_both_ways_join_alike(messages: list[bytes], head: bytes) -> None:
    assert (
        len({join(head, messages, common_length(messages)) for common_length, join, _ in IMPLEMENTATIONS})
        == 1
    )


@given(
    frame=st.one_of(st.binary(max_size=60), st.builds(lambda n: bytes([n, 0, 0, 0]) * 9, st.integers(0, 9))),
    start=st.integers(0, 70),
    count=st.one_of(st.integers(0, 12), st.integers(0, VARIED)),
    length=st.one_of(st.integers(0, 12), st.integers(0, VARIED), st.just(VARIED)),
)
def test_both_ways_split_alike(frame: bytes, start: int, count: int, length: int) -> None:
    found = [split(frame, start, count, length) for _, _, split in IMPLEMENTATIONS]
    assert found == found[:1] * len(IMPLEMENTATIONS)


@pytest.mark.parametrize("way", IMPLEMENTATIONS[1:])
def test_c_wants_messages_of_bytes(way: Any) -> None:
    common_length, join, split = way
    with pytest.raises(TypeError, match="not bytes"):
        common_length([b"a", "b"])
    with pytest.raises(TypeError, match="not bytes"):
        join(b"", [b"a", None], 1)
    with pytest.raises(IndexError):
        common_length([])
    with pytest.raises(TypeError):
        split("x", 0, 1, 1)
    assert split(b"", -1, 0, VARIED) is None

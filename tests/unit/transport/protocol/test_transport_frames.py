"""The wire format, byte for byte, and what happens to bytes that are none."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.transport.errors import FrameError
from ckpt.transport.protocol import frames

IDENT = (0x0123456789ABCDEF, 3, 4, 5, 6)
STAMP = (7, 8, 9)


def test_layout_of_the_header() -> None:
    frame = frames.encode_messages(IDENT, STAMP, 10, [b"abc", b"def"])
    rest = struct.pack("<HBBQIIIIQQQQII", 0xC701, 1, 0, *IDENT, *STAMP, 10, 2, 3) + b"abcdef"
    assert frame == struct.pack("<I", zlib.crc32(rest)) + rest
    assert frames.HEADER_BYTES == 72


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30))
def test_messages_of_any_lengths_come_back(messages: list[bytes]) -> None:
    frame = frames.encode_messages(IDENT, STAMP, 1 << 60, messages)
    header, head = frames.open_frame([frame])
    assert header[2] == frames.MESSAGES
    assert header[4:13] == (*IDENT, *STAMP, 1 << 60)
    assert frames.decode_messages(head, header[13], header[14]) == messages


@pytest.mark.parametrize("messages", [[b""], [b"", b""], [b"x" * 8] * 1000, [b"", b"x"], [b"x" * 100_000]])
def test_messages_at_the_edges(messages: list[bytes]) -> None:
    header, head = frames.open_frame([frames.encode_messages(IDENT, STAMP, 0, messages)])
    decoded = frames.decode_messages(head, header[13], header[14])
    assert decoded == messages
    assert all(type(message) is bytes for message in decoded)


@pytest.mark.parametrize("flags", [0, frames.CHECKED])
def test_fragment(flags: int) -> None:
    big = 1 << 40
    parts = frames.encode_fragment(IDENT, STAMP, 11, big, 5, b"inline", memoryview(b"payload"), flags)
    header, head = frames.open_frame(parts)
    total, offset, inline, payload = frames.decode_fragment(parts, head, *header[3:4], *header[13:])
    assert (total, offset, bytes(inline), bytes(payload)) == (big, 5, b"inline", b"payload")


def test_payload_damage_is_seen_when_checked() -> None:
    head, _ = frames.encode_fragment(IDENT, STAMP, 11, 100, 0, b"", b"payload", frames.CHECKED)
    header, _ = frames.open_frame([head, b"paYload"])
    with pytest.raises(FrameError, match="checksum"):
        frames.decode_fragment([head, b"paYload"], head, header[3], header[13], header[14])


@pytest.mark.parametrize("payload", [b"payloa", b"payload!", b""])
def test_payload_of_another_length_is_no_fragment(payload: bytes) -> None:
    head, _ = frames.encode_fragment(IDENT, STAMP, 11, 100, 0, b"", b"payload")
    header, _ = frames.open_frame([head, payload])
    with pytest.raises(FrameError, match="length"):
        frames.decode_fragment([head, payload], head, header[3], header[13], header[14])


def test_fragment_beyond_its_message_is_none() -> None:
    parts = frames.encode_fragment(IDENT, STAMP, 11, 10, 4, b"", b"payload")
    header, head = frames.open_frame(parts)
    with pytest.raises(FrameError, match="length"):
        frames.decode_fragment(parts, head, header[3], header[13], header[14])


def test_ack_with_hints() -> None:
    ranges, pieces = [(5, 9), (12, 13)], [(14, 0, 1 << 33)]
    header, head = frames.open_frame([frames.encode_ack(IDENT, STAMP, ranges, pieces)])
    assert header[2] == frames.ACK
    assert frames.decode_hints(head, header[13], header[14]) == (ranges, pieces)


def test_probe_asks_and_nack_carries_the_epoch_alone() -> None:
    probe = frames.open_frame([frames.encode_probe(IDENT, STAMP)])[0]
    assert probe[2:4] == (frames.PROBE, frames.ANSWER)
    nack = frames.open_frame([frames.encode_nack(IDENT, 7)])[0]
    assert nack[2] == frames.NACK
    assert nack[9:] == (7, 0, 0, 0, 0, 0)


@given(st.data())
def test_any_flipped_bit_is_seen(data: st.DataObject) -> None:
    frame = bytearray(frames.encode_messages(IDENT, STAMP, 0, [b"12345678", b"abc"]))
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameError):
        frames.open_frame([frame])


@given(st.integers(0, 90))
def test_any_truncation_is_seen(length: int) -> None:
    frame = frames.encode_messages(IDENT, STAMP, 0, [b"12345678", b"abcdefghijk"])
    assert len(frame) > 90
    with pytest.raises(FrameError):
        frames.open_frame([frame[:length]])


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_noise_is_no_frame(parts: list[bytes]) -> None:
    with pytest.raises(FrameError):
        frames.open_frame(parts)


def test_number_of_parts_follows_from_the_kind() -> None:
    frame = frames.encode_messages(IDENT, STAMP, 0, [b"x"])
    head, payload = frames.encode_fragment(IDENT, STAMP, 0, 9, 0, b"", b"p")
    for parts in ([frame, b""], [head], [head, payload, b""], []):
        with pytest.raises(FrameError):
            frames.open_frame(parts)


@pytest.mark.parametrize(
    ("count", "length"), [(3, 8), (1, 8), (2, 7), (1 << 30, frames.VARIED), (2, frames.VARIED)]
)
def test_lying_counts_are_seen(count: int, length: int) -> None:
    _, head = frames.open_frame([frames.encode_messages(IDENT, STAMP, 0, [b"12345678", b"abcdefgh"])])
    with pytest.raises(FrameError, match="length"):
        frames.decode_messages(head, count, length)


def test_lying_hints_are_seen() -> None:
    _, head = frames.open_frame([frames.encode_ack(IDENT, STAMP, [(1, 2)])])
    for count, length in ((2, 0), (0, 0), (1, 1), (frames.MAX_HINTS + 1, 0)):
        with pytest.raises(FrameError, match="length"):
            frames.decode_hints(head, count, length)


def test_a_head_that_claims_four_thousand_million_empty_messages_costs_nothing() -> None:
    with pytest.raises(FrameError, match="length"):
        frames.decode_messages(bytes(frames.HEADER_BYTES), 0xFFFFFFFF, 0)


def test_empty_messages_travel_with_a_table() -> None:
    frame = frames.encode_messages(IDENT, STAMP, 1, [b""] * 5)
    header, head = frames.open_frame((frame,))
    assert frames.decode_messages(head, header[13], header[14]) == [b""] * 5

"""Wire frames: their layout, byte for byte, and functions that encode and decode them. No state, no decisions.

A frame has one part, or two if it is a FRAGMENT of a large message: a head, and a payload that is sent and received
without a copy in this module. Every head starts with the same 72 bytes, little-endian:

    crc32 of the rest of the head      u32
    magic (protocol and version)       u16
    kind, flags                        u8 u8
    job                                u64
    source rank, target rank           u32 u32
    source, target incarnation         u32 u32
    epoch                              u64   stamp: the sender's epoch when the frame was built
    ack                                u64   cumulative: messages below are delivered, and the image of this
                                             frame's sender captures them
    window                             u64   charge that the sender of this frame accepts beyond `ack`
    sequence                           u64   of the first message
    count, length                      u32 u32   meaning by kind

    MESSAGES  `count` messages from `sequence` on. All are `length` bytes long (several: not 0), or `length` is
              VARIED and a table of count u32 lengths comes first.
    FRAGMENT  a piece of message `sequence`: total u64, offset u64, crc of the payload part u32 (0 without the
              flag), then `count` bytes of inline data; the second part has `length` bytes.
    ACK       hints: `count` pairs u64 u64 (sequence ranges arrived beyond ack), then `length` triples u64 u64
              u64 (sequence, start, stop: pieces of a message that arrived). A hint frees no message at the
              receiver of the ACK, unlike `ack`.
    PROBE     no body; asks for an ACK.
    NACK      no body; the sender is frozen. Its ack and window are zero and mean nothing.

Flags: ANSWER asks for an ack at once, CHECKED says that the payload's crc is given.
The payload part may be `Remote`: a wire has brought the head, and where the payload is.
The checksum finds accidental damage, not forgery: authentication is the wire's task.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain

from ckpt.transport.errors import FrameError
from ckpt.transport.integers import END_OF_NUMBERS
from ckpt.transport.protocol import batches
from ckpt.transport.protocol.batches import VARIED as VARIED
from ckpt.transport.protocol.batches import crc32

Buffer = bytes | bytearray | memoryview
Ident = tuple[int, int, int, int, int]
"""job, source rank, target rank, source incarnation, target incarnation"""
Stamp = tuple[int, int, int]
"""epoch, ack, window: read together at the moment the frame is built"""
Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""crc, magic, kind, flags, job, source, target, source and target incarnation, epoch, ack, window, sequence,
count, length"""

MAGIC = 0xC701
MESSAGES, FRAGMENT, ACK, PROBE, NACK = 1, 2, 3, 4, 5
KIND_NAMES = {MESSAGES: "messages", FRAGMENT: "fragment", ACK: "ack", PROBE: "probe", NACK: "nack"}
ANSWER, CHECKED = 1, 2
MAX_HINTS = 64

_HEAD = struct.Struct("<IHBBQIIIIQQQQII")
_REST = struct.Struct("<HBBQIIIIQQQQII")
_PIECE = struct.Struct("<QQI")
HEADER_BYTES = _HEAD.size
BODY = HEADER_BYTES
_PIECE_END = HEADER_BYTES + _PIECE.size

_pack_rest = _REST.pack
_unpack_head = _HEAD.unpack_from


def _seal(rest: bytes) -> bytes:
    return crc32(rest).to_bytes(4, "little") + rest


def encode_messages(
    ident: Ident, stamp: Stamp, sequence: int, messages: Sequence[bytes], flags: int = 0
) -> bytes:
    """One frame with these messages (at least one)."""
    count = len(messages)
    if count == 1:
        data = messages[0]
        head = _pack_rest(MAGIC, MESSAGES, flags, *ident, *stamp, sequence, 1, len(data)) + data
        return crc32(head).to_bytes(4, "little") + head
    length = batches.common_length(messages)
    head = _pack_rest(MAGIC, MESSAGES, flags, *ident, *stamp, sequence, count, length)
    return batches.join(head, messages, length)


class Remote:
    """A payload of `nbytes` bytes that is in the memory of its sender, who keeps it unchanged until it is acknowledged.
    `check`: its crc32, or None."""

    __slots__ = ("check", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.check: int | None = None

    def __len__(self) -> int:
        return self.nbytes

    def read(self, into: memoryview) -> bool:
        """Copy it to `into`, which is as long. False: it cannot be read, and `into` holds anything."""
        raise NotImplementedError

    def __bytes__(self) -> bytes:
        """A copy. Raises OSError if it cannot be read."""
        copy = bytearray(self.nbytes)
        if not self.read(memoryview(copy)):
            raise OSError("the payload cannot be read")
        return bytes(copy)

    def fill(self, into: memoryview) -> bool:
        """The same, and compare the checksum."""
        return self.read(into) and (self.check is None or crc32(into) == self.check)


def encode_fragment(
    ident: Ident,
    stamp: Stamp,
    sequence: int,
    total: int,
    offset: int,
    inline: Buffer,
    payload: Buffer,
    flags: int = 0,
) -> tuple[bytes, Buffer]:
    """Head and payload part of one piece: bytes [offset, offset + len(inline) + len(payload)) of a message of
    `total`."""
    check = crc32(payload) if flags & CHECKED else 0
    head = _pack_rest(MAGIC, FRAGMENT, flags, *ident, *stamp, sequence, len(inline), len(payload))
    return _seal(b"".join((head, _PIECE.pack(total, offset, check), inline))), payload


def encode_ack(
    ident: Ident,
    stamp: Stamp,
    ranges: Sequence[tuple[int, int]] = (),
    pieces: Sequence[tuple[int, int, int]] = (),
    flags: int = 0,
) -> bytes:
    """An ACK; `ranges` and `pieces` are hints (at most MAX_HINTS of each)."""
    head = _pack_rest(MAGIC, ACK, flags, *ident, *stamp, 0, len(ranges), len(pieces))
    if not ranges and not pieces:
        return _seal(head)
    numbers = [*chain.from_iterable(ranges), *chain.from_iterable(pieces)]
    return _seal(head + struct.pack(f"<{len(numbers)}Q", *numbers))


def encode_probe(ident: Ident, stamp: Stamp) -> bytes:
    """A PROBE."""
    return _seal(_pack_rest(MAGIC, PROBE, ANSWER, *ident, *stamp, 0, 0, 0))


def encode_nack(ident: Ident, epoch: int) -> bytes:
    """A NACK, which says that this port is frozen, in `epoch`."""
    return _seal(_pack_rest(MAGIC, NACK, 0, *ident, epoch, 0, 0, 0, 0, 0))


def open_frame(parts: Sequence[Buffer]) -> tuple[Header, bytes]:
    """Check number of parts, checksum, magic and kind of a frame; return its header and head bytes. Raises FrameError."""
    if not 1 <= len(parts) <= 2:
        raise FrameError("parts")
    head = parts[0]
    if head.__class__ is not bytes:
        head = bytes(head)
    if len(head) < HEADER_BYTES:
        raise FrameError("truncated")
    header: Header = _unpack_head(head)
    if header[1] != MAGIC:
        raise FrameError("magic")
    # Copying a short slice costs less than making a view; copying a long one costs more.
    if header[0] != crc32(head[4:] if len(head) < 1024 else memoryview(head)[4:]):
        raise FrameError("checksum")
    if max(header[9:13]) >= END_OF_NUMBERS:
        raise FrameError("number")
    if header[2] not in KIND_NAMES or (len(parts) == 2) != (header[2] == FRAGMENT):
        raise FrameError("kind")
    return header, head


def decode_messages(head: bytes, count: int, length: int) -> list[bytes]:
    """The messages of a MESSAGES frame. Raises FrameError."""
    if count == 1 and length == len(head) - BODY:
        return [head[BODY:]]
    # Without a table of lengths, a short frame could claim any number of empty messages: they must come with a table.
    messages = batches.split(head, BODY, count, length)
    if messages is None:
        raise FrameError("length")
    return messages


def decode_fragment(
    parts: Sequence[Buffer], head: bytes, flags: int, count: int, length: int
) -> tuple[int, int, memoryview, memoryview | Remote]:
    """total, offset, inline bytes and payload of a FRAGMENT. Raises FrameError."""
    if len(head) != _PIECE_END + count:
        raise FrameError("length")
    total, offset, check = _PIECE.unpack_from(head, BODY)
    source = parts[1]
    if isinstance(source, Remote):
        if len(source) != length or offset + count + length > total:
            raise FrameError("length")
        source.check = check if flags & CHECKED else None
        return total, offset, memoryview(head)[_PIECE_END:], source
    payload = memoryview(source)
    if payload.format != "B" or payload.ndim != 1:
        payload = payload.cast("B")
    if len(payload) != length or offset + count + length > total:
        raise FrameError("length")
    if flags & CHECKED and crc32(payload) != check:
        raise FrameError("checksum")
    return total, offset, memoryview(head)[_PIECE_END:], payload


def decode_hints(
    head: bytes, count: int, length: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """The hints of an ACK: ranges of sequence numbers, and pieces (sequence, start, stop). Raises FrameError."""
    if count > MAX_HINTS or length > MAX_HINTS or len(head) != BODY + 16 * count + 24 * length:
        raise FrameError("length")
    ranges = list(struct.iter_unpack("<QQ", head[BODY : BODY + 16 * count]))
    pieces = list(struct.iter_unpack("<QQQ", head[BODY + 16 * count :]))
    return ranges, pieces

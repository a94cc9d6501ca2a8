"""How one block is stored: raw, zstd, or byte-shuffled and then zstd; decided for every block from a sample.

Shuffling puts the first bytes of all items together, then all second bytes, and so on: neighbouring numbers
share sign, exponent and high mantissa bytes, which zstd finds only then. It is tried where the block comes
from a numeric array (`item` > 1). What does not shrink by a tenth is stored raw: it is written faster than
it would be compressed, and read faster too.

The level is fixed and fast (minus 1): at 4 MiB blocks it gives nearly level 1's ratio at several times its
speed, so that the disk and not the compressor sets the pace.

Shuffling and its undoing cost about as much as the compression, and a number whose mantissa is noise gives only
its sign and exponent for it, an eighth: so it has to save more than plain zstd before it pays (`WORTH_SHUFFLED`).
The work itself is `_shuffle.c`'s.

Pure: bytes in, bytes out. A `Codec` is not shared between threads: it holds a compressor's context, and
memory that every block uses again (new memory for each would cost more than the work done in it: page
faults, and a lock that all threads of a process share).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import zstandard

from ckpt.store.errors import BlockDamaged
from ckpt.store.images._shuffle import shuffle, unshuffle

if TYPE_CHECKING:
    from ckpt.store.disk.fsio import Buffer

__all__ = ["RAW", "SHUFFLED", "ZSTD", "Codec", "Packed"]

RAW: Final = "raw"
ZSTD: Final = "zstd"
SHUFFLED: Final = "shuffle"
"""Names in the manifest; `shuffle` is byte-shuffle followed by zstd."""

LEVEL: Final = -1
SAMPLE_BYTES: Final = 8192
SAMPLES: Final = 3
WORTH: Final = 0.9
"""Compress when the sample shrinks to this part or less."""
WORTH_SHUFFLED: Final = 0.8
"""Shuffle and compress when that shrinks the sample to this part or less."""

_SMALLEST: Final = 128
_ITEM_LIMIT: Final = 64


class Packed(NamedTuple):
    """A block as it will be stored; `item` is 1 unless the codec is `shuffle`."""

    codec: str
    item: int
    data: Buffer


class Scratch:
    """Memory that is used again and again."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray())

    def take(self, length: int) -> memoryview:
        """`length` bytes of any content, valid until the next `take`."""
        if length > len(self._memory):
            self._memory = memoryview(bytearray(length))
        return self._memory[:length]


class Codec:
    """Packs and unpacks blocks; one per thread."""

    def __init__(self) -> None:
        self._planes = Scratch()
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False)
        self._decompressor = zstandard.ZstdDecompressor()

    def pack(self, block: memoryview, item: int = 1) -> Packed:
        """Choose a codec for `block` (flat, of bytes) and apply it. `item`: bytes of an array item."""
        length = len(block)
        if length < _SMALLEST:
            return Packed(RAW, 1, block)
        if not 1 < item <= _ITEM_LIMIT or length % item:
            item = 1
        name = self._choose(block, item)
        if name == RAW:
            return Packed(RAW, 1, block)
        if name == ZSTD:
            data = self._compressor.compress(block)
            return Packed(ZSTD, 1, data) if len(data) <= length * WORTH else Packed(RAW, 1, block)
        planes = self._planes.take(length)
        shuffle(block, item, planes)
        data = self._compressor.compress(planes)
        return Packed(SHUFFLED, item, data) if len(data) <= length * WORTH_SHUFFLED else Packed(RAW, 1, block)

    def _choose(self, block: memoryview, item: int) -> str:
        sample = _sample(block, item)
        plain = len(self._compressor.compress(sample))
        if item > 1:
            planes = self._planes.take(len(sample))
            shuffle(sample, item, planes)
            shuffled = len(self._compressor.compress(planes))
            if shuffled < plain * WORTH and shuffled <= len(sample) * WORTH_SHUFFLED:
                return SHUFFLED
        return ZSTD if plain <= len(sample) * WORTH else RAW

    def unpack(self, codec: str, item: int, stored: Buffer, target: memoryview) -> None:
        """Undo `pack` into `target`, which has the plain length. Only ever called with verified bytes.

        Raises:
            BlockDamaged: the bytes do not give that length, or the codec is unknown (a bug in their writer).
        """
        if codec == RAW:
            if len(stored) != len(target):
                raise BlockDamaged("a raw block has another length than the manifest says")
            target[:] = memoryview(stored)
        elif codec == ZSTD:
            self._decompress(stored, target)
        elif codec == SHUFFLED and item > 0 and len(target) % item == 0:
            planes = self._planes.take(len(target))
            self._decompress(stored, planes)
            unshuffle(planes, item, target)
        else:
            raise BlockDamaged(f"a block has the unknown codec {codec!r}, item size {item}")

    def _decompress(self, stored: Buffer, target: memoryview) -> None:
        filled = 0
        try:
            with self._decompressor.stream_reader(stored, read_across_frames=False) as reader:
                while filled < len(target):
                    got = reader.readinto(target[filled:])
                    if got <= 0:
                        break
                    filled += got
                more = reader.read(1) if filled == len(target) else b""
        except zstandard.ZstdError as error:
            raise BlockDamaged(f"a block does not decompress ({error})") from error
        if filled != len(target) or more:
            raise BlockDamaged("a block decompresses to another length than the manifest says")


def _sample(block: memoryview, item: int) -> bytes:
    """A few pieces from all over the block, each starting and ending at an item."""
    length = len(block)
    piece = SAMPLE_BYTES - SAMPLE_BYTES % item
    if length <= SAMPLES * piece:
        return bytes(block)
    stride = (length - piece) // (SAMPLES - 1)
    stride -= stride % item
    return b"".join(bytes(block[index * stride : index * stride + piece]) for index in range(SAMPLES))

"""The codec of one block: raw, zstd, or byte-shuffle and then zstd; chosen for every block from a sample.

Byte-shuffle (as in HDF5 and Blosc) puts the first bytes of all array items together, then all second bytes, and so on:
neighbouring numbers share sign, exponent and high mantissa bytes, and zstd finds this redundancy only after the shuffle. It
is tried where the block comes from an array (`item` > 1). A block that does not shrink by a tenth is stored raw: to write
and read it raw is faster than to compress and decompress it.

The zstd level is fixed and fast (minus 1): for 4 MiB blocks it gives nearly the ratio of level 1 at several times its
speed, so that the disk and not the compressor is the limit.

Shuffle and unshuffle cost about as much time as the compression, and in numbers whose mantissa is noise only sign and
exponent compress, about an eighth of the bytes: so shuffle must save more than plain zstd to be used (`WORTH_SHUFFLED`).
Shuffle and unshuffle are written in C (`_shuffle.c`).

Pure: bytes in, bytes out. Threads do not share a `Codec`: it holds the contexts of zstd, and memory that is used again for
every block (new memory for each block would cost more than the work in it: page faults, and a lock that all threads of a
process share).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import zstandard

from ckpt.store.errors import BlockDamaged
from ckpt.store.images._shuffle import shuffle, unshuffle
from ckpt.transport.records import NamedTuple

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
"""Compress if the sample, and then the block, shrinks to this fraction or less."""
WORTH_SHUFFLED: Final = 0.8
"""Shuffle and compress if the sample, and then the block, shrinks to this fraction or less."""

_SMALLEST: Final = 128
_ITEM_LIMIT: Final = 64


class Packed(NamedTuple):
    """A block as it will be stored. `item`: bytes of an array item; 1 unless the codec is `shuffle`."""

    codec: str
    item: int
    data: Buffer


class Scratch:
    """Memory that is used again for every block."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray())

    def take(self, length: int) -> memoryview:
        """Return `length` bytes of arbitrary content, valid until the next `take`."""
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
        """Choose a codec for `block` (one-dimensional, of bytes) and apply it. `item`: bytes of an array item.

        The result may refer to `block` itself (raw).
        """
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
        """Unpack `stored` into `target`, whose length is that of the plain block. The caller has verified the digest of
        `stored` before.

        Raises:
            BlockDamaged: the plain bytes have another length, or the codec is unknown (a bug in the writer).
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
    """Return up to SAMPLES pieces, spread over the block, each starting and ending at an item's boundary."""
    length = len(block)
    piece = SAMPLE_BYTES - SAMPLE_BYTES % item
    if length <= SAMPLES * piece:
        return bytes(block)
    stride = (length - piece) // (SAMPLES - 1)
    stride -= stride % item
    return b"".join(bytes(block[index * stride : index * stride + piece]) for index in range(SAMPLES))

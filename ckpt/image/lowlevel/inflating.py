"""Raw deflate streams that are being decompressed, as connections with compressed messages do (permessage-deflate of
WebSocket): a ``zlib.decompressobj(-zlib.MAX_WBITS)`` between two blocks.

Between two blocks, and at the beginning of a byte, a decompressor has no state but its window: the last 32 KiB of what it
has returned. A message of such a connection ends there (``Z_SYNC_FLUSH``). A new decompressor with that window as its
dictionary goes on alike.

How: copies of the decompressor are asked. Is it between two blocks, at the beginning of a byte? Then a copy takes a stored
block, and another one a block of codes, and both return what is in them; from any other place one of the two is other bits.
Is the stream raw? Then a last block ends it, and no checksum is waited for. What is in the window? A copy returns it: a
block that refers to data in a distance of *n* repeats the last *n* bytes; where there are not so many, that is an error.

Not here: streams with a checksum (zlib, gzip), whose value no decompressor tells; those in the middle of a block.
"""

from __future__ import annotations

import zlib
from typing import Any

__all__ = ["make_inflating", "window_of"]

_WINDOW = 1 << 15
_PROBE = pow(3, 150).to_bytes(30, "little")
_LONGEST, _SHORTEST = 258, 3
_CODES = {_SHORTEST: (0b0000001, 7), _LONGEST: (0b11000101, 8)}
"""RFC 1951, 3.2.6: the fixed codes of two lengths of a repetition, and the number of their bits."""
_END_OF_BLOCK = (0, 7)
_LAST_BLOCK = b"\x03\x00"


def window_of(decompressor: Any) -> bytes | None:
    """What the decompressor of a raw stream must know of what it has returned; None: it is in the middle of a block, or the
    stream is not raw. The decompressor is left as it is."""
    if decompressor.unconsumed_tail or not all(
        _returned(decompressor, block, len(_PROBE)) == _PROBE for block in (_stored(_PROBE), _coded(_PROBE))
    ):
        return None
    if not _ends(decompressor):
        return None
    size, too_large = 0, _WINDOW + 1
    while too_large - size > 1:
        middle = (size + too_large) // 2
        if _returned(decompressor, _repeating(middle, [_SHORTEST]), _SHORTEST) is None:
            too_large = middle
        else:
            size = middle
    lengths = [_LONGEST] * (size // _LONGEST) + [_SHORTEST] * (-(-(size % _LONGEST) // _SHORTEST))
    return (_returned(decompressor, _repeating(size, lengths), sum(lengths)) or b"")[:size] if size else b""


def make_inflating(window: bytes) -> Any:
    return zlib.decompressobj(-zlib.MAX_WBITS, window) if window else zlib.decompressobj(-zlib.MAX_WBITS)


def _ends(decompressor: Any) -> bool:
    """Does the stream end with its last block? Others have a checksum."""
    last = decompressor.copy()
    try:
        return not last.decompress(_LAST_BLOCK) and last.eof and not last.unused_data
    except zlib.error:
        return False


def _returned(decompressor: Any, block: bytes, size: int) -> bytes | None:
    """What a copy returns for a block, if it is of this size."""
    try:
        found = decompressor.copy().decompress(block)
    except zlib.error:
        return None
    return found if len(found) == size else None


def _stored(data: bytes) -> bytes:
    return b"\x00" + len(data).to_bytes(2, "little") + (len(data) ^ 0xFFFF).to_bytes(2, "little") + data


def _coded(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zlib.Z_FIXED)
    return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)


def _repeating(distance: int, lengths: list[int]) -> bytes:
    """A block of fixed codes that repeats, with each of its codes, so many bytes of what was returned in this distance."""
    bits = [0, 1, 0]  # not the last block; fixed codes
    for length in lengths:
        bits += [*_huffman(*_CODES[length]), *_distance(distance)]
    bits += _huffman(*_END_OF_BLOCK)
    return sum(bit << place for place, bit in enumerate(bits)).to_bytes(-(-len(bits) // 8), "little")


def _huffman(code: int, count: int) -> list[int]:
    """A code, which is packed beginning with its highest bit."""
    return [code >> place & 1 for place in reversed(range(count))]


def _distance(distance: int) -> list[int]:
    """The code of a distance, and its further bits, which begin with the lowest one."""
    rest = distance - 1
    more = max(rest.bit_length() - 2, 0)
    symbol = rest if rest < 4 else 2 * more + 2 + (rest >> more & 1)
    return [*_huffman(symbol, 5), *(rest >> place & 1 for place in range(more))]

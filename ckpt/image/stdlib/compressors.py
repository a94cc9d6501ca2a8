"""zlib: compressors in use, for example of a ``gzip.GzipFile`` or of a member of a zip file that is being written.

A compressor holds data that it has taken in and has not returned yet, and that data cannot be read. So the image holds what
the compressor would return if it were flushed now. After a restart a stand-in (a Python object in the place of the
compressor) returns that first, with the next call, and goes on compressing. Nothing is written to the program's file for an
image, nor at a restart.

How: a copy of the compressor is flushed fully. Such a flush ends at a byte, and nothing behind it refers to data before it,
so a raw deflate stream may follow. The end of the copy's output tells whether the whole has a header and a trailer (zlib,
gzip), and the checksum so far. Level and window are found by a trial: the copy must compress a text as a new compressor of
that level does. If no level fits (other strategies, small windows), the stand-in goes on with the smallest window, which
every reader accepts.

**The content is the same, the compressed bytes are not**: they are as if the program had called ``flush()``.

Decompressors that the program uses itself (zlib, bz2, lzma): one that has met the end of its stream is saved, since what
follows the stream is all that it still tells. One of zlib is saved anywhere in its stream
(:mod:`ckpt.image.lowlevel.inflate_state`), with a zlib of another make between two blocks of a raw stream
(:mod:`ckpt.image.lowlevel.inflating`). Any other one has a window and tables that its library gives to nobody; it is refused
by name.

Not here: compressors of bz2 and lzma (:mod:`ckpt.image.stdlib.compressed_files`), files that are being read
(:mod:`ckpt.image.files.reopen`).
"""

from __future__ import annotations

import zlib
from functools import cache
from pickle import PicklingError
from types import MethodDescriptorType
from typing import Any

from ckpt.compat.accelerators import BZ2, LZMA
from ckpt.image.errors import RestoreError
from ckpt.image.lowlevel import inflate_state, inflating

__all__ = [
    "Deflating",
    "go_on_with",
    "make_ended",
    "make_finished",
    "reduce_decompressor",
    "reduce_deflating",
    "reduce_method",
]

_SMALLEST = (-1, -9, 8)  # level of zlib's choice, window of 512 bytes
_PROBE_PARTS = (600, 6000, 6000, 17000)
_COMPRESSORS = {("zlib", "Compress"), (BZ2, "BZ2Compressor"), (LZMA, "LZMACompressor")}

Settings = tuple[int, int, int]
"""Level, window (as ``wbits``) and ``memLevel`` of a raw deflate stream."""


class Deflating:
    """Stands for the result of ``zlib.compressobj``, and goes on with a stream that another compressor has begun.

    ``pending``: output that the next call returns first; ``kind``: "" (raw), "zlib" or "gzip"; ``checksum`` and ``size``: of
    the data so far. An image may be taken in the middle of a method: then the output to be returned is in the frame of the
    method, and not here.
    """

    __slots__ = ("checksum", "compressor", "kind", "pending", "settings", "size")

    def __init__(
        self, pending: bytes, settings: Settings, kind: str, checksum: int, size: int, is_over: bool = False
    ) -> None:
        level, window, memory = settings
        self.compressor = zlib.compressobj(level, zlib.DEFLATED, window, memory)
        self.pending, self.settings = pending, settings
        self.kind, self.checksum, self.size = kind, checksum, size
        if is_over:
            self.compressor.flush()

    def compress(self, data: Any, /) -> bytes:
        pending, self.pending = self.pending, b""
        try:
            made = pending + self.compressor.compress(data)
        except BaseException:
            self.pending = pending
            raise
        if self.kind:
            self.checksum = (zlib.adler32 if self.kind == "zlib" else zlib.crc32)(data, self.checksum)
            self.size += memoryview(data).nbytes
        return made

    def flush(self, mode: int = zlib.Z_FINISH, /) -> bytes:
        if mode == zlib.Z_NO_FLUSH:
            return b""
        pending, self.pending = self.pending, b""
        try:
            made = pending + self.compressor.flush(mode)
        except BaseException:
            self.pending = pending
            raise
        return made + self.trailer() if mode == zlib.Z_FINISH else made

    def trailer(self) -> bytes:
        """The bytes at the end of a zlib stream (RFC 1950) or a gzip file (RFC 1952); none for a raw stream."""
        if self.kind == "gzip":
            return self.checksum.to_bytes(4, "little") + (self.size & 0xFFFFFFFF).to_bytes(4, "little")
        return self.checksum.to_bytes(4, "big") if self.kind else b""

    def copy(self) -> Deflating:
        compressor = self.compressor.copy()
        made = Deflating(self.pending, self.settings, self.kind, self.checksum, self.size)
        made.compressor = compressor
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Deflating:
        return self.copy()


def reduce_deflating(pickler: Any, obj: Any) -> Any:
    """The reducer for zlib's compressors, and for their stand-ins after a restart. Raises PicklingError."""
    is_stand_in = type(obj) is Deflating
    try:
        flushed = (obj.compressor if is_stand_in else obj).copy()
    except ValueError:  # its stream has been ended
        if is_stand_in:
            return Deflating, (obj.pending, obj.settings, obj.kind, obj.checksum, obj.size, True)
        return make_finished, ()
    output = flushed.flush(zlib.Z_FULL_FLUSH)
    if is_stand_in:
        return Deflating, (obj.pending + output, obj.settings, obj.kind, obj.checksum, obj.size)
    settings = _settings(flushed.copy())
    end = zlib.decompressobj(-zlib.MAX_WBITS)
    if end.decompress(flushed.flush()) or not end.eof or len(end.unused_data) not in (0, 4, 8):
        raise PicklingError("data being compressed (zlib.compressobj) cannot be saved with this zlib")
    trailer = end.unused_data
    if not trailer:
        return Deflating, (output, settings, "", 0, 0)
    if len(trailer) == 4:
        return Deflating, (output, settings, "zlib", int.from_bytes(trailer, "big"), 0)
    checksum, size = int.from_bytes(trailer[:4], "little"), int.from_bytes(trailer[4:], "little")
    return Deflating, (output, settings, "gzip", checksum, size)


def reduce_method(pickler: Any, method: MethodDescriptorType) -> Any:
    """The reducer for a method descriptor of a compressor, which is on an evaluation stack when it is about to be called. It
    is saved by its name, because a stand-in will be in the compressor's place.
    """
    owner = method.__objclass__
    if (owner.__module__, owner.__name__) in _COMPRESSORS:
        return getattr, (_Methods, method.__name__)
    return NotImplemented


class _Methods:
    """The methods of compressors as functions that call the method of the compressor they get, of whichever type."""

    @staticmethod
    def compress(compressor: Any, data: Any, /) -> Any:
        return compressor.compress(data)

    @staticmethod
    def flush(compressor: Any, /, *mode: Any) -> Any:
        return compressor.flush(*mode)

    @staticmethod
    def copy(compressor: Any, /) -> Any:
        return compressor.copy()


def _settings(flushed: Any) -> Settings:
    """The settings of a compressor that has just been flushed fully. The compressor cannot be used afterwards."""
    output = flushed.compress(_probe()) + flushed.flush(zlib.Z_FULL_FLUSH)
    for memory in (zlib.DEF_MEM_LEVEL, 9):
        for level in range(9, -1, -1):
            settings = (level, -zlib.MAX_WBITS, memory)
            compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, memory)
            if compressor.compress(_probe()) + compressor.flush(zlib.Z_FULL_FLUSH) == output:
                return settings
    return _SMALLEST


@cache
def _probe() -> bytes:
    """A text that each level compresses to another result. It repeats its beginning at such a distance that only the largest
    window finds the repetition.
    """
    noise, bits, octal, distance = _PROBE_PARTS
    head: bytes = pow(3, 5 * noise).to_bytes(noise, "little")
    text = bin(pow(3, bits)).encode()[:bits] + oct(pow(5, 2 * octal)).encode()[:octal]
    return (head + text).ljust(distance + noise, b" ") + head


# ---------------------------------------------------------------------- called while loading


def make_finished() -> Any:
    """A compressor whose stream has been finished: all its methods raise."""
    made = zlib.compressobj()
    made.flush()
    return made


# ---------------------------------------------------------------------------------- decompressors by themselves

_NAMES = {BZ2: "bz2.BZ2Decompressor", LZMA: "lzma.LZMADecompressor"}


def reduce_decompressor(pickler: Any, obj: Any) -> Any:
    """The reducer for decompressors. Raises PicklingError in the middle of a stream."""
    module = type(obj).__module__
    if not obj.eof and module == "zlib":
        if (state := inflate_state.state_of(obj)) is not None:
            return go_on_with, (tuple(state),)
        if (window := inflating.window_of(obj)) is not None:
            return inflating.make_inflating, (window,)
    if not obj.eof:
        name = _NAMES.get(module, "zlib.decompressobj")
        raise PicklingError(
            f"a decompressor ({name}) in the middle of its stream cannot be saved. Read from "
            "gzip.open, bz2.open or lzma.open, also over an io.BytesIO, which goes on after a restart; or delete the "
            "decompressor before a checkpoint"
        )
    if module == LZMA:
        return make_ended, (module, obj.unused_data, obj.check)
    return make_ended, (module, obj.unused_data, _is_released(obj) if module == "zlib" else False)


def _is_released(obj: Any) -> bool:
    """Has `flush` released the memory of an ended decompressor of zlib?"""
    try:
        obj.copy()
    except ValueError:
        return True
    return False


def go_on_with(parts: tuple[Any, ...]) -> Any:
    """A decompressor of zlib in the middle of its stream. Raises RestoreError."""
    made = inflate_state.make_with_state(inflate_state.InflateState(*parts))
    if made is None:
        raise RestoreError(
            "a stream of zlib.decompressobj cannot be continued with the zlib of this machine; restart where the image was "
            "taken"
        )
    return made


def make_ended(module: str, unused: bytes, detail: int) -> Any:
    """A decompressor that has met the end of its stream, with ``unused`` behind it. detail: the check of lzma; whether
    zlib's memory has been released."""
    made: Any
    if module == BZ2:
        import bz2

        made = bz2.BZ2Decompressor()
        made.decompress(bz2.compress(b"") + unused)
    elif module == LZMA:
        import lzma

        made = lzma.LZMADecompressor()
        made.decompress(lzma.compress(b"", check=detail) + unused)
    else:
        made = zlib.decompressobj()
        made.decompress(zlib.compress(b"") + unused)
        if detail:
            made.flush()
    return made

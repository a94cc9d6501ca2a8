"""bz2, lzma: files that are open for writing, ``BZ2File`` and ``LZMAFile`` in the format xz. Members of zip files that are
being read: read again, up to their place.

Their compressors cannot be copied. So in the forked child the compressor is finished, and the image holds its last output.
After a restart the file has a stand-in (a Python object in the place of the compressor). With the next call it returns that
output first; if there is more to compress, it begins a new stream (level 9, preset 6, the check of the first stream). Both
formats define files of several streams, and every reader of these files knows them.

Refused by name: compressors that the program uses itself and has not ended, and those in zip files, since what reads their
output may expect one stream; raw lzma and its old format, which have no second stream.

Not here: zlib, and the methods of compressors (:mod:`ckpt.image.stdlib.compressors`).
"""

from __future__ import annotations

import gc
import sys
import zlib
from pickle import PicklingError
from typing import Any

from ckpt.compat.accelerators import BZ2
from ckpt.compat.readers import find_place_of_member, parts_of_member
from ckpt.compat.stdlib import compressor_of
from ckpt.image.reducers.raw_instances import attributes_of

__all__ = ["FurtherStream", "reduce_compressor", "reduce_member", "reduce_stream"]

_FILES = (("bz2", "BZ2File"), ("lzma", "LZMAFile"))
_XZ_FOOTER_BYTES, _XZ_MAGIC = 12, b"YZ"
_NEEDS_FORK = "data being compressed (bz2, lzma) cannot be saved without fork: use --image-mode fork"


class FurtherStream:
    """Stands for a compressor of bz2 or xz whose stream has been ended. Begins a second stream when it gets more data.

    ``pending``: the end of the first stream, not returned yet; ``check``: the integrity check of lzma, ``None`` for bz2. An
    image may be taken in the middle of a method: then the output to be returned is in the frame of the method, and not here.
    """

    __slots__ = ("check", "compressor", "has_begun", "is_over", "pending")

    def __init__(self, pending: bytes, check: int | None, is_over: bool) -> None:
        self.compressor: Any = None if is_over else _compressor(check)
        self.has_begun = False
        self.pending, self.check, self.is_over = pending, check, is_over

    def compress(self, data: Any, /) -> bytes:
        if self.is_over:
            raise ValueError("Compressor has been flushed")
        pending, self.pending = self.pending, b""
        self.has_begun = True
        try:
            made: bytes = pending + self.compressor.compress(data)
        except BaseException:
            self.pending = pending
            raise
        return made

    def flush(self) -> bytes:
        if self.is_over:
            raise ValueError("Repeated call to flush()")
        pending, self.pending = self.pending, b""
        self.is_over = True
        return pending + self.compressor.flush() if self.has_begun else pending


def _compressor(check: int | None) -> Any:
    if check is None:
        import bz2

        return bz2.BZ2Compressor()
    import lzma

    return lzma.LZMACompressor(check=check)


_ended: dict[int, tuple[Any, bytes]] = {}
"""The compressors that a forked child has ended for its image: id → (the object, its last output)."""


def reduce_compressor(pickler: Any, obj: Any) -> Any:
    """The reducer for ``bz2.BZ2Compressor`` and ``lzma.LZMACompressor``. Raises PicklingError."""
    if pickler.is_disposable and id(obj) not in _ended:
        try:
            _ended[id(obj)] = obj, obj.flush()
        except ValueError:  # ended by the program
            return FurtherStream, (b"", None, True)
    name = f"{type(obj).__module__.lstrip('_')}.{type(obj).__name__}"
    if not _is_in_a_file(obj):
        raise PicklingError(
            f"data being compressed ({name}) cannot be saved but in files of {name.partition('.')[0]}.open(); compress it "
            f"in one go between two images, or use ckpt.register_type({name}, save, load)"
        )
    if not pickler.is_disposable:
        raise PicklingError(_NEEDS_FORK)
    output = _ended[id(obj)][1]
    return FurtherStream, (output, None if type(obj).__module__ == BZ2 else _check_of(output), False)


def reduce_stream(pickler: Any, obj: FurtherStream) -> Any:
    """The reducer for a stand-in, whose second stream may have begun."""
    if obj.is_over or not obj.has_begun:
        return FurtherStream, (obj.pending, obj.check, obj.is_over)
    if not pickler.is_disposable:
        raise PicklingError(_NEEDS_FORK)
    if id(obj) not in _ended:
        _ended[id(obj)] = obj, obj.compressor.flush()
    return FurtherStream, (obj.pending + _ended[id(obj)][1], obj.check, False)


def _is_in_a_file(compressor: Any) -> bool:
    """Does a ``BZ2File`` or ``LZMAFile`` own the compressor? Readers of these files accept several streams."""
    files = tuple(getattr(sys.modules[name], cls) for name, cls in _FILES if name in sys.modules)

    def is_its_file(obj: object) -> bool:
        return issubclass(type(obj), files) and compressor_of(attributes_of(obj) or {}) is compressor

    for holder in gc.get_referrers(compressor):
        if any(map(is_its_file, gc.get_referrers(holder) if type(holder) is dict else (holder,))):
            return True
    # while a file is being made, the garbage collector may not know the dictionary of its attributes yet
    return any(map(is_its_file, gc.get_objects()))


def _check_of(output: bytes) -> int:
    """The integrity check of an xz stream, read from its end (section 2.1.2 of the format). Raises PicklingError: no xz."""
    footer = output[-_XZ_FOOTER_BYTES:]
    if footer[-2:] != _XZ_MAGIC or zlib.crc32(footer[4:10]) != int.from_bytes(footer[:4], "little"):
        raise PicklingError(
            "data being compressed (lzma.LZMACompressor) of a format other than xz, which knows no second stream, cannot be "
            "saved; use lzma.FORMAT_XZ"
        )
    return footer[9] & 0xF


# ---------------------------------------------------------------------- members of zip files


def reduce_member(pickler: Any, member: Any) -> Any:
    """What has been read ahead is read again, as all that comes before it."""
    attributes, place = parts_of_member(member)
    if place is None and not member.closed:
        raise PicklingError(
            "a member of a zip file that cannot seek is being read; read from a file, or read the member at once"
        )
    return make_member, (type(member),), (attributes, place), None, None, fill_member


def make_member(cls: Any) -> Any:
    return cls.__new__(cls)


def fill_member(member: Any, state: tuple[dict[str, Any], int | None]) -> None:
    attributes, place = state
    member.__dict__.update(attributes)
    if place is not None:
        find_place_of_member(member, place)

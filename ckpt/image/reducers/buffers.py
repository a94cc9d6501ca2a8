"""Memoryviews, and iterators over memoryviews; classes derived from the buffers of :mod:`io`.

A memoryview is saved as its exporting object (the object whose memory it shows) and the part of the memory: offset, format,
shape and, for one dimension, the stride, which may be negative. A view of several dimensions that is not contiguous cannot
be saved; the error names it.
"""

from __future__ import annotations

import gc
import io
import itertools
from collections.abc import Iterator
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat.memory import FULL_READ_ONLY, address_of
from ckpt.image.reducers.iterators import by_exhausting
from ckpt.image.reducers.rebuild import fill_slots

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "MEMORY_OF_FILE",
    "buffer_over",
    "derived_buffers",
    "fill_buffer",
    "memory_of_file",
    "reduce_memory_file",
    "reduce_memory_iterator",
    "reduce_memoryview",
]


def reduce_memoryview(pickler: Saver, obj: memoryview) -> Any:
    try:
        owner = obj.obj
    except ValueError:
        return released_memoryview, ()
    if owner is None:
        raise PicklingError(
            "a memoryview of memory that belongs to no object cannot be saved; keep bytes(view) instead"
        )
    whole = memoryview(owner)
    if (whole.format, whole.shape, whole.strides) == (obj.format, obj.shape, obj.strides):
        return whole_memoryview, (owner, obj.readonly)
    if not whole.c_contiguous or obj.format not in _FORMATS:
        raise PicklingError(
            f"a part of memory that is not plain (format {obj.format!r}) cannot be saved as a memoryview"
        )
    stride = 0  # 0: the part is contiguous
    if not obj.c_contiguous:
        if obj.ndim != 1:
            raise PicklingError(
                "a memoryview of several dimensions that is not contiguous cannot be saved; keep a copy, or slice it again"
            )
        stride = obj.strides[0] if obj.strides else 0
    start = address_of(obj, FULL_READ_ONLY) - address_of(whole, FULL_READ_ONLY) if obj.nbytes else 0
    return make_memoryview, (owner, start, obj.nbytes, obj.format, obj.shape, obj.readonly, stride)


def reduce_memory_file(pickler: Saver, obj: Any) -> Any:
    """The owner of the memory in the views that ``BytesIO.getbuffer`` gives."""
    (file,) = (part for part in gc.get_referents(obj) if isinstance(part, io.BytesIO))
    return memory_of_file, (file,)


def memory_of_file(file: io.BytesIO) -> Any:
    return file.getbuffer().obj


MEMORY_OF_FILE = type(memory_of_file(io.BytesIO()))


def whole_memoryview(owner: Any, readonly: bool) -> memoryview:
    made = memoryview(owner)
    return made.toreadonly() if readonly and not made.readonly else made


def make_memoryview(
    owner: Any, start: int, nbytes: int, fmt: str, shape: tuple[int, ...], readonly: bool, stride: int = 0
) -> memoryview:
    flat: Any = memoryview(owner).cast("B")
    if stride:
        made = _strided(flat, start, fmt, shape[0], stride)
    else:
        made = flat[start : start + nbytes]
        if len(shape) != 1:
            made = made.cast(fmt, shape)
        elif fmt != "B":
            made = made.cast(fmt)
    view: memoryview = made.toreadonly() if readonly and not made.readonly else made
    return view


def _strided(flat: Any, start: int, fmt: str, count: int, stride: int) -> Any:
    """A view of ``count`` items, the first at byte ``start``, the next ones ``stride`` bytes apart. ``stride`` is a multiple
    of the size of an item.
    """
    sample: Any = memoryview(bytearray(64))
    size = sample.cast(fmt).itemsize
    last = start + (count - 1) * stride
    low, high = min(start, last), max(start, last) + size
    items = flat[low:high].cast(fmt) if fmt != "B" else flat[low:high]
    return items[:: stride // size]


def released_memoryview() -> memoryview:
    made = memoryview(b"")
    made.release()
    return made


_FORMATS = frozenset({*"BbchHiIlLqQnNfd?P", *(f"@{code}" for code in "BbchHiIlLqQnNfd?P")})


def reduce_memory_iterator(pickler: Saver, obj: Any) -> Any:
    """The position of the iterator is found only by using it up, so it can be saved in a forked child only."""
    if not pickler.is_disposable:
        raise PicklingError(
            "an iterator over a memoryview cannot be saved without fork; take an image when it is finished"
        )
    view = next((item for item in gc.get_referents(obj) if isinstance(item, memoryview)), None)
    if view is None:
        return make_memory_iterator, (memoryview(b""), 0)
    return make_memory_iterator, (view, len(view) - by_exhausting(obj, lambda obj: sum(1 for _ in obj)))


def make_memory_iterator(view: memoryview, done: int) -> Iterator[Any]:
    made = iter(view)
    for _ in itertools.islice(made, done):
        pass
    return made


# ---------------------------------------------------------------------- buffers over files

_BUFFERED = (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)


def buffer_over(cls: Any, raw: Any, nbytes: int) -> Any:
    """A buffer of one of these classes, or of a class derived from one, whose own ``__init__`` is not called."""
    made = cls.__new__(cls)
    next(base for base in _BUFFERED if issubclass(cls, base)).__init__(made, raw, nbytes)
    return made


def fill_buffer(obj: Any, state: tuple[dict[str, Any] | None, list[tuple[type, str, Any]]]) -> None:
    attributes, slots = state
    obj.__dict__.update(attributes or {})  # which io does not let anybody replace
    fill_slots(obj, (None, slots))


def derived_buffers() -> list[type]:
    """The classes derived from these that leave their methods alone."""
    found, waiting = list[type](), list(_BUFFERED)
    while waiting:
        below = [cls for base in waiting for cls in base.__subclasses__()]
        found += [cls for cls in below if not _ASKED & cls.__dict__.keys()]
        waiting = [cls for cls in below if cls in found]
    return found


_ASKED = {
    *("raw", "closed", "seekable", "readable", "writable", "tell", "seek", "flush", "peek", "write"),
    *("read", "readinto", "__sizeof__", "__new__", "__getattribute__"),
}
"""What is asked of a buffer for an image, or while one is made again."""

"""numpy arrays: memory out of band, views that keep sharing it.

Rules
    - The owner of the memory is saved once; every view of it is ``(owner, dtype, shape, strides, offset)``.
      An owner is the last *ndarray* in the chain of ``.base``; when that one stands on memory of another
      object (``frombuffer`` of a bytearray) which somebody else holds too, it is a view of that object.
    - An owner of at least ``OUT_OF_BAND_BYTES`` travels as a :class:`pickle.PickleBuffer`, uncopied; smaller
      ones travel inside the pickle and own their memory again after loading. A large array uses the loaded
      buffer itself, so ``flags.owndata`` is false there, and ``ndarray.resize`` in place is refused: the one
      difference a program can see.
    - Memory order is kept for every permutation of axes. Arrays of objects, subclasses (``matrix``, masked
      and record arrays) and memory that is not dense go the way numpy itself pickles them.

numpy is imported by no function here unless the program has done so.
"""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import RestoreError

if TYPE_CHECKING:
    from ckpt.image.pickler import ImagePickler

__all__ = ["OUT_OF_BAND_BYTES", "reducers"]

OUT_OF_BAND_BYTES = 64 * 1024


def reducers() -> dict[type, Any]:
    """Reducers by exact type, as far as numpy is loaded."""
    numpy = sys.modules.get("numpy")
    array_type = getattr(numpy, "ndarray", None)
    if array_type is None:
        return {}
    return {array_type: reduce_array, numpy.memmap: reduce_memmap}  # type: ignore[union-attr]


def reduce_array(pickler: ImagePickler, array: Any) -> Any:
    dtype = array.dtype
    if dtype.hasobject or array.size == 0:
        return array.__reduce_ex__(5)
    owner = array
    array_type = type(array)
    while type(owner.base) is array_type:
        owner = owner.base
    start = array.__array_interface__["data"][0]
    if owner is not array:
        offset = start - owner.__array_interface__["data"][0]
        if owner.dtype.hasobject or not 0 <= offset <= owner.nbytes or _dense(owner) is None:
            return array.__reduce_ex__(5)
        return make_view, (owner, dtype, array.shape, array.strides, offset, array.flags.writeable)
    foreign = _shared_memory(array)
    if foreign is not None:
        offset = start - _address(foreign)
        return make_view, (foreign, dtype, array.shape, array.strides, offset, array.flags.writeable)
    flat = _dense(array)
    if flat is None:
        return array.__reduce_ex__(5)
    writeable = array.flags.writeable
    if array.nbytes >= OUT_OF_BAND_BYTES:
        memory: Any = pickle.PickleBuffer(flat)
        return make_over, (memory, dtype, array.shape, array.strides, writeable)
    return make_owning, (flat.tobytes(), dtype, array.shape, array.strides, writeable)


def reduce_memmap(pickler: ImagePickler, array: Any) -> Any:
    """A file mapped into memory: opened again, and written back where the program could have written."""
    if array.filename is None or type(array.base) is type(array):
        return array.__reduce_ex__(5)  # anonymous, or a part of another one: comes back as an ordinary copy
    if array.mode != "r" and array.mode != "c" and pickler.is_disposable:  # one memory in program and child
        raise pickle.PicklingError(f"{array.filename} is mapped for shared writing: only `--image-mode sync` can save it")
    order = "C" if array.flags.c_contiguous else "F"
    content = None
    if array.mode != "r":
        memory: Any = _dense(array)
        content = pickle.PickleBuffer(memory)
    mode = "c" if array.mode == "c" else "r" if array.mode == "r" else "r+"
    return make_memmap, (str(array.filename), array.dtype, mode, array.offset, array.shape, order, content)


def _dense(array: Any) -> Any | None:
    """All bytes of the array in memory order, without a copy; ``None`` when it has gaps or overlaps."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    straight = array.transpose(order) if array.ndim > 1 else array
    if not straight.flags.c_contiguous:
        return None
    return straight.reshape(-1).view("u1")


def _shared_memory(array: Any) -> Any | None:
    """The object whose memory this array stands on, if the array is not its only holder."""
    base = array.base
    if base is None:
        return None
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, (bytearray, bytes)):
        return None
    # an array's base, or the memoryview between, is one holder; `base` here and the argument are two more
    return base if sys.getrefcount(base) > 3 else None


def _address(owner: Any) -> int:
    numpy = sys.modules["numpy"]
    return int(numpy.frombuffer(owner, "u1").__array_interface__["data"][0])


# ---------------------------------------------------------------------- called while loading


def make_view(owner: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    import numpy

    made: Any = numpy.ndarray(shape, dtype, owner, offset, strides)
    if made.flags.writeable != writeable:
        made.flags.writeable = writeable
    return made


def make_over(memory: Any, dtype: Any, shape: Any, strides: Any, writeable: bool) -> Any:
    """An array that uses the loaded buffer itself. It is an owner in the sense of the rules above."""
    return make_view(_loaded_memory(memory), dtype, shape, strides, 0, writeable)


def _loaded_memory(memory: Any) -> Any:
    """The buffer as an array of a class of its own, where the chain of bases ends for the next image."""
    import numpy

    known = _LOADED.get("class")
    if known is None:
        known = _LOADED["class"] = type(
            "LoadedMemory", (numpy.ndarray,), {"__module__": __name__, "__slots__": ()}
        )
    return numpy.frombuffer(memory, "u1").view(known)


_LOADED: dict[str, Any] = {}


def make_memmap(
    filename: str, dtype: Any, mode: Any, offset: int, shape: Any, order: Any, content: Any | None
) -> Any:
    import numpy

    try:
        made: Any = numpy.memmap(filename, dtype, mode, offset, shape, order)
    except (OSError, ValueError) as failure:
        raise RestoreError(
            f"the file {filename!r}, mapped into memory, cannot be opened again: {failure}"
        ) from failure
    if content is not None:
        _dense(made)[:] = numpy.frombuffer(content, "u1")  # type: ignore[index]
    return made


def make_owning(data: bytes, dtype: Any, shape: Any, strides: Any, writeable: bool) -> Any:
    """An array with memory of its own, laid out as it was."""
    import numpy

    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    straight: Any = numpy.empty([shape[axis] for axis in order], dtype)
    straight.reshape(-1).view("u1")[:] = numpy.frombuffer(data, "u1")
    made = straight
    if order != sorted(order):
        back = straight.transpose([order.index(axis) for axis in range(len(shape))])
        made = back.copy(order="K")  # owns its memory, in the same order
    if not writeable:
        made.flags.writeable = False
    return made

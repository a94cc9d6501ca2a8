"""Parts of numpy beside its arrays.

Its settings for floating-point errors are held by a context variable as a capsule (a pointer of C). The capsule is made
again by setting these errors in a new context. Capsules of other libraries cannot be saved.

Universal functions that are made of functions of the program (``vectorize``, ``frompyfunc``) are followed from the import on
(``frames_callbacks.c``).

Some functions of numpy (``apply_along_axis``) hold a converter: it makes arrays of their arguments, and of their result
what the arguments were. One that makes plain arrays and numbers is made again; one that calls a class of a library or of the
program is named.

Types that numpy has once (``float64``) are these objects again (:func:`type_reducers`).

Scalars and generators of random numbers of the program's classes are made as their base makes them: what numpy's own pickles
make is of the base.

Whose memory an array uses: that of another array, of an object of another kind (:func:`shared_memory`), or its own. Arrays
of subclasses have a plain array that stands for their memory, the same one in all of an image (:func:`owner_of`).
"""

from __future__ import annotations

import contextvars
import datetime
import gc
import importlib
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

from ckpt.compat.memory import address_of, exporter_of
from ckpt.compat.typeobjects import is_heap
from ckpt.image.frames import _frames
from ckpt.image.interface.library import Reducer
from ckpt.image.interface.mappings import segment_at
from ckpt.image.reducers.contexts import reduce_capsule as reduce_other
from ckpt.image.reducers.raw_instances import attributes_of, slots_of
from ckpt.image.reducers.rebuild import fill_by_base, fill_slots, make_by_base, make_from_builtin
from ckpt.image.reducers.saver import Saver

__all__ = [
    "CAPSULE",
    "CONVERTERS",
    "axes",
    "dense",
    "fields",
    "follow_functions",
    "loaded_memory",
    "make_errors",
    "owner_of",
    "reduce_capsule",
    "reduce_row",
    "reducer_of_part",
    "shared_memory",
    "type_reducers",
    "value_types",
]

CAPSULE = type(datetime.datetime_CAPI)

Errors = tuple[dict[str, Any], Any, int]
"""Mode of each kind of error, the function that is called, the size of buffers."""


def reduce_converter(pickler: Saver, converter: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    probe = numpy.empty(1)
    arrays = converter.as_arrays(subok=True, pyscalars="preserve")
    is_plain = all(type(each) in (numpy.ndarray, int, float, complex) for each in arrays)
    if not is_plain or converter.wrap(probe, to_scalar=False) is not probe:
        raise pickle.PicklingError(
            "a function of numpy is at work whose result will be of a class of its own"
        )
    numbers = [
        each[()] if is_scalar and type(each) is numpy.ndarray else each
        for each, is_scalar in zip(arrays, converter.scalar_input, strict=True)
    ]
    return make_converter, (numbers,)


def make_converter(values: list[Any]) -> Any:
    compiled: Any = importlib.import_module("numpy._core._multiarray_umath")
    return compiled._array_converter(*values)


CONVERTERS = {"_array_converter": reduce_converter}


def type_reducers() -> dict[type, Reducer]:
    """For the types of which numpy has one object each (``float64`` …): it is that object again. numpy's own pickles make
    another one, and a program that pickles arrays which share a type writes other bytes then."""
    numpy: Any = sys.modules.get("numpy")
    characters = getattr(numpy, "typecodes", {}).get("All", "")
    return {type(numpy.dtype(character)): _reduce_type for character in characters}


def _reduce_type(pickler: Saver, dtype: Any) -> Any:
    make: Any = sys.modules["numpy"].dtype
    is_one = dtype.isbuiltin == 1 and make(dtype.char) is dtype
    return (make, (dtype.char,)) if is_one else NotImplemented


def value_types() -> tuple[type, ...]:
    """Arrays and their single numbers, generators of random numbers with what makes their bits."""
    random_numbers = sys.modules.get("numpy.random")
    names = ("Generator", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
    found = (
        *(getattr(sys.modules["numpy"], name, None) for name in ("ndarray", "generic", "dtype")),
        *(getattr(random_numbers, name, None) for name in names),
    )
    return tuple(each for each in found if each is not None)


def follow_functions() -> None:
    """From now on, images may be taken while numpy calls a function of the program for each item of arrays of objects, and
    while `numpy.fromiter` takes items."""
    module = sys.modules.get("numpy")
    function = getattr(module, "frompyfunc", None)
    if _frames.SUPPORTED and function is not None:
        _frames.follow_ufuncs(function)
        _frames.follow_taking((None, None, getattr(module, "fromiter", None)))


def reduce_capsule(pickler: Saver, obj: Any) -> Any:
    if '"numpy.ufunc.extobj"' not in repr(obj):
        return reduce_other(pickler, obj)
    return make_errors, (contextvars.Context().run(_errors, obj),)


def _errors(capsule: Any) -> Errors:
    import numpy

    _variable().set(capsule)
    return {**numpy.geterr()}, numpy.geterrcall(), numpy.getbufsize()


def make_errors(settings: Errors) -> Any:
    return contextvars.Context().run(_set_errors, settings)


def _set_errors(settings: Errors) -> Any:
    import numpy

    errors, call, size = settings
    numpy.seterr(**errors)
    numpy.seterrcall(call)
    numpy.setbufsize(size)
    return _variable().get()


def _variable() -> Any:
    from numpy._core import umath

    return umath._extobj_contextvar


# ---------------------------------------------------------------------- whose memory


def owner_of(pickler: Saver, array: Any) -> Any:
    """The array that stands for the memory of this one: the last one in the chain of bases (numpy's helper objects for
    strides, and rows, are passed over), or a plain array over that one if it is of a subclass. A mapped file stands for
    itself.
    """
    numpy: Any = sys.modules["numpy"]
    top, base = array, array.base
    while True:
        if type(base).__name__ == "DummyArray" or (isinstance(base, numpy.void) and base.base is not None):
            base = base.base
        elif isinstance(base, numpy.ndarray) and type(base) is not _LOADED.get("class"):
            top, base = base, base.base
        else:
            break
    if type(top) is numpy.ndarray or (isinstance(top, numpy.memmap) and base is not None):
        return top
    key = ("memory of an array", id(top))
    if key not in pickler.shared:
        pickler.shared[key] = numpy.ndarray.view(top, numpy.ndarray)
    return pickler.shared[key]


def dense(array: Any) -> Any | None:
    """All bytes of the array in memory order, without a copy; ``None``: the array has gaps or overlaps."""
    straight = array.transpose(axes(array)) if array.ndim > 1 else array
    if not straight.flags.c_contiguous:
        return None
    return straight if array.dtype.hasobject else straight.reshape(-1).view("u1")


def fields(array: Any) -> Iterator[Any]:
    """The array or, if it is of a structured type, its fields, and the fields within fields: views of its memory."""
    names = array.dtype.names
    if names is None:
        yield array
    else:
        for name in names:
            yield from fields(array[name])


def reduce_row(pickler: Saver, row: Any) -> Any:
    """A row of an array of a structured type is a view of its memory: ``for row in particles: row["x"] += 1``."""
    numpy: Any = sys.modules["numpy"]
    base = row.base
    while isinstance(base, numpy.void):
        base = base.base
    if not isinstance(base, numpy.ndarray):
        return NotImplemented
    owner = owner_of(pickler, base)
    offset = address_of(row) - owner.__array_interface__["data"][0]
    if dense(owner) is None or not 0 <= offset <= owner.nbytes - row.dtype.itemsize:
        return NotImplemented
    return make_row, (owner, row.dtype, offset, base.flags.writeable)


def make_row(owner: Any, dtype: Any, offset: int, writeable: bool) -> Any:
    import numpy

    made: Any = numpy.ndarray((1,), dtype, owner, offset)
    if made.flags.writeable != writeable:
        made.flags.writeable = writeable
    return made[0]


def axes(array: Any) -> list[int]:
    """The axes in their order in memory, the largest stride first."""
    return sorted(range(array.ndim), key=lambda axis: -array.strides[axis])


def shared_memory(pickler: Saver, array: Any) -> Any | None:
    """The object whose memory this array uses through other objects, if others refer to it too: bytes, a bytearray, an
    array, one of the module ``array``, an ``mmap``, or an object of ctypes."""
    array_type, base = sys.modules["numpy"].ndarray, array.base
    kinds = (bytearray, bytes, *_classes("array", "array"), *_classes("mmap", "mmap"))
    if (segment := segment_at(array.__array_interface__["data"][0], 1)) is not None:
        return segment  # the memory is there for others, too
    while not isinstance(base, kinds):
        former = base
        if isinstance(base, array_type):
            owner = owner_of(pickler, base)
            if owner.base is None:
                return None if owner.dtype.hasobject or dense(owner) is None else owner
            base = owner.base
        else:
            base = exporter_of(base)  # of a memoryview, a window of MPI
        if base is former:
            return _of_ctypes(base) if hasattr(base, "_b_base_") else _kept_by(pickler, base, array)
    # an array's base, or the memoryview between, is one holder; `base` here and the argument are two more
    return base if sys.getrefcount(base) > 3 else None


def _kept_by(pickler: Saver, holder: Any, array: Any) -> Any | None:
    """The array whose memory an object has given out by ``__array_interface__``: one that it refers to, perhaps as an
    attribute, or that an object which it refers to does."""
    place, found, seen = array.__array_interface__["data"][0], [holder], {id(holder)}
    for _ in range(_DEEPEST):
        found = [
            each
            for each in gc.get_referents(*found)
            if type(each) not in _NO_HOLDERS and id(each) not in seen
        ]
        seen.update(map(id, found[:_MOST_HOLDERS]))
        for each in found[:_MOST_HOLDERS]:
            if not isinstance(each, sys.modules["numpy"].ndarray) or each is array or not each.size:
                continue
            owner = owner_of(pickler, each)
            begin = owner.__array_interface__["data"][0]
            is_inside = begin <= place <= place + array.nbytes <= begin + owner.nbytes
            if is_inside and type(owner.base) in (*_ROOTS, _LOADED.get("class")) and dense(owner) is not None:
                return None if owner.dtype.hasobject else owner
    return None


_NO_HOLDERS = (type, types.ModuleType, types.FunctionType, types.CodeType, str, int)
# Not another object that gives memory out: two could name each other.
_ROOTS = (type(None), memoryview, bytearray, bytes)
_DEEPEST, _MOST_HOLDERS = 3, 100


def _classes(module: str, name: str) -> list[type]:
    """The class of this name, if the program has imported the module."""
    return [found] if (found := getattr(sys.modules.get(module), name, None)) is not None else []


def _of_ctypes(obj: Any) -> Any | None:
    """The object of ctypes itself; None: its memory belongs to C, or to nobody else than the array."""
    from ckpt.image.handles.ctypes_data import is_found_again, owns_its_memory

    if owns_its_memory(obj):
        return obj if sys.getrefcount(obj) > 4 else None  # as above, and the caller's variable
    return obj if is_found_again(obj) else None


def loaded_memory(memory: Any) -> Any:
    """The buffer as an array of the class ``LoadedMemory``, at which the chain of bases ends for the next image."""
    import numpy

    known = _LOADED.get("class")
    if known is None:
        known = _LOADED["class"] = type(
            "LoadedMemory", (numpy.ndarray,), {"__module__": __name__, "__slots__": ()}
        )
    return numpy.frombuffer(memory, "u1").view(known)


_LOADED: dict[str, Any] = {}


# ---------------------------------------------------------------------- scalars, generators


def reducer_of_part(cls: type) -> Reducer | None:
    """The reducer for scalars and generators of a class that derives from numpy's."""
    numpy: Any = sys.modules["numpy"]
    if not is_heap(cls) or issubclass(cls, numpy.void):
        return None
    if issubclass(cls, numpy.generic):
        return reduce_scalar
    random: Any = sys.modules.get("numpy.random")
    is_generator = random is not None and issubclass(cls, (random.Generator, random.RandomState))
    return reduce_generator if is_generator else None


def _base_of(obj: Any) -> Any:
    return next(cls for cls in type(obj).__mro__ if not is_heap(cls))


def reduce_scalar(pickler: Saver, obj: Any) -> Any:
    plain = sys.modules["numpy"].asarray(obj)[()]
    state = attributes_of(obj), slots_of(pickler, obj)
    return make_from_builtin, (_base_of(obj), type(obj), plain), state, None, None, fill_slots


def reduce_generator(pickler: Saver, obj: Any) -> Any:
    base = _base_of(obj)
    _, args, *own = base.__reduce__(obj)
    state = base, own[0] if own else None, attributes_of(obj), slots_of(pickler, obj)
    return make_by_base, (base, type(obj), args[0]), state, None, None, fill_by_base

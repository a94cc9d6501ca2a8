"""numpy: arrays, whose memory is written out of band, and views that share it after a restart; settings, random numbers.

Rules
    - The owner of the memory is saved once; every view of it is saved as ``(owner, dtype, shape, strides, offset)``.
      An owner is the last array in the chain of ``.base``; one of a subclass is itself saved as a view of a plain array. If
      it uses memory of another object (``frombuffer`` of a bytearray, of an array of ``array`` or ``ctypes``, of an
      ``mmap``), and other objects refer to that object too, the array is saved as a view of that object.
    - An owner of at least ``OUT_OF_BAND_BYTES`` is written as a :class:`pickle.PickleBuffer`, without a copy; smaller
      ones are written into the pickle, and own their memory again after loading. A large array uses the loaded
      buffer itself, so ``flags.owndata`` is false there, and ``ndarray.resize`` in place is refused: the only
      difference that a program can see.
    - The order of the axes in memory is kept. Arrays of objects, and of structured types with objects, are made empty and
      filled later, because an object in the array may refer to the array. Instances of subclasses (``matrix``, masked and
      record arrays, the program's own) are views of plain arrays, with their attributes, and so is a row (``void``) of a
      structured array. Memory with gaps is pickled as numpy itself pickles it, and attributes too.
    - No function here imports numpy unless the program has imported it.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import pickle
import sys
import types
from typing import TYPE_CHECKING, Any

from ckpt.compat.memory import address_of
from ckpt.compat.typeobjects import is_heap
from ckpt.errors import StateError
from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import InPlace, Library, Reducer, by_name
from ckpt.image.libraries.numpy_parts import (
    CAPSULE,
    CONVERTERS,
    dense,
    fields,
    follow_functions,
    loaded_memory,
    owner_of,
    reduce_capsule,
    reduce_row,
    reducer_of_part,
    shared_memory,
    type_reducers,
    value_types,
)
from ckpt.image.reducers.raw_instances import has_state_in_c, slots_of
from ckpt.image.reducers.rebuild import fill_slots
from ckpt.image.stdlib import mapped

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["OUT_OF_BAND_BYTES", "NumPy"]

OUT_OF_BAND_BYTES = 64 * 1024


class NumPy(Library):
    is_left_alone = True
    is_left_to_pickle = True
    transient_types = ("numpy:nditer",)  # as `numpy.save` has while it writes to an object that is no file

    def reducers(self) -> dict[type, Reducer]:
        flat = {"ufunc": reduce_ufunc, "flatiter": reduce_flatiter, "broadcast": reduce_broadcast}
        arrays = {"ndarray": reduce_array, "memmap": reduce_memmap, "void": reduce_row, "record": reduce_row}
        made = by_name("numpy._core._multiarray_umath", CONVERTERS)
        return {**by_name("numpy", {**arrays, **flat}), **made, **type_reducers(), CAPSULE: reduce_capsule}

    def value_types(self) -> tuple[type, ...]:
        return value_types()

    def when_imported(self) -> None:
        follow_functions()

    def reducer_by_base(self, cls: type) -> Reducer | None:
        """The reducer for masked arrays and other subclasses, except those with a state in C of their own. Where they have a
        ``__reduce__`` (``Quantity`` of astropy), that copies their memory."""
        numpy: Any = self.module
        array_type = getattr(numpy, "ndarray", None)
        if array_type is None or not issubclass(cls, array_type) or issubclass(cls, numpy.memmap):
            return array_type and reducer_of_part(cls)
        by_name = cls is getattr(sys.modules.get("numpy.ma.core"), "MaskedConstant", None)
        return None if by_name or has_state_in_c(cls, array_type) else reduce_subclass

    def note_settings(self) -> dict[str, Any]:
        numpy = self.module
        return {"errors": numpy.geterr(), "call": numpy.geterrcall(), "printing": numpy.get_printoptions()}

    def apply_settings(self, saved: dict[str, Any]) -> None:
        numpy = self.module
        numpy.seterr(**saved["errors"])
        numpy.seterrcall(saved["call"])
        numpy.set_printoptions(**{k: v for k, v in saved["printing"].items() if k != "override_repr"})

    def note_random(self) -> Any:
        random = sys.modules.get("numpy.random")
        return None if random is None else random.get_state(legacy=False)

    def apply_random(self, saved: Any) -> None:
        importlib.import_module("numpy.random").set_state(saved)

    def in_place(self) -> list[InPlace]:
        entries = []
        if (array_type := getattr(self.module, "ndarray", None)) is not None:
            # a view, because the registered object itself is saved by its name
            entries.append(InPlace("array", (array_type,), lambda obj: obj.view(array_type)[...], _put_array))
        if (random := sys.modules.get("numpy.random")) is not None:
            generators = (random.Generator, random.RandomState)
            entries.append(InPlace("numpy generator", generators, lambda obj: _bits(obj).state, _put_bits))
        return entries

    def shape_of(self, obj: Any) -> str | None:
        is_array = type(obj) is getattr(self.module, "ndarray", None)
        return f"{obj.dtype} {obj.shape}" if is_array else None


def _put_array(obj: Any, value: Any) -> None:
    if obj.shape != value.shape or obj.dtype != value.dtype:
        raise StateError(
            f"an array {obj.shape} of {obj.dtype}; the checkpoint has {value.shape} of {value.dtype}"
        )
    obj[...] = value


def _bits(obj: Any) -> Any:
    return obj.bit_generator if hasattr(obj, "bit_generator") else obj._bit_generator


def _put_bits(obj: Any, value: Any) -> None:
    if type(_bits(obj)).__name__ != value["bit_generator"]:
        raise StateError(
            f"a generator of {type(_bits(obj)).__name__}; the checkpoint has {value['bit_generator']}"
        )
    _bits(obj).state = value


def reduce_array(pickler: Saver, array: Any) -> Any:
    dtype = array.dtype
    if array.size == 0:
        return array.__reduce_ex__(5)
    owner = owner_of(pickler, array)
    start = array.__array_interface__["data"][0]
    if owner is not array:
        offset = start - owner.__array_interface__["data"][0]
        if not 0 <= offset <= owner.nbytes or dense(owner) is None:
            return array.__reduce_ex__(5)
        return make_view, (owner, dtype, array.shape, array.strides, offset, array.flags.writeable)
    if "torch" in sys.modules:
        known = _tensor_memory(pickler, array, start)
        if known is not None:
            from ckpt.image.libraries.tensors import array_over

            storage, begin = known
            place = (dtype, array.shape, array.strides, start - begin, array.flags.writeable)
            return array_over, (storage, *place)
    foreign = shared_memory(pickler, array)
    if foreign is not None:
        offset = start - address_of(foreign)
        return make_view, (foreign, dtype, array.shape, array.strides, offset, array.flags.writeable)
    flat = dense(array)
    if flat is None:
        return array.__reduce_ex__(5)
    if dtype.hasobject:
        parts = [each.ravel().tolist() if each.dtype.hasobject else each.copy() for each in fields(array)]
        made, state = (array.shape, array.strides, dtype), (parts, array.flags.writeable)
        return make_objects, made, state, None, None, fill_objects
    writeable = array.flags.writeable
    known = pickler.shared.setdefault(("owner at", start), array)
    if known is not array and array.nbytes <= known.nbytes:  # by DLPack
        return make_view, (known, dtype, array.shape, array.strides, 0, writeable)
    if array.nbytes >= OUT_OF_BAND_BYTES:
        memory: Any = pickle.PickleBuffer(flat)
        return make_over, (memory, dtype, array.shape, array.strides, writeable)
    return make_owning, (flat.tobytes(), dtype, array.shape, array.strides, writeable)


def _tensor_memory(pickler: Saver, array: Any, start: int) -> tuple[Any, int] | None:
    """The storage of a tensor whose memory this array uses, and its address. ``None``: the array is noted as the owner."""
    from ckpt.image.libraries.tensors import Storage, storage_of

    torch: Any = sys.modules["torch"]
    if type(array.base) is torch.Tensor:  # the array of a whole storage
        untyped = array.base.untyped_storage()
        return storage_of(pickler, untyped), untyped.data_ptr()
    known = pickler.memory.setdefault(start, array)
    return (known, start) if isinstance(known, Storage) else None


def reduce_subclass(pickler: Saver, array: Any) -> Any:
    """An instance of a subclass: as a view of the plain array that stands for its memory, with its attributes."""
    if array.size == 0:
        return _by_itself(array)
    owner = owner_of(pickler, array)
    if dense(owner) is None:
        return _by_itself(array)
    offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    if not 0 <= offset <= owner.nbytes:
        return _by_itself(array)
    args = (type(array), owner, array.dtype, array.shape, array.strides, offset, array.flags.writeable)
    slots, attributes = slots_of(pickler, array), getattr(array, "__dict__", None)
    state, fill = ((attributes, slots), fill_slots) if slots else (attributes or {}, fill_subclass)
    return make_subclass_view, args, state, None, None, fill


def _by_itself(array: Any) -> Any:
    """As the class pickles it; numpy's own way leaves the attributes out."""
    made = array.__reduce_ex__(5)
    if not array.__dict__ or type(array).__reduce__ is not sys.modules["numpy"].ndarray.__reduce__:
        return made
    return (*made[:2], (made[2], array.__dict__), None, None, fill_alone)


def reduce_ufunc(pickler: Saver, ufunc: Any) -> Any:
    """Universal functions of numpy and scipy are saved by name; those made by ``frompyfunc`` by their Python function."""
    name: str = ufunc.__name__
    for library in (sys.modules.get("numpy"), sys.modules.get("scipy.special")):
        if library is not None and library.__dict__.get(name) is ufunc:
            return getattr, (library, name)
    functions = [item for item in gc.get_referents(ufunc) if isinstance(item, types.FunctionType)]
    if len(functions) != 1:
        raise pickle.PicklingError(
            f"the universal function {name!r} is not found by name; make it again after a restart"
        )
    return make_ufunc, (functions[0], ufunc.nin, ufunc.nout, ufunc.identity)


def reduce_flatiter(pickler: Saver, iterator: Any) -> Any:
    return make_flatiter, (iterator.base, iterator.index)


def reduce_broadcast(pickler: Saver, together: Any) -> Any:
    return make_broadcast, (tuple(each.base for each in together.iters), together.index)


def reduce_memmap(pickler: Saver, array: Any) -> Any:
    """The reducer for a mapped file: it is opened again, with its content if the program could write to it."""
    owner = owner_of(pickler, array)
    if owner is not array:  # a part of another one, or a copy in memory
        args = (type(array), owner, array.dtype, array.shape, array.strides)
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        state = ({**array.__dict__, "_mmap": None}, owner)
        return make_subclass_view, (*args, offset, array.flags.writeable), state, None, None, fill_mapped
    if array.filename is None:
        return array.__reduce_ex__(5)  # anonymous: restored as an ordinary copy
    # Program and child share the memory
    if array.mode not in ("r", "c") and pickler.is_disposable and not mapped.is_copied(array._mmap):
        raise pickle.PicklingError(
            f"{array.filename} has just been mapped for shared writing; the next image is written without a fork"
        )
    order = "C" if array.flags.c_contiguous else "F"
    content = None
    if array.mode != "r":
        memory: Any = dense(array)
        content = pickle.PickleBuffer(memory)
    mode = "c" if array.mode == "c" else "r" if array.mode == "r" else "r+"
    place = (str(array.filename), array.dtype, mode, array.offset, array.shape, order, content)
    attributes = {name: value for name, value in array.__dict__.items() if name != "_mmap"}
    return make_memmap, place, attributes, None, None, fill_subclass


# ---------------------------------------------------------------------- called while loading


def make_view(owner: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    import numpy

    made: Any = numpy.ndarray(shape, dtype, owner, offset, strides)
    if made.flags.writeable != writeable:
        made.flags.writeable = writeable
    return made


def make_objects(shape: Any, strides: Any, dtype: Any) -> Any:
    """An empty array of objects, or of a structured type with objects, laid out as it was, for :func:`fill_objects`."""
    import numpy

    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    straight: Any = numpy.empty([shape[axis] for axis in order], dtype)
    if order == sorted(order):
        return straight
    return straight.transpose([order.index(axis) for axis in range(len(shape))]).copy(order="K")


def fill_objects(array: Any, state: tuple[list[Any], bool]) -> None:
    """``state``: the content of each of its :func:`fields`, an array or a list of objects; is it writeable?"""
    parts, writeable = state
    for field, part in zip(fields(array), parts, strict=True):
        if type(part) is not list:
            field[...] = part
            continue
        places = field.flat
        for index, item in enumerate(part):
            places[index] = item
    if not writeable:
        array.flags.writeable = False


def make_subclass_view(
    cls: Any, owner: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool
) -> Any:
    """An instance of a subclass over the memory of ``owner``. ``__array_finalize__`` of other classes than numpy's is not
    called, because these classes may not be complete yet."""
    import numpy

    classes = [
        c for c in cls.__mro__ if "__array_finalize__" in c.__dict__ and is_heap(c) and is_outside_numpy(c)
    ]
    hooks = [(c, c.__dict__["__array_finalize__"]) for c in classes]
    for c in classes:
        type.__delattr__(c, "__array_finalize__")
    try:
        made: Any = numpy.ndarray.__new__(cls, shape, dtype, owner, offset, strides)
    finally:
        for c, hook in hooks:
            type.__setattr__(c, "__array_finalize__", hook)
    if made.flags.writeable != writeable:
        made.flags.writeable = writeable
    return made


def is_outside_numpy(cls: type) -> bool:
    """Is the class none of numpy's own? Those need their ``__array_finalize__``: it sets attributes that they use."""
    return cls.__module__.partition(".")[0] != "numpy"


def fill_subclass(array: Any, attributes: dict[str, Any]) -> None:
    array.__dict__.update(attributes)


def fill_alone(array: Any, state: tuple[Any, dict[str, Any]]) -> None:
    content, attributes = state
    sys.modules["numpy"].ndarray.__setstate__(array, content)
    array.__dict__.update(attributes)


def fill_mapped(array: Any, state: tuple[dict[str, Any], Any]) -> None:
    attributes, owner = state
    array.__dict__.update(attributes, _mmap=getattr(owner, "_mmap", None))


def make_ufunc(function: Any, inputs: int, outputs: int, identity: Any) -> Any:
    import numpy

    return numpy.frompyfunc(function, inputs, outputs, identity=identity)


def make_flatiter(array: Any, index: int) -> Any:
    made = array.flat
    for _ in itertools.islice(made, index):
        pass
    return made


def make_broadcast(arrays: tuple[Any, ...], index: int) -> Any:
    import numpy

    made = numpy.broadcast(*arrays)
    for _ in itertools.islice(made, index):
        pass
    return made


def make_over(memory: Any, dtype: Any, shape: Any, strides: Any, writeable: bool) -> Any:
    """An array that uses the loaded buffer itself. It is an owner in the sense of the rules in the header."""
    return make_view(loaded_memory(memory), dtype, shape, strides, 0, writeable)


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
        mapped.fill(memoryview(dense(made)), content)  # type: ignore[arg-type]
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

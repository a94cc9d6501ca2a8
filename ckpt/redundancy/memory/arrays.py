"""The arrays that a program holds in memory, by the names of its variables, and digests of their blocks. (driver)

Looked through, in an order that follows from the program alone: the variables of its modules; the local variables of the
functions that its main thread is in; from there lists, tuples, dictionaries, attributes of objects of its own classes,
closures and generators. What is found in two ways counts under the first name.

    an array        numpy.ndarray (the memory of its owner), bytearray, array.array; a list of FLOATS_MIN floats or more
    left out        memory that is no value: `longdouble` and structures with gaps, arrays of objects (their elements are
                    looked through), arrays in files, what belongs to libraries and to ckpt
    open            memory that a receive or a collective under way may fill at any moment

A replica that has received a message already, and one that has not, differ in what is open by no fault: so they tell which
blocks are (:mod:`ckpt.redundancy.memory.comparison`).

What numpy's `empty` gives is whatever was in that memory before, and differs between processes. So under ``--redundancy``
it is zero (`zero_new_arrays`). What a ufunc leaves out of its result (`where` without `out`) is not made the same.

Not here: at which place of the program this is done (layer.py), the comparison (comparison.py).
"""

from __future__ import annotations

import array
import collections
import contextlib
import ctypes
import sys
import sysconfig
import types
from collections.abc import Iterator, Sequence
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Any

from ckpt.layer import Engine
from ckpt.redundancy.memory.comparison import BLOCKS, Record

__all__ = ["ArrayMemory", "digests", "find", "flip", "open_memory", "zero_new_arrays"]

VISITS_MAX = 200_000
"""So many objects are looked at."""

NAMED_MAX = 400
"""So many arrays are told one by one; those behind them have one digest together."""

BLOCK_MIN_BYTES = 4096
FLOATS_MIN = 16
HEX = 12


class ArrayMemory:
    """The memory of one array. `form`: its type and shape; `row_bytes`: bytes of one index of the first dimension."""

    __slots__ = ("address", "form", "name", "row_bytes", "view")

    def __init__(self, name: str, form: str, view: memoryview, row_bytes: int) -> None:
        self.name, self.form, self.view, self.row_bytes = name, form, view, max(1, row_bytes)
        self.address = 0 if view.readonly else ctypes.addressof(ctypes.c_char.from_buffer(view))


# ---- arrays by their names -------------------------------------------------------------------------------


def find(frame: types.FrameType | None) -> list[ArrayMemory]:
    """The arrays of the program whose main thread is in `frame`."""
    return _Search().run(frame)


class _Search:
    def __init__(self) -> None:
        self.numpy: Any = sys.modules.get("numpy")
        self.libraries = tuple(
            {
                sysconfig.get_path(name)
                for name in ("stdlib", "platstdlib", "purelib", "platlib")
                if sysconfig.get_path(name)
            }
        )
        self.owned: dict[str, bool] = {}
        self.queue: collections.deque[tuple[str, Any]] = collections.deque()
        self.seen: set[int] = set()
        self.kept: list[Any] = []
        self.found: list[ArrayMemory] = []
        self.places: set[tuple[int, int]] = set()

    def run(self, frame: types.FrameType | None) -> list[ArrayMemory]:
        for name in sorted(sys.modules):
            module = sys.modules.get(name)
            if self.is_of_program(name) and isinstance(module, types.ModuleType):
                prefix = "" if name == "__main__" else f"{name}."
                self._push_all((f"{prefix}{key}", value) for key, value in list(vars(module).items()))
        while frame is not None:
            code = frame.f_code
            if frame.f_locals is not frame.f_globals and self.is_of_program(frame.f_globals.get("__name__")):
                values = dict(frame.f_locals)
                self.kept.append(values)
                self._push_all((f"{code.co_name}().{key}", value) for key, value in values.items())
            frame = frame.f_back
        visits = 0
        while self.queue and visits < VISITS_MAX:
            visits += 1
            self._look(*self.queue.popleft())
        return self.found

    def is_of_program(self, name: Any) -> bool:
        """Is this a module of the program, and no library?"""
        if not isinstance(name, str):
            return False
        known = self.owned.get(name)
        if known is None:
            file = getattr(sys.modules.get(name), "__file__", None)
            is_library = name == "ckpt" or name.startswith("ckpt.") or name == "__mp_main__"
            is_outside = file is not None and not str(file).startswith(self.libraries)
            is_outside = is_outside and not {"site-packages", "dist-packages"}.intersection(
                Path(str(file)).parts
            )
            known = self.owned[name] = not is_library and (name == "__main__" or is_outside)
        return known

    def _push_all(self, values: Any) -> None:
        for name, value in values:
            if type(value) not in _PLAIN and id(value) not in self.seen:
                self.seen.add(id(value))
                self.queue.append((name, value))

    def _look(self, name: str, value: Any) -> None:
        """No code of the program runs here: its classes may have `__class__`, `__iter__` and the like of their own."""
        kind = type(value)
        if self.numpy is not None and issubclass(kind, self.numpy.ndarray):
            self._array(name, self.numpy.ndarray.view(value, self.numpy.ndarray))
        elif kind is bytearray:
            self._add(name, f"bytearray({len(value)})", memoryview(value), 1)
        elif kind is array.array:
            form = f"array({value.typecode!r}, {len(value)})"
            self._add(name, form, memoryview(value).cast("B"), value.itemsize)
        elif issubclass(kind, dict):
            rows = list(dict.items(value))
            self._push_all((f"{name}[{key!r}]", each) for key, each in rows if type(key) in _KEYS)
            self._attributes(name, value)
        elif issubclass(kind, list | tuple | collections.deque):
            self._sequence(name, value, _elements(value))
        elif kind is types.FunctionType:
            if self.is_of_program(value.__module__):
                cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
                self._push_all((f"{name}.{key}", _content(cell)) for key, cell in cells)
        elif kind is types.MethodType:
            self._push_all([(name, value.__self__)])
        elif kind is types.GeneratorType or kind is types.CoroutineType:
            frame = value.gi_frame if kind is types.GeneratorType else value.cr_frame
            if frame is not None and self.is_of_program(frame.f_globals.get("__name__")):
                self.kept.append(values := dict(frame.f_locals))
                self._push_all((f"{name}().{key}", each) for key, each in values.items())
        elif issubclass(kind, type):
            if self.is_of_program(type.__getattribute__(value, "__module__")):
                variables = type.__getattribute__(value, "__dict__")
                self._push_all((f"{name}.{key}", each) for key, each in list(variables.items()))
        else:
            self._attributes(name, value)

    def _attributes(self, name: str, value: Any) -> None:
        kind = type(value)
        if not (self.is_of_program(kind.__module__) or kind is types.SimpleNamespace):
            return
        with contextlib.suppress(AttributeError):
            held = object.__getattribute__(value, "__dict__")
            self._push_all((f"{name}.{key}", each) for key, each in list(dict.items(held)))
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                member = base.__dict__.get(slot)
                if isinstance(member, types.MemberDescriptorType):
                    try:
                        each = member.__get__(value)
                    except AttributeError:
                        continue
                    self._push_all([(f"{name}.{slot}", each)])

    def _sequence(self, name: str, value: Any, elements: Sequence[Any]) -> None:
        if len(elements) >= FLOATS_MIN and all(type(each) is float for each in elements):
            form = f"{type(value).__name__} of {len(elements)} floats"
            self._add(name, form, memoryview(array.array("d", elements)).cast("B"), 8)
            return
        self._push_all((f"{name}[{at}]", each) for at, each in enumerate(elements))
        self._attributes(name, value)

    def _array(self, name: str, value: Any) -> None:
        numpy = self.numpy
        owner = value
        while isinstance(owner.base, numpy.ndarray) and not isinstance(owner, numpy.memmap):
            owner = owner.base
        if isinstance(owner, numpy.memmap) or not owner.nbytes:
            return
        if owner.dtype.kind == "O":
            self._push_all((f"{name}.flat[{at}]", each) for at, each in enumerate(owner.flat))
            return
        if not _has_values_only(owner.dtype):
            return
        order = sorted(range(owner.ndim), key=lambda axis: -abs(owner.strides[axis]))
        memory = owner.transpose(order)
        if not memory.flags.c_contiguous:
            return  # a view of memory that is no array's
        flat = memory.view(numpy.ndarray).reshape(-1).view(numpy.uint8)
        shown = value if value.nbytes == owner.nbytes else memory
        row_bytes = owner.nbytes // shown.shape[0] if shown.ndim else owner.nbytes
        self._add(name, f"{owner.dtype.str} {shown.shape}", memoryview(flat), row_bytes)

    def _add(self, name: str, form: str, view: memoryview, row_bytes: int) -> None:
        if not view.nbytes:
            return
        memory = ArrayMemory(name, form, view, row_bytes)
        if memory.address:
            if (memory.address, view.nbytes) in self.places:
                return
            self.places.add((memory.address, view.nbytes))
        self.found.append(memory)


_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), types.ModuleType, types.CodeType})
_KEYS = frozenset({int, str, bool, bytes})


def _elements(value: Any) -> list[Any]:
    base: Any = next(base for base in (list, tuple, collections.deque) if issubclass(type(value), base))
    return list(base.__iter__(value))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _has_values_only(dtype: Any) -> bool:
    """Is each byte of such elements part of their value?"""
    if dtype.subdtype is not None:
        return _has_values_only(dtype.subdtype[0])
    if dtype.names is None:
        return dtype.kind in "biufcmMSU" and dtype.char not in "gG"
    fields = [dtype.fields[name][0] for name in dtype.names]
    return sum(field.itemsize for field in fields) == dtype.itemsize and all(map(_has_values_only, fields))


def flip(frame: types.FrameType | None, random: Random, variable: str = "") -> str:
    """Flip one bit of an array, of the one with this name if it is given; returns its name, empty if there is none."""
    found = [each for each in find(frame) if each.address and variable in ("", each.name)]
    if not found:
        return ""
    memory = random.choice(found)
    bit = random.randrange(8 * memory.view.nbytes)
    memory.view[bit // 8] ^= 1 << bit % 8
    return memory.name


# ---- digests of blocks -----------------------------------------------------------------------------------


def digests(found: Sequence[ArrayMemory], opened: Sequence[tuple[int, int]]) -> Iterator[tuple[str, Record]]:
    """By name of the variable, what is compared of it. `opened`: memory that may be filled at any moment: address, bytes."""
    rest, names = sha1(usedforsecurity=False), sha1(usedforsecurity=False)
    count = 0
    for at, memory in enumerate(found):
        block = block_bytes(memory.view.nbytes)
        if at >= NAMED_MAX:
            if not any(_overlaps(memory, 0, memory.view.nbytes, each) for each in opened):
                count += 1
                names.update(f"{memory.name} {memory.form} ".encode())
                rest.update(memory.view)
            continue
        starts = range(0, memory.view.nbytes, block)
        texts = [
            sha1(memory.view[start : start + block], usedforsecurity=False).hexdigest()[:HEX]
            for start in starts
        ]
        filling = [
            number
            for number, start in enumerate(starts)
            if any(_overlaps(memory, start, min(block, memory.view.nbytes - start), each) for each in opened)
        ]
        yield memory.name, Record(memory.form, block, memory.row_bytes, tuple(texts), tuple(filling))
    if count:
        form = f"{count} arrays {names.hexdigest()[:HEX]}"
        yield "(other arrays)", Record(form, 1, 1, (rest.hexdigest()[:HEX],), ())


def block_bytes(nbytes: int) -> int:
    """The size of the blocks of an array: a power of two, so that there are at most BLOCKS of them."""
    return max(BLOCK_MIN_BYTES, 1 << max(0, -(-nbytes // BLOCKS) - 1).bit_length())


def _overlaps(memory: ArrayMemory, start: int, nbytes: int, other: tuple[int, int]) -> bool:
    first = memory.address + start
    return bool(memory.address) and first < other[0] + other[1] and other[0] < first + nbytes


def open_memory(engine: Engine) -> list[tuple[int, int]]:
    """Memory that messages may fill, or collectives may use, while the program does something else: address, bytes."""
    targets: list[Any] = []
    for context in list(engine.matcher.contexts.values()):
        receives = [
            *context.wild,
            *(each for channel in context.channels.values() for each in channel.posted),
        ]
        for receive in receives:
            targets += [receive.target, getattr(receive.owner, "spec", None)]
    for shared in list(engine.shared.values()):
        for chain in list(shared.pending.values()):
            for schedule in chain:
                targets += schedule.values
    return [place for place in map(_place, targets) if place is not None]


def _place(target: Any) -> tuple[int, int] | None:
    obj = getattr(target, "obj", None)
    if obj is None or not hasattr(target, "nbytes"):
        return None
    view = memoryview(obj)
    if view.readonly or not view.nbytes or not view.contiguous:
        return None
    interface = getattr(obj, "__array_interface__", None)
    if interface is not None:
        address = interface["data"][0]
    else:
        address = ctypes.addressof(ctypes.c_char.from_buffer(obj))
    return (address + target.offset, target.nbytes) if target.dense else (address, view.nbytes)


# ---- new arrays are zero ---------------------------------------------------------------------------------


def zero_new_arrays() -> None:
    """From now on `numpy.empty` and `numpy.empty_like` give arrays of zeros, where numpy is loaded. Else nothing happens.

    The functions are found by their names in this module, so an image refers to them."""
    numpy: Any = sys.modules.get("numpy")
    if getattr(numpy, "zeros_like", None) is None or getattr(numpy, "empty", None) is numpy_empty:
        return
    if hasattr(numpy, "empty") and hasattr(numpy, "empty_like"):
        for made, name in ((numpy_empty, "empty"), (numpy_empty_like, "empty_like")):
            made.__doc__ = getattr(numpy, name).__doc__
            setattr(numpy, name, made)


def numpy_empty(*arguments: Any, **named: Any) -> Any:
    return _of_nothing(sys.modules["numpy"].zeros(*arguments, **named))


def numpy_empty_like(*arguments: Any, **named: Any) -> Any:
    return _of_nothing(sys.modules["numpy"].zeros_like(*arguments, **named))


def _of_nothing(made: Any) -> Any:
    if made.dtype.char == "O":
        made.fill(None)
    return made

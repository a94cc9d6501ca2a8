"""What a program holds in memory, by the names of its variables: arrays and single values. (driver)

Looked through, in an order that follows from the program alone: the variables of its modules; the local variables of the
functions that its main thread is in; from there lists, tuples, dictionaries, attributes of objects of its own classes,
closures, defaults of functions and generators; modules and optimizers of torch. What is found in two ways counts under the
first name.

    an array        numpy.ndarray (the memory of its owner), a torch tensor on the CPU (its storage), bytearray, array.array;
                    a list of MANY floats or more
    a value         what values.py has a text for; the length of each sequence, and the keys of each dictionary
    a row           a list, tuple or dictionary of MANY values or more: its values, in blocks
    left out        memory that is no value: `longdouble` and structures with gaps, arrays of objects (their elements are
                    looked through), arrays in files, what belongs to libraries and to ckpt, names that begin and end with
                    two underscores

No code of the program runs here: its classes may have `__class__`, `__iter__` and the like of their own.

This is done in a forked child, but for bit flips on purpose: these also need to know where a value is kept (`Value.put`).

Not here: digests of blocks (arrays.py), what a value's text is (values.py).
"""

from __future__ import annotations

import array
import collections
import contextlib
import ctypes
import functools
import sys
import sysconfig
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ckpt.layer import set_local
from ckpt.redundancy.memory.tensors import Tensors
from ckpt.redundancy.memory.values import PLAIN, is_key, is_plain

__all__ = ["MANY", "ArrayMemory", "Found", "Row", "Value", "find"]

VISITS_MAX = 200_000
"""So many objects are looked at."""

MANY = 16
"""So many values in one list or dictionary are a row."""


class ArrayMemory:
    """The memory of one array. `form`: its type and shape; `row_bytes`: bytes of one index of the first dimension."""

    __slots__ = ("address", "form", "name", "row_bytes", "view")

    def __init__(self, name: str, form: str, view: memoryview, row_bytes: int) -> None:
        self.name, self.form, self.view, self.row_bytes = name, form, view, max(1, row_bytes)
        self.address = 0 if view.readonly else ctypes.addressof(ctypes.c_char.from_buffer(view))


class Value(NamedTuple):
    """A single value. `put`: gives it another one; None: nobody can. `is_variable`: a variable of the program has it itself,
    and it is no part of an object."""

    name: str
    value: Any
    put: Callable[[Any], None] | None
    is_variable: bool


class Row(NamedTuple):
    """Many values in one sequence or dictionary."""

    name: str
    form: str
    values: Sequence[Any]
    holder: Any


class Found(NamedTuple):
    arrays: list[ArrayMemory]
    values: list[Value]
    rows: list[Row]


def find(frame: types.FrameType | None) -> Found:
    """What the program holds whose main thread is in `frame`."""
    return _Search().run(frame)


Place = tuple[str, Any, Callable[[Any], None] | None]
"""A name, what it is the name of, and how that can be replaced."""


class _Search:
    def __init__(self) -> None:
        self.numpy: Any = sys.modules.get("numpy")
        self.tensors = Tensors.of_process()
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
        self.found = Found([], [], [])
        self.places: set[tuple[int, int]] = set()

    def run(self, frame: types.FrameType | None) -> Found:
        for name in sorted(sys.modules):
            module = sys.modules.get(name)
            if self.is_of_program(name) and isinstance(module, types.ModuleType):
                prefix = "" if name == "__main__" else f"{name}."
                self._variables(prefix, vars(module))
        depth: collections.Counter[str] = collections.Counter()
        while frame is not None:
            if frame.f_locals is not frame.f_globals and self.is_of_program(frame.f_globals.get("__name__")):
                name = frame.f_code.co_name
                depth[name] += 1
                number = f"[{depth[name]}]" if depth[name] > 1 else ""  # it calls itself
                self._locals(f"{name}(){number}.", frame)
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
            own = (name, getattr(sys.modules.get(name), "__name__", ""))  # mpi4py.MPI is a module of ckpt
            is_library = name == "__mp_main__" or any(
                each == "ckpt" or str(each).startswith("ckpt.") for each in own
            )
            is_outside = file is not None and not str(file).startswith(("<", *self.libraries))
            is_outside = is_outside and not any(folder in str(file) for folder in _FOLDERS)
            known = self.owned[name] = not is_library and (name == "__main__" or is_outside)
        return known

    # ---- variables ---------------------------------------------------------------------------------------

    def _variables(self, prefix: str, held: dict[str, Any]) -> None:
        """Of a module."""
        for name, value in list(held.items()):
            if not _is_special(name):
                self._push(
                    prefix + str(name), value, functools.partial(held.__setitem__, name), is_variable=True
                )

    def _locals(self, prefix: str, frame: types.FrameType) -> None:
        held = dict(frame.f_locals)
        self.kept.append(held)
        for name, value in held.items():
            if not _is_special(name):
                put = functools.partial(set_local, frame, name)
                self._push(prefix + name, value, put, is_variable=True)

    def _push(
        self, name: str, value: Any, put: Callable[[Any], None] | None, *, is_variable: bool = False
    ) -> None:
        kind = type(value)
        if kind in PLAIN or self._is_single(kind):
            self.found.values.append(Value(name, value, put if kind in PLAIN else None, is_variable))
        elif kind not in _NOTHING and id(value) not in self.seen:
            self.seen.add(id(value))
            self.queue.append((name, value))

    def _is_single(self, kind: type) -> bool:
        """May values.py have a text for an object of this type, which has no parts to be looked through?"""
        if kind is range or kind.__module__ in _MODULES_OF_VALUES:
            return True
        return (
            self.numpy is not None
            and kind.__module__.startswith("numpy")
            and not issubclass(kind, self.numpy.ndarray)
        )

    def _count(self, name: str, count: int) -> None:
        self.found.values.append(Value(f"len({name})", count, None, False))

    # ---- objects -----------------------------------------------------------------------------------------

    def _look(self, name: str, value: Any) -> None:
        kind = type(value)
        if self.numpy is not None and issubclass(kind, self.numpy.ndarray):
            self._array(name, self.numpy.ndarray.view(value, self.numpy.ndarray))
        elif kind is bytearray:
            self._add(name, f"bytearray({len(value)})", memoryview(value), 1)
        elif kind is array.array:
            form = f"array({value.typecode!r}, {len(value)})"
            self._add(name, form, memoryview(value).cast("B"), value.itemsize)
        elif issubclass(kind, dict):
            self._dictionary(name, value)
        elif issubclass(kind, list | tuple | collections.deque):
            self._sequence(name, value, _elements(value))
        elif issubclass(kind, set | frozenset):
            self._set(name, value)
        elif kind is types.FunctionType:
            self._function(name, value)
        elif kind is types.MethodType:
            self._push(name, value.__self__, None)
        elif kind is functools.partial:
            for part in ("func", "args", "keywords"):
                self._push(f"{name}.{part}", getattr(value, part), None)
        elif kind is types.GeneratorType or kind is types.CoroutineType:
            frame = value.gi_frame if kind is types.GeneratorType else value.cr_frame
            if frame is not None and self.is_of_program(frame.f_globals.get("__name__")):
                self._locals(f"{name}().", frame)
        elif issubclass(kind, type):
            if self.is_of_program(type.__getattribute__(value, "__module__")):
                variables = type.__getattribute__(value, "__dict__")
                for key, each in list(variables.items()):
                    if not _is_special(key):
                        self._push(f"{name}.{key}", each, functools.partial(type.__setattr__, value, key))
        elif self.tensors is not None and self.tensors.has(kind):
            self._of_torch(name, value)
        else:
            self._attributes(name, value)

    def _function(self, name: str, value: Any) -> None:
        if not self.is_of_program(value.__module__):
            return
        for key, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):  # an empty cell
                self._push(f"{name}.{key}", cell.cell_contents, functools.partial(_put_cell, cell))
        for held in (value.__defaults__, value.__kwdefaults__, value.__dict__):
            if held:
                self._push(f"{name}()", held, None)

    def _attributes(self, name: str, value: Any, *, anyway: bool = False) -> None:
        kind = type(value)
        is_bag = kind is types.SimpleNamespace or (kind.__module__, kind.__qualname__) == (
            "argparse",
            "Namespace",
        )
        if not (anyway or is_bag or self.is_of_program(kind.__module__)):
            return
        with contextlib.suppress(AttributeError):
            held = object.__getattribute__(value, "__dict__")
            for key, each in list(dict.items(held)):
                self._push(f"{name}.{key}", each, functools.partial(dict.__setitem__, held, key))
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                member = base.__dict__.get(slot)
                if isinstance(member, types.MemberDescriptorType):
                    with contextlib.suppress(AttributeError):
                        put = functools.partial(member.__set__, value)
                        self._push(f"{name}.{slot}", member.__get__(value), put)

    # ---- containers --------------------------------------------------------------------------------------

    def _dictionary(self, name: str, value: Any) -> None:
        items = list(dict.items(value))
        keys = [key for key, _ in items if is_key(key)]
        # as many keys that are objects count, too; the order does not: it may be that of a set
        self.found.values.append(Value(f"{name}.keys()", {*keys, len(items)}, None, False))
        plain = [(key, each) for key, each in items if type(each) in PLAIN and is_key(key)]
        if len(plain) >= MANY:
            texts = sorted(((repr(key), each) for key, each in plain), key=_first)
            self._row(name, f"dict of {len(plain)} values", [each for _, each in texts], value)
        for at, (key, each) in enumerate(items):
            shown = self._key(key, at)
            if shown is not None and not (len(plain) >= MANY and type(each) in PLAIN):
                self._push(f"{name}[{shown}]", each, functools.partial(dict.__setitem__, value, key))
        self._attributes(name, value)

    def _key(self, key: Any, at: int) -> str | None:
        if is_key(key):
            return repr(key)
        is_tensor = self.tensors is not None and self.tensors.has(type(key))  # of the state of an optimizer
        return f"tensor {at}" if is_tensor else None

    def _sequence(self, name: str, value: Any, elements: Sequence[Any]) -> None:
        self._count(name, len(elements))
        many = len(elements) >= MANY
        if many and all(type(each) is float for each in elements):
            form = f"{type(value).__name__} of {len(elements)} floats"
            self._add(name, form, memoryview(array.array("d", elements)).cast("B"), 8)
        elif many and all(type(each) in PLAIN for each in elements):
            self._row(name, f"{type(value).__name__} of {len(elements)} values", elements, value)
        else:
            can_put = issubclass(type(value), list)
            for at, each in enumerate(elements):
                self._push(
                    f"{name}[{at}]", each, functools.partial(list.__setitem__, value, at) if can_put else None
                )
        self._attributes(name, value)

    def _row(self, name: str, form: str, values: Sequence[Any], holder: Any) -> None:
        self.found.rows.append(Row(name, form, values, holder))

    def _set(self, name: str, value: Any) -> None:
        base: Any = set if issubclass(type(value), set) else frozenset
        elements = list(base.__iter__(value))
        self._count(name, len(elements))
        plain = frozenset(each for each in elements if is_plain(each))
        self.found.values.append(Value(name, plain, None, False))
        self._attributes(name, value)

    # ---- arrays ------------------------------------------------------------------------------------------

    def _array(self, name: str, value: Any) -> None:
        numpy = self.numpy
        owner = value
        while isinstance(owner.base, numpy.ndarray) and not isinstance(owner, numpy.memmap):
            owner = owner.base
        if isinstance(owner, numpy.memmap) or not owner.nbytes:
            return
        if owner.dtype.kind == "O":
            for at, each in enumerate(owner.flat):
                self._push(f"{name}.flat[{at}]", each, functools.partial(owner.flat.__setitem__, at))
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

    def _of_torch(self, name: str, value: Any) -> None:
        assert self.tensors is not None
        if not self.tensors.is_tensor(value):
            self._attributes(name, value, anyway=True)
        elif (found := self.tensors.memory(value)) is not None:
            self.kept.append(found.storage)
            self._add(name, found.form, found.view, found.row_bytes)
            self._push(f"{name}.grad", found.gradient, None)

    def _add(self, name: str, form: str, view: memoryview, row_bytes: int) -> None:
        if not view.nbytes:
            return
        memory = ArrayMemory(name, form, view, row_bytes)
        if memory.address:
            if (memory.address, view.nbytes) in self.places:
                return
            self.places.add((memory.address, view.nbytes))
        self.found.arrays.append(memory)


_FOLDERS = ("/site-packages/", "/dist-packages/")
_MODULES_OF_VALUES = frozenset({"decimal", "fractions", "datetime", "random"})
_NOTHING = frozenset({types.ModuleType, types.CodeType, types.BuiltinFunctionType, property})


def _is_special(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("__") and name.endswith("__")


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def _elements(value: Any) -> list[Any]:
    base: Any = next(base for base in (list, tuple, collections.deque) if issubclass(type(value), base))
    return list(base.__iter__(value))


def _put_cell(cell: types.CellType, value: Any) -> None:
    cell.cell_contents = value


def _has_values_only(dtype: Any) -> bool:
    """Is each byte of such elements part of their value?"""
    if dtype.subdtype is not None:
        return _has_values_only(dtype.subdtype[0])
    if dtype.names is None:
        return dtype.kind in "biufcmMSU" and dtype.char not in "gG"
    fields = [dtype.fields[name][0] for name in dtype.names]
    return sum(field.itemsize for field in fields) == dtype.itemsize and all(map(_has_values_only, fields))

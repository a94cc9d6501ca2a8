"""How functions, classes and instances of by-value modules are taken apart.

Contract of a reducer
    ``reduce(pickler, obj)`` returns what ``__reduce_ex__`` may return: a tuple ``(callable, arguments, state,
    None, None, state setter)``, or ``NotImplemented`` for the C pickler's own way (by name, or
    ``object.__reduce_ex__``). It runs no code of the program and compares by identity only. Callables and
    setters live in :mod:`ckpt.image.rebuild`.

Shell first
    A class is made from its name, bases and slots and filled with its raw attributes afterwards; a cell is
    made empty; a function gets its defaults and attributes last. So every cycle closes, and no user code runs
    at load. Where a cycle runs through the arguments of a call (closures that contain themselves) the pickler
    notices that the object has got into its memo meanwhile, and throws the second copy away.

Kinds of instances, decided once per class by :func:`kind_of_instance`
    ===========  ==================================================================  =========================
    kind         for                                                                 cost
    ===========  ==================================================================  =========================
    PLAIN        no pickle hooks, no user ``__new__``, no C state                    the C pickler's own path
    raw          user classes with any of these; subclasses of builtin types         one tuple made in Python
    by base      user classes over a C type with a ``__reduce__`` of its own         what that type says
    DEFAULT      classes of by-reference modules                                     what their authors say
    ===========  ==================================================================  =========================

    A PLAIN instance whose ``__dict__`` somebody else holds too is saved raw, so that the dictionary stays
    shared.
"""

from __future__ import annotations

import abc
import copyreg
import io
import sys
import types
from abc import ABCMeta
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.image import rebuild
from ckpt.image.rebuild import is_heap

if TYPE_CHECKING:
    from ckpt.image.pickler import ImagePickler

__all__ = ["CODE_FIELDS", "DEFAULT", "PLAIN", "Reducer", "kind_of_instance", "reduce_class", "reduce_plain"]

Reducer = Callable[["ImagePickler", Any], Any]

CODE_FIELDS = (
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_nlocals",
    "co_stacksize",
    "co_flags",
    "co_code",
    "co_consts",
    "co_names",
    "co_varnames",
    "co_filename",
    "co_name",
    "co_qualname",
    "co_firstlineno",
    "co_linetable",
    "co_exceptiontable",
    "co_freevars",
    "co_cellvars",
)

_POINTER_BYTES = object.__basicsize__ // 2


def reduce_code(pickler: ImagePickler, code: types.CodeType) -> Any:
    return rebuild.make_code, tuple(getattr(code, field) for field in CODE_FIELDS)


def reduce_cell(pickler: ImagePickler, cell: types.CellType) -> Any:
    try:
        state = (cell.cell_contents,)
    except ValueError:
        return rebuild.make_cell, ()
    return rebuild.make_cell, (), state, None, None, rebuild.fill_cell


def reduce_function(pickler: ImagePickler, function: types.FunctionType) -> Any:
    if pickler.references.names(function):
        return NotImplemented
    state = (
        function.__qualname__,
        function.__module__,
        function.__doc__,
        function.__defaults__,
        function.__kwdefaults__,
        function.__annotations__ or None,
        function.__dict__ or None,
        getattr(function, "__type_params__", None) or None,
    )
    args = (function.__code__, function.__globals__, function.__name__, function.__closure__)
    return rebuild.make_function, args, state, None, None, rebuild.fill_function


def reduce_method(pickler: ImagePickler, method: types.MethodType) -> Any:
    return types.MethodType, (method.__func__, method.__self__)


# ---------------------------------------------------------------------- classes

_CLASS_SKIP = frozenset(
    {
        "__dict__",
        "__weakref__",
        "_abc_impl",
        "__slots__",
        "__module__",
        "__qualname__",
        "__abstractmethods__",
        "__slotnames__",
    }
)
_CTYPES_ESSENTIALS = (
    "_pack_",
    "_anonymous_",
    "_fields_",
    "_length_",
    "_type_",
    "_flags_",
    "_restype_",
    "_argtypes_",
)


def reduce_class(pickler: ImagePickler, cls: type) -> Any:
    if pickler.references.names(cls):
        return NotImplemented
    if not _is_written_in_python(cls):
        return _find_c_type(cls)
    meta: type = type(cls)
    own = cls.__dict__
    essentials: dict[str, Any] = {"__module__": own.get("__module__"), "__qualname__": cls.__qualname__}
    if "__slots__" in own:
        essentials["__slots__"] = own["__slots__"]
        if not isinstance(own["__slots__"], (str, tuple, list, dict)):
            essentials["__slots__"] = tuple(k for k, v in own.items() if _is_slot(v, cls))
    if type.__new__ is not next(c for c in meta.__mro__ if not is_heap(c)).__new__:
        essentials.update((key, own[key]) for key in _CTYPES_ESSENTIALS if key in own)
    attributes = {
        key: value
        for key, value in own.items()
        if key not in _CLASS_SKIP and key not in essentials and not _is_layout(value, cls)
    }
    if issubclass(meta, ABCMeta):
        registered = [ref() for ref in abc._get_dump(cls)[0]]  # type: ignore[attr-defined]
        registered = [subclass for subclass in registered if subclass is not None]
        if registered:
            pickler.defer(rebuild.register_virtual, cls, registered)
    state = (attributes, own.get("__abstractmethods__"))
    return (
        rebuild.make_class,
        (meta, cls.__name__, cls.__bases__, essentials),
        state,
        None,
        None,
        rebuild.fill_class,
    )


_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _is_written_in_python(cls: type) -> bool:
    """Made by a class statement. The dictionary of a type made in C holds C functions of its own."""
    if not is_heap(cls):
        return False
    return not any(isinstance(v, _DESCRIPTORS) and v.__objclass__ is cls for v in cls.__dict__.values())


def _find_c_type(cls: type) -> Any:
    """A type made in C whose name lies (``builtins.method``, ``_csv.writer``): found where somebody has named
    it.
    """
    for module_name in (cls.__module__, "types", "_collections_abc"):
        module = sys.modules.get(module_name)
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is cls:
                return getattr, (module, key)
    return NotImplemented


def _is_slot(value: object, cls: type) -> bool:
    return type(value) is types.MemberDescriptorType and value.__objclass__ is cls


def _is_layout(value: object, cls: type) -> bool:
    """Made by the skeleton: slots, ``__dict__``, and the fields of a ctypes structure."""
    return (
        _is_slot(value, cls) or type(value) is types.GetSetDescriptorType or type(value).__name__ == "CField"
    )


# ---------------------------------------------------------------------- instances


def DEFAULT(pickler: ImagePickler, obj: object) -> Any:
    """The C pickler's own way."""
    return NotImplemented


def PLAIN(pickler: ImagePickler, obj: object) -> Any:
    """Named here, done in :meth:`ImagePickler.reducer_override` itself, which calls this only for a shared
    dictionary.
    """
    return rebuild.make_instance, (type(obj),), obj.__dict__, None, None, rebuild.fill_instance


_HOOKS = frozenset(
    {
        "__new__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__setstate__",
        "__getnewargs__",
        "__getnewargs_ex__",
        "__getattribute__",
        "__getattr__",
        "__class__",
    }
)
_BY_VALUE_BASES = (int, str, float, bytes, tuple, frozenset, complex)
_FILLED_BASES = (list, dict, set)


def kind_of_instance(pickler: ImagePickler, cls: type) -> Reducer:
    """The reducer for instances of ``cls``, which is no builtin type, exception or other special class."""
    heap = [c for c in cls.__mro__ if is_heap(c)]
    if not heap:
        return _of_c_type(cls)
    is_user = pickler.references.is_user_type(cls) or not pickler.references.names(cls)
    base = next(c for c in cls.__mro__ if not is_heap(c))
    hooks = {name for c in heap for name in _HOOKS if name in c.__dict__}
    has_state_in_c = base is object and cls.__basicsize__ > _expected_size(cls, heap)
    slots = any(_is_slot(value, c) for c in heap for value in c.__dict__.values())
    if slots and any("__setattr__" in c.__dict__ for c in heap):
        hooks.add("__setattr__")
    if base is object and not has_state_in_c:
        if not hooks and cls not in copyreg.dispatch_table:
            return PLAIN if cls.__dictoffset__ else DEFAULT
        if is_user:
            return reduce_raw
        return _of_library(cls)
    if not is_user:
        return _of_library(cls) if not has_state_in_c else _of_c_type(cls)
    if base in _BY_VALUE_BASES or base in _FILLED_BASES:
        return reduce_raw
    if base in _SPECIAL_BASES:
        return _SPECIAL_BASES[base]
    return reduce_by_base


def reduce_plain(pickler: ImagePickler, obj: object) -> Any:
    return PLAIN(pickler, obj)


def _expected_size(cls: type, heap: list[type]) -> int:
    """Bytes of an instance that holds nothing but slots, a dictionary and weak references."""
    slots = sum(1 for c in heap for value in c.__dict__.values() if _is_slot(value, c))
    size = object.__basicsize__ + slots * _POINTER_BYTES
    size += _POINTER_BYTES * (cls.__weakrefoffset__ > 0) + _POINTER_BYTES * (cls.__dictoffset__ > 0)
    return size


def _of_c_type(cls: type) -> Reducer:
    """A type written in C: with a ``__reduce__`` of its own, or left to dill."""
    if cls in copyreg.dispatch_table or (_has_own_reduce(cls) and not issubclass(cls, io.IOBase)):
        return DEFAULT
    return reduce_or_dill  # files have a __reduce__ in some versions, which only refuses


def _has_own_reduce(cls: type) -> bool:
    own, default = (cls.__reduce_ex__, cls.__reduce__), (object.__reduce_ex__, object.__reduce__)
    return any(mine is not theirs for mine, theirs in zip(own, default, strict=True))


def _of_library(cls: type) -> Reducer:
    """A class of an installed package with pickle hooks.

    One that pickles by name may belong to a by-value module.
    """
    return reduce_by_name if _has_own_reduce(cls) and cls not in copyreg.dispatch_table else DEFAULT


def reduce_by_name(pickler: ImagePickler, obj: Any) -> Any:
    """``typing.TypeVar`` and its like say "I am called T"; in a by-value module that finds nobody."""
    reduced = obj.__reduce_ex__(5)
    if isinstance(reduced, str):
        if getattr(obj, "__module__", None) in pickler.references.by_value:
            return reduce_raw(pickler, obj)
        return reduced
    return reduced


def reduce_or_dill(pickler: ImagePickler, obj: Any) -> Any:
    """A type without any ``__reduce__``: perhaps dill has a way."""
    try:
        return obj.__reduce_ex__(5)
    except TypeError as refusal:
        from ckpt.image import dill_adapter

        reduced = dill_adapter.reduce(obj)
        if reduced is None:
            raise refusal
        return reduced


def slots_of(pickler: ImagePickler, obj: Any) -> list[tuple[type, str, Any]]:
    """``(owner, name, value)`` of every slot that is set."""
    cls = type(obj)
    known = pickler.slots.get(cls)
    if known is None:
        known = pickler.slots[cls] = [
            (c, key, value)
            for c in cls.__mro__
            if is_heap(c)
            for key, value in c.__dict__.items()
            if _is_slot(value, c)
        ]
    found = []
    for owner, key, descriptor in known:
        try:
            found.append((owner, key, descriptor.__get__(obj, cls)))
        except AttributeError:
            continue  # never set, or deleted
    return found


def attributes_of(obj: Any) -> dict[str, Any] | None:
    """The instance's dictionary itself, past whatever the program defined."""
    if not type(obj).__dictoffset__:
        return None
    found = object.__getattribute__(obj, "__dict__")
    return found if type(found) is dict else None


def reduce_raw(pickler: ImagePickler, obj: Any) -> Any:
    """Dictionary, slots and builtin value, taken without any method of the program."""
    cls = type(obj)
    base = next(c for c in cls.__mro__ if not is_heap(c))
    attributes, slots = attributes_of(obj), slots_of(pickler, obj)
    if base is object:
        if slots or attributes is None:
            return rebuild.make_instance, (cls,), (attributes, slots), None, None, rebuild.fill_slots
        return rebuild.make_instance, (cls,), attributes, None, None, rebuild.fill_instance
    if base in _FILLED_BASES:
        items = list(dict.items(obj)) if base is dict else list(base.__iter__(obj))
        state = (attributes, slots, base, items)
        return rebuild.make_from_builtin, (base, cls), state, None, None, rebuild.fill_container
    args = (base, cls, _builtin_value(base, obj))
    if attributes is None and not slots:
        return rebuild.make_from_builtin, args
    return rebuild.make_from_builtin, args, (attributes, slots), None, None, rebuild.fill_slots


def _builtin_value(base: type, obj: Any) -> Any:
    """The plain builtin value inside an instance of a subclass."""
    if base is int:
        return int.__int__(obj)
    if base is float:
        return float.__float__(obj)
    if base is str:
        return str.__str__(obj)
    if base is bytes:
        return bytes.__getitem__(obj, slice(None)) if type(obj) is bytes else bytes.__add__(obj, b"")
    if base is complex:
        return complex.__pos__(obj)
    return list(base.__iter__(obj))  # type: ignore[attr-defined]


def reduce_by_base(pickler: ImagePickler, obj: Any) -> Any:
    """An instance of a user class over a C type that pickles in its own way: that type's way, without the
    user's hooks.
    """
    for cls in type(obj).__mro__:
        if not pickler.references.is_user_type(cls):
            break
    if not _has_own_reduce(cls):
        return reduce_or_dill(pickler, obj)
    reduce_ex: Any = cls.__reduce_ex__
    reduced = reduce_ex(obj, 5)
    if type(reduced) is tuple and reduced[0] is type(obj):  # would run the user's __init__
        return (rebuild.make_from_builtin, (cls, type(obj), *reduced[1]), *reduced[2:])
    return reduced


def _reduce_deque(pickler: ImagePickler, obj: Any) -> Any:
    state = (attributes_of(obj), slots_of(pickler, obj), list(deque.__iter__(obj)), obj.maxlen)
    return rebuild.make_from_builtin, (deque, type(obj)), state, None, None, rebuild.fill_deque


def _reduce_ordered(pickler: ImagePickler, obj: Any) -> Any:
    state = (
        attributes_of(obj),
        slots_of(pickler, obj),
        [(key, OrderedDict.__getitem__(obj, key)) for key in OrderedDict.__iter__(obj)],
    )
    return rebuild.make_from_builtin, (OrderedDict, type(obj)), state, None, None, rebuild.fill_ordered


def _reduce_defaultdict(pickler: ImagePickler, obj: Any) -> Any:
    state = (attributes_of(obj), slots_of(pickler, obj), list(dict.items(obj)), obj.default_factory)
    return rebuild.make_from_builtin, (defaultdict, type(obj)), state, None, None, rebuild.fill_defaultdict


_SPECIAL_BASES: dict[type, Reducer] = {
    deque: _reduce_deque,
    OrderedDict: _reduce_ordered,
    defaultdict: _reduce_defaultdict,
}

REDUCERS: dict[type, Reducer] = {
    types.CodeType: reduce_code,
    types.CellType: reduce_cell,
    types.FunctionType: reduce_function,
    types.MethodType: reduce_method,
}
"""By exact type; see :mod:`ckpt.image.reducers_builtin` for the others."""

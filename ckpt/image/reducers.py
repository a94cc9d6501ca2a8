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

import copyreg
import io
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from ckpt.image import definitions, rebuild
from ckpt.image.logs import reduce_logger
from ckpt.image.modules import OWN_PACKAGES
from ckpt.image.rebuild import is_heap
from ckpt.image.reducers_classes import is_made_in_c, is_slot, reduce_class

if TYPE_CHECKING:
    from ckpt.image.pickler import ImagePickler

__all__ = [
    "CODE_FIELDS",
    "DEFAULT",
    "PLAIN",
    "Reducer",
    "has_own_reduce",
    "kind_of_instance",
    "reduce_class",
    "reduce_plain",
]

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
    defined = pickler.definitions.cell(cell)
    if defined is not None:
        path, content = defined
        return definitions.follow, (path, None), content, None, None, definitions.fill_cell
    try:
        state = (cell.cell_contents,)
    except ValueError:
        return rebuild.make_cell, ()
    return rebuild.make_cell, (), state, None, None, rebuild.fill_cell


def reduce_function(pickler: ImagePickler, function: types.FunctionType) -> Any:
    if pickler.references.names(function):
        return NotImplemented
    path = pickler.definitions.path_of(function)
    if path is not None:
        return definitions.follow, (path, function.__qualname__)
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
    if type(method.__func__) is types.BuiltinFunctionType:  # bound by a C++ library: found again by its name
        return getattr, (method.__self__, method.__func__.__name__)
    return types.MethodType, (method.__func__, method.__self__)


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
# pickle asks empty objects for attributes, and gives __new__ what the builtin type wants
_MISLEADING = frozenset({"__getattr__", "__getattribute__", "__new__"})
_PICKLE_HOOKS = _HOOKS - _MISLEADING - {"__class__"}
_BY_VALUE_BASES = (int, str, float, bytes, tuple, frozenset, complex)
_FILLED_BASES = (list, dict, set)


def kind_of_instance(pickler: ImagePickler, cls: type) -> Reducer:
    """The reducer for instances of ``cls``, which is no builtin type, exception or other special class."""
    if hasattr(cls, "__image_reduce__"):
        return _by_its_own_rule
    heap = [c for c in cls.__mro__ if is_heap(c)]
    if not heap:
        return _of_c_type(cls)
    is_user = pickler.references.is_user_type(cls) or not pickler.references.names(cls)
    base = next(c for c in cls.__mro__ if not is_heap(c))
    hooks = {name for c in heap for name in _HOOKS if name in c.__dict__}
    has_state_in_c = base is object and cls.__basicsize__ > _expected_size(cls, heap)
    slots = any(is_slot(value, c) for c in heap for value in c.__dict__.values())
    if slots and any("__setattr__" in c.__dict__ for c in heap):
        hooks.add("__setattr__")
    if is_user and "logging" in sys.modules and issubclass(cls, sys.modules["logging"].Logger):
        return reduce_logger
    if base is object and not has_state_in_c:
        if not hooks and cls not in copyreg.dispatch_table:
            return PLAIN if cls.__dictoffset__ else DEFAULT
        if is_user:
            return reduce_raw
        if hooks & _PICKLE_HOOKS or cls in copyreg.dispatch_table:
            # Our own objects are made to be saved while their methods run: the engine while it waits, above all.
            return DEFAULT if cls.__module__.partition(".")[0] in OWN_PACKAGES else reduce_unless_running
        return DEFAULT if hooks == {"__new__"} and not _needs_arguments(cls) else reduce_raw
    if not is_user:
        if has_state_in_c:
            return _of_c_type(cls)
        own_way = hooks & _PICKLE_HOOKS or has_own_reduce(cls) or cls in copyreg.dispatch_table
        if base in _FILLED_BASES:  # pickle would fill it by the class's own append, add or __setitem__
            return reduce_unless_running if own_way else reduce_raw
        misled = hooks & _MISLEADING and not own_way
        return reduce_raw if misled and base in _BY_VALUE_BASES else _of_library(cls)
    if base in _BY_VALUE_BASES or base in _FILLED_BASES:
        return reduce_raw
    if base in _SPECIAL_BASES:
        return _SPECIAL_BASES[base]
    return reduce_by_base


def _by_its_own_rule(pickler: ImagePickler, obj: Any) -> Any:
    """``__image_reduce__`` as ``__reduce__``: for objects that programs cannot pickle but images hold."""
    return obj.__image_reduce__()


def reduce_plain(pickler: ImagePickler, obj: object) -> Any:
    return PLAIN(pickler, obj)


def _expected_size(cls: type, heap: list[type]) -> int:
    """Bytes of an instance that holds nothing but slots, a dictionary and weak references."""
    slots = sum(1 for c in heap for value in c.__dict__.values() if is_slot(value, c))
    size = object.__basicsize__ + slots * _POINTER_BYTES
    size += _POINTER_BYTES * (cls.__weakrefoffset__ > 0) + _POINTER_BYTES * (cls.__dictoffset__ > 0)
    return size


def _of_c_type(cls: type) -> Reducer:
    """A type written in C: with a ``__reduce__`` of its own, or left to dill."""
    if cls in copyreg.dispatch_table or (has_own_reduce(cls) and not issubclass(cls, io.IOBase)):
        return DEFAULT
    return reduce_or_dill  # files have a __reduce__ in some versions, which only refuses


def has_own_reduce(cls: type) -> bool:
    """Does it say itself how its instances are taken apart?"""
    own, default = (cls.__reduce_ex__, cls.__reduce__), (object.__reduce_ex__, object.__reduce__)
    return any(mine is not theirs for mine, theirs in zip(own, default, strict=True))


def _of_library(cls: type) -> Reducer:
    """A class of an installed package with pickle hooks.

    One that pickles by name may belong to a by-value module.
    """
    return reduce_by_name if has_own_reduce(cls) and cls not in copyreg.dispatch_table else DEFAULT


def _needs_arguments(cls: type) -> bool:
    """Is its ``__new__`` written in Python, and cannot be called with the class alone, as pickle would do?"""
    new: Any = next((c.__dict__["__new__"] for c in cls.__mro__ if "__new__" in c.__dict__), None)
    while type(new) is staticmethod or (type(new) is not types.FunctionType and hasattr(new, "__wrapped__")):
        new = new.__wrapped__
    if type(new) is not types.FunctionType:
        return False
    required = new.__code__.co_argcount - len(new.__defaults__ or ())
    return required > 1 or new.__code__.co_kwonlyargcount > len(new.__kwdefaults__ or {})


def reduce_unless_running(pickler: ImagePickler, obj: Any) -> Any:
    """An object of a library that takes itself apart, and is put together from new parts: but while a method of it runs,
    frames hold the old ones. Not those that are one of a kind: they say so by naming no arguments, or are found again by
    them."""
    cls = type(obj)
    own_way = _of_library(cls)
    if (
        id(obj) not in pickler.running
        or cls in copyreg.dispatch_table
        or isinstance(obj, Enum)
        or is_made_in_c(cls)
    ):
        return own_way(pickler, obj)
    has_arguments = hasattr(cls, "__getnewargs__") or hasattr(cls, "__getnewargs_ex__")
    if own_way is not reduce_by_name and not has_arguments:
        return reduce_raw(pickler, obj)
    try:
        reduced = reduce_by_name(pickler, obj)
    except (AttributeError, RecursionError):  # it is being made, and has not all of its attributes yet
        return reduce_raw(pickler, obj)
    if (
        type(reduced) is not tuple
        or len(reduced) < 2
        or not reduced[1]
        or _is_one_of_a_kind(pickler, obj, reduced)
    ):
        return reduced
    return reduce_raw(pickler, obj)


def _is_one_of_a_kind(pickler: ImagePickler, obj: Any, reduced: tuple[Any, ...]) -> bool:
    """Does its class keep a single object for these arguments? Asked only where nothing can suffer from the answer."""
    if not pickler.is_disposable:
        return False
    try:
        return reduced[0](*reduced[1]) is obj
    except Exception:  # it cannot be put together in this way
        return False


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
            if is_slot(value, c)
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
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None  # a C type that has one and does not show it: _asyncio.Future
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
    user's hooks, and besides what the user's classes have added: attributes and slots.
    """
    own = type(obj)
    cls: Any = next(c for c in own.__mro__ if not pickler.references.is_user_type(c))
    default: Any = object
    if cls.__reduce_ex__ is not default.__reduce_ex__:
        reduced = cls.__reduce_ex__(obj, 5)
    elif cls.__reduce__ is not default.__reduce__:
        reduced = cls.__reduce__(obj)
    else:
        reduced = _reduce_by_getstate(cls, obj) or reduce_or_dill(pickler, obj)
    if type(reduced) is not tuple:
        return reduced
    make, args, state, items, pairs, *setter = (*reduced, None, None, None)[: max(5, len(reduced))]
    if setter and setter[0] is not None:
        return reduced
    if make is own:  # would run the user's __init__
        make, args = rebuild.make_from_builtin, (cls, own, *args)
    elif make is copyreg.__newobj__ and args[0] is own:  # type: ignore[attr-defined]  # and this one __new__
        make, args = rebuild.make_from_builtin, (cls, *args)
    added = (attributes_of(obj), slots_of(pickler, obj))
    return make, args, (cls, state, *added), items, pairs, rebuild.fill_by_base


def _reduce_by_getstate(cls: type, obj: Any) -> Any:
    """The way of a C type that has ``__getstate__`` but no ``__reduce__`` (files in memory), past that of the user."""
    getstate: Any = getattr(cls, "__getstate__", None)
    if getstate is getattr(object, "__getstate__", None) or not hasattr(cls, "__setstate__"):
        return None
    return type(obj), (), getstate(obj)


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

"""Reducers for functions, classes and instances of by-value modules.

Contract of a reducer
    ``reduce(pickler, obj)`` returns what ``__reduce_ex__`` may return: a tuple ``(callable, arguments, state,
    None, None, state setter)``, or ``NotImplemented`` for the C pickler's own way (by name, or
    ``object.__reduce_ex__``). A reducer runs no code of the program and compares by identity only. Callables and
    setters are in :mod:`ckpt.image.reducers.rebuild`.

Shell first
    At load each object is made as an empty shell and filled later: a class is made from its name, bases and slots, and gets
    its raw attributes afterwards; a cell is made empty; a function gets its defaults and attributes last. So cycles of
    references can be restored, and no code of the program runs. Where a cycle goes through the arguments of a call (closures
    that contain themselves), the pickler finds the object in its memo after saving the arguments, and uses that one.

Instances: :func:`reducer_of_instance` chooses the reducer once per class
    =============================  ============================================  ===============================
    reducer                        for                                           done by
    =============================  ============================================  ===============================
    ``reduce_simple_instance``     no pickle hooks, no user ``__new__``, no      the C pickler itself
                                   state in C
    ``reduce_raw``                 user classes with any of these; subclasses    one tuple made in Python
                                   of builtin types
    ``reduce_by_base``             user classes over a C type with a             that type's ``__reduce__``
                                   ``__reduce__`` of its own
    ``leave_to_pickle``            classes of by-reference modules               their own ``__reduce_ex__``; some
                                                                                 are saved raw, see
                                                                                 ``installed_classes``
    =============================  ============================================  ===============================

    A simple instance whose ``__dict__`` another object holds too is saved raw, so that the dictionary stays shared.
"""

from __future__ import annotations

import copyreg
import io
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat.accelerators import IO_IN_PYTHON
from ckpt.compat.typeobjects import has_dictionary, is_heap
from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.keyed import Keys
from ckpt.image.modules import definitions
from ckpt.image.modules.origins import OWN_PACKAGES
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.classes import is_slot, reduce_class
from ckpt.image.reducers.installed_classes import (
    has_own_reduce,
    needs_arguments,
    reduce_by_hooks,
    reduce_by_new,
    reducer_by_hooks,
)
from ckpt.image.reducers.logs import reducer_of_loggers
from ckpt.image.reducers.raw_instances import (
    FILLED_BASES,
    attributes_of,
    has_state_in_c,
    items_of,
    leave_to_pickle,
    reduce_keys,
    reduce_raw,
    slots_of,
)

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Reducer, Saver

__all__ = [
    "CODE_FIELDS",
    "made_once",
    "reduce_simple_instance",
    "reducer_of_instance",
    "reduce_class",
]

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


def reduce_code(pickler: Saver, code: types.CodeType) -> Any:
    return rebuild.make_code, tuple(getattr(code, field) for field in CODE_FIELDS)


def reduce_cell(pickler: Saver, cell: types.CellType) -> Any:
    defined = pickler.definitions.cell(cell)
    if defined is not None:
        path, content = defined
        return definitions.follow, (path, None), content, None, None, definitions.fill_cell
    try:
        state = (cell.cell_contents,)
    except ValueError:
        return rebuild.make_cell, ()
    return rebuild.make_cell, (), state, None, None, rebuild.fill_cell


def reduce_function(pickler: Saver, function: types.FunctionType) -> Any:
    if pickler.references.is_importable(function):
        pickler.names.note_definition(function)
        return NotImplemented
    path = pickler.definitions.path_of(function)
    if path is not None:
        return definitions.follow, (path, function.__qualname__)
    pickler.id_tables.note_function(function)
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


def reduce_method(pickler: Saver, method: types.MethodType) -> Any:
    # Some C++ libraries bind C functions so: found by name
    if type(method.__func__) is types.BuiltinFunctionType:
        return getattr, (method.__self__, method.__func__.__name__)
    return types.MethodType, (method.__func__, method.__self__)


# ---------------------------------------------------------------------- instances


def reduce_simple_instance(pickler: Saver, obj: object) -> Any:
    """The reducer for instances with a dictionary and no hooks. The pickler's ``reducer_override`` leaves them to
    the C pickler, and calls this function only if another object holds the dictionary too.
    """
    return reduce_raw(pickler, obj)


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
# These break the C pickler's own way: at load pickle reads attributes of empty objects, and calls __new__ with the
# arguments of the builtin type.
_MISLEADING = frozenset({"__getattr__", "__getattribute__", "__new__"})
_PICKLE_HOOKS = _HOOKS - _MISLEADING - {"__class__"}
_BY_VALUE_BASES = (int, str, float, bytes, tuple, frozenset, complex)


def reducer_of_instance(pickler: Saver, cls: type) -> Reducer:
    """The reducer for instances of ``cls``, for which no other table has one (builtin types, exceptions and so on have)."""
    if hasattr(cls, "__image_reduce__"):
        return _reduce_by_image_hook
    heap = [c for c in cls.__mro__ if is_heap(c)]
    if not heap:
        return _reducer_of_c_type(cls)
    is_user = pickler.references.is_user_type(cls) or not pickler.references.is_importable(cls)
    base = next(c for c in cls.__mro__ if not is_heap(c))
    hooks = {name for c in heap for name in _HOOKS if name in c.__dict__}
    is_partly_c = base is object and has_state_in_c(cls)
    slots = any(is_slot(value, c) for c in heap for value in c.__dict__.values())
    if slots and any("__setattr__" in c.__dict__ for c in heap):
        hooks.add("__setattr__")
    if "logging" in sys.modules and issubclass(cls, sys.modules["logging"].Logger):
        return reducer_of_loggers(cls, is_user=is_user)
    if base is object and not is_partly_c:
        if not hooks and cls not in copyreg.dispatch_table:
            return reduce_simple_instance if has_dictionary(cls) else leave_to_pickle
        if is_user or any(c.__dict__.get("__module__") == IO_IN_PYTHON for c in heap):
            return reduce_raw  # files in Python say, as those in C, that they cannot be pickled
        if hooks & _PICKLE_HOOKS or cls in copyreg.dispatch_table:
            # ckpt's own objects can be saved while their methods run; above all the engine, while it waits.
            return leave_to_pickle if cls.__module__.partition(".")[0] in OWN_PACKAGES else reduce_by_hooks
        return reduce_by_new if hooks == {"__new__"} and not needs_arguments(cls) else reduce_raw
    if not is_user:
        if is_partly_c:
            return _reducer_of_c_type(cls)
        if base in _SPECIAL_BASES and not hooks & _PICKLE_HOOKS and cls not in copyreg.dispatch_table:
            return _SPECIAL_BASES[base]  # their __reduce__ would call the class, and leaves attributes out
        has_own_pickling = hooks & _PICKLE_HOOKS or has_own_reduce(cls) or cls in copyreg.dispatch_table
        if base in FILLED_BASES:  # pickle would call append, add or __setitem__ of the class
            return reduce_by_hooks if has_own_pickling else reduce_raw
        is_misleading = hooks & _MISLEADING and not has_own_pickling
        return reduce_raw if is_misleading and base in _BY_VALUE_BASES else reducer_by_hooks(cls)
    if base in _BY_VALUE_BASES or base in FILLED_BASES:
        return reduce_raw
    if base in _SPECIAL_BASES:
        return _SPECIAL_BASES[base]
    return reduce_by_base


def made_once(reducer: Reducer) -> Reducer:
    """The reducer for instances with a finalizer. Where the class leads to the instance, pickle makes the instance twice and
    drops one, whose finalizer would run: so both are one, by a list that they share."""

    def reduce(pickler: Saver, obj: Any) -> Any:
        found = reducer(pickler, obj)
        if type(found) is not tuple:
            return found
        make, args, *state = found
        return rebuild.once, (pickler.shared.setdefault(("once", id(obj)), []), make, *args), *state

    return reduce


def _reduce_by_image_hook(pickler: Saver, obj: Any) -> Any:
    """Call ``__image_reduce__`` in place of ``__reduce__``: for objects that images hold but programs must not pickle."""
    return obj.__image_reduce__()


def _reducer_of_c_type(cls: type) -> Reducer:
    """The reducer for a type written in C: its own ``__reduce__``, or dill if it has none."""
    if cls in copyreg.dispatch_table or (has_own_reduce(cls) and not issubclass(cls, io.IOBase)):
        return leave_to_pickle
    return reduce_or_dill  # file classes have a __reduce__ in some versions of Python, which only raises


def reduce_or_dill(pickler: Saver, obj: Any) -> Any:
    """Save an object by its ``__reduce_ex__`` or, if that raises TypeError, by dill. Raises that TypeError if dill cannot
    save the object either.
    """
    try:
        return obj.__reduce_ex__(5)
    except TypeError as refusal:
        from ckpt.image.reducers import dill_adapter

        reduced = dill_adapter.reduce(obj)
        if reduced is None:
            raise refusal
        return reduced


def reduce_by_base(pickler: Saver, obj: Any) -> Any:
    """An instance of a user class that derives from a C type with its own pickling: the result of the C type's
    ``__reduce__``, without the user's hooks, together with the attributes and slots of the user's classes.
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
    if make is own:  # calling it would run __init__ of the user's class
        make, args = rebuild.make_by_base, (cls, own, *args)
    elif make is copyreg.__newobj__ and args[0] is own:  # type: ignore[attr-defined]  # and this __new__
        make, args = rebuild.make_from_builtin, (cls, *args)
    elif not _is_told(own, make, args):
        raise PicklingError(
            f"an object of {own.__qualname__}, which derives from {cls.__module__}.{cls.__qualname__}: that class pickles "
            "its objects as plain ones of its own; hold one in an attribute instead of deriving from it"
        )
    added = (attributes_of(obj), slots_of(pickler, obj))
    return make, args, (cls, state, *added), items, pairs, rebuild.fill_by_base


def _is_told(own: type, make: Any, args: tuple[Any, ...]) -> bool:
    """Does the function that makes an object get its class?"""
    known = [getattr(make, "__self__", None), *args]
    known += [part for each in args if type(each) in (tuple, list) for part in each]
    return any(each is own for each in known)


def _reduce_by_getstate(cls: type, obj: Any) -> Any:
    """The state by ``__getstate__`` of a C type that has no ``__reduce__`` (``io.BytesIO``); the user's ``__getstate__`` is
    not called. None: the C type has no such method, or no ``__new__`` to make an object that gets the state (PyExpr of
    polars).
    """
    getstate: Any = getattr(cls, "__getstate__", None)
    if getstate is getattr(object, "__getstate__", None) or not hasattr(cls, "__setstate__"):
        return None
    new: Any = cls.__new__
    if new is object.__new__:
        return None
    return copyreg.__newobj__, (type(obj),), getstate(obj)  # type: ignore[attr-defined]


def _reduce_deque(pickler: Saver, obj: Any) -> Any:
    state = (attributes_of(obj), slots_of(pickler, obj), list(deque.__iter__(obj)), obj.maxlen)
    return rebuild.make_from_builtin, (deque, type(obj)), state, None, None, rebuild.fill_deque


def _reduce_ordered(pickler: Saver, obj: Any) -> Any:
    state = (attributes_of(obj), slots_of(pickler, obj), items_of(obj, OrderedDict))
    return rebuild.make_from_builtin, (OrderedDict, type(obj)), state, None, None, rebuild.fill_ordered


def _reduce_defaultdict(pickler: Saver, obj: Any) -> Any:
    state = (attributes_of(obj), slots_of(pickler, obj), items_of(obj, defaultdict), obj.default_factory)
    return rebuild.make_from_builtin, (defaultdict, type(obj)), state, None, None, rebuild.fill_defaultdict


_SPECIAL_BASES: dict[type, Reducer] = {
    deque: _reduce_deque,
    OrderedDict: _reduce_ordered,
    defaultdict: _reduce_defaultdict,
}


def _reduce_keyed(pickler: Saver, obj: Any) -> Any:
    return _SPECIAL_BASES[type(obj)](pickler, obj) if _lookup.has_special_keys(obj) else NotImplemented


REDUCERS: dict[type, Reducer] = {
    types.CodeType: reduce_code,
    types.CellType: reduce_cell,
    types.FunctionType: reduce_function,
    types.MethodType: reduce_method,
    OrderedDict: _reduce_keyed,
    defaultdict: _reduce_keyed,
    Counter: reduce_raw,  # its own way makes a copy, which would contain a Counter that contains itself once more
    Keys: reduce_keys,
}
"""Reducers by exact type; see :mod:`ckpt.image.reducers.builtin_types` for the others."""

"""Reducers for instances of classes of installed packages: by the class's own ``__reduce__`` or, where that is wrong, raw.

The author of a ``__reduce__`` thinks of copies and files, where the whole object is saved: a tree may be saved as a list of
rows, from which an equal tree is built. In an image other objects may hold the parts (an iterator over the tree, a table,
the frame of a running method), and after a restart they would hold parts that do not belong to the new tree. So such an
object is saved raw (:mod:`ckpt.image.reducers.raw_instances`)

- while a method of the object runs, or a ``with`` block has entered one (``@contextmanager``), or a lock of it is held (the
  program, in its ``with`` block, will release it);
- if ``__reduce__`` fails because the object is still being made, and does not have all of its attributes yet;
- if ``__reduce__`` or ``__getstate__`` says by an exception that the object cannot be saved, all of it is plain Python
  without a finalizer, and it can be saved raw: the author means that another process could do nothing with it;
- if ``__reduce__`` would make an object of another class, and it can be saved raw; if the object is a proxy that hides its
  own dictionary, since its ``__reduce__`` is that of what it stands for;
- if pickle could not load the result; if it is a name in a register, which does not have the name;
- if it is a dictionary or a set (``SortedDict``) and has keys whose hash is computed by Python code: the
  constructor would ask them for it, perhaps before they are complete (:mod:`ckpt.image.lowlevel.keyed`);
- if the result of ``__reduce__`` hands such keys to a constructor, in a dictionary or set, or does not contain all parts of
  the object while all missing parts are plain Python; and the object can be saved raw: this is tried once per
  ``__reduce__``.

Singletons such as loggers, of which the class returns the same object for the same arguments, are saved by their
``__reduce__`` in the first and third case; so are, in the third, objects of which an attribute may be an address in a C
library.
"""

from __future__ import annotations

import _thread
import copyreg
import functools
import itertools
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from enum import Enum
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat.threads import rlock_owner
from ckpt.compat.typeobjects import hides_dictionary, is_heap
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel import _lookup, inspect_raw
from ckpt.image.lowlevel.inspect_raw import ADDRESSES
from ckpt.image.modules import package_baseline
from ckpt.image.reducers.classes import is_made_in_c
from ckpt.image.reducers.raw_instances import has_state_in_c, leave_to_pickle, reduce_raw, slots_of
from ckpt.image.reducers.saver import Reducer

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "has_own_reduce",
    "needs_arguments",
    "reduce_by_hooks",
    "reduce_by_name",
    "reduce_by_new",
    "reducer_by_hooks",
]

_CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict)
_FILLED, _KEYED = (list, dict, set), (dict, set, frozenset)
_NO_PARTS = frozenset(
    {
        *(int, float, bool, complex, str, bytes, type(None), tuple, frozenset),
        *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
        functools.partial,
    }
)
# Results. They grow only in a forked child, which ends soon.
_in_python: dict[type, bool] = {}
_authors: dict[type, type] = {}
_refusing: set[type] = set()
_MISSING = object()
# in C, saved, of one object alone
_NEUTRAL = (itertools.count, _thread.LockType, _thread.RLock, threading.local)
_TAKES_ALL = 0x4 | 0x8  # flags of code: CO_VARARGS, CO_VARKEYWORDS
_MOST_OBJECTS = 10_000  # objects that are looked at in one reduce tuple


def has_own_reduce(cls: type) -> bool:
    """Does the class, or a base other than ``object``, define ``__reduce__`` or ``__reduce_ex__``?"""
    methods, defaults = (cls.__reduce_ex__, cls.__reduce__), (object.__reduce_ex__, object.__reduce__)
    return any(method is not default for method, default in zip(methods, defaults, strict=True))


def reducer_by_hooks(cls: type) -> Reducer:
    """The reducer that uses the pickle hooks of a class of an installed package: :func:`reduce_by_name` if it has its own
    ``__reduce__``, because that may return a name; else the C pickler's way."""
    return reduce_by_name if has_own_reduce(cls) and cls not in copyreg.dispatch_table else leave_to_pickle


def needs_arguments(cls: type) -> bool:
    """Is ``cls.__new__`` in Python with required arguments? Then pickle, which calls ``cls.__new__(cls)``, fails."""
    new = _maker(cls)
    if new is None:
        return False
    required = new.__code__.co_argcount - len(new.__defaults__ or ())
    return required > 1 or new.__code__.co_kwonlyargcount > len(new.__kwdefaults__ or {})


def _maker(cls: type) -> types.FunctionType | None:  # its __new__, if that is written in Python
    new: Any = next((c.__dict__["__new__"] for c in cls.__mro__ if "__new__" in c.__dict__), None)
    while type(new) is staticmethod or (type(new) is not types.FunctionType and hasattr(new, "__wrapped__")):
        new = new.__wrapped__
    return new if type(new) is types.FunctionType else None


def reduce_by_new(pickler: Saver, obj: Any) -> Any:
    """An object whose only hook is a ``__new__`` that may do without arguments. It may return the only object of the class,
    so pickle calls it. One that hands on whatever arguments it gets may need some (tornado's ``Configurable``): it is called
    only where it looks into an attribute of the class in which the object is.
    """
    cls = type(obj)
    new = _maker(cls)
    if new is None or not new.__code__.co_flags & _TAKES_ALL:
        return NotImplemented
    kept = [c.__dict__.get(name) for c in cls.__mro__ if is_heap(c) for name in new.__code__.co_names]
    return NotImplemented if any(_holds(value, obj) for value in kept) else reduce_raw(pickler, obj)


def _holds(value: Any, obj: Any) -> bool:  # is it the object, or a table or list of objects with this one?
    kept: Any = getattr(value, "data", None) if type(value) is weakref.WeakValueDictionary else value
    values = kept.values() if type(kept) is dict else kept if type(kept) in (list, tuple) else (kept,)
    return any(each is obj or (type(each) is weakref.KeyedRef and each() is obj) for each in list(values))


def reduce_by_hooks(pickler: Saver, obj: Any) -> Any:
    """An object whose class, in an installed package, has pickle hooks: the rules of the module's header."""
    cls = type(obj)
    if _is_in_python(cls) and hides_dictionary(cls):
        return reduce_raw(pickler, obj)  # a proxy, whose __reduce__ and __class__ are those of another object
    default_reducer = reducer_by_hooks(cls)
    if cls in copyreg.dispatch_table or isinstance(obj, Enum) or is_made_in_c(cls):
        return default_reducer(pickler, obj)
    if next(c for c in cls.__mro__ if not is_heap(c)) in (dict, set) and _lookup.has_special_keys(obj):
        return reduce_raw(pickler, obj)
    if id(obj) in pickler.running or _holds_lock(pickler, obj):
        return _reduce_running(pickler, obj, default_reducer)
    author = _author(cls)
    is_raw = pickler.is_raw.get(author)
    if is_raw and (_is_in_python(cls) or next(c for c in cls.__mro__ if not is_heap(c)) in _FILLED):
        pickler.use_reducer(cls, reduce_raw)
        return reduce_raw(pickler, obj)
    reduced = _reduce_if_complete(pickler, obj)
    if reduced is None:
        return reduce_raw(pickler, obj)
    if author is object or is_raw is not None or not pickler.is_disposable:
        return reduced
    is_unknown = _is_unknown_name(cls, reduced)
    if not is_unknown and not _is_of_another_type(cls, reduced) and not _is_incomplete(pickler, obj, reduced):
        return reduced
    can_be_raw = pickler.can_be_raw(obj, author)
    if is_unknown and not can_be_raw:
        raise PicklingError(
            f"{cls.__qualname__}.__reduce__ gives a name for it, for which "
            f"{getattr(reduced[0], '__qualname__', reduced[0])}() finds nothing"
        )
    pickler.is_raw[author] = can_be_raw
    return reduce_raw(pickler, obj) if can_be_raw else reduced


def _is_of_another_type(cls: type, reduced: Any) -> bool:
    """Does the reduce tuple make an object of another class: a plain list of a lazy one?"""
    return type(reduced) is tuple and isinstance(reduced[0], type) and not issubclass(reduced[0], cls)


def _is_incomplete(pickler: Saver, obj: Any, reduced: Any) -> bool:  # would other parts be made of it?
    if not _leaves_out_parts(pickler, obj, reduced) and not _has_keys_to_be_hashed(reduced):
        return False
    return not _is_singleton(pickler, obj, reduced)


def _author(cls: type) -> type:
    """The class in the method resolution order that says what of an instance is saved: by ``__reduce_ex__`` or
    ``__reduce__`` or, if there is none, by ``__getstate__``. ``object``: no class says it, or one that also has a
    finalizer, and so has to do with something outside of its objects, as a count of open files."""
    found = _authors.get(cls)
    if found is None:
        own = ("__reduce_ex__", "__reduce__") if has_own_reduce(cls) else ("__getstate__",)
        found = next(c for c in cls.__mro__ if any(name in c.__dict__ for name in own))
        if own == ("__getstate__",) and hasattr(cls, "__del__"):
            found = object
        _authors[cls] = found
    return found


def _holds_lock(pickler: Saver, obj: Any) -> bool:  # is one of the object's attributes a lock that is held?
    if not _is_in_python(type(obj)):
        return False
    values = [*(inspect_raw.attributes_of(obj) or {}).values(), *(slot[2] for slot in slots_of(pickler, obj))]
    return any(
        (type(value) is _thread.LockType and value.locked())
        or (type(value) is _thread.RLock and rlock_owner(value)[1])
        for value in values
    )


def _reduce_running(pickler: Saver, obj: Any, default_reducer: Reducer) -> Any:
    cls = type(obj)
    has_arguments = hasattr(cls, "__getnewargs__") or hasattr(cls, "__getnewargs_ex__")
    if default_reducer is not reduce_by_name and not has_arguments:
        return reduce_raw(pickler, obj)
    reduced = _reduce_if_complete(pickler, obj)
    if reduced is None:
        return reduce_raw(pickler, obj)
    if _names_itself(reduced) or _is_singleton(pickler, obj, reduced):
        return reduced
    return reduce_raw(pickler, obj)


def _reduce_if_complete(pickler: Saver, obj: Any) -> Any:
    """The result of the object's ``__reduce_ex__``. None: it has failed for want of an attribute or key, so the object is
    still being made, or by a mistake of its author, as that of sympy's rings of polynomials; or the result is of no use,
    since the author has never loaded one. Other exceptions are the author's word that the object cannot be saved, which
    is asked no further where all of the object can be.
    """
    try:
        reduced = reduce_by_name(pickler, obj)
    except (AttributeError, LookupError, RecursionError):
        return None  # RecursionError: a __getattr__ that reads a missing attribute calls itself
    except Exception as failure:
        if "changed size during iteration" in str(failure) or _can_be_raw_all_the_same(pickler, obj):
            return None
        raise
    return None if _cannot_be_loaded(type(obj), reduced) else reduced


def _can_be_raw_all_the_same(pickler: Saver, obj: Any) -> bool:
    """Can the object be saved raw, though its class has refused? Not if it may stand for something outside of Python, by a
    finalizer or a number that may be an address."""
    cls = type(obj)
    author = _author(cls)
    if author in _refusing:
        return True
    if not pickler.is_disposable or not _is_in_python(cls) or hasattr(cls, "__del__"):
        return False
    values = [*(inspect_raw.attributes_of(obj) or {}).values(), *(slot[2] for slot in slots_of(pickler, obj))]
    if any(type(value) is int and value in ADDRESSES for value in values):
        return False
    if not pickler.can_be_raw(obj, author):
        return False
    _refusing.add(author)
    return True


def _cannot_be_loaded(cls: type, reduced: Any) -> bool:
    """Is there a state (of a ``__getstate__``) that pickle cannot put into an object without a ``__setstate__``?"""
    if type(reduced) is not tuple or len(reduced) < 3 or len(reduced) > 5 or hasattr(cls, "__setstate__"):
        return False
    state = reduced[2]
    is_pair = (
        type(state) is tuple
        and len(state) == 2
        and all(isinstance(part, (dict, type(None))) for part in state)
    )
    return bool(state) and not isinstance(state, dict) and not is_pair


def _names_itself(reduced: Any) -> bool:  # is it a name, or a function without arguments?
    return type(reduced) is not tuple or len(reduced) < 2 or not reduced[1]


def _leaves_out_parts(pickler: Saver, obj: Any, reduced: Any) -> bool:
    """Does the reduce tuple not contain all parts of the object? False if a part is not plain Python."""
    if type(reduced) is not tuple or (len(reduced) == 2 and not reduced[1]) or any(reduced[3:]):
        return False
    attributes, state = inspect_raw.dictionary_of(obj), reduced[2] if len(reduced) > 2 else None
    has_all = type(state) is dict and all(state.get(key) is each for key, each in (attributes or {}).items())
    if has_all and not slots_of(pickler, obj):
        return False  # what follows would find that, too, and takes longer
    given = state if type(state) is dict and state is not attributes else {}
    parts = _parts(pickler, obj, given)
    if not parts:
        return False
    for part in _content(reduced[1:3]):
        if part is attributes and part is not None:
            return False
        parts.discard(id(part))
        if not parts:
            return False
    return True


def _has_keys_to_be_hashed(reduced: Any) -> bool:
    arguments = reduced[1] if type(reduced) is tuple and len(reduced) > 1 else ()  # of a constructor
    return any(type(part) in _KEYED and _lookup.has_special_keys(part) for part in _content((arguments,)))


def _parts(pickler: Saver, obj: Any, given: dict[str, Any]) -> set[int]:
    """Addresses of the values of the object's attributes, and of objects in its slots, that other objects may hold too,
    without those that are ``given`` as they are. Empty if one attribute is not plain Python, or may be an address.
    """
    found: set[int] = set()
    if not _is_in_python(type(obj)):
        return found
    attributes = inspect_raw.attributes_of(obj) or {}
    for value in [value for name, value in attributes.items() if given.get(name, _MISSING) is not value]:
        cls = type(value)
        if cls is int and value in ADDRESSES:  # integers above this range are usually hashes
            return set()
        if cls in _NO_PARTS or issubclass(cls, type) or pickler.references.name_of(value):
            continue
        if next(c for c in cls.__mro__ if not is_heap(c)) in _CONTAINERS:
            found.update([id(value)] if value else [])
        elif _is_in_python(cls) or _is_kept_in_c(value):
            found.add(id(value))
        elif not issubclass(cls, _NEUTRAL):
            return set()
    # Containers in slots are often mere caches, made again when they are wanted (pathlib): only objects count there.
    found.update(id(value) for _, _, value in slots_of(pickler, obj) if _is_linked(pickler, value))
    return found


def _is_kept_in_c(value: Any) -> bool:
    """Is it an object in C that others may hold, and that is saved as it is: an array, a generator of random numbers?"""
    if type(value) in weakref.ProxyTypes:  # and not isinstance(), which asks what the proxy stands for
        return True
    if isinstance(value, weakref.ref):
        return value() is not None
    return isinstance(value, libraries.value_types())


def _is_linked(pickler: Saver, value: Any) -> bool:
    """Is it an object that other objects may hold too, such as the next node of a list?"""
    cls = type(value)
    return (
        not (cls in _NO_PARTS or cls in _CONTAINERS or issubclass(cls, type))
        and (_is_in_python(cls) or _is_kept_in_c(value))
        and not pickler.references.name_of(value)
    )


def _is_in_python(cls: type) -> bool:  # is the whole state of an instance in its dictionary and slots?
    found = _in_python.get(cls)
    if found is None:
        base = next(c for c in cls.__mro__ if not is_heap(c))
        found = _in_python[cls] = base is object and not has_state_in_c(cls)
    return found


def _content(reduced: tuple[Any, ...]) -> Iterator[Any]:
    """The objects in a reduce tuple, and inside plain containers there; at most ``_MOST_OBJECTS``."""
    waiting: list[Any] = [*reversed(reduced)]
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return
        obj = waiting.pop()
        yield obj
        if type(obj) in (tuple, list, set):
            waiting.extend(obj)
        elif type(obj) is dict:
            waiting.extend(obj.values())


def _is_singleton(pickler: Saver, obj: Any, reduced: tuple[Any, ...]) -> bool:
    """Does the tuple's callable return this same object? The call may have effects, so it is made in a forked child only."""
    if not pickler.is_disposable:
        return False
    try:
        return reduced[0](*reduced[1]) is obj
    except Exception:  # the callable fails: no singleton
        return False


def _is_unknown_name(cls: type, reduced: Any) -> bool:
    """Do only names stand for the object, in a register that does not have them even here (datasets of yt)? The register is
    asked as by :func:`_is_singleton`."""
    if type(reduced) is not tuple or len(reduced) > 2 or not reduced[1] or not _is_in_python(cls):
        return False
    if type(reduced[0]) is not types.FunctionType or not all(type(name) in (str, int) for name in reduced[1]):
        return False  # a class makes a new object
    try:
        reduced[0](*reduced[1])
    except Exception:
        return True
    return False


def reduce_by_name(pickler: Saver, obj: Any) -> Any:
    """The object's ``__reduce_ex__``. Some types return a name (``typing.TypeVar``: "T"), which pickle looks up in the
    object's module. A by-value module does not have the object yet at load, nor has a module of which a variable was bound
    to the object after the import (``mpi4py.futures``: the pool of all executors): the object is saved raw there.
    """
    reduced = obj.__reduce_ex__(5)
    if isinstance(reduced, str):
        home = str(getattr(obj, "__module__", None))
        is_there = "." in reduced or package_baseline.holds_since_import(home, reduced, obj)
        if home in pickler.references.by_value or (not is_there and _is_in_python(type(obj))):
            return reduce_raw(pickler, obj)
    return reduced

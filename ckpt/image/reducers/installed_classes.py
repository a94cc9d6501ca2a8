"""How instances of classes of installed packages are taken apart: in the way their authors say, if that is the right one.

A library that takes its objects apart by itself (``__reduce__``) has copies and files in mind, where everything goes along:
a tree may become a list of rows, of which an equal tree is put together. In an image others hold the parts (a loop over the
tree, a table, the frames of a method that runs), and would hold the old ones. So such an object is saved raw

- while a method of it runs;
- if their way fails because it is just being made, and does not have all of its attributes yet;
- if it leaves parts of itself out, all of them plain Python, and it can be saved raw: that is tried once per ``__reduce__``.

Not those that are one of a kind, as loggers are: they come back from where they are kept. Nor where an attribute may be an
address in a C library.
"""

from __future__ import annotations

import copyreg
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from ckpt.image.lowlevel import inspect_raw
from ckpt.image.lowlevel.addresses import ADDRESSES
from ckpt.image.lowlevel.inspect_raw import is_heap
from ckpt.image.reducers.classes import is_made_in_c
from ckpt.image.reducers.raw_instances import DEFAULT, has_state_in_c, reduce_raw
from ckpt.image.reducers.saver import Reducer

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["has_own_reduce", "needs_arguments", "reduce_by_authors", "reduce_by_name", "way_of_authors"]

_CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict)
_NO_PARTS = frozenset(
    {
        *(int, float, bool, complex, str, bytes, type(None), tuple, frozenset),
        *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    }
)
_python: dict[type, bool] = {}  # asked for every attribute; only ever in a forked child, which ends soon
_LOOKED_AT = 10_000  # objects in what an object says of itself


def has_own_reduce(cls: type) -> bool:
    """Does it say itself how its instances are taken apart?"""
    own, default = (cls.__reduce_ex__, cls.__reduce__), (object.__reduce_ex__, object.__reduce__)
    return any(mine is not theirs for mine, theirs in zip(own, default, strict=True))


def way_of_authors(cls: type) -> Reducer:
    """A class of an installed package with pickle hooks.

    One that pickles by name may belong to a by-value module.
    """
    return reduce_by_name if has_own_reduce(cls) and cls not in copyreg.dispatch_table else DEFAULT


def needs_arguments(cls: type) -> bool:
    """Is its ``__new__`` written in Python, and cannot be called with the class alone, as pickle would do?"""
    new: Any = next((c.__dict__["__new__"] for c in cls.__mro__ if "__new__" in c.__dict__), None)
    while type(new) is staticmethod or (type(new) is not types.FunctionType and hasattr(new, "__wrapped__")):
        new = new.__wrapped__
    if type(new) is not types.FunctionType:
        return False
    required = new.__code__.co_argcount - len(new.__defaults__ or ())
    return required > 1 or new.__code__.co_kwonlyargcount > len(new.__kwdefaults__ or {})


def reduce_by_authors(pickler: Saver, obj: Any) -> Any:
    """An object of a library that takes itself apart; see the module."""
    cls = type(obj)
    way = way_of_authors(cls)
    if cls in copyreg.dispatch_table or isinstance(obj, Enum) or is_made_in_c(cls):
        return way(pickler, obj)
    if id(obj) in pickler.running:
        return _reduce_running(pickler, obj, way)
    if way is not reduce_by_name:
        return _unless_unfinished(pickler, obj) or reduce_raw(pickler, obj)
    author = _author_of(cls)
    is_raw = pickler.is_raw.get(author)
    if is_raw and _is_python(cls):
        pickler.settle(cls, reduce_raw)
        return reduce_raw(pickler, obj)
    reduced = _unless_unfinished(pickler, obj)
    if reduced is None:
        return reduce_raw(pickler, obj)
    if is_raw is not None or not pickler.is_disposable or not _leaves_out_parts(pickler, obj, reduced):
        return reduced
    if _is_one_of_a_kind(pickler, obj, reduced):
        return reduced
    pickler.is_raw[author] = pickler.can_be_raw(obj, author)
    return reduce_raw(pickler, obj) if pickler.is_raw[author] else reduced


def _author_of(cls: type) -> type:
    """The class that says how its instances are taken apart."""
    own = ("__reduce_ex__", "__reduce__")
    return next(c for c in cls.__mro__ if any(name in c.__dict__ for name in own))


def _reduce_running(pickler: Saver, obj: Any, way: Reducer) -> Any:
    cls = type(obj)
    has_arguments = hasattr(cls, "__getnewargs__") or hasattr(cls, "__getnewargs_ex__")
    if way is not reduce_by_name and not has_arguments:
        return reduce_raw(pickler, obj)
    reduced = _unless_unfinished(pickler, obj)
    if reduced is None:
        return reduce_raw(pickler, obj)
    if _names_itself(reduced) or _is_one_of_a_kind(pickler, obj, reduced):
        return reduced
    return reduce_raw(pickler, obj)


def _unless_unfinished(pickler: Saver, obj: Any) -> Any:
    """What its authors say of it. None: they ask for attributes that it does not have yet; it is being made."""
    try:
        return reduce_by_name(pickler, obj)
    except (AttributeError, RecursionError):  # a __getattr__ that asks for what is not there asks itself
        return None


def _names_itself(reduced: Any) -> bool:
    """By a name, or by a function without arguments."""
    return type(reduced) is not tuple or len(reduced) < 2 or not reduced[1]


def _leaves_out_parts(pickler: Saver, obj: Any, reduced: Any) -> bool:
    """Are there parts of the object that are not in what it says of itself? No, if one of them is not plain Python."""
    if type(reduced) is not tuple or (len(reduced) == 2 and not reduced[1]) or any(reduced[3:]):
        return False
    parts = _parts(pickler, obj)
    if not parts:
        return False
    attributes = id(inspect_raw.dictionary_of(obj))
    for each in _content(reduced[1:3]):
        if id(each) == attributes:
            return False
        parts.discard(id(each))
    return bool(parts)


def _parts(pickler: Saver, obj: Any) -> set[int]:
    """Addresses of what its attributes hold and others may hold too."""
    found: set[int] = set()
    if not _is_python(type(obj)):
        return found
    for value in (inspect_raw.attributes_of(obj) or {}).values():
        kind = type(value)
        if kind is int and value in ADDRESSES:  # larger ones are hashes, as a rule
            return set()
        if kind in _NO_PARTS or issubclass(kind, type) or pickler.references.name_of(value):
            continue
        if kind not in _CONTAINERS and not _is_python(kind):
            return set()
        if kind not in _CONTAINERS or value:
            found.add(id(value))
    return found


def _is_python(cls: type) -> bool:
    """Is everything in an instance in its dictionary and slots?"""
    found = _python.get(cls)
    if found is None:
        base = next(c for c in cls.__mro__ if not is_heap(c))
        found = _python[cls] = base is object and not has_state_in_c(cls)
    return found


def _content(reduced: tuple[Any, ...]) -> Iterator[Any]:
    """What is in there, through plain containers."""
    waiting: list[Any] = [*reversed(reduced)]
    for _ in range(_LOOKED_AT):
        if not waiting:
            return
        obj = waiting.pop()
        yield obj
        if type(obj) in (tuple, list, set):
            waiting.extend(obj)
        elif type(obj) is dict:
            waiting.extend(obj.values())


def _is_one_of_a_kind(pickler: Saver, obj: Any, reduced: tuple[Any, ...]) -> bool:
    """Does its class keep a single object for these arguments? Asked only where nothing can suffer from the answer."""
    if not pickler.is_disposable:
        return False
    try:
        return reduced[0](*reduced[1]) is obj
    except Exception:  # it cannot be put together in this way
        return False


def reduce_by_name(pickler: Saver, obj: Any) -> Any:
    """``typing.TypeVar`` and its like say "I am called T"; in a by-value module that finds nobody."""
    reduced = obj.__reduce_ex__(5)
    if isinstance(reduced, str):
        if getattr(obj, "__module__", None) in pickler.references.by_value:
            return reduce_raw(pickler, obj)
        return reduced
    return reduced

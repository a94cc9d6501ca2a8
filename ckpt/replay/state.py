"""Registered objects: which content of an object is saved, and how the content is put into the objects of a new run.

A new run of the script makes its objects again and registers them. Then the saved content is put *into* these objects. So
every reference to such an object sees the restored content, also where the program does not use the return value of
:func:`ckpt.register`.

====================================  ================================================================================
object                                content
====================================  ================================================================================
dict, list, set, deque, bytearray     the items (subclasses: and the attributes)
what a library says                   arrays: the elements; shape and type must be the same again; random generators: their
                                      state (:meth:`ckpt.image.interface.library.Library.in_place`)
a file open for writing               position and length; the file is cut to that length (open it with "a" or "r+");
                                      not if its changes stay (:mod:`ckpt.undo.selection.kept`)
any other object                      the value of its ``__getstate__``, put back by ``__setstate__``, or, without
                                      ``__setstate__``, as attributes and slots
number, text, tuple, function, …      refused, since they cannot be changed in place; keep them in a dict or an object
====================================  ================================================================================

A content may contain registered objects. They are saved by name, and become the registered objects of the new run.
"""

from __future__ import annotations

import array
import io
import os
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ckpt.errors import RegistrationError, StateError
from ckpt.image.interface.library import InPlace
from ckpt.image.interface.registry import libraries
from ckpt.undo.selection.kept import is_kept

__all__ = ["Content", "check", "content_of", "is_file", "put_back"]

_IMMUTABLE = (
    *(int, float, complex, str, bytes, tuple, frozenset, range, type(None), type, slice),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, types.GeneratorType),
)
Content = tuple[str, Any]


def check(name: str, obj: object) -> None:
    """Raise RegistrationError if the content of ``obj`` cannot be restored in place."""
    if isinstance(obj, _IMMUTABLE):
        type_name = type(obj).__name__
        raise RegistrationError(
            f"{name!r} is a {type_name}, which cannot be changed in place when a checkpoint is restored: keep it in a dict "
            "or as an attribute of an object, and register that"
        )
    if isinstance(obj, io.IOBase) and not obj.writable():
        raise RegistrationError(
            f"{name!r} is a file open for reading only: open it again in the program instead"
        )


def is_file(obj: object) -> bool:
    """Is ``obj`` a file? The position and length of a file must be recorded before the fork."""
    return isinstance(obj, io.IOBase)


def content_of(obj: Any) -> Content:
    """``(kind, value)``, to be pickled. ``kind`` is a name of `_IN_PLACE`, one that a library says, or "object"."""
    in_place = _in_place_of(obj)
    return in_place.kind, in_place.take(obj)


def _in_place_of(obj: Any) -> InPlace:
    return next(
        (in_place for in_place in (*_IN_PLACE, *libraries.in_place()) if isinstance(obj, in_place.types)),
        _OBJECT,
    )


def put_back(name: str, obj: Any, content: Content) -> None:
    """Put ``content`` into ``obj``, which is registered as ``name``.

    Raises StateError if ``obj`` is of another kind than the saved object, or if the content does not fit (shape and type of
    an array, generator, length of a file).
    """
    kind, value = content
    in_place = _in_place_of(obj)
    if kind != in_place.kind:
        raise StateError(
            f"{name!r} is registered as {type(obj).__name__}; the checkpoint has the state of a {kind} for it"
        )
    try:
        in_place.put(obj, value)
    except StateError as failure:
        raise StateError(f"{name!r}: {failure}") from failure


# ---------------------------------------------------------------------- kinds


def _attributes(obj: Any) -> dict[str, Any] | None:
    return dict(obj.__dict__) if hasattr(obj, "__dict__") else None


def _set_attributes(obj: Any, attributes: dict[str, Any] | None) -> None:
    if attributes is not None:
        obj.__dict__.clear()
        obj.__dict__.update(attributes)


def _container(
    kind: str, cls: type, items: Callable[[Any], Any], fill: Callable[[Any, Any], None]
) -> InPlace:
    def take(obj: Any) -> Any:
        return items(obj), _attributes(obj)

    def put(obj: Any, value: Any) -> None:
        cls.clear(obj)  # type: ignore[attr-defined]
        fill(obj, value[0])
        _set_attributes(obj, value[1])

    return InPlace(kind, (cls,), take, put)


def _fill_dict(obj: Any, items: list[tuple[Any, Any]]) -> None:
    for key, value in items:
        dict.__setitem__(obj, key, value)


def _fill_ordered(obj: Any, items: list[tuple[Any, Any]]) -> None:
    for key, value in items:
        OrderedDict.__setitem__(obj, key, value)


def _take_file(obj: Any) -> tuple[int, int]:
    obj.flush()
    return obj.tell(), os.fstat(obj.fileno()).st_size


def _put_file(obj: Any, value: tuple[int, int]) -> None:
    position, length = value
    obj.flush()
    found = os.fstat(obj.fileno()).st_size
    if is_kept(os.readlink(f"/proc/self/fd/{obj.fileno()}")):
        obj.seek(min(position, found))
        return
    if found < length:
        raise StateError(
            f'the file {obj.name} has {found} bytes, the checkpoint needs {length}: open it with "a" or "r+", not "w"'
        )
    os.ftruncate(obj.fileno(), length)
    obj.seek(position)


def _put_array_array(obj: Any, value: bytes) -> None:
    del obj[:]
    obj.frombytes(value)


def _put_object(obj: Any, value: Any) -> None:
    setter = getattr(obj, "__setstate__", None)
    if setter is not None:
        setter(value)
        return
    attributes, slots = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    _set_attributes(obj, attributes or {} if hasattr(obj, "__dict__") else None)
    for key, entry in (slots or {}).items():
        object.__setattr__(obj, key, entry)


_IN_PLACE = (
    _container("dict", OrderedDict, lambda obj: list(OrderedDict.items(obj)), _fill_ordered),
    _container("dict", dict, lambda obj: list(dict.items(obj)), _fill_dict),
    _container("list", list, list, list.extend),
    _container("set", set, list, set.update),
    _container("deque", deque, list, deque.extend),
    _container("bytearray", bytearray, bytes, bytearray.extend),
    InPlace("array.array", (array.array,), lambda obj: obj.tobytes(), _put_array_array),
    InPlace("file", (io.IOBase,), _take_file, _put_file),
)
_OBJECT = InPlace(
    "object", (object,), lambda obj: obj.__getstate__(), _put_object
)  # of every object since Python 3.11

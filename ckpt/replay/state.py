"""Registered objects: which content of an object is saved, and how the content is put into the objects of a new run.

A new run of the script makes its objects again and registers them. Then the saved content is put *into* these objects. So
every reference to such an object sees the restored content, also where the program does not use the return value of
:func:`ckpt.register`.

====================================  ================================================================================
object                                content
====================================  ================================================================================
dict, list, set, deque, bytearray     the items (subclasses: and the attributes)
numpy array                           the elements; shape and type must be the same again
``random.Random``, numpy generators   their state
a file open for writing               position and length; the file is cut to that length (open it with "a" or "r+")
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
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ckpt.errors import RegistrationError, StateError

__all__ = ["Content", "check", "content_of", "is_file", "put_back"]

_IMMUTABLE = (
    *(int, float, complex, str, bytes, tuple, frozenset, range, type(None), type, slice),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, types.GeneratorType),
)
Content = tuple[str, Any]


def check(name: str, obj: object) -> None:
    """Raise RegistrationError if the content of ``obj`` cannot be restored in place."""
    if isinstance(obj, _IMMUTABLE):
        kind = type(obj).__name__
        raise RegistrationError(
            f"{name!r} is a {kind}, which cannot be changed in place when a checkpoint is restored: keep it in a dict "
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
    """``(kind, value)``, to be pickled. ``kind`` is a name of `_KINDS`, or "object": then ``__getstate__`` is called."""
    for kind, matches, take, _ in _KINDS:
        if matches(obj):
            return kind, take(obj)
    return "object", obj.__getstate__()  # of every object since Python 3.11


def put_back(name: str, obj: Any, content: Content) -> None:
    """Put ``content`` into ``obj``, which is registered as ``name``.

    Raises StateError if ``obj`` is of another kind than the saved object, or if the content does not fit (shape and type of
    an array, generator, length of a file).
    """
    kind, value = content
    expected, put = next(
        ((kind, put) for kind, matches, _, put in _KINDS if matches(obj)), ("object", _put_object)
    )
    if kind != expected:
        raise StateError(
            f"{name!r} is registered as {type(obj).__name__}; the checkpoint has the state of a {kind} for it"
        )
    try:
        put(obj, value)
    except StateError as failure:
        raise StateError(f"{name!r}: {failure}") from failure


# ---------------------------------------------------------------------- kinds


def _attributes(obj: Any) -> dict[str, Any] | None:
    return dict(obj.__dict__) if hasattr(obj, "__dict__") else None


def _set_attributes(obj: Any, attributes: dict[str, Any] | None) -> None:
    if attributes is not None:
        obj.__dict__.clear()
        obj.__dict__.update(attributes)


def _container(cls: type, items: Callable[[Any], Any], fill: Callable[[Any, Any], None]) -> Any:
    def take(obj: Any) -> Any:
        return items(obj), _attributes(obj)

    def put(obj: Any, value: Any) -> None:
        cls.clear(obj)  # type: ignore[attr-defined]
        fill(obj, value[0])
        _set_attributes(obj, value[1])

    return lambda obj: isinstance(obj, cls), take, put


def _fill_dict(obj: Any, items: list[tuple[Any, Any]]) -> None:
    for key, value in items:
        dict.__setitem__(obj, key, value)


def _fill_ordered(obj: Any, items: list[tuple[Any, Any]]) -> None:
    for key, value in items:
        OrderedDict.__setitem__(obj, key, value)


def _is_array(obj: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.ndarray)


def _take_array(obj: Any) -> Any:
    return sys.modules["numpy"].asarray(obj)[...]  # a view: another object than the registered one


def _put_array(obj: Any, value: Any) -> None:
    if obj.shape != value.shape or obj.dtype != value.dtype:
        raise StateError(
            f"an array {obj.shape} of {obj.dtype}; the checkpoint has {value.shape} of {value.dtype}"
        )
    obj[...] = value


def _is_numpy_generator(obj: Any) -> bool:
    numpy_random = sys.modules.get("numpy.random")
    return numpy_random is not None and isinstance(obj, (numpy_random.Generator, numpy_random.RandomState))


def _bits(obj: Any) -> Any:
    return obj.bit_generator if hasattr(obj, "bit_generator") else obj._bit_generator


def _put_bits(obj: Any, value: Any) -> None:
    if type(_bits(obj)).__name__ != value["bit_generator"]:
        raise StateError(
            f"a generator of {type(_bits(obj)).__name__}; the checkpoint has {value['bit_generator']}"
        )
    _bits(obj).state = value


def _take_file(obj: Any) -> tuple[int, int]:
    obj.flush()
    return obj.tell(), os.fstat(obj.fileno()).st_size


def _put_file(obj: Any, value: tuple[int, int]) -> None:
    position, length = value
    obj.flush()
    found = os.fstat(obj.fileno()).st_size
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


_Kind = tuple[str, Callable[[Any], bool], Callable[[Any], Any], Callable[[Any, Any], None]]
_KINDS: tuple[_Kind, ...] = (
    ("dict", *_container(OrderedDict, lambda obj: list(OrderedDict.items(obj)), _fill_ordered)),
    ("dict", *_container(dict, lambda obj: list(dict.items(obj)), _fill_dict)),
    ("list", *_container(list, list, list.extend)),
    ("set", *_container(set, list, set.update)),
    ("deque", *_container(deque, list, deque.extend)),
    ("bytearray", *_container(bytearray, bytes, bytearray.extend)),
    ("array", _is_array, _take_array, _put_array),
    ("array.array", lambda obj: isinstance(obj, array.array), lambda obj: obj.tobytes(), _put_array_array),
    (
        "random generator",
        lambda obj: isinstance(obj, random.Random),
        lambda obj: obj.getstate(),
        random.Random.setstate,
    ),
    ("numpy generator", _is_numpy_generator, lambda obj: _bits(obj).state, _put_bits),
    ("file", is_file, _take_file, _put_file),
)

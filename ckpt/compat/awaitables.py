"""Structs of awaitables in C that offer no way to read them: of asynchronous generators, of ``anext``, of coroutines.

For a new minor version: have ``PyAsyncGenASend``, ``PyAsyncGenAThrow``, ``PyCoroWrapper`` (``Objects/genobject.c``) and
``anextawaitableobject`` (``Objects/iterobject.c``) kept their fields? If a type has another size than the known one, its
objects are not read, and are refused by name.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

from ckpt.compat.memory import put_reference
from ckpt.compat.typeobjects import HEADER_BYTES, instance_bytes

__all__ = ["TYPES", "fill", "make", "parts_of", "sends_into"]

_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


async def _generator() -> Any:
    yield


async def _coroutine() -> None:
    pass


_MAKERS: dict[str, Any] = {
    "asend": lambda: _generator().asend(None),
    "athrow": lambda: _generator().athrow(GeneratorExit),
    "anext": lambda: anext(_generator(), None),
    "coroutine": lambda: _wrapper(),
}
_POINTERS = {"asend": 2, "athrow": 2, "anext": 2, "coroutine": 1}
_HAVE_STATE = ("asend", "athrow")


def _wrapper() -> Any:
    coroutine = _coroutine()
    found = coroutine.__await__()
    coroutine.close()
    return found


def _types() -> dict[type, str]:
    found = {}
    for kind, make in _MAKERS.items():
        made = make()
        found[type(made)] = kind
        # Since 3.13 the end of one that is never awaited is a warning. To ignore it would not do: C keeps the filters of the
        # latest warning for the end of the interpreter, which would ignore all of the program's then.
        made.close()
    return found


TYPES: dict[type, str] = _types()
"""Type of an awaitable → its kind."""


def parts_of(obj: Any) -> tuple[str, tuple[Any, ...], int] | None:
    """(kind, the objects that its fields refer to, state); of a field that is empty: nothing, and none comes after it. None:
    the struct is not as it is known."""
    kind = TYPES[type(obj)]
    count = _POINTERS[kind]
    if instance_bytes(type(obj)) != HEADER_BYTES + (count + (kind in _HAVE_STATE)) * _POINTER_BYTES:
        return None
    referents = [item for item in gc.get_referents(obj) if item is not type(obj)]
    words = [
        ctypes.c_void_p.from_address(id(obj) + HEADER_BYTES + i * _POINTER_BYTES).value for i in range(count)
    ]
    found = [item for word in words if word for item in referents if id(item) == word]
    unique = list({id(item): item for item in found}.values())
    if [id(item) for item in unique] != list(dict.fromkeys(word for word in words if word)):
        return None
    references = [next(item for item in unique if id(item) == word) for word in words if word]
    return kind, tuple(references), _state(obj, count).value if kind in _HAVE_STATE else 0


def _state(obj: Any, count: int) -> ctypes.c_int:
    return ctypes.c_int.from_address(id(obj) + HEADER_BYTES + count * _POINTER_BYTES)


def make(kind: str) -> Any:
    """An awaitable of that kind, for :func:`fill`."""
    return _MAKERS[kind]()


def fill(obj: Any, references: tuple[Any, ...], state: int) -> None:
    """Give it what :func:`parts_of` has returned of another one."""
    kind = TYPES[type(obj)]
    count = _POINTERS[kind]
    for index in range(count):
        address = id(obj) + HEADER_BYTES + index * _POINTER_BYTES
        put_reference(address, *references[index : index + 1])
    if kind in _HAVE_STATE:
        _state(obj, count).value = state


def sends_into(obj: Any) -> Any:
    """The generator or coroutine into which an awaitable that has begun sends what it is sent; None: it is none of these."""
    while type(obj) in TYPES:
        references = [item for item in gc.get_referents(obj) if item is not type(obj)]
        obj = references[0] if references else None
    return obj

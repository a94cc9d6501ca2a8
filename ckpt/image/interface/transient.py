"""Objects that no image can hold and that a program holds only for a moment, usually.

`hashlib.blake2b(data).hexdigest()` has a hash object on its evaluation stack for some microseconds, a loop over a file
keeps a decompressor in a local variable for some milliseconds, logging looks for its caller among the frames. An image
taken then would fail in its child and cost the whole round; a few instructions later it succeeds. So a capture that finds
such an object in a running function is refused for a while, as any other that comes at a bad moment.

So is one that finds the address of an object (`return id(self)` in a `__hash__`): the object will be elsewhere.

Which these are, each library says (``transient_types``, ``transient_functions`` of
:class:`ckpt.image.interface.library.Library`).

Only a look at types, of the innermost frames; what hides inside other objects, or stays, is named by the pickler
(`diagnose`). Nothing of the program is called here.
"""

from __future__ import annotations

import functools
import sys
from types import CodeType, FrameType
from typing import Any

from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.image.frames.stack import FrameRecord, Stack
from ckpt.image.frames.suspended import location
from ckpt.image.interface.library import Library
from ckpt.image.interface.registry import libraries

__all__ = ["refuse_transient"]

_FRAMES = 64
_CLOSE = 8  # frames whose functions are asked which variables of their module they name
_module_of = type.__dict__["__module__"].__get__  # not the attribute: a metaclass could make that a call
_name_of = type.__dict__["__qualname__"].__get__
_NONE: tuple[None, set[str]] = None, set()
_lru_cache = type(functools.lru_cache(lambda: None))
_brief: dict[int, tuple[CodeType, str]] = {}  # by the id of the code
_owners: dict[str, tuple[Library, set[str]]] = {}  # by module; names of types, "" for all
_modules_known = 0


def refuse_transient(stack: Stack) -> None:
    """Raise Refused if a function that runs holds such an object directly: on its evaluation stack, or in a variable of its
    own or of its module."""
    addresses: list[tuple[int, FrameRecord]] = []
    _look_at_libraries()
    frames = stack.frames[-_FRAMES:]
    for left, record in zip(range(len(frames), 0, -1), frames, strict=True):
        if id(record.code) in _brief:
            raise _refused(_brief[id(record.code)][1], record)
        for value in _held(record, is_close=left <= _CLOSE):
            if type(value) is int:
                addresses.append((value, record))
                continue
            reason = _reason(value)
            if reason:
                raise _refused(reason, record)
    if addresses:
        _refuse_addresses(stack, addresses)


def _look_at_libraries() -> None:
    """Note the functions that are waited for to end, and the types of objects. Again when modules come."""
    global _modules_known
    if len(sys.modules) == _modules_known:
        return
    _modules_known = len(sys.modules)
    for library in libraries.loaded():
        for each in library.transient_types:
            module, _, kind = each.partition(":")
            owner = _owners.setdefault(module, (library, set()))
            owner[1].add(kind)
        for name, reason in library.transient_functions:
            module, _, path = name.partition(":")
            code = _code_of(sys.modules.get(module), path)
            if code is not None:
                _brief[id(code)] = code, reason
            elif module in sys.modules:
                _modules_known = 0  # it is being imported: look again


def _code_of(found: Any, path: str) -> CodeType | None:
    for part in path.split("."):
        found = getattr(found, part, None)
    return getattr(found, "__code__", None)


def _reason(value: Any) -> str | None:
    """Why this object, of no built-in type, is in no image; ``None``: it may be."""
    kind = type(value)
    if kind is _lru_cache and "cache_parameters" not in value.__dict__:
        return "functools.lru_cache is wrapping a function"
    if kind is FrameType:
        return "a frame object is in use, which no image can hold"
    module = _module_of(kind)
    if type(module) is not str:
        return None
    library, names = _owners.get(module, _NONE)
    if library is None or ("" not in names and _name_of(kind) not in names):
        return None
    try:
        return library.reason_against(value)
    except Exception as failure:  # an author's mistake must not reach the program
        return f"what serves {library.name} has failed: {type(failure).__name__}: {failure}"


def _held(record: FrameRecord, *, is_close: bool) -> list[Any]:
    """What may be such an object: on the stack, in variables, and, if close, in those of its module that it names."""
    function = record.func
    if function is None:
        return _frames.unusual(record.stack, {}, ())
    found = _frames.unusual(record.locals, function.__globals__, record.code.co_names if is_close else ())
    return found + _frames.unusual(record.stack, {}, ()) if record.stack else found


def _refuse_addresses(stack: Stack, numbers: list[tuple[int, FrameRecord]]) -> None:
    """Raise Refused if one of these numbers is the address of what a running function works with."""
    known = {
        id(value)
        for record in stack.frames[-_FRAMES:]
        for held in (record.stack, record.locals)
        for value in held
    }
    for number, record in numbers:
        if number in known:
            raise _refused(
                "the address of an object is in use, which will be another after a restart", record
            )


def _refused(reason: str, record: FrameRecord) -> Refused:
    return Refused(reason, location(record.code, max(0, record.lasti)))

"""Transient objects: no image can hold them, and a program usually holds them for a moment only.

`hashlib.blake2b(data).hexdigest()` has a hash object on its evaluation stack for some microseconds, a loop over a file
keeps a decompressor in a local variable for some milliseconds, logging looks for its caller among the frames. An image
taken then would fail in its child and cost the whole round; a few instructions later it succeeds. So a capture that finds
such an object in a running function is refused, as at any other place where the program cannot be captured, and tried again.

A capture is also refused if a running function holds the address of an object (`return id(self)` in a `__hash__`), because
the object will have another address after a restart, and between `os.getpid()` or `threading.get_ident()` and the call or
comparison that the number is for: `os.kill(os.getpid(), SIGUSR1)` would go to a process that is dead, or to another
program's.

Each library says which objects and functions of its own are transient (``transient_types``, ``transient_functions`` of
:class:`ckpt.image.interface.library.Library`).

Types that nobody has named are learned: an image that fails at an object which a running function holds itself reports the
type of the object (:func:`learn`). From then on objects of this type count as transient. If such an object is there at all
looks for as long as a transient object lasts, its type is forgotten (:func:`forget`): perhaps an image of it can be taken,
or the program keeps it.

Only types are looked at, and only in the innermost frames. The pickler names an object that is inside another one, or that
is not dropped soon (:mod:`ckpt.image.pickling.diagnose`). No code of the program is called here.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

from ckpt.image.errors import Refused
from ckpt.image.frames import _frames, c_waits
from ckpt.image.frames.stack import FrameRecord, Stack
from ckpt.image.frames.suspended import location
from ckpt.image.interface.library import Library
from ckpt.image.interface.registry import libraries

__all__ = ["forget", "learn", "look_at_libraries", "refuse_running", "refuse_transient"]

_MOST_FRAMES = 64
_NEAR_FRAMES = 8  # so many innermost frames are also searched for variables of their modules that they use
_module_of = type.__dict__["__module__"].__get__  # not the attribute: a metaclass could make that a call
_name_of = type.__dict__["__qualname__"].__get__
_NO_LIBRARY: tuple[None, set[str]] = None, set()
_lru_cache = type(functools.lru_cache(lambda: None))
_COMPARED = {
    function.__code__
    for function in (
        threading.current_thread,
        threading.main_thread,
        threading.Thread.ident.fget,  # type: ignore[attr-defined]
        threading.Thread.native_id.fget,  # type: ignore[attr-defined]
    )
}
"""What runs while a thread's number waits on the evaluation stack: ``get_ident() == current_thread().ident``."""
_transient_code: dict[int, tuple[CodeType, str, Library]] = {}  # by the id of the code
_transient_types: dict[str, tuple[Library, set[str]]] = {}  # by module; names of types, "" for all
_module_count = 0
_learned: set[int] = set()  # addresses of types


def learn(type_address: int) -> None:
    """An image has failed at an object of the type at this address, which a running function held."""
    _learned.add(type_address)


def forget() -> None:
    """The reverse: of all types that images have failed at."""
    _learned.clear()


def refuse_transient(stack: Stack) -> None:
    """Raise Refused if a running function of any thread holds a transient object directly: on its evaluation stack, in a
    local variable, or in a variable of its module."""
    for thread in stack.threads:
        refuse_transient(thread.stack)
    _refuse_number(stack)
    addresses: list[tuple[int, FrameRecord]] = []
    look_at_libraries()
    frames = stack.frames[-_MOST_FRAMES:]
    _ask_libraries(frames)
    for left, record in zip(range(len(frames), 0, -1), frames, strict=True):
        if id(record.code) in _transient_code:
            _, moment, library = _transient_code[id(record.code)]
            raise _refused(moment, library.moment_limit_s, record)
        for value in _candidates(record, is_near=left <= _NEAR_FRAMES):
            if type(value) is int:
                addresses.append((value, record))
                continue
            reason, limit_s, hooked_limit_s = _reason(value)
            if reason:
                raise _refused(reason, limit_s, record, hooked_limit_s)
        if _learned:
            _refuse_learned(record)
    if addresses:
        _refuse_addresses(stack, addresses)


def _refuse_number(stack: Stack) -> None:
    """Raise Refused if the innermost frame has just asked for the number of the process, or of the thread; or is asking for
    what it compares that with."""
    at = len(stack.frames) - 1
    while at > 0 and stack.frames[at].code in _COMPARED:
        at -= 1
    record = stack.frames[at] if stack.frames else None
    if record is None or not record.stack:
        return
    is_innermost = at == len(stack.frames) - 1
    if is_innermost and (record.mode != "L" or record.value is not _frames.NULL):
        return
    latest = record.stack[-1]
    if type(latest) is int and latest in (os.getpid(), stack.ident):
        reason = (
            "the number of the process or thread is about to be used, which will be another after a restart"
        )
        raise _refused(reason, Library.moment_limit_s, record)


def _refuse_learned(record: FrameRecord) -> None:
    """Raise Refused for an object of a type of which one could not be saved; the type may be a built-in one."""
    for held in _held_by(record):
        for value in held:
            cls = type(value)
            if id(cls) in _learned:
                reason = (
                    f"an object of type {_name_of(cls)} is in use, of which an image could not be written"
                )
                raise _refused(reason, Library.object_limit_s, record)


def _ask_libraries(frames: list[FrameRecord]) -> None:
    """Raise Refused if a library has a reason that no image is taken at this moment."""
    for reason_now in libraries.implementations(Library.reason_now):
        values = (value for record in frames for held in _held_by(record) for value in held)
        reason = _asked(reason_now.__self__, reason_now, values)
        if reason:
            library = reason_now.__self__
            raise _refused(reason, library.moment_limit_s, frames[-1], library.hooked_limit_s)


def _held_by(record: FrameRecord) -> list[Iterable[Any]]:
    """The objects of a frame, those in the variables of module-level code included."""
    variables = record.locals if record.func is not None else dict.values(record.globals_ or {})
    return [list(variables), record.stack]


def refuse_running(thread: threading.Thread) -> None:
    """Raise Refused if a thread cannot be left out of an image: a function of ``transient_functions`` runs in it, or a
    library says so."""
    for reason_against in libraries.implementations(Library.reason_against_leaving_out):
        reason = reason_against(thread)
        if reason:
            raise Refused(f"thread {thread.name!r} cannot be left out: {reason}")
    for _, code, lasti, _ in _frames.places(thread.ident or 0, sys.maxsize):
        if id(code) in _transient_code:
            reason = _transient_code[id(code)][1]
            raise Refused(
                f"thread {thread.name!r} cannot be left out: {reason}", location(code, max(0, lasti))
            )


def look_at_libraries() -> None:
    """Read the transient functions and types of all loaded libraries, and the calls that images answer; again when the
    number of modules has changed. Whoever stops threads does this before: one that serves a pool stands in such a call."""
    global _module_count
    if len(sys.modules) == _module_count:
        return
    _module_count = len(sys.modules)
    for library in libraries.loaded():
        for name in library.transient_types:
            module, _, class_name = name.partition(":")
            entry = _transient_types.setdefault(module, (library, set()))
            entry[1].add(class_name)
        for name, reason in library.transient_functions:
            module, _, path = name.partition(":")
            code = _code_of(sys.modules.get(module), path)
            if code is not None:
                _transient_code[id(code)] = code, reason, library
            elif module in sys.modules:
                _module_count = 0  # it is being imported: look again
        for name, value, inside in library.answered_calls:
            codes = [
                _code_of(sys.modules.get(part.partition(":")[0]), part.partition(":")[2])
                for part in (name, inside)
            ]
            if codes[0] is not None and (codes[1] is not None or not inside):
                c_waits.declare(c_waits.Answer(codes[0], value, codes[1]))


def _code_of(found: Any, path: str) -> CodeType | None:
    for part in path.split("."):
        found = getattr(found, part, None)
    return getattr(found, "__code__", None)


def _reason(value: Any) -> tuple[str | None, float, float | None]:
    """Why an image cannot hold this object, which is of no built-in type (``None``: an image may hold it), and how long that
    lasts at most, in seconds, without hooks and with them."""
    cls = type(value)
    if cls is _lru_cache and "cache_parameters" not in value.__dict__:
        return "functools.lru_cache is wrapping a function", Library.object_limit_s, None
    if cls is FrameType:
        return "a frame object is in use, which no image can hold", Library.object_limit_s, None
    module = _module_of(cls)
    if type(module) is not str:
        return None, 0, None
    library, names = _transient_types.get(module, _NO_LIBRARY)
    if library is None or ("" not in names and _name_of(cls) not in names):
        return None, 0, None
    return _asked(library, library.reason_against, value), library.object_limit_s, library.hooked_limit_s


def _asked(library: Library, why: Callable[[Any], str | None], value: Any) -> str | None:
    try:
        return why(value)
    except Exception as failure:  # an author's mistake must not reach the program
        return f"the class that serves {library.name} has failed: {type(failure).__name__}: {failure}"


def _candidates(record: FrameRecord, *, is_near: bool) -> list[Any]:
    """The objects of a frame that may be transient: on its stack, in its variables, and, if it is near the innermost frame,
    in the variables of its module that its code names."""
    function = record.func
    if function is None:
        return _frames.unusual(record.stack, {}, ())
    found = _frames.unusual(record.locals, function.__globals__, record.code.co_names if is_near else ())
    return found + _frames.unusual(record.stack, {}, ()) if record.stack else found


def _refuse_addresses(stack: Stack, numbers: list[tuple[int, FrameRecord]]) -> None:
    """Raise Refused if one of these numbers is the address of an object in a variable or on the stack of a running
    function."""
    addresses = {
        id(value)
        for record in stack.frames[-_MOST_FRAMES:]
        for values in (record.stack, record.locals)
        for value in values
    }
    for number, record in numbers:
        if number in addresses:
            raise _refused(
                "the address of an object is in use, which will be another after a restart",
                Library.object_limit_s,
                record,
            )


def _refused(
    reason: str, limit_s: float, record: FrameRecord, hooked_limit_s: float | None = None
) -> Refused:
    refused = Refused(reason, location(record.code, max(0, record.lasti)))
    refused.limit_ns = int(limit_s * 1e9)
    refused.hooked_limit_ns = refused.limit_ns if hooked_limit_s is None else int(hooked_limit_s * 1e9)
    return refused

"""Objects that no image can hold and that a program holds only for a moment, usually.

`hashlib.blake2b(data).hexdigest()` has a hash object on its evaluation stack for some microseconds, a loop over a file
keeps a decompressor in a local variable for some milliseconds, logging looks for its caller among the frames. An image
taken then would fail in its child and cost the whole round; a few instructions later it succeeds. So a capture that finds
such an object in a running function is refused for a while, as any other that comes at a bad moment.

So is one that finds the address of an object (`return id(self)` in a `__hash__`): the object will be elsewhere.

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
from ckpt.image.frames.c_calls import location
from ckpt.image.frames.stack import FrameRecord, Stack

__all__ = ["refuse_passing"]

_FRAMES = 64
_CLOSE = 8  # frames whose functions are asked which variables of their module they name
_MODULES = frozenset(
    (
        *("_hashlib", "_blake2", "_sha3", "_md5", "_sha1", "_sha256", "_sha512", "_sha2", "_hmac"),
        *("zlib", "_bz2", "_lzma"),
        *("_socket", "socket", "_ssl", "ssl", "select", "selectors"),
        *("pyexpat", "matplotlib.ft2font"),
        *("h5py.h5a", "h5py.h5p", "h5py.h5s", "h5py.h5t"),
    )
)
"""All objects whose type is of these modules hold state of a C library, or a descriptor."""
_module_of = type.__dict__["__module__"].__get__  # not the attribute: a metaclass could make that a call
_lru_cache = type(functools.lru_cache(lambda: None))
_BRIEF = (
    ("subprocess", "Popen", "__init__", "a child process is being started"),
    ("h5py._hl.files", "File", "__init__", "an HDF5 file is being opened"),
    ("h5py._hl.files", "File", "close", "an HDF5 file is being closed"),
    (
        "pandas.io.parsers.readers",
        "TextFileReader",
        "read",
        "a table is being read",
    ),  # ckpt.image.libraries.pandas_tables
)
_known_brief: dict[int, tuple[CodeType, str]] = {}
_modules_known = 0


def refuse_passing(stack: Stack) -> None:
    """Raise Refused if a function that runs holds such an object directly: on its evaluation stack, or in a variable of its
    own or of its module."""
    addresses: list[tuple[int, FrameRecord]] = []
    brief = _brief_functions()
    frames = stack.frames[-_FRAMES:]
    for left, record in zip(range(len(frames), 0, -1), frames, strict=True):
        if id(record.code) in brief:
            raise _refused(brief[id(record.code)][1], record)
        for value in _held(record, is_close=left <= _CLOSE):
            if type(value) is int:
                addresses.append((value, record))
                continue
            reason = _reason(value)
            if reason:
                raise _refused(reason, record)
    if addresses:
        _refuse_addresses(stack, addresses)


def _brief_functions() -> dict[int, tuple[CodeType, str]]:
    """Functions that are waited for to end, by the id of their code, and what they do. Looked for when modules come."""
    global _modules_known
    if len(sys.modules) != _modules_known:
        _modules_known = len(sys.modules)
        for module, name, method, reason in _BRIEF:
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None:
                code = getattr(kind, method).__code__
                _known_brief[id(code)] = code, reason
            elif module in sys.modules:
                _modules_known = 0  # it is being imported: look again
    return _known_brief


def _reason(value: Any) -> str | None:
    """Why this object, of no built-in type, is in no image; ``None``: it may be."""
    kind = type(value)
    if kind is getattr(sys.modules.get("subprocess"), "Popen", None) and value.returncode is None:
        return f"the child process {value.pid} is running"
    if kind is _lru_cache and "cache_parameters" not in value.__dict__:
        return "functools.lru_cache is wrapping a function"
    if kind is FrameType:
        return "a frame object is in use, which no image can hold"
    module = _module_of(kind)
    if type(module) is str and module in _MODULES and not _can_be_saved(module, value):
        return f"a {module}.{kind.__qualname__} is in use, which no image can hold"
    return None


def _can_be_saved(module: str, value: object) -> bool:
    if module == "_blake2":
        from ckpt.image.stdlib import blake  # imports hashlib, as the program has

        return blake.can_be_saved(value)
    if module == "_hashlib":
        from ckpt.image.stdlib import digests

        return digests.can_be_saved(value)
    return False


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

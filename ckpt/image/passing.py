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

import sys
from types import FrameType, FunctionType

from ckpt.image.boundary import location
from ckpt.image.errors import Refused
from ckpt.image.stack import FrameRecord, Stack

__all__ = ["refuse_passing"]

_FRAMES = 64
_CLOSE = 8  # frames whose functions are asked which variables of their module they name
_MODULES = frozenset(
    (
        *("_hashlib", "_blake2", "_sha3", "_md5", "_sha1", "_sha256", "_sha512", "_sha2", "_hmac"),
        *("zlib", "_bz2", "_lzma"),
        *("_socket", "socket", "_ssl", "ssl", "select", "selectors"),
        *("pyexpat", "matplotlib.ft2font"),
    )
)
"""All objects whose type is of these modules hold state of a C library, or a descriptor."""
_LOWEST_ADDRESS = 1 << 20
_module_of = type.__dict__["__module__"].__get__  # not the attribute: a metaclass could make that a call


def refuse_passing(stack: Stack) -> None:
    """Raise Refused if a function that runs holds such an object directly: on its evaluation stack, or in a variable of its
    own or of its module."""
    addresses: list[tuple[int, FrameRecord]] = []
    child = getattr(sys.modules.get("subprocess"), "Popen", None)
    starting = child.__init__.__code__ if child is not None else None
    reader = getattr(sys.modules.get("pandas.io.parsers.readers"), "TextFileReader", None)
    # behind its parser meanwhile: ckpt.ready.tables
    reading = reader.read.__code__ if reader is not None else None
    cache = getattr(sys.modules.get("functools"), "_lru_cache_wrapper", None)
    frames = stack.frames[-_FRAMES:]
    for left, record in zip(range(len(frames), 0, -1), frames, strict=True):
        if record.code is starting:
            raise _refused("a child process is being started", record)
        if record.code is reading:
            raise _refused("a table is being read", record)
        held = record.stack if record.func is None else record.stack + record.locals
        if left <= _CLOSE and record.func is not None:
            held = held + _named(record.func)
        for value in held:
            kind = type(value)
            if kind is child and value.returncode is None:
                raise _refused(f"the child process {value.pid} is running", record)
            if kind is cache and "cache_parameters" not in value.__dict__:
                raise _refused("functools.lru_cache is wrapping a function", record)
            if kind is FrameType:
                raise _refused("a frame object is in use, which no image can hold", record)
            if kind is int and value > _LOWEST_ADDRESS:
                addresses.append((value, record))
                continue
            module = _module_of(kind)
            if type(module) is str and module in _MODULES and not _can_be_saved(module, value):
                raise _refused(f"a {module}.{kind.__qualname__} is in use, which no image can hold", record)
    if addresses:
        _refuse_addresses(stack, addresses)


def _can_be_saved(module: str, value: object) -> bool:
    if module == "_blake2":
        from ckpt.ready import blake  # imports hashlib, as the program has

        return blake.can_be_saved(value)
    if module == "_hashlib":
        from ckpt.ready import digests

        return digests.can_be_saved(value)
    return False


def _named(function: FunctionType) -> list[object]:
    """The variables of its module that a function names."""
    space = function.__globals__
    return [space[name] for name in function.__code__.co_names if name in space]


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

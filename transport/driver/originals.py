"""Own copies of `os`, `os.path`, `time`, `io`, `json`, `open` and others for the modules of a rank's libraries. (driver)

Programs and their tests replace functions of the standard library (unittest.mock, freezegun, pyfakefs, gevent's
monkey-patching). The modules of this package must keep the genuine functions: a frozen clock would stop the transport, and
an in-memory file system would receive the images. So `keep` gives every module of `PACKAGES`, loaded already or imported
later, private copies under the names `os`, `time`, `io`, `fcntl`, `json`, `threading` and `open`.

freezegun and pyfakefs also walk through all loaded modules, and replace each genuine module or function that they find by
its identity or its name. Therefore the copies have other names. `open`, and functions that a module of `PACKAGES` has
imported under a name of its own, are wrapped in `functools.partial`: a patching library does not take such an object for a
function.

The copies of `os`, `posixpath` and `genericpath` are made by executing these modules a second time, since their functions
written in Python (`makedirs`, `path.exists`) look other functions up in their own module. Objects that the copies and the
genuine modules have to share are shared (`_SHARED`): the environment, and the classes that programs subclass or register
with.

gevent gives the main thread another identifier. The copy of `threading` therefore answers `current_thread` and `get_ident`
with the kernel threads' identifiers, not with gevent's.

`keep` is called once, before ranks are forked, so the start of a rank pays nothing for it. What does not belong here:
patches of other modules, and patches of C functions.
"""

from __future__ import annotations

import _thread
import fcntl
import functools
import importlib.util
import io
import json
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from ckpt.compat import accelerators, stdlib

__all__ = ["PACKAGES", "keep"]

PACKAGES = ("ckpt",)

_SHARED = ("environ", "environb", "PathLike", type(os.environ).__name__, "name", "linesep", "devnull")
_WALKED = (
    "posix",
    "time",
    *accelerators.IO,
)  # patching libraries search all modules for functions of these four
_copies: dict[str, Any] = {}


def keep() -> None:
    """Shield the modules of `PACKAGES`, from now on, from patches of `os`, `time`, `open` and the like. Idempotent."""
    if _copies:
        return
    for name, genuine in (
        ("time", time),
        ("io", io),
        ("fcntl", fcntl),
        ("json", json),  # programs put the functions of orjson and ujson there
    ):
        _copies[name] = _shallow(name, genuine)
    _copies["threading"] = _Threading(f"{__name__}.threading")
    _copies["os"] = _copy_of_os()
    _copies["open"] = functools.partial(io.open)
    _note_main_thread()
    os.register_at_fork(after_in_child=_note_main_thread)
    for name, module in list(sys.modules.items()):
        if _is_ours(name):
            _rebind(module)
    stdlib.wrap_exec_module(_rebinding)


def _rebinding(execute: Callable[..., None]) -> Callable[..., None]:
    def exec_module(self: Any, module: types.ModuleType) -> None:
        execute(self, module)
        if _is_ours(module.__name__):
            _rebind(module)

    return exec_module


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def _rebind(module: types.ModuleType) -> None:
    space = vars(module)
    if space is globals():
        return
    for name, value in list(space.items()):
        if name in _copies:  # also where a patch that is active now has put its replacement
            space[name] = _copies[name]
        elif type(value) is types.BuiltinFunctionType and value.__module__ in _WALKED:
            space[name] = functools.partial(value)
    space.setdefault("open", _copies["open"])


_get_ident = _thread.get_ident
_main: list[int] = []


def _note_main_thread() -> None:
    _main[:] = (_get_ident(),)


def _current_thread() -> threading.Thread | None:
    """Return the running thread, or None when `threading` does not know it (it was started in another way)."""
    ident = _get_ident()
    if ident in _main:
        return threading.main_thread()
    return next(
        (thread for thread in list(stdlib.threads_by_ident().values()) if thread.ident == ident), None
    )


class _Threading(types.ModuleType):
    """Reads and writes attributes of the genuine `threading`, except those that say which thread is running."""

    def __init__(self, name: str) -> None:
        super().__init__(name, threading.__doc__)
        own = {"current_thread": _current_thread, "get_ident": _get_ident, "Thread": threading.Thread}
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(threading, name, value)


def _copy_of_os() -> types.ModuleType:
    path = sys.modules["os.path"]
    copy = _again("os")
    sys.modules["os.path"] = path  # executing os.py has replaced this entry
    generic, own_path = _again("genericpath"), _again("posixpath")
    generic.__dict__["os"] = own_path.__dict__["os"] = copy
    for name in generic.__dict__["__all__"]:
        own_path.__dict__[name] = generic.__dict__[name]
    own_path.__dict__["genericpath"] = generic
    for name in _SHARED:
        copy.__dict__[name] = getattr(os, name)
    copy.__dict__["path"] = own_path
    return copy


def _again(name: str) -> types.ModuleType:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__name__ = f"{__name__}.{name}"  # a search for the genuine module by name passes over this one
    return module


def _shallow(name: str, genuine: types.ModuleType) -> types.ModuleType:
    copy = types.ModuleType(f"{__name__}.{name}", genuine.__doc__)
    copy.__dict__.update({key: value for key, value in vars(genuine).items() if not key.startswith("__")})
    return copy

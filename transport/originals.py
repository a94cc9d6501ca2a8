"""Own copies of `os`, `os.path`, `time`, `io`, `open` and others for the modules of a rank's libraries. (driver)

Programs and their tests replace functions of the standard library: unittest.mock, freezegun, pyfakefs, what gevent does. A
rank's libraries must go on with the genuine ones: a clock that stands still would stop the transport, a file system in
memory would get the images. So `keep` gives every module of `PACKAGES`, loaded already or later, copies that nobody else has
under the names `os`, `time`, `io`, `_io`, `fcntl`, `threading` and `open`.

freezegun and pyfakefs also walk through all modules that are loaded, and put their own where they find a genuine module or
function, by its identity or its name. The copies have other names; functions that a module of ours has under a name of its
own, and `open`, are wrapped (`functools.partial`), so that they are no functions for who looks.

The copies of `os`, `posixpath` and `genericpath` are executed anew, since their functions written in Python (`makedirs`,
`path.exists`) look others up in their own module. What they have to share with the genuine ones stays the same object: the
environment, and the classes that programs subclass or register with.

gevent gives the main thread another number. Who asks the copy of `threading` for the thread that runs is told by the
genuine one.

Called once, before ranks are forked, so a rank's start pays nothing. Not here: patches of other modules, of C itself.
"""

from __future__ import annotations

import _io
import _thread
import fcntl
import functools
import importlib.util
import io
import os
import sys
import threading
import time
import types
from importlib import _bootstrap_external
from typing import Any

__all__ = ["PACKAGES", "keep"]

PACKAGES = ("ckpt",)

_SHARED = ("environ", "environb", "PathLike", "_Environ", "name", "linesep", "devnull")
_WALKED = ("posix", "time", "_io", "io")  # of whose functions patches look for other names
_copies: dict[str, Any] = {}


def keep() -> None:
    """From here on the modules of `PACKAGES` do not see what others do to `os`, `time`, `open` and the like. Idempotent."""
    if _copies:
        return
    for name, genuine in (
        ("time", time),
        ("io", io),
        ("_io", _io),
        ("fcntl", fcntl),
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
    basics: Any = _bootstrap_external._LoaderBasics  # type: ignore[attr-defined]
    execute = basics.exec_module

    def exec_module(self: Any, module: types.ModuleType) -> None:
        execute(self, module)
        if _is_ours(module.__name__):
            _rebind(module)

    basics.exec_module = exec_module


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def _rebind(module: types.ModuleType) -> None:
    space = vars(module)
    if space is globals():
        return
    for name, value in list(space.items()):
        if name in _copies:  # even if it is a replacement: of a module that is loaded while one is in place
            space[name] = _copies[name]
        elif type(value) is types.BuiltinFunctionType and value.__module__ in _WALKED:
            space[name] = functools.partial(value)
    space.setdefault("open", _copies["open"])


_get_ident = _thread.get_ident
_main: list[int] = []


def _note_main_thread() -> None:
    _main[:] = (_get_ident(),)


def _current_thread() -> threading.Thread | None:
    """None: not known here."""
    ident = _get_ident()
    if ident in _main:
        return threading.main_thread()
    return next((thread for thread in list(_threads()) if thread.ident == ident), None)


def _threads() -> Any:
    return threading._active.values()  # type: ignore[attr-defined]


class _Threading(types.ModuleType):
    """The genuine module, also for who sets something in it; but for which thread this one is."""

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
    sys.modules["os.path"] = path  # which os.py has set
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
    module.__name__ = f"{__name__}.{name}"  # who looks for the genuine one by name passes it over
    return module


def _shallow(name: str, genuine: types.ModuleType) -> types.ModuleType:
    copy = types.ModuleType(f"{__name__}.{name}", genuine.__doc__)
    copy.__dict__.update({key: value for key, value in vars(genuine).items() if not key.startswith("__")})
    return copy

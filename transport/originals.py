"""Own copies of `os`, `os.path`, `time` and `open` for the modules of a rank's libraries. (driver)

Programs and their tests replace functions of the standard library: unittest.mock, freezegun, pyfakefs, what gevent does. A
rank's libraries must go on with the genuine ones: a clock that stands still would stop the transport, a file system in
memory would get the images. So `keep` gives every module of `PACKAGES`, loaded already or later, copies that nobody else has
under the names `os`, `time` and `open`, where it has the genuine ones there.

The copies of `os`, `posixpath` and `genericpath` are executed anew, since their functions written in Python (`makedirs`,
`path.exists`) look others up in their own module. What they have to share with the genuine ones stays the same object: the
environment, and the classes that programs subclass or register with.

Called once, before ranks are forked, so a rank's start pays nothing. Not here: patches of other modules, of C itself.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import time
import types
from importlib import _bootstrap_external
from typing import Any

__all__ = ["PACKAGES", "keep"]

PACKAGES = ("ckpt", "transport")

_SHARED = ("environ", "environb", "PathLike", "_Environ", "name", "linesep", "devnull")
_copies: dict[str, types.ModuleType] = {}


def keep() -> None:
    """From here on the modules of `PACKAGES` do not see what others do to `os`, `time` and `open`. Idempotent."""
    if _copies:
        return
    _copies.update(os=_copy_of_os(), time=_shallow("time", time))
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
    if space.get("os") is os:
        space["os"] = _copies["os"]
    if space.get("time") is time:
        space["time"] = _copies["time"]
    if space is not globals():
        space.setdefault("open", _open)


_open = io.open


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

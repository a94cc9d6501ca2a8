"""Functions that a program registers with ``atexit``: they are recorded, because the interpreter has no way to list them.

:func:`install` replaces the functions of :mod:`atexit` that register, unregister and clear by recording ones before the
program starts.

=====================================================  ====================================================
registered by                                          after a restart
=====================================================  ====================================================
modules of the program (by value)                      registered again: part of the image
installed packages, while the program calls them       registered again: part of the image
(a pool of workers that closes itself)
installed packages, when they are imported             registered again by the import
the standard library                                   :mod:`ckpt.image.stdlib.finalizers`
=====================================================  ====================================================
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

from ckpt.compat.accelerators import clear_exit_functions, replace_exit_functions
from ckpt.image.modules.origins import OWN_PACKAGES
from ckpt.transport.records import NamedTuple

__all__ = ["Entry", "forget", "install", "recorded", "register_again"]


class Entry(NamedTuple):
    """One registered function. ``caller``: name of the module that has called ``register``. ``importing``: name of the
    module whose module-level code is the innermost on the call stack, "" if there is none; usually ``__main__``."""

    caller: str
    importing: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_entries: list[Entry] = []
_register = atexit.register
_unregister = atexit.unregister
_clear = clear_exit_functions


def install() -> None:
    """Start recording, with an empty record."""
    _entries.clear()
    replace_exit_functions(register, unregister, clear)


def register(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Register a function to be executed at the program's end; see :func:`atexit.register`."""
    _register(func, *args, **kwargs)
    frame: FrameType | None = sys._getframe(1)
    caller = _module_of(frame)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    _entries.append(Entry(caller, _module_of(frame), func, args, kwargs))
    return func


def _module_of(frame: FrameType | None) -> str:
    return frame.f_globals.get("__name__", "") if frame is not None else ""


def unregister(func: Callable[..., Any], /) -> None:
    """Undo every registration of a function; see :func:`atexit.unregister`."""
    _unregister(func)
    _entries[:] = [entry for entry in _entries if entry.func != func]


def clear() -> None:
    """Drop all registrations; :mod:`multiprocessing` calls this in its child processes."""
    _clear()
    _entries.clear()


def forget() -> None:
    """Empty the record: the functions have all been called."""
    _entries.clear()


def recorded(by_value: Collection[str]) -> list[Entry]:
    """The entries that an image holds, in order of registration. ``by_value``: names of the program's modules. Entries of
    installed packages are among them if ``Entry.importing`` is a module of the program, or "".
    """
    return [entry for entry in _entries if entry.caller in by_value or _is_used_by_program(entry, by_value)]


def _is_used_by_program(entry: Entry, by_value: Collection[str]) -> bool:
    package = entry.caller.partition(".")[0]
    if package in sys.stdlib_module_names or package in OWN_PACKAGES:
        return False
    return not entry.importing or entry.importing in by_value


def register_again(entries: list[Entry]) -> None:
    """At load: start recording, and register the saved functions."""
    install()
    for entry in entries:
        _register(entry.func, *entry.args, **entry.kwargs)
        _entries.append(entry)

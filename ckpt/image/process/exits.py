"""Functions that a program registers with ``atexit``, recorded, since the interpreter shows them to nobody.

:func:`install` puts a recording ``register`` and ``unregister`` into :mod:`atexit` before the program starts. What its own
modules register is part of its images and is registered again at load, and so is what installed packages register while they
work for it (a pool of workers that closes itself). What libraries register when they are imported is registered again by
importing them, and the standard library sees to itself (:mod:`ckpt.image.stdlib.finalizers`).
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any, NamedTuple

from ckpt.image.modules.references import OWN_PACKAGES

__all__ = ["Entry", "forget", "install", "recorded", "register_again"]


class Entry(NamedTuple):
    """``caller``: the module that has registered it. ``importing``: that whose code at module level has led there, if any:
    ``__main__``, as a rule."""

    caller: str
    importing: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_entries: list[Entry] = []
_register = atexit.register
_unregister = atexit.unregister
_clear = atexit._clear


def install() -> None:
    """Record from now on. The record starts empty."""
    _entries.clear()
    atexit.register = register
    atexit.unregister = unregister
    atexit._clear = clear


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
    """Empty the table, as :mod:`multiprocessing` does in its children."""
    _clear()
    _entries.clear()


def forget() -> None:
    """They have all been called."""
    _entries.clear()


def recorded(by_value: Collection[str]) -> list[Entry]:
    """What modules with these names have registered, or others in their service; first one first."""
    return [entry for entry in _entries if entry.caller in by_value or _is_in_service(entry, by_value)]


def _is_in_service(entry: Entry, by_value: Collection[str]) -> bool:
    package = entry.caller.partition(".")[0]
    if package in sys.stdlib_module_names or package in OWN_PACKAGES:
        return False
    return not entry.importing or entry.importing in by_value


def register_again(entries: list[Entry]) -> None:
    install()
    for entry in entries:
        _register(entry.func, *entry.args, **entry.kwargs)
        _entries.append(entry)

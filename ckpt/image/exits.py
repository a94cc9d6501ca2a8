"""Functions that a program registers with ``atexit``, recorded, since the interpreter shows them to nobody.

:func:`install` puts a recording ``register`` and ``unregister`` into :mod:`atexit` before the program starts. What its own
modules register is part of its images and is registered again at load; what libraries register when they are imported is
registered again by importing them.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Collection
from typing import Any

__all__ = ["install", "recorded", "register_again"]

Entry = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_entries: list[Entry] = []
_register = atexit.register
_unregister = atexit.unregister


def install() -> None:
    """Record from now on. The record starts empty."""
    _entries.clear()
    atexit.register = register
    atexit.unregister = unregister


def register(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Register a function to be executed at the program's end; see :func:`atexit.register`."""
    _register(func, *args, **kwargs)
    caller = sys._getframe(1).f_globals.get("__name__", "")
    _entries.append((caller, func, args, kwargs))
    return func


def unregister(func: Callable[..., Any], /) -> None:
    """Undo every registration of a function; see :func:`atexit.unregister`."""
    _unregister(func)
    _entries[:] = [entry for entry in _entries if entry[1] != func]


def recorded(by_value: Collection[str]) -> list[Entry]:
    """What modules with these names have registered, first one first."""
    return [entry for entry in _entries if entry[0] in by_value]


def register_again(entries: list[Entry]) -> None:
    install()
    for entry in entries:
        _, func, args, kwargs = entry
        _register(func, *args, **kwargs)
        _entries.append(entry)

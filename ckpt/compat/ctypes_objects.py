"""Attributes of ctypes' libraries and data that begin with an underscore (``Lib/ctypes/__init__.py``, ``Modules/_ctypes/``).

For a new minor version: have the names been kept?
"""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["function_type", "kept_by", "library_parts", "set_library_name"]

_OF_THE_PROCESS = ("_name", "_handle", "_FuncPtr")


def kept_by(obj: Any) -> Any:
    """What an object of ctypes keeps alive: None, one object, or a dictionary of objects (``_objects``; all versions)."""
    return obj._objects


def function_type(library: ctypes.CDLL) -> Any:
    """The type of the library's functions, which each library has for itself; its ``_flags_`` are those of the library."""
    return library._FuncPtr


def library_parts(library: ctypes.CDLL) -> tuple[Any, dict[str, Any]]:
    """The name that the library was loaded by, and the attributes that the program has set or looked up."""
    own = {name: value for name, value in library.__dict__.items() if name not in _OF_THE_PROCESS}
    return library._name, own


def set_library_name(library: Any, name: Any) -> None:
    library._name = name

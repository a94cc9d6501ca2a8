"""ctypes: libraries, functions, types, and data in memory that the program shares with C.

======================================  ===================================================================
library (``CDLL``, ``PyDLL``)           loaded again, from the same file. **What it keeps in its own variables is as after
                                        loading**: what the program has told it must be told again, in ``on_restart``
function of a library                   looked up by its name again, with ``restype``, ``argtypes``, ``errcheck``
function of the program for C           made again from its prototype and the function of the program
pointer, array, prototype types         the very types that ``POINTER``, ``*`` and ``CFUNCTYPE`` return
data: numbers, structures, arrays       with content; parts of a structure or array stay parts of it; what lies over a
                                        buffer (``from_buffer``) does so again (:mod:`ckpt.image.handles.ctypes_data`)
======================================  ===================================================================

Refused by name: pointers to memory of C.
"""

from __future__ import annotations

import ctypes
import operator
import os
from pickle import PicklingError
from typing import Any

from ckpt.compat.accelerators import CTYPES
from ckpt.compat.memory import function_type, kept_by, library_parts, set_library_name
from ckpt.compat.referents import function_of_thunk
from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.by_value import reduce_class
from ckpt.image.reducers.rebuild import fill_attributes

__all__ = ["Ctypes"]

_PYTHON_API, _USE_ERRNO = 4, 8  # FUNCFLAG_PYTHONAPI, FUNCFLAG_USE_ERRNO
_DATA = "ckpt.image.handles.ctypes_data"


class Ctypes(Library):
    def reducers(self) -> dict[type, Reducer]:
        if not hasattr(self.module, "CFUNCTYPE"):  # it is being imported
            return {}
        return {
            type(ctypes.POINTER(ctypes.c_int)): reduce_pointer_type,
            type(ctypes.c_int * 1): reduce_array_type,
            type(ctypes.CFUNCTYPE(None)): reduce_prototype,
        }

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if not hasattr(self.module, "CDLL"):
            return None
        if issubclass(cls, ctypes.CDLL):
            return reduce_library
        base = next((each for each in cls.__mro__ if each.__module__ == CTYPES), None)
        if base is None or not hasattr(cls, "from_buffer"):  # an object that ctypes uses itself
            return None
        if base.__name__ == "CFuncPtr":
            return reduce_function
        from ckpt.image.handles import ctypes_data

        return ctypes_data.reduce_data


# ---------------------------------------------------------------------- types


def reduce_pointer_type(pickler: Any, cls: Any) -> Any:
    target = getattr(cls, "_type_", None)
    if target is not None and ctypes.POINTER(target) is cls:
        return ctypes.POINTER, (target,)
    return reduce_class(pickler, cls)


def reduce_array_type(pickler: Any, cls: Any) -> Any:
    if cls._type_ * cls._length_ is cls:
        return operator.mul, (cls._type_, cls._length_)
    return reduce_class(pickler, cls)


def reduce_prototype(pickler: Any, cls: Any) -> Any:
    made = (
        getattr(cls, "_restype_", None),
        getattr(cls, "_argtypes_", None) or (),
        getattr(cls, "_flags_", 0),
    )
    return (make_prototype, made) if make_prototype(*made) is cls else reduce_class(pickler, cls)


# ---------------------------------------------------------------------- libraries and functions


def reduce_library(pickler: Any, library: Any) -> Any:
    name, own = library_parts(library)
    place = os.path.abspath(name) if isinstance(name, str) and os.path.dirname(name) else name
    flags = function_type(library)._flags_
    return load_library, (type(library), name, place, flags), own, None, None, fill_attributes


def reduce_function(pickler: Any, function: Any) -> Any:
    source = (kept_by(function) or {}).get("0")
    if isinstance(source, ctypes.CDLL):
        name = getattr(function, "__name__", None) or _symbol_of(function)
        prototype = None if type(function) is function_type(source) else type(function)
        made: Any = find_function, (source, name, prototype)
    elif source is not None and (called := function_of_thunk(source)) is not None:
        made = make_callback, (type(function), called)
    elif not function:
        made = type(function), ()
    else:
        raise PicklingError(
            "a function pointer of ctypes to an address that a library has given out cannot be saved; ask the "
            "library for it again in ckpt.on_restart"
        )
    settings = {
        name: getattr(function, name)
        for name in ("restype", "argtypes", "errcheck")
        if getattr(function, name, None) is not getattr(type(function), f"_{name}_", None)
    }
    state = (settings, {**function.__dict__})
    return (*made, state, None, None, fill_function) if any(state) else made


class _Symbol(ctypes.Structure):
    """The struct ``Dl_info`` of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _symbol_of(function: Any) -> str:
    """The name of the function at an address, for one that was made from a prototype, a name and a library."""
    address, found = ctypes.c_void_p.from_buffer(function).value, _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found))
    if not found.name or found.address != address:
        raise PicklingError("a function of ctypes whose name in its library is not known cannot be saved")
    name: bytes = found.name
    return name.decode()


# ---------------------------------------------------------------------- called while loading


def make_prototype(restype: Any, argtypes: tuple[Any, ...], flags: int) -> Any:
    if flags & _PYTHON_API:
        return ctypes.PYFUNCTYPE(restype, *argtypes)
    return ctypes.CFUNCTYPE(restype, *argtypes, use_errno=bool(flags & _USE_ERRNO))


def load_library(cls: Any, name: Any, place: Any, flags: int) -> Any:
    try:
        made = cls(place, use_errno=bool(flags & _USE_ERRNO))
    except OSError as failure:
        raise RestoreError(
            f"the library {place!r}, which the program had loaded with ctypes, cannot be loaded again: {failure}. "
            "Put it back, and run `ckpt restart`"
        ) from failure
    set_library_name(made, name)
    return made


def find_function(library: Any, name: str, prototype: Any) -> Any:
    try:
        return library[name] if prototype is None else prototype((name, library))
    except AttributeError as failure:
        raise RestoreError(
            f"the library {library_parts(library)[0]!r} has no function {name!r} any more"
        ) from failure


def make_callback(cls: Any, function: Any) -> Any:
    return cls(function)


def fill_function(function: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    settings, attributes = state
    for name, value in settings.items():
        setattr(function, name, value)
    function.__dict__.update(attributes)

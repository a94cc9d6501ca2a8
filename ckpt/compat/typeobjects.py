"""Flags and sizes of types (``Include/object.h``, ``Include/cpython/object.h``), as their attributes show them.

For a new minor version: have the bits of ``tp_flags`` kept their places, and is what an instance has before its slots still
two words (``Objects/typeobject.c``, ``type_new_alloc``)?
"""

from __future__ import annotations

__all__ = ["HEADER_BYTES", "has_dictionary", "has_hidden_state", "instance_bytes", "is_heap"]

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE

HEADER_BYTES: int = object.__basicsize__
"""Of each object: the count of its references and its type."""
_POINTER_BYTES = HEADER_BYTES // 2


def is_heap(cls: type) -> bool:
    """Made at run time and open to change: by a class statement, or by one of few libraries written in C.

    Which of the interpreter's own types are allocated like that differs between versions; those are immutable.
    """
    return cls.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE


def has_dictionary(cls: type) -> bool:
    """Have instances of the class a dictionary? ``tp_dictoffset``: 0 without one, negative where it lies before the
    object."""
    return cls.__dictoffset__ != 0


def instance_bytes(cls: type) -> int:
    """The size of an instance, without items: ``tp_basicsize``."""
    return cls.__basicsize__


def has_hidden_state(cls: type, slots: int) -> bool:
    """Is an instance larger than what Python code sees of it: header, so many ``slots``, dictionary, list of weak
    references? The last two take no room in the struct where their offset is negative (since 3.11 the one, since 3.12
    both).
    """
    words = slots + (cls.__weakrefoffset__ > 0) + (cls.__dictoffset__ > 0)
    return cls.__basicsize__ > HEADER_BYTES + words * _POINTER_BYTES

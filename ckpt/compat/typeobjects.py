"""Flags and sizes of types (``Include/object.h``, ``Include/cpython/object.h``), as their attributes show them.

For a new minor version: have the bits of ``tp_flags`` kept their places, is what an instance has before its slots still
two words (``Objects/typeobject.c``, ``type_new_alloc``), and is ``d_member`` still the fourth word behind the header of a
``PyMemberDescrObject`` (``Include/cpython/descrobject.h``)?
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable
from typing import Any

__all__ = [
    "HEADER_BYTES",
    "allocate",
    "has_dictionary",
    "has_hidden_state",
    "hides_dictionary",
    "instance_bytes",
    "instance_dictionary",
    "is_heap",
    "place_in_struct",
    "replace_method",
    "replace_slot",
    "set_instance_dictionary",
    "set_member",
    "set_slot",
    "unbound",
]

_OBJECT, _OBJECT_EX, _LONG = 6, 16, 2  # Py_T_OBJECT_EX and the like, of all versions
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_FLAGS_WORD = 21  # place of tp_flags in PyTypeObject

HEADER_BYTES: int = object.__basicsize__
"""Size of the header of each object: reference count and type."""
_POINTER_BYTES = HEADER_BYTES // 2


def is_heap(cls: type) -> bool:
    """Is the class a mutable heap type: made by a class statement, or by one of the few libraries in C that make such types?

    Some of the interpreter's own types are heap types, others in each version; but those are immutable.
    """
    return cls.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE


def allocate(cls: type) -> Any:
    """A new object that no function of its class has seen: zeros behind its header."""
    import ctypes

    make = ctypes.PyDLL(None).PyType_GenericAlloc
    make.argtypes, make.restype = (ctypes.py_object, ctypes.c_ssize_t), ctypes.py_object
    return make(cls, 0)


def has_dictionary(cls: type) -> bool:
    """Do instances of the class have a dictionary? ``tp_dictoffset``: 0 if not, negative if the dictionary lies before the
    object."""
    return cls.__dictoffset__ != 0


_namespace_of: Any = type.__dict__["__dict__"].__get__
_order_of: Any = type.__dict__["__mro__"].__get__


def hides_dictionary(cls: type) -> bool:
    """Has one of its classes an attribute ``__dict__`` of its own, such as a property of a proxy?"""
    for base in _order_of(cls):
        namespace = _namespace_of(base) or {}
        if "__dict__" in namespace:
            return type(namespace["__dict__"]) is not types.GetSetDescriptorType
    return False


def instance_dictionary(obj: Any) -> Any:
    """The dictionary of an instance of a class that has one, whatever its classes define under that name. Raises
    AttributeError: a type in C has no attribute for it. ``PyObject_GenericGetDict``; all versions."""
    if not hides_dictionary(type(obj)):
        return object.__getattribute__(obj, "__dict__")
    import ctypes

    get = ctypes.PyDLL(None).PyObject_GenericGetDict
    # by its address: ctypes would ask the object for its __class__
    get.argtypes, get.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.py_object
    return get(id(obj), None)


def set_instance_dictionary(obj: Any, attributes: dict[str, Any]) -> None:
    """Make ``attributes`` itself the dictionary of an instance; fill the one that is there, where the class hides it."""
    if hides_dictionary(type(obj)):
        instance_dictionary(obj).update(attributes)
    else:
        object.__setattr__(obj, "__dict__", attributes)


def instance_bytes(cls: type) -> int:
    """The size of an instance, without items: ``tp_basicsize``."""
    return cls.__basicsize__


def place_in_struct(obj: Any, base: type, value: object) -> int | None:
    """The address of the only field, in what a base in C has of the instance, that refers to this object."""
    import ctypes

    words = range(HEADER_BYTES, instance_bytes(base) - _POINTER_BYTES + 1, _POINTER_BYTES)
    found = [
        id(obj) + word for word in words if ctypes.c_void_p.from_address(id(obj) + word).value == id(value)
    ]
    return found[0] if len(found) == 1 else None


def has_hidden_state(cls: type, slots: int, base: type = object) -> bool:
    """Is an instance larger than the parts that Python code can see: what an instance of ``base`` is, ``slots`` slots,
    dictionary, list of weak references? The dictionary (since 3.11) and the list (since 3.12) may have a negative offset;
    then they take no room in the struct.
    """
    words = slots
    words += cls.__weakrefoffset__ > 0 and base.__weakrefoffset__ <= 0
    words += cls.__dictoffset__ > 0 and base.__dictoffset__ <= 0
    return cls.__basicsize__ > base.__basicsize__ + words * _POINTER_BYTES


def replace_method(cls: type, name: str, method: Any) -> None:
    """Replace a method of an immutable type in C (``_sqlite3.Connection``), whose attributes cannot be set. No method with a
    slot. All versions."""
    import ctypes

    gc.get_referents(cls.__dict__)[0][name] = method
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


def replace_slot(cls: type, name: str, method: Any) -> bool:
    """Replace a method with a slot (``__init__``) of an immutable type in C, as an assignment would if the type allowed it.
    False: ``tp_flags`` is not where it is in all versions."""
    import ctypes

    flags = ctypes.c_ulong.from_address(id(cls) + _FLAGS_WORD * _POINTER_BYTES)
    if flags.value != cls.__flags__:
        return False
    flags.value &= ~_IMMUTABLE_TYPE
    try:
        setattr(cls, name, method)
    finally:
        flags.value |= _IMMUTABLE_TYPE
    return True


def unbound(function: Callable[..., Any], name: str) -> Any:
    """`function`, called `name`, as an attribute that does not become a method of the class that has it (``converter =
    time.localtime`` in `logging.Formatter`): so are functions in C, and what takes the place of one has to be so, too. No
    frame is added.

    A partial is no descriptor before 3.14.
    """
    made: Any = functools.partial(function)
    made.__name__ = made.__qualname__ = name
    made.__module__, made.__doc__ = function.__module__, function.__doc__
    return made


def set_member(obj: Any, member: Any, value: Any) -> bool:
    """Set an attribute of an object in C that Python may only read (``member``: the descriptor of it in the class): one that
    is an object or a C long. False: it is of another type. All versions."""
    import ctypes

    from ckpt.compat.memory import put_reference

    class Definition(ctypes.Structure):
        _fields_ = (("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t))

    place = ctypes.c_void_p.from_address(id(member) + HEADER_BYTES + 3 * _POINTER_BYTES).value
    definition = Definition.from_address(place or 0)
    if definition.name != member.__name__.encode() or not isinstance(obj, member.__objclass__):
        return False
    address = id(obj) + definition.offset
    if definition.type in (_OBJECT, _OBJECT_EX):
        put_reference(address, value)
    elif definition.type == _LONG:
        ctypes.c_long.from_address(address).value = value
    return definition.type in (_OBJECT, _OBJECT_EX, _LONG)


def set_slot(obj: Any, member: Any, value: Any) -> None:
    """Set an attribute by its descriptor, also one that Python may only read, of a class in C."""
    try:
        member.__set__(obj, value)
    except AttributeError:
        if not set_member(obj, member, value):
            raise

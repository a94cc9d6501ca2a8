"""The reducer for classes of by-value modules; see :mod:`ckpt.image.reducers.by_value` for the contract.

At load a class is made from its metaclass, name, bases and the attributes that must exist when a class is made (slots, the
fields of a ctypes structure; called ``essentials``), and gets its other raw attributes afterwards. No code of a metaclass,
and no ``__init_subclass__``, runs at load. Virtual subclasses (``ABCMeta.register``) are registered again when everything is
loaded.
"""

from __future__ import annotations

import itertools
import sys
import types
from abc import ABCMeta
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader
from typing import TYPE_CHECKING, Any

from ckpt.compat import stdlib
from ckpt.compat.accelerators import COLLECTIONS_ABC, UNNAMED_TYPES
from ckpt.compat.typeobjects import is_heap
from ckpt.image.lowlevel.inspect_raw import is_a
from ckpt.image.modules import definitions
from ckpt.image.reducers import rebuild

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["is_made_in_c", "is_slot", "reduce_class"]

_CLASS_SKIP = frozenset(
    {
        "__dict__",
        "__weakref__",
        stdlib.ABC_STATE,
        "__slots__",
        "__module__",
        "__qualname__",
        "__abstractmethods__",
        "__slotnames__",
    }
)
_CTYPES_ESSENTIALS = (
    "_pack_",
    "_anonymous_",
    "_fields_",
    "_length_",
    "_type_",
    "_flags_",
    "_restype_",
    "_argtypes_",
)


def reduce_class(pickler: Saver, cls: type) -> Any:
    if pickler.references.is_importable(cls):
        pickler.names.note_definition(cls)
        return NotImplemented
    if not _is_written_in_python(cls):
        return _find_c_type(pickler, cls)
    path = pickler.definitions.path_of(cls)
    if path is not None:
        return definitions.follow, (path, cls.__qualname__)
    meta: type = type(cls)
    own = cls.__dict__
    essentials: dict[str, Any] = {"__module__": own.get("__module__"), "__qualname__": cls.__qualname__}
    if "__slots__" in own:
        essentials["__slots__"] = own["__slots__"]
        if not isinstance(own["__slots__"], (str, tuple, list, dict)):
            essentials["__slots__"] = tuple(k for k, v in own.items() if is_slot(v, cls))
    # A property that gives instances another __class__ or __dict__; set after the class is made, it would be the class's
    for name in ("__class__", "__dict__"):
        if name in own and not _is_layout(own[name], cls):
            essentials[name] = own[name]
    if rebuild.metaclass_of_ctypes(meta) is not None:
        essentials.update((key, own[key]) for key in _CTYPES_ESSENTIALS if key in own)
        if "_fields_" in own and _refers_to_itself(cls):
            del essentials["_fields_"]  # set with the other attributes, when the class exists
    attributes = {
        key: value
        for key, value in own.items()
        if key not in _CLASS_SKIP and key not in essentials and not _is_layout(value, cls)
    }
    if issubclass(meta, ABCMeta):
        registered = stdlib.virtual_subclasses(cls)
        if registered:
            pickler.defer(rebuild.register_virtual, cls, registered)
    state = (attributes, own.get("__abstractmethods__"))
    return (
        rebuild.make_class,
        (meta, cls.__name__, cls.__bases__, essentials),
        state,
        None,
        None,
        rebuild.fill_class,
    )


def _refers_to_itself(cls: Any) -> bool:
    """Do the fields of a ctypes structure have pointers, or functions with arguments, of its own type?"""
    waiting, seen = [field[1] for field in cls._fields_], set[int]()
    while waiting:
        kind = waiting.pop()
        if kind is cls:
            return True
        if not isinstance(kind, type) or id(kind) in seen:
            continue
        seen.add(id(kind))
        waiting += [getattr(kind, name, None) for name in ("_type_", "_restype_")]
        waiting += getattr(kind, "_argtypes_", None) or ()
        waiting += [field[1] for field in getattr(kind, "_fields_", ())]
    return False


_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _is_written_in_python(cls: type) -> bool:
    """Was the class made by a class statement? The dictionary of a type made in C holds descriptors of C functions."""
    if not is_heap(cls):
        return False
    return not any(is_a(v, _DESCRIPTORS) and v.__objclass__ is cls for v in cls.__dict__.values())


def is_made_in_c(cls: type) -> bool:
    """Does the class get its ``__new__`` from a heap type made in C (``ast.AST``)? Then ``object.__new__(cls)`` raises."""
    return any("__new__" in c.__dict__ and is_heap(c) and not _is_written_in_python(c) for c in cls.__mro__)


def _find_c_type(pickler: Saver, cls: type) -> Any:
    """A type made in C that is not found under its name (``builtins.method``, ``_csv.writer``). It is searched for among the
    variables of its module, of some others, and of submodules (`coverage.CTracer`), also as the type of such a variable
    (metaclasses of ctypes), and at last of all modules in C (`_wrappers.FunctionWrapper` is in `wrapt._wrappers`).
    """
    below = [name for name in list(sys.modules) if name.startswith(f"{cls.__module__}.")]
    for module_name in itertools.chain((cls.__module__, "types", COLLECTIONS_ABC, *below), _modules_in_c()):
        module = sys.modules.get(module_name)
        attributes = list(getattr(module, "__dict__", {}).items())
        for key, value in attributes:
            if value is cls:
                return getattr, (module, key)
        for _, value in attributes:
            if type(value) is cls and issubclass(cls, type):
                return type, (value,)
    if (cls.__module__, cls.__name__) in UNNAMED_TYPES:
        return rebuild.type_made_by, (getattr(sys.modules[cls.__module__], cls.__name__),)
    # For example datetime.date, if freezegun has replaced it
    replaced = pickler.references.replaced_name(cls)
    return NotImplemented if replaced is None else (rebuild.function_of, replaced)


def _modules_in_c() -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        if isinstance(getattr(module, "__loader__", None), ExtensionFileLoader):
            yield name


def is_slot(value: object, cls: type) -> bool:
    """Is ``value`` the descriptor of a slot that ``cls`` itself defines?"""
    return type(value) is types.MemberDescriptorType and value.__objclass__ is cls


def _is_layout(value: object, cls: type) -> bool:
    """Is ``value`` a descriptor that making the class creates: of a slot, ``__dict__`` or a ctypes field?"""
    return (
        is_slot(value, cls) or type(value) is types.GetSetDescriptorType or type(value).__name__ == "CField"
    )

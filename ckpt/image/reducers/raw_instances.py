"""The reducer that saves an instance *raw*: its dictionary, slots and builtin value, without calling a method of its class.

For the contract of a reducer see :mod:`ckpt.image.reducers.by_value`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckpt.compat.typeobjects import has_dictionary, has_hidden_state, instance_dictionary, is_heap
from ckpt.image.lowlevel import _lookup
from ckpt.image.lowlevel.keyed import Keys, content_of, fill
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.classes import is_slot

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "FILLED_BASES",
    "attributes_of",
    "has_state_in_c",
    "items_of",
    "leave_to_pickle",
    "reduce_keys",
    "reduce_raw",
    "set_attributes",
    "slots_of",
]

FILLED_BASES = (list, dict, set)


def leave_to_pickle(pickler: Saver, obj: object) -> Any:
    """The reducer that leaves the object to the C pickler's own way."""
    return NotImplemented


def has_state_in_c(cls: type, base: type = object) -> bool:
    """Does an instance of ``cls``, which derives from this type in C, have more state than an instance of that, slots,
    dictionary, weak references? The size of its C struct tells.
    """
    heap = [c for c in cls.__mro__ if is_heap(c) and c not in base.__mro__]
    slots = sum(1 for c in heap for value in c.__dict__.values() if is_slot(value, c))
    return has_hidden_state(cls, slots, base)


def slots_of(pickler: Saver, obj: Any) -> list[tuple[type, str, Any]]:
    """``(class that defines the slot, name, value)`` for each slot of the instance that is set."""
    cls = type(obj)
    known = pickler.slots.get(cls)
    if known is None:
        known = pickler.slots[cls] = [
            (c, key, value)
            for c in cls.__mro__
            if is_heap(c)
            for key, value in c.__dict__.items()
            if is_slot(value, c)
        ]
    found = []
    for owner, key, descriptor in known:
        try:
            found.append((owner, key, descriptor.__get__(obj, cls)))
        except AttributeError:
            continue  # the slot was never set, or its value was deleted
    return found


def attributes_of(obj: Any) -> dict[str, Any] | None:
    """The instance's dictionary itself, also if a class of the program defines ``__dict__`` or ``__getattribute__``; None if
    the instance has none.
    """
    if not has_dictionary(type(obj)):
        return None
    try:
        found = instance_dictionary(obj)
    except AttributeError:
        return None  # a C type that has a dictionary but no attribute for it: _asyncio.Future
    return found if type(found) is dict else None


def set_attributes(
    obj: Any, attributes: dict[str, Any] | None = None, slots: list[tuple[type, str, Any]] | None = None
) -> None:
    if attributes:
        obj.__dict__.update(attributes)
    for owner, name, value in slots or ():
        owner.__dict__[name].__set__(obj, value)


def items_of(obj: Any, base: type) -> Any:
    """What a list or a dictionary contains. For a set, whose order is more than that, and where the hash of a key may not be
    known when the container is filled: what stands for it in a state (:class:`ckpt.image.lowlevel.keyed.Keys`)."""
    if base is list:
        return list(list.__iter__(obj))
    if base in (set, frozenset) or _lookup.has_special_keys(obj):
        return Keys(obj, base)
    return content_of(obj, base)


def reduce_keys(pickler: Saver, keys: Keys) -> Any:
    return fill, (keys.container, keys.base, content_of(keys.container, keys.base))


def reduce_raw(pickler: Saver, obj: Any) -> Any:
    """Save the instance by its dictionary, slots and builtin value; runs no method of the program."""
    cls = type(obj)
    base = next(c for c in cls.__mro__ if not is_heap(c))
    attributes, slots = attributes_of(obj), slots_of(pickler, obj)
    if base is object:
        if slots or attributes is None:
            return rebuild.make_instance, (cls,), (attributes, slots), None, None, rebuild.fill_slots
        return rebuild.make_instance, (cls,), attributes, None, None, rebuild.fill_instance
    if base in FILLED_BASES or base is frozenset:
        state = (attributes, slots, base, items_of(obj, base))
        return rebuild.make_from_builtin, (base, cls), state, None, None, rebuild.fill_container
    args = (base, cls, _builtin_value(base, obj))
    if attributes is None and not slots:
        return rebuild.make_from_builtin, args
    return rebuild.make_from_builtin, args, (attributes, slots), None, None, rebuild.fill_slots


def _builtin_value(base: type, obj: Any) -> Any:
    """The plain builtin value inside an instance of a subclass."""
    if base is int:
        return int.__int__(obj)
    if base is float:
        return float.__float__(obj)
    if base is str:
        return str.__str__(obj)
    if base is bytes:
        return bytes.__getitem__(obj, slice(None)) if type(obj) is bytes else bytes.__add__(obj, b"")
    if base is complex:
        return complex.__pos__(obj)
    return list(base.__iter__(obj))  # type: ignore[attr-defined]

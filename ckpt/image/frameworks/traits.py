"""Listeners of objects with traits: ``traits`` (Enthought) and ``traitlets``.

Both packages leave listeners out when they are pickled, since a copy of an object is nobody's to listen to. In an image the
listeners are there, too, and an object that has lost them goes on in silence.

traitlets
    Its objects are plain Python, and are saved raw.

traits
    ======================  =================================================================================
    objects (``HasTraits``)  their dictionary; what C holds: traits of the instance, its listeners, whether it is
                             initialised, whether it tells of changes
    traits (``CTrait``)      what they say of themselves to pickle, and their listeners
    lists, dicts, sets       raw: with the object that they belong to, and their listeners
    ======================  =================================================================================

    Listeners refer to the list of listeners in which they are, and so do functions that go through it: it is the very same
    list after a restart, put into the place where C keeps its own.
"""

from __future__ import annotations

import sys
from typing import Any

from ckpt.compat.memory import put_reference
from ckpt.compat.typeobjects import place_in_struct
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.raw_instances import attributes_of, reduce_raw, slots_of
from ckpt.image.reducers.rebuild import fill_slots

__all__ = ["Traitlets", "Traits"]

_CONTAINERS = (
    ("traits.trait_list_object", "TraitList"),
    ("traits.trait_dict_object", "TraitDict"),
    ("traits.trait_set_object", "TraitSet"),
)


class Traitlets(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        base = getattr(sys.modules.get("traitlets.traitlets"), "HasTraits", None)
        return reduce_raw if base is not None and issubclass(cls, base) else None


class Traits(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        in_c: Any = sys.modules.get("traits.ctraits")
        if in_c is None:
            return None
        if issubclass(cls, in_c.CHasTraits):
            return reduce_object
        if issubclass(cls, in_c.cTrait):
            return reduce_trait
        containers = tuple(getattr(sys.modules.get(module), name, ()) for module, name in _CONTAINERS)
        return reduce_raw if issubclass(cls, containers) else None


def reduce_object(saver: Any, obj: Any) -> Any:
    flags = (
        obj.traits_inited(),
        obj._trait_notifications_enabled(),
        obj._trait_notifications_vetoed(),
    )
    state = attributes_of(obj), slots_of(saver, obj), obj._instance_traits(), obj._notifiers(False), flags
    return make_object, (type(obj),), state, None, None, fill_object


def make_object(cls: type) -> Any:
    return sys.modules["traits.ctraits"].CHasTraits.__new__(cls)


def fill_object(obj: Any, state: tuple[Any, ...]) -> None:
    attributes, slots, traits, listeners, (is_inited, tells, is_vetoed) = state
    base = sys.modules["traits.ctraits"].CHasTraits
    if attributes is not None:
        base.__dict__["__dict__"].__set__(obj, attributes)
    fill_slots(obj, (None, slots))
    put_in_place(obj, base, obj._instance_traits(), traits)
    if listeners is not None:
        put_in_place(obj, base, obj._notifiers(True), listeners)
    if is_inited:
        obj._trait_set_inited()
    obj._trait_change_notify(tells)
    obj._trait_veto_notify(is_vetoed)


def reduce_trait(saver: Any, trait: Any) -> Any:
    own = sys.modules["traits.ctraits"].cTrait.__getstate__(trait)
    return make_trait, (type(trait),), (own, trait._notifiers(False)), None, None, fill_trait


def make_trait(cls: Any) -> Any:
    return cls.__new__(cls, 0)


def fill_trait(trait: Any, state: tuple[Any, ...]) -> None:
    own, listeners = state
    trait.__setstate__(own)
    if own[-1] is None:
        trait.__dict__ = {}  # C keeps whatever it is given, and None is no dictionary
    if listeners is not None:
        put_in_place(trait, sys.modules["traits.ctraits"].cTrait, trait._notifiers(True), listeners)


def put_in_place(obj: Any, base: type, made: Any, saved: Any) -> None:
    """Have the object keep ``saved`` where C, in the struct of ``base``, keeps the dictionary or list that it has made.
    Where that place is not found: its content."""
    place = place_in_struct(obj, base, made)
    if place is not None:
        put_reference(place, saved)
    elif isinstance(made, dict):
        made.update(saved)
    else:
        made[:] = saved

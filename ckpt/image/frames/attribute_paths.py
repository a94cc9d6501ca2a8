"""Finds the function that C code enters when it gets, sets or deletes an attribute.

Rules and words are those of `call_paths`. Nothing here runs code of the program.

Not here: the names of attributes in instructions (`call_operands`).
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from ckpt.image.frames import _frames
from ckpt.image.frames._frames import NULL
from ckpt.image.frames.suspended import (
    PASS,
    REDO,
    CallPath,
    Suspended,
    function_of,
    instance_dict,
    instance_of,
    runs_method,
)

__all__ = ["path_of_attribute", "path_of_super"]


def path_of_attribute(obj: Any, name: str, verb: str, inner: Suspended) -> CallPath | None:
    """How getting ("get"), setting ("set") or deleting ("delete") obj.name leads to inner.

    A non-data descriptor that has put its result into the instance already (cached_property) would not be
    asked again; its result passes through.
    """
    if not _runs_attribute(obj, name, verb, inner):
        return None
    if verb == "get" and not instance_of(obj, type) and name in instance_dict(obj):
        return PASS
    return REDO


def _runs_attribute(obj: Any, name: str, verb: str, inner: Suspended) -> bool:
    hooks = {"get": ("__getattribute__", "__getattr__"), "set": ("__setattr__",), "delete": ("__delattr__",)}[
        verb
    ]
    if runs_method(obj, hooks, inner):
        return True
    if type(obj) is super:
        owner = object.__getattribute__(obj, "__self_class__")
        return _runs_inherited(owner, name, verb, inner)
    if type(obj) is types.ModuleType:
        hook = object.__getattribute__(obj, "__dict__").get("__getattr__")
        return verb == "get" and inner.gen is None and hook is not None and function_of(hook) is inner.func
    found = [_frames.lookup(type(obj), name)]
    if instance_of(obj, type):
        found.append(_frames.lookup(obj, name))
    return any(_runs_descriptor(descriptor, verb, inner) for descriptor in found)


def _runs_inherited(owner: Any, name: str, verb: str, inner: Suspended) -> bool:
    """Whether what any class in the order of `owner` has under the name leads to inner."""
    order = type.__getattribute__(owner, "__mro__") if owner is not None else ()
    return any(
        name in namespace and _runs_descriptor(namespace[name], verb, inner)
        for namespace in (type.__getattribute__(k, "__dict__") for k in order)
    )


def path_of_super(operands: Sequence[Any], name: str, inner: Suspended) -> CallPath | None:
    """How getting super(class, self).name leads to inner; operands: super, class, self."""
    maker, _, bound = operands
    if maker is not super:
        return None
    owner = bound if instance_of(bound, type) else type(bound)
    return REDO if _runs_inherited(owner, name, "get", inner) else None


def _runs_descriptor(descriptor: Any, verb: str, inner: Suspended) -> bool:
    """Whether inner is what a descriptor found in a class does for this verb."""
    if descriptor is NULL or inner.gen is not None:
        return False
    if instance_of(descriptor, property):
        member = {"get": "fget", "set": "fset", "delete": "fdel"}[verb]
        function = property.__dict__[member].__get__(descriptor)
        if function is not None and function_of(function) is inner.func:
            return True
    return runs_method(
        descriptor, ({"get": "__get__", "set": "__set__", "delete": "__delete__"}[verb],), inner
    )

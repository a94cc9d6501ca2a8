"""zope.interface: interfaces of the program, and what its classes implement (``@implementer``; twisted and scrapy use it).

What a class implements is pickled as ``implementedBy(cls)``, which looks into the class; and a class of the program is empty
when that is called at load. So its declaration is saved with its parts. What follows from declarations and interfaces (what
each implies, by hashes of names) is found again by their own methods, when all else has been loaded.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["ZopeInterface", "connect", "declare", "make_declaration", "renew"]

_DECLARATIONS = "zope.interface.declarations"


class ZopeInterface(Library):
    def reducers(self) -> dict[type, Reducer]:
        return {
            **by_name(_DECLARATIONS, {"Implements": reduce_declaration, "ClassProvides": reduce_provides}),
            **by_name("zope.interface.interface", {"InterfaceClass": reduce_interface}),
        }


def reduce_declaration(pickler: Any, obj: Any) -> Any:
    cls = obj.inherit
    if cls is None or pickler.references.is_importable(cls):
        return NotImplemented
    pickler.defer(declare, obj, cls, tuple(obj.declared), tuple(obj.__bases__))
    return make_declaration, (obj.__name__,)


def reduce_provides(pickler: Any, obj: Any) -> Any:
    """What a class itself provides, by which its objects find what it implements."""
    reduced = obj.__reduce__()
    pickler.defer(connect, obj, reduced[1][0])
    return reduced


def reduce_interface(pickler: Any, obj: Any) -> Any:
    module = obj.__module__
    if (
        module not in pickler.references.by_value
        and getattr(sys.modules.get(module), obj.__name__, None) is obj
    ):
        return NotImplemented
    pickler.defer(renew, obj)
    return reduce_raw(pickler, obj)


# ---------------------------------------------------------------------- called while loading


def make_declaration(name: str) -> Any:
    return importlib.import_module(_DECLARATIONS).Implements.named(name)


def declare(obj: Any, cls: type, declared: tuple[Any, ...], bases: tuple[Any, ...]) -> None:
    obj.inherit, obj.declared = cls, declared
    obj.__bases__ = bases


def connect(obj: Any, cls: type) -> None:
    obj._implements = importlib.import_module(_DECLARATIONS).implementedBy(cls)


def renew(obj: Any) -> None:
    obj.changed(obj)

"""wrapt: proxies and the wrappers of its decorators, which are objects of C.

A proxy answers for the object that it wraps, also when it is asked for its class, its attributes and how it is pickled; and
wrapt refuses to pickle one. What a proxy is beside that object is read by the names that wrapt gives it (``_self_…``), from
the type in C and not from classes derived from it.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from ckpt.image.interface.library import Library, Reducer

__all__ = ["Wrapt", "fill_proxy", "make_proxy", "reduce_proxy"]

_PLACE = "wrapt._wrappers"
# In the order of the arguments of _FunctionWrapperBase; some versions do not have all of them.
_OF_A_WRAPPER = ("instance", "wrapper", "enabled", "binding", "parent", "owner")


class Wrapt(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        place: Any = sys.modules.get(_PLACE)
        if place is None or not issubclass(cls, place.ObjectProxy):
            return None
        return None if issubclass(cls, place.PartialCallableObjectProxy) else reduce_proxy


def reduce_proxy(saver: Any, proxy: Any) -> Any:
    place: Any = sys.modules[_PLACE]
    base = place.ObjectProxy
    added: list[Any] = []
    if issubclass(type(proxy), place._FunctionWrapperBase):
        base = place._FunctionWrapperBase
        added = [
            getattr(proxy, f"_self_{name}") for name in _OF_A_WRAPPER if f"_self_{name}" in base.__dict__
        ]
    wrapped = place.ObjectProxy.__dict__["__wrapped__"].__get__(proxy)
    state = wrapped, added, dict(_own_attributes(proxy))
    return make_proxy, (base, type(proxy)), (base, state), None, None, fill_proxy


def _own_attributes(proxy: Any) -> dict[str, Any]:
    """The dictionary of the proxy itself, the first one that it refers to: ``__dict__`` is that of the wrapped object."""
    return next(part for part in gc.get_referents(proxy) if type(part) is dict)


# ---------------------------------------------------------------------- called while loading


def make_proxy(base: Any, cls: type) -> Any:
    return base.__new__(cls)


def fill_proxy(proxy: Any, state: tuple[Any, tuple[Any, list[Any], dict[str, Any]]]) -> None:
    base, (wrapped, added, own) = state
    base.__init__(proxy, wrapped, *added)
    _own_attributes(proxy).update(own)

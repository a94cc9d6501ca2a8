"""aiohttp, and multidict and frozenlist, which it is made of.

multidict refuses to pickle its read-only views. A view refers to its dictionary, and to nothing else. Cython cannot pickle
the mark that says whether a list of frozenlist, or of a class derived from it (the signals of aiohttp), is frozen. Each
connection of aiohttp has a parser in C, of which nothing can be read; it is refused with the setting by which aiohttp parses
in Python.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import attributes_of, slots_of

__all__ = ["Aiohttp", "Frozenlist", "Multidict", "fill_list", "make_list", "reduce_list", "reduce_view"]

_LISTS = "frozenlist._frozenlist"


class Aiohttp(Library):
    def reducers(self) -> dict[type, Reducer]:
        names = ("HttpRequestParser", "HttpResponseParser")
        return by_name("aiohttp._http_parser", dict.fromkeys(names, _refuse_parser))


def _refuse_parser(saver: Any, parser: Any) -> Any:
    raise ObjectRefused(
        parser,
        f"an open connection of aiohttp has a parser in C ({type(parser).__name__}), which cannot be saved; run the job "
        "with AIOHTTP_NO_EXTENSIONS=1 in its environment: aiohttp then parses in Python, and its connections are part "
        "of images",
    )


class Multidict(Library):
    def reducers(self) -> dict[type, Reducer]:
        names = ("MultiDictProxy", "CIMultiDictProxy")
        return by_name("multidict._multidict", dict.fromkeys(names, reduce_view))


def reduce_view(saver: Any, view: Any) -> Any:
    parts = [part for part in gc.get_referents(view) if not isinstance(part, type)]
    return (type(view), tuple(parts)) if len(parts) == 1 else NotImplemented


class Frozenlist(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        base = getattr(sys.modules.get(_LISTS), "FrozenList", None)
        return reduce_list if base is not None and issubclass(cls, base) else None


def reduce_list(saver: Any, values: Any) -> Any:
    own = dict(attributes_of(values) or {})
    own.update((name, value) for _, name, value in slots_of(saver, values))
    base: Any = sys.modules[_LISTS].__dict__["FrozenList"]
    return make_list, (base, type(values)), (list(values), values.frozen, own), None, None, fill_list


# ---------------------------------------------------------------------- called while loading


def make_list(base: Any, cls: type) -> Any:
    made = base.__new__(cls)
    base.__init__(made)
    return made


def fill_list(values: Any, state: tuple[list[Any], bool, dict[str, Any]]) -> None:
    content, is_frozen, own = state
    for name, value in own.items():
        object.__setattr__(values, name, value)
    values.extend(content)
    if is_frozen:
        values.freeze()

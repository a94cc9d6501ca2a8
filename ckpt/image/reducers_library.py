"""How caches, regular expressions and csv objects are taken apart; see :mod:`ckpt.image.reducers` for the contract.

What state these C objects hold is found through the garbage collector's view of them, where Python offers no other.
"""

from __future__ import annotations

import functools
import gc
import re
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.image import rebuild, rebuild_library
from ckpt.image.reducers import Reducer

if TYPE_CHECKING:
    from ckpt.image.pickler import ImagePickler

__all__ = ["REDUCERS"]

# ---------------------------------------------------------------------- regular expressions


def reduce_match(pickler: ImagePickler, obj: re.Match[Any]) -> Any:
    tries = [("search", obj.pos), ("match", obj.pos), ("fullmatch", obj.pos), ("match", obj.start())]
    for method, pos in tries:
        again = getattr(obj.re, method)(obj.string, pos, obj.endpos)
        if again is not None and again.regs == obj.regs:
            return rebuild_library.make_match, (obj.re, method, obj.string, pos, obj.endpos)
    raise PicklingError("this re.Match cannot be found again by its pattern")


def reduce_scanner(pickler: ImagePickler, obj: Any) -> Any:
    """What ``finditer`` runs on.

    Its position can only be seen by asking for the next match, so only in a forked child.
    """
    if not pickler.is_disposable:
        raise PicklingError("re.finditer under way cannot be saved without fork")
    found = obj.search()
    if found is None:
        return rebuild_library.make_scanner, (obj.pattern, None, 0, 0)
    return rebuild_library.make_scanner, (obj.pattern, found.string, found.start(), found.endpos)


# ---------------------------------------------------------------------- functools, csv


def reduce_lru_cache(pickler: ImagePickler, obj: Any) -> Any:
    if pickler.references.names(obj):
        return NotImplemented
    cache, function, mark, links = rebuild_library.lru_internals(obj)
    parameters = _lru_parameters(obj, links)
    # links: key, result, type of link; oldest first
    bounded = parameters["maxsize"] is not None
    entries = list(zip(links[::3], links[1::3], strict=False)) if bounded else list(cache.items())
    if entries:
        pickler.defer(
            rebuild_library.refill_lru_cache, obj, [(_marked(key, mark), value) for key, value in entries]
        )
    args = (function, parameters["maxsize"], parameters["typed"])
    return (
        rebuild_library.make_lru_cache,
        args,
        dict(obj.__dict__),
        None,
        None,
        rebuild.fill_attributes,
    )


def _lru_parameters(obj: Any, links: list[Any]) -> dict[str, Any]:
    """``cache_parameters()``; from C while ``functools.lru_cache`` has not set that attribute yet."""
    asked = obj.__dict__.get("cache_parameters")
    if asked is not None:
        parameters: dict[str, Any] = asked()
        return parameters
    raise PicklingError("functools.lru_cache is still wrapping this function")


def _marked(key: Any, mark: object) -> Any:
    if type(key) is tuple:
        return tuple(rebuild_library.LruMark if item is mark else item for item in key)
    return key


_DIALECT = (
    "delimiter",
    "doublequote",
    "escapechar",
    "lineterminator",
    "quotechar",
    "quoting",
    "skipinitialspace",
    "strict",
)


def reduce_csv_reader(pickler: ImagePickler, obj: Any) -> Any:
    dialect = {key: getattr(obj.dialect, key) for key in _DIALECT}
    source = next(
        item
        for item in gc.get_referents(obj)
        if item is not obj.dialect
        and not isinstance(item, (type, list, str))
        and hasattr(type(item), "__next__")
    )
    return rebuild_library.make_csv_reader, (source, dialect, obj.line_num)


def reduce_csv_writer(pickler: ImagePickler, obj: Any) -> Any:
    dialect = {key: getattr(obj.dialect, key) for key in _DIALECT}
    write = next(item for item in gc.get_referents(obj) if callable(item) and not isinstance(item, type))
    return rebuild_library.make_csv_writer, (write, dialect)


def _reducers() -> dict[type, Reducer]:
    import _csv

    return {
        re.Match: reduce_match,
        type(re.compile("").scanner("")): reduce_scanner,  # type: ignore[attr-defined]
        type(functools.lru_cache(len)): reduce_lru_cache,
        _csv.Reader: reduce_csv_reader,
        _csv.Writer: reduce_csv_writer,
    }


REDUCERS = _reducers()
"""By exact type."""

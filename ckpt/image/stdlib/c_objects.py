"""Reducers for objects of the standard library that are made in C; :mod:`ckpt.image.reducers.by_value` has the contract.

Where Python offers no other way to read the state of such an object, its references to other objects are read through the
garbage collector (``gc.get_referents``).

Not here: what makes the objects again (:mod:`ckpt.image.stdlib.rebuild_c_objects`).
"""

from __future__ import annotations

import functools
import gc
import itertools
import pickle
import re
import struct
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat import accelerators
from ckpt.compat.memory import batched_parts
from ckpt.compat.readers import parts_of_pickler, parts_of_unpickler
from ckpt.compat.referents import (
    call_of_writer,
    compare_of_key,
    lru_parts,
    pairwise_parts,
    simple_queue_items,
    source_of_reader,
)
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.iterators import by_exhausting
from ckpt.image.reducers.raw_instances import attributes_of, slots_of
from ckpt.image.reducers.saver import Reducer
from ckpt.image.stdlib import rebuild_c_objects

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "DIALECT_FIELDS",
    "REDUCERS",
    "reduce_match",
    "reduce_random",
    "reduce_remaining",
    "reduce_system_random",
]

# ---------------------------------------------------------------------- regular expressions


def reduce_pattern(pickler: Saver, obj: re.Pattern[Any]) -> Any:
    """A pattern without a text belongs to a ``re.Scanner``, and is made again from the lexicon of the scanner."""
    if obj.pattern is not None:
        return NotImplemented
    lexicon = rebuild_c_objects.lexicons.get(obj)
    if lexicon is not None:
        return rebuild_c_objects.make_scanner_pattern, (lexicon, obj.flags)
    for owner in gc.get_referrers(obj):
        attributes = owner if type(owner) is dict else getattr(owner, "__dict__", {})
        if attributes.get("scanner") is obj and "lexicon" in attributes:
            return rebuild_c_objects.make_scanner_pattern, (attributes["lexicon"], obj.flags)
    raise PicklingError("a regular expression without a text, of no re.Scanner that is still there")


def reduce_match(pickler: Saver, obj: re.Match[Any]) -> Any:
    """The reducer for matches of ``re`` and of the package ``regex``, which have the same attributes."""
    tries = [("search", obj.pos), ("match", obj.pos), ("fullmatch", obj.pos), ("match", obj.start())]
    for method, pos in tries:
        again = getattr(obj.re, method)(obj.string, pos, obj.endpos)
        if again is not None and again.regs == obj.regs:
            return rebuild_c_objects.make_match, (obj.re, method, obj.string, pos, obj.endpos)
    raise PicklingError(f"this {type(obj).__module__}.Match cannot be found again by its pattern")


def reduce_scanner(pickler: Saver, obj: Any) -> Any:
    """The reducer for the scanner that ``finditer`` uses.

    Its position is found only by asking for the next match, so it can be saved in a forked child only.
    """
    if not pickler.is_disposable:
        raise PicklingError("re.finditer under way cannot be saved without fork")
    found = by_exhausting(obj, lambda obj: obj.search())
    if found is None:
        return rebuild_c_objects.make_scanner, (obj.pattern, None, 0, 0)
    return rebuild_c_objects.make_scanner, (obj.pattern, found.string, found.start(), found.endpos)


# ---------------------------------------------------------------------- functools, csv


def reduce_lru_cache(pickler: Saver, obj: Any) -> Any:
    if pickler.references.is_importable(obj):
        pickler.names.note_definition(obj)
        return NotImplemented
    cache, function, mark, links = lru_parts(obj)
    parameters = _lru_parameters(obj, links)
    # links: key, result, type of link; oldest first
    bounded = parameters["maxsize"] is not None
    entries = list(zip(links[::3], links[1::3], strict=False)) if bounded else list(cache.items())
    counters = rebuild_c_objects.lru_counters(obj)
    running = [(call.args, call.kwargs) for call in pickler.cached_calls if call.cache is obj]
    if entries or counters:
        marked = [(_marked(key, mark), value) for key, value in entries]
        pickler.defer(rebuild_c_objects.refill_lru_cache, obj, marked, counters, running)
    args = (function, parameters["maxsize"], parameters["typed"])
    return (
        rebuild_c_objects.make_lru_cache,
        args,
        dict(obj.__dict__),
        None,
        None,
        rebuild.fill_attributes,
    )


def _lru_parameters(obj: Any, links: list[Any]) -> dict[str, Any]:
    """``cache_parameters()``. Raises PicklingError while ``functools.lru_cache`` has not set that attribute yet."""
    cache_parameters = obj.__dict__.get("cache_parameters")
    if cache_parameters is not None:
        parameters: dict[str, Any] = cache_parameters()
        return parameters
    raise PicklingError("functools.lru_cache is still wrapping this function")


def _marked(key: Any, mark: object) -> Any:
    if type(key) is tuple:
        return tuple(rebuild_c_objects.LruMark if item is mark else item for item in key)
    return key


DIALECT_FIELDS = (
    "delimiter",
    "doublequote",
    "escapechar",
    "lineterminator",
    "quotechar",
    "quoting",
    "skipinitialspace",
    "strict",
)


def reduce_csv_reader(pickler: Saver, obj: Any) -> Any:
    dialect = {key: getattr(obj.dialect, key) for key in DIALECT_FIELDS}
    return rebuild_c_objects.make_csv_reader, (source_of_reader(obj), dialect, obj.line_num)


def reduce_csv_writer(pickler: Saver, obj: Any) -> Any:
    dialect = {key: getattr(obj.dialect, key) for key in DIALECT_FIELDS}
    return rebuild_c_objects.make_csv_writer, (call_of_writer(obj), dialect)


# ---------------------------------------------------------------------- other objects made in C

_REMAINING_ITEMS = 1_000_000


def reduce_key_wrapper(pickler: Saver, obj: Any) -> Any:
    """The reducer for the result of ``functools.cmp_to_key``, and for the keys made with it."""
    key = getattr(obj, "obj", rebuild_c_objects)
    return rebuild_c_objects.make_key_wrapper, (
        compare_of_key(obj),
        *(() if key is rebuild_c_objects else (key,)),
    )


def reduce_pairwise(pickler: Saver, obj: Any) -> Any:
    """The object holds its source and, once begun, the item that comes first in the next pair."""
    found = pairwise_parts(obj)
    if not found:
        return rebuild_c_objects.make_pairwise, (iter(()),)
    source, *last = found
    return rebuild_c_objects.make_pairwise, (source, *last)


def reduce_batched(pickler: Saver, obj: Any) -> Any:
    source, size, is_strict = batched_parts(obj) or (iter(()), 1, False)
    return rebuild_c_objects.make_batched, (source, size, *([True] if is_strict else []))


def reduce_simple_queue(pickler: Saver, obj: Any) -> Any:
    return type(obj), (), (simple_queue_items(obj),), None, None, rebuild_c_objects.fill_simple_queue


def reduce_pickler(pickler: Saver, obj: Any) -> Any:
    """A pickler that the program keeps, with what it has written so far (its memo). ``obj``: exactly of the type in C."""
    parts = parts_of_pickler(obj)
    if parts is None:
        raise PicklingError(_PICKLER_REFUSED.format("pickle.Pickler", "pickle.dump(obj, file)"))
    write, protocol, fix_imports = parts
    memo = [saved for _, saved in sorted(obj.memo.copy().items(), key=lambda item: item[1][0])]
    return (
        rebuild_c_objects.make_pickler,
        (type(obj), protocol, fix_imports),
        (write, protocol, fix_imports, obj.fast, memo),
        None,
        None,
        rebuild_c_objects.fill_pickler,
    )


def reduce_unpickler(pickler: Saver, obj: Any) -> Any:
    """As :func:`reduce_pickler`. What it has read ahead is in the file, which stands behind the latest object."""
    parts = parts_of_unpickler(obj)
    if parts is None:
        raise PicklingError(_PICKLER_REFUSED.format("pickle.Unpickler", "pickle.load(file)"))
    return (
        rebuild_c_objects.make_unpickler,
        (type(obj),),
        (*parts, obj.memo.copy()),
        None,
        None,
        rebuild_c_objects.fill_unpickler,
    )


_PICKLER_REFUSED = (
    "a {} with hooks of its own cannot be saved; make a new one for each object, as {} does, in a function that a "
    "checkpoint waits for"
)


def reduce_struct(pickler: Saver, obj: struct.Struct) -> Any:
    return type(obj), (obj.format,)


def reduce_json_scanner(pickler: Saver, obj: Any) -> Any:
    return rebuild_c_objects.make_json_scanner, tuple(
        getattr(obj, name) for name in rebuild_c_objects.JSON_SCANNER
    )


def reduce_json_encoder(pickler: Saver, obj: Any) -> Any:
    """Whether the encoder allows nan is found only by encoding one; that runs no code of the program."""
    try:
        allows = bool(obj(float("nan"), 0))
    except ValueError:
        allows = False
    values = tuple(getattr(obj, name) for name in rebuild_c_objects.JSON_ENCODER)
    return rebuild_c_objects.make_json_encoder, (*values, allows)


def reduce_re_scanner(pickler: Saver, obj: Any) -> Any:
    """``re.Scanner``, whose pattern has no text of its own."""
    return rebuild_c_objects.make_re_scanner, (obj.lexicon, obj.scanner.flags)


def reduce_system_random(pickler: Saver, obj: Any) -> Any:
    """The object has no state, and its own ``__reduce__`` raises."""
    return (
        rebuild_c_objects.make_system_random,
        (type(obj),),
        obj.__dict__,
        None,
        None,
        rebuild.fill_attributes,
    )


def reduce_random(pickler: Saver, obj: Any) -> Any:
    """The state is read by the C type's ``getstate``. The class's own needs attributes that ``__init__`` sets, and the
    object may not have them yet."""
    state = (accelerators.random.Random.getstate(obj), attributes_of(obj), slots_of(pickler, obj))
    return rebuild_c_objects.make_random, (type(obj),), state, None, None, rebuild_c_objects.fill_random


def reduce_remaining(pickler: Saver, obj: Any) -> Any:
    """The reducer for an iterator that does not show its state: it is saved as an iterator over the remaining items, which
    are found by using it up in a forked child."""
    if not pickler.is_disposable:
        raise PicklingError(f"an iterator of type {type(obj).__name__} cannot be saved without fork")
    found = by_exhausting(obj, lambda obj: list(itertools.islice(obj, _REMAINING_ITEMS + 1)))
    if len(found) > _REMAINING_ITEMS:
        raise PicklingError(
            f"an iterator of type {type(obj).__name__} with too many items left cannot be saved"
        )
    return iter, (found,)


def _reducers() -> dict[type, Reducer]:
    csv, json = accelerators.csv, accelerators.json_parts
    batched = getattr(itertools, "batched", None)  # since 3.12
    return {
        **({} if batched is None else {batched: reduce_batched}),
        re.Match: reduce_match,
        type(re.compile("").scanner("")): reduce_scanner,  # type: ignore[attr-defined]
        re.Pattern: reduce_pattern,
        re.Scanner: reduce_re_scanner,  # type: ignore[attr-defined]
        type(functools.lru_cache(len)): reduce_lru_cache,
        type(functools.cmp_to_key(len)): reduce_key_wrapper,  # type: ignore[arg-type]
        itertools.pairwise: reduce_pairwise,
        pickle.Pickler: reduce_pickler,
        pickle.Unpickler: reduce_unpickler,
        struct.Struct: reduce_struct,
        type(struct.iter_unpack("B", b"")): reduce_remaining,
        accelerators.SimpleQueue: reduce_simple_queue,
        json.make_scanner: reduce_json_scanner,
        json.make_encoder: reduce_json_encoder,
        csv.Reader: reduce_csv_reader,
        csv.Writer: reduce_csv_writer,
    }


REDUCERS = _reducers()
"""Reducers by exact type."""

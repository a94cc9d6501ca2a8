"""The objects that an object made in C refers to, by ``gc.get_referents``. That function lists them in the order in which
``tp_traverse`` of the type visits them.

Here too: the containers that refer weakly (``Lib/_weakrefset.py``), while they are iterated.

For a new minor version: does an iteration still enter an ``_IterationGuard`` into the container's ``_iterating``? Has
``tp_traverse`` of the types named below kept the order, and does it visit something new?
"""

from __future__ import annotations

import _weakrefset
import contextvars
import functools
import gc
import itertools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from ckpt.compat import interpreter

__all__ = [
    "ITERATION_GUARD",
    "active_source_of_chain",
    "call_of_writer",
    "compare_of_key",
    "context_of_token",
    "enter_guard",
    "function_of_thunk",
    "implementation_of",
    "is_guard_entered",
    "lru_parts",
    "mapping_of",
    "only_reads",
    "parts_of_asker",
    "parts_of_filter",
    "parts_of_groups",
    "parts_of_map",
    "parts_of_starmap",
    "pairwise_parts",
    "previous_context",
    "simple_queue_items",
    "source_of_reader",
    "source_of_tee",
    "sources_of",
    "state_of_groups",
    "statement_of",
    "text_of_statement",
]

_IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType)


def mapping_of(proxy: Any) -> Any:
    """The mapping of a ``mappingproxy`` or of a view of a dictionary: its only reference (``Objects/descrobject.c``,
    ``dictobject.c``)."""
    return gc.get_referents(proxy)[0]


def parts_of_map(mapped: map[Any]) -> tuple[tuple[Any, ...], Any]:
    """The iterators and the function of a ``map`` (``Python/bltinmodule.c``)."""
    iterators, function = gc.get_referents(mapped)
    return iterators, function


def parts_of_filter(filtered: filter[Any]) -> tuple[Any, Any]:
    """The iterator and the function of a ``filter`` (``Python/bltinmodule.c``)."""
    iterator, function = gc.get_referents(filtered)
    return iterator, function


def parts_of_asker(asker: Any) -> tuple[Any, Any]:
    """The iterator and the function of an ``itertools.takewhile``, ``dropwhile`` or ``filterfalse``, after its type
    (``Modules/itertoolsmodule.c``)."""
    iterator, function = gc.get_referents(asker)[-2:]
    return iterator, function


def parts_of_groups(groups: Any) -> tuple[Any, Any]:
    """The iterator and the function of an ``itertools.groupby``, or of that to which a group of it belongs; each is visited
    first, after the type (``Modules/itertoolsmodule.c``)."""
    if type(groups) is not itertools.groupby:
        groups = next(each for each in gc.get_referents(groups) if type(each) is itertools.groupby)
    iterator, function = state_of_groups(groups)[:2]
    return iterator, function


def state_of_groups(groups: itertools.groupby[Any, Any]) -> list[Any]:
    """The iterator and the function of an ``itertools.groupby``; once a group has begun, its key; while an item has been
    taken and not given out yet, its key and the item. Visited in this order, after the type
    (``Modules/itertoolsmodule.c``)."""
    found = gc.get_referents(groups)
    return found[found[0] is type(groups) :]


def parts_of_starmap(mapped: itertools.starmap[Any]) -> tuple[Any, Any]:
    """The iterator and the function of an ``itertools.starmap``, after its type (``Modules/itertoolsmodule.c``)."""
    iterator, function = gc.get_referents(mapped)[-2:]
    return iterator, function


def active_source_of_chain(chain: itertools.chain[Any]) -> Any:
    """The iterator from which an ``itertools.chain`` takes items at present; before the first item, and after the last, what
    gives it its iterators; None: it has ended (``Modules/itertoolsmodule.c``: source, active)."""
    found = gc.get_referents(chain)
    return found[-1] if found else None


def implementation_of(fn: Any, args: Sequence[Any] | None = None) -> Any:
    """What a function of a library in C calls last, and hands its result on; None: it is no such function. No code of the
    program runs.

    - a function of numpy that may be overridden (NEP 18: ``_ArrayFunctionDispatcher``): the Python function behind it
    - ``SchemaValidator.validate_python`` of a function that pydantic has decorated (``validate_call``): that function.
      ``args``: of the call, if they can be relied on; an unbound method is called with the validator
    """
    cls = type(fn)
    if cls is types.BuiltinFunctionType:
        return _validated(fn.__self__) if fn.__name__ == "validate_python" else None
    if cls is types.MethodDescriptorType:
        return _validated(args[0]) if args and fn.__name__ == "validate_python" else None
    if type.__getattribute__(cls, "__name__") != "_ArrayFunctionDispatcher":
        return None
    found = type.__getattribute__(cls, "__dict__").get("_implementation")
    return found.__get__(fn) if type(found) in _IN_C else None


def _validated(validator: Any) -> Any:
    """None: this is no such validator, or it calls no function last."""
    if type.__getattribute__(type(validator), "__name__") != "SchemaValidator":
        return None
    schema = validator.__reduce__()[1][0]
    calls = type(schema) is dict and schema.get("type") == "call" and "return_schema" not in schema
    return schema["function"] if calls else None


def lru_parts(cached: Any) -> tuple[dict[Any, Any], Any, object, list[Any]]:
    """The parts of an object that ``functools.lru_cache`` has returned: dictionary, function, the private object that stands
    before the keyword arguments in a key, and the linked list as key, result, type of the link of each entry, oldest first
    (``Modules/_functoolsmodule.c``).
    """
    found = gc.get_referents(cached)
    if found and found[-1] is cached.__dict__:
        del found[-1]
    if isinstance(found[0], type):
        del found[0]
    # ..., dictionary, function, mark, type of link, type of cache_info()
    return found[-5], found[-4], found[-3], found[:-5]


def source_of_reader(reader: Any) -> Any:
    """The iterator that a ``_csv.reader`` reads from. The reader also refers to its dialect, and to the fields and the text
    of the current row (``Modules/_csv.c``)."""
    return next(
        item
        for item in gc.get_referents(reader)
        if item is not reader.dialect
        and not isinstance(item, (type, list, str))
        and hasattr(type(item), "__next__")
    )


def call_of_writer(writer: Any) -> Callable[[str], object]:
    """The method ``write`` that a ``_csv.writer`` calls (``Modules/_csv.c``)."""
    found: Callable[[str], object] = next(
        item for item in gc.get_referents(writer) if callable(item) and not isinstance(item, type)
    )
    return found


def compare_of_key(key: Any) -> Any:
    """The function given to ``functools.cmp_to_key``; ``key``: the result of that call, or a key made with the result."""
    return next(item for item in gc.get_referents(key) if item is not type(key))


def pairwise_parts(pairs: itertools.pairwise[Any]) -> list[Any]:
    """The source and, once the iteration has begun, the first item of the next pair; [] if the iteration has ended."""
    found = [item for item in gc.get_referents(pairs) if item is not itertools.pairwise]
    if interpreter.PAIRWISE_KEEPS_A_PAIR:
        found.pop()
    return found


def sources_of(iterator: Any) -> list[Any]:
    """The objects from which an ``itertools.islice``, ``pairwise``, ``cycle`` or ``compress`` takes its items, in the order
    in which it asks them, with what else it holds behind them; [None]: it has ended (``Modules/itertoolsmodule.c``)."""
    found = [item for item in gc.get_referents(iterator) if item is not type(iterator)]
    return found or [None]


def source_of_tee(iterator: Any) -> Any:
    """The iterator of which the results of ``itertools.tee`` share the items: the first reference of the block of items at
    which this result is (``Modules/itertoolsmodule.c``: dataobj; it)."""
    block = next(item for item in gc.get_referents(iterator) if item is not type(iterator))
    return next((item for item in gc.get_referents(block) if item is not type(block)), None)


def simple_queue_items(queue: Any) -> list[Any]:
    """The items of a ``_queue.SimpleQueue``, in the order in which ``get`` returns them."""
    found = [item for item in gc.get_referents(queue) if item is not type(queue)]
    if not interpreter.QUEUES_ARE_RINGS:
        found = found[0]
    return found[len(found) - queue.qsize() :] if found else []


def statement_of(cursor: Any) -> Any:
    """The statement of which a ``sqlite3.Cursor`` has not given all results; None: it has none. One that has failed may be
    there, too."""
    for each in gc.get_referents(cursor):
        # The class has no public name.
        if (type(each).__module__, type(each).__qualname__) == ("sqlite3", "Statement"):
            return each
    return None


@functools.cache
def _questions_to_sqlite() -> tuple[Callable[[int], bytes], Callable[[int], int]] | None:
    """``sqlite3_sql`` and ``sqlite3_stmt_readonly``; None: they cannot be had, or statements are laid out otherwise: what
    SQLite has made follows the head (``Modules/_sqlite/statement.h``; all versions)."""
    import ctypes
    import sqlite3

    try:
        library = ctypes.CDLL(sys.modules["_sqlite3"].__file__)
        text, asks = library.sqlite3_sql, library.sqlite3_stmt_readonly
    except (AttributeError, OSError, KeyError):
        return None
    text.argtypes, text.restype, asks.argtypes = [ctypes.c_void_p], ctypes.c_char_p, [ctypes.c_void_p]
    connection = sqlite3.connect(":memory:")
    try:
        cursor = sqlite3.Cursor(connection).execute("SELECT 1 UNION SELECT 2")
        is_known = text(_statement_in_c(statement_of(cursor))) == b"SELECT 1 UNION SELECT 2"
    finally:
        connection.close()
    return (text, asks) if is_known else None


def _statement_in_c(statement: Any) -> int:
    import ctypes

    return ctypes.c_void_p.from_address(id(statement) + object.__basicsize__).value or 0


def only_reads(statement: Any) -> bool:
    """Does it change nothing in the database, for sure? ``statement``: see :func:`statement_of`."""
    questions = _questions_to_sqlite()
    return questions is not None and bool(questions[1](_statement_in_c(statement)))


def text_of_statement(statement: Any) -> str:
    """What SQLite was given. ``statement``: one of which `only_reads` is known."""
    questions = _questions_to_sqlite()
    return "" if questions is None else questions[0](_statement_in_c(statement)).decode(errors="replace")


def previous_context(context: contextvars.Context) -> contextvars.Context | None:
    """The context in which this one was entered; None: there was none, or it is not entered (``Python/context.c``)."""
    return next((item for item in gc.get_referents(context) if type(item) is contextvars.Context), None)


def context_of_token(token: contextvars.Token[Any]) -> contextvars.Context | None:
    """The context in which the token was made (``Python/context.c``)."""
    return next((item for item in gc.get_referents(token) if type(item) is contextvars.Context), None)


def function_of_thunk(thunk: Any) -> Any:
    """The function of the program behind a ``CThunkObject``, which ctypes keeps for a function that C can call; None: it is
    no thunk. It refers to the converters of the arguments (a tuple), the function, the type of the result
    (``Modules/_ctypes/callbacks.c``)."""
    if type(thunk).__name__ != "CThunkObject":
        return None
    found = [item for item in gc.get_referents(thunk) if item is not type(thunk)]
    return found[1] if len(found) > 1 and isinstance(found[0], (tuple, list)) and callable(found[1]) else None


# ---------------------------------------------------------------------- weak containers

ITERATION_GUARD: type = _weakrefset._IterationGuard  # type: ignore[attr-defined]
"""Its objects keep what is gone in a container for as long as that is iterated; all versions."""


def is_guard_entered(guard: Any) -> bool:
    """Is the iteration under way?"""
    return guard in getattr(guard.weakcontainer(), "_iterating", ())


def enter_guard(guard: Any) -> None:
    """Enter a guard whose iteration is under way in the container that is there now. One that is itself in the image, and
    not filled yet, has its guards with it."""
    entered = getattr(guard.weakcontainer(), "_iterating", None)
    if entered is not None:
        entered.add(guard)

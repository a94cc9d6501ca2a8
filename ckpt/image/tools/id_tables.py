"""Libraries whose classes say one thing only: where they keep tables by the ``id()`` of objects
(:mod:`ckpt.image.pickling.id_tables`); and those whose objects keep their own ``id`` or hash: PuLP, PyPubSub.
"""

from __future__ import annotations

import sys
from typing import Any

from ckpt.image.interface.library import Library, Reducer

__all__ = [
    "Blinker",
    "Lark",
    "Parsimonious",
    "Pubsub",
    "Pulp",
    "Pydispatch",
    "Sqlglot",
    "Statemachine",
    "Transitions",
]


class Blinker(Library):
    """Receivers and senders of signals, in tables and in the callbacks that take them out."""

    id_tables = ("blinker",)


class Lark(Library):
    """The visitors of the parse forest of an Earley parser."""

    id_tables = ("lark.parsers.earley_forest",)


class Parsimonious(Library):
    """The cache of a parse, by the id of the expression."""

    id_tables = ("parsimonious.expressions",)


class Pydispatch(Library):
    """Connections by the id of the sender, and references to methods by those of object and function."""

    id_tables = ("pydispatch",)


class Pubsub(Library):
    """Topics, and listeners that keep the hash of what they call, which is another one after a restart."""

    def reducer_by_base(self, cls: type) -> Reducer | None:
        base = getattr(sys.modules.get("pubsub.core.listener"), "Listener", None)
        return reduce_listener if base is not None and issubclass(cls, base) else None


def reduce_listener(saver: Any, listener: Any) -> Any:
    return make_empty, (type(listener),), (listener.__dict__,), None, None, fill_listener


def fill_listener(listener: Any, state: tuple[dict[str, Any]]) -> None:
    fill(listener, state)
    called = listener.getCallable()
    if called is not None:
        listener.__dict__["_Listener__hash"] = hash(called)


class Pulp(Library):
    """Variables whose hash is their ``id``, which must be the new one before any dictionary gets them as keys; and the table
    of a problem by these hashes."""

    def reducer_by_base(self, cls: type) -> Reducer | None:
        place: Any = sys.modules.get("pulp.pulp")
        if place is None:
            return None
        if issubclass(cls, place.LpElement):
            return reduce_element
        return reduce_problem if issubclass(cls, place.LpProblem) else None


def reduce_element(saver: Any, element: Any) -> Any:
    attributes = {name: value for name, value in element.__dict__.items() if name != "hash"}
    return make_element, (type(element),), (attributes,), None, None, fill


def reduce_problem(saver: Any, problem: Any) -> Any:
    attributes = {name: value for name, value in problem.__dict__.items() if name != "_variable_ids"}
    if "_variable_ids" in problem.__dict__:
        saver.defer(fill_table, problem, list(problem._variable_ids.values()))
    return make_empty, (type(problem),), (attributes,), None, None, fill


def make_empty(cls: Any) -> Any:
    return cls.__new__(cls)


def make_element(cls: Any) -> Any:
    made = cls.__new__(cls)
    made.__dict__["hash"] = id(made)
    return made


def fill(obj: Any, state: tuple[dict[str, Any]]) -> None:
    obj.__dict__.update(state[0])


def fill_table(problem: Any, variables: list[Any]) -> None:
    problem.__dict__["_variable_ids"] = {variable.hash: variable for variable in variables}


class Sqlglot(Library):
    """The optimizer and the comparison of trees: columns and scopes that have been visited."""

    id_tables = ("sqlglot.optimizer", "sqlglot.diff")


class Statemachine(Library):
    """Callbacks by a text with the id of their specification. A machine that runs a callback is saved raw."""

    id_tables = ("statemachine",)


class Transitions(Library):
    """Tables of the extensions by the id of the model."""

    id_tables = ("transitions.extensions",)

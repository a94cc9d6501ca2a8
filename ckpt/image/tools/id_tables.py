"""Libraries whose classes say one thing only: where they keep tables by the ``id()`` of objects
(:mod:`ckpt.image.pickling.id_tables`).
"""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Django", "Lark", "Parsimonious", "Sqlglot", "Transitions"]


class Django(Library):
    """Signals keep receivers and senders by their ids."""

    id_tables = ("django.dispatch",)


class Lark(Library):
    """The visitors of the parse forest of an Earley parser."""

    id_tables = ("lark.parsers.earley_forest",)


class Parsimonious(Library):
    """The cache of a parse, by the id of the expression."""

    id_tables = ("parsimonious.expressions",)


class Sqlglot(Library):
    """The optimizer and the comparison of trees: columns and scopes that have been visited."""

    id_tables = ("sqlglot.optimizer", "sqlglot.diff")


class Transitions(Library):
    """Tables of the extensions by the id of the model."""

    id_tables = ("transitions.extensions",)

"""Libraries of which images need to know no more than where they keep tables by the ``id()`` of objects
(:mod:`ckpt.image.pickling.id_tables`).
"""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Django", "Lark", "Parsimonious", "Sqlglot", "Transitions"]


class Django(Library):
    """Signals know receivers and senders by their ids."""

    id_tables = ("django.dispatch",)


class Lark(Library):
    """The visitors of the forest of an Earley parser."""

    id_tables = ("lark.parsers.earley_forest",)


class Parsimonious(Library):
    """The cache of a parse, by expression."""

    id_tables = ("parsimonious.expressions",)


class Sqlglot(Library):
    """Optimizer and differences: columns and scopes that have been seen."""

    id_tables = ("sqlglot.optimizer", "sqlglot.diff")


class Transitions(Library):
    """What the extensions keep by model."""

    id_tables = ("transitions.extensions",)

"""numexpr: compiled expressions. A restart compiles them again from their parts.

A context variable holds the last expression, for ``re_evaluate``; so an image may hold an expression that no variable of the
program refers to.
"""

from __future__ import annotations

from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["NumExpr"]


class NumExpr(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("numexpr.interpreter", {"NumExpr": reduce_expression})


def reduce_expression(pickler: Any, obj: Any) -> Any:
    return make_expression, (obj.signature, obj.tempsig, obj.program, obj.constants, obj.input_names)


def make_expression(*parts: Any) -> Any:
    from numexpr import interpreter

    return interpreter.NumExpr(*parts)

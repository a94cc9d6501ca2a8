"""numexpr: compiled expressions. A restart compiles them again from their parts.

The last expression is in a context variable, where ``re_evaluate`` finds it; so a program may have one without holding it.
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

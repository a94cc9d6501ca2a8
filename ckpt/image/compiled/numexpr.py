"""numexpr: compiled expressions. A restart compiles them again from their parts.

A context variable holds the last expression, for ``re_evaluate``; so an image may hold an expression that no variable of the
program refers to.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["NumExpr"]

_CACHES: tuple[tuple[str, str, str, tuple[int, ...]], ...] = (
    ("_names_cache", "c", "CacheDict", (256,)),
    ("_numexpr_cache", "c", "CacheDict", (256,)),
    ("_numexpr_last", "l", "ContextDict", ()),
)


class NumExpr(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("numexpr.interpreter", {"NumExpr": reduce_expression})

    def after_restart(self) -> None:
        """``evaluate`` makes its caches, which belong to the thread, at its beginning; it may be running, beyond that."""
        compiler = vars(sys.modules["numexpr.necompiler"]) if "numexpr.necompiler" in sys.modules else {}
        for name, attribute, cls, arguments in _CACHES:
            cache = compiler.get(name)
            if isinstance(cache, threading.local) and not hasattr(cache, attribute):
                vars(cache)[attribute] = compiler[cls](*arguments)


def reduce_expression(pickler: Any, obj: Any) -> Any:
    return make_expression, (obj.signature, obj.tempsig, obj.program, obj.constants, obj.input_names)


def make_expression(*parts: Any) -> Any:
    from numexpr import interpreter

    return interpreter.NumExpr(*parts)

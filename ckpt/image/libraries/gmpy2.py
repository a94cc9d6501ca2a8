"""gmpy2: contexts, that is precision, rounding, traps and flags.

A context is saved with its settings. One context is always in force, in a context variable, although no variable of the
program holds it. So without this module every program that only imports the library could not be saved.
"""

from __future__ import annotations

from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Gmpy2"]

# The exponent limits are set last: under other limits than the default ones, another setting may be out of range.
_CONTEXT = (
    *("precision", "real_prec", "imag_prec", "round", "real_round", "imag_round", "subnormalize"),
    *("trap_underflow", "trap_overflow", "trap_inexact", "trap_invalid", "trap_erange", "trap_divzero"),
    *("underflow", "overflow", "inexact", "invalid", "erange", "divzero"),
    *("allow_complex", "rational_division", "allow_release_gil", "emax", "emin"),
)


class Gmpy2(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("gmpy2", {"context": reduce_context})


def reduce_context(pickler: Any, obj: Any) -> Any:
    return make_context, ([(name, getattr(obj, name)) for name in _CONTEXT if hasattr(obj, name)],)


def make_context(settings: list[tuple[str, Any]]) -> Any:
    import gmpy2

    context = gmpy2.context()
    for name, value in settings:
        setattr(context, name, value)
    return context

"""Objects of arithmetic libraries that are in force without a program holding them: each is kept in a context variable, and
one that could not be saved would keep every image of a program from being taken that only imports the library.

    gmpy2.context        precision, rounding, traps and flags
    numexpr's NumExpr    a compiled expression (the last one is kept for `re_evaluate`): made again from its parts
"""

from __future__ import annotations

from typing import Any

__all__ = ["make_context", "make_expression", "reduce_context", "reduce_expression"]

# The exponent limits come last: with others in force, what is set before them may be out of range.
_CONTEXT = (
    *("precision", "real_prec", "imag_prec", "round", "real_round", "imag_round", "subnormalize"),
    *("trap_underflow", "trap_overflow", "trap_inexact", "trap_invalid", "trap_erange", "trap_divzero"),
    *("underflow", "overflow", "inexact", "invalid", "erange", "divzero"),
    *("allow_complex", "rational_division", "allow_release_gil", "emax", "emin"),
)


def reduce_context(pickler: Any, obj: Any) -> Any:
    return make_context, ([(name, getattr(obj, name)) for name in _CONTEXT if hasattr(obj, name)],)


def make_context(settings: list[tuple[str, Any]]) -> Any:
    import gmpy2

    context = gmpy2.context()
    for name, value in settings:
        setattr(context, name, value)
    return context


def reduce_expression(pickler: Any, obj: Any) -> Any:
    return make_expression, (obj.signature, obj.tempsig, obj.program, obj.constants, obj.input_names)


def make_expression(*parts: Any) -> Any:
    from numexpr import interpreter

    return interpreter.NumExpr(*parts)

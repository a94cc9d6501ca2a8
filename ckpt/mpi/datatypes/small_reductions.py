"""Reductions of a few numbers without numpy. For a few numbers, the calls of numpy cost much more than the arithmetic.

`combine` returns exactly the bytes that numpy returns, or None. After None, the caller uses `Op.combine` (op.py). The
result is None
- for an operation or typecode that is not in _FUNCTIONS,
- for an integer result that does not fit into its type,
- for a result that is NaN (its sign and payload are not defined),
- for the maximum or minimum of two zeros (their signs may differ).
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Callable
from typing import Any

from ckpt.mpi.base.progress import Buffer

MAX_BYTES = 64
"""Largest size in bytes of each operand. For larger ones numpy is faster."""

_INTEGERS = "bBhHiIlLqQ"


class _Unsure(Exception):
    """The result may differ from numpy's, so `combine` returns None."""


def _sum(x: float, y: float) -> float:
    result = x + y
    if result == result:
        return result
    raise _Unsure


def _product(x: float, y: float) -> float:
    result = x * y
    if result == result:
        return result
    raise _Unsure


def _larger(x: float, y: float) -> float:
    if x > y:
        return x
    if y > x or (x == y and x):
        return y
    raise _Unsure


def _smaller(x: float, y: float) -> float:
    if x < y:
        return x
    if y < x or (x == y and x):
        return y
    raise _Unsure


_FUNCTIONS: dict[str, dict[str, Callable[[Any, Any], Any]]] = {
    _INTEGERS: {
        "MPI_SUM": operator.add,
        "MPI_PROD": operator.mul,
        "MPI_MAX": max,
        "MPI_MIN": min,
        "MPI_BAND": operator.and_,
        "MPI_BOR": operator.or_,
        "MPI_BXOR": operator.xor,
    },
    "d": {"MPI_SUM": _sum, "MPI_PROD": _product, "MPI_MAX": _larger, "MPI_MIN": _smaller},
}

_Kernel = tuple[Callable[..., Any], Callable[..., bytes], Callable[[Any, Any], Any]]


@functools.cache
def _kernel(name: str, code: str, nbytes: int) -> _Kernel | None:
    """(unpack, pack, function on two numbers) for `nbytes` bytes of a typecode; None: not in _FUNCTIONS."""
    for codes, functions in _FUNCTIONS.items():
        if code and code in codes and name in functions:
            numbers = struct.Struct(f"{nbytes // struct.calcsize(code)}{code}")
            return numbers.unpack, numbers.pack, functions[name]
    return None


def combine(name: str, code: str, a: Buffer, b: Buffer) -> bytes | None:
    """The predefined operation `name` on packed numbers of typecode `code`, or None (see the header).

    `a` and `b` have the same size, at most MAX_BYTES."""
    kernel = _kernel(name, code, len(a))
    if kernel is None:
        return None
    unpack, pack, function = kernel
    try:
        return pack(*map(function, unpack(a), unpack(b)))
    except (struct.error, _Unsure):
        return None

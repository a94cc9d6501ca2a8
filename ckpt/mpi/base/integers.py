"""Conversion of a program's numbers to integers, with mpi4py's rules.

Every number that a program gives is converted by `argument` or by `element` before it is compared or packed.

`argument` is for parameters that mpi4py declares as C integers: a rank, tag, root, color, key, count of a datatype,
position. It accepts every object with `__int__` and truncates it: numpy's booleans and floating-point numbers (2.7
becomes 2), arrays of no dimension, `Decimal`; but not text and not `None`. (pySDC, for example, splits a communicator with
a numpy boolean as the color.) It also accepts an object that has `__index__` but not `__int__`: mpi4py's build for all
versions of Python accepts such an object, its builds for one version refuse it.

`element` is for elements of a list (dimensions, coordinates, ranks of a group, edges, block lengths) and for the count or
displacement of a message. It requires `__index__`: floating-point numbers and numpy's booleans are refused.

A number that does not fit into the C type raises OverflowError. The C type is `int` (limit INT), or, where mpi4py declares
MPI_Count or MPI_Aint, an integer of 64 bits (limit COUNT).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

INT = 1 << 31
COUNT = 1 << 63


def argument(value: Any, limit: int = INT) -> int:
    """`value` as an integer, truncated. TypeError: it is no number. OverflowError: it is not in [-limit, limit)."""
    if type(value) is not int:  # most values are int; the test saves time in calls where 0.1 µs counts
        whole = isinstance(value, int) or not hasattr(type(value), "__int__")
        value = operator.index(value) if whole else int(value)
    if -limit <= value < limit:
        return value  # type: ignore[no-any-return]
    raise _too_large(limit)


def element(value: Any, limit: int = INT) -> int:
    """`value` as an integer. TypeError: it has no `__index__`. OverflowError: it is not in [-limit, limit)."""
    number = operator.index(value)
    if -limit <= number < limit:
        return number
    raise _too_large(limit)


def elements(values: Sequence[Any], count: int | None = None, limit: int = INT) -> list[int]:
    """The elements of an object with a length and indices. ValueError: there are not exactly `count` of them."""
    numbers = [element(values[at], limit) for at in range(len(values))]
    if count is not None and len(numbers) != count:
        raise ValueError(f"expecting {count} items, got {len(numbers)}")
    return numbers


def is_one(value: Any) -> bool:
    """Whether the value is one integer, for parameters that are an integer or a list. An array of no dimension is one."""
    if not hasattr(type(value), "__index__"):
        return False
    if not hasattr(type(value), "__getitem__"):
        return True
    try:
        len(value)
    except TypeError:
        pass
    else:
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _too_large(limit: int) -> OverflowError:
    return OverflowError(f"value too large to convert to a C integer of {limit.bit_length()} bits")

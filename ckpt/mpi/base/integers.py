"""Integers as mpi4py takes them. There are two ways, and every number that a program gives goes one of them before it is
compared or packed.

An *argument* is declared as a C integer in mpi4py: a rank, tag, root, color, key, count of a datatype, position. What has
`__int__` is cut down to an integer: numpy's booleans and floating-point numbers (2.7 is 2), arrays of no dimension,
`Decimal`; but no text and no `None`. pySDC, for one, splits a communicator by the result of a comparison of numpy's. What
has `__index__` alone is taken too: mpi4py takes it in the build that serves all versions of Python, and refuses it in those
for one version.

An *element* of a list (dimensions, coordinates, ranks of a group, edges, block lengths) and a count or displacement of a
message has to have `__index__`: no floating-point number, and none of numpy's booleans.

What does not fit into the C type raises OverflowError: an `int`, or where mpi4py says MPI_Count or MPI_Aint, 64 bits.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

INT = 1 << 31
COUNT = 1 << 63


def argument(value: Any, limit: int = INT) -> int:
    """A number given on its own. TypeError when it is none."""
    if type(value) is not int:  # most are, on ways where every tenth of a microsecond counts
        whole = isinstance(value, int) or not hasattr(type(value), "__int__")
        value = operator.index(value) if whole else int(value)
    if -limit <= value < limit:
        return value  # type: ignore[no-any-return]
    raise _too_large(limit)


def element(value: Any, limit: int = INT) -> int:
    """A number out of a list or message. TypeError when it is no integer."""
    number = operator.index(value)
    if -limit <= number < limit:
        return number
    raise _too_large(limit)


def elements(values: Sequence[Any], count: int | None = None, limit: int = INT) -> list[int]:
    """The numbers of anything with a length and places. ValueError unless they are `count`."""
    numbers = [element(values[at], limit) for at in range(len(values))]
    if count is not None and len(numbers) != count:
        raise ValueError(f"expecting {count} items, got {len(numbers)}")
    return numbers


def is_one(value: Any) -> bool:
    """Whether this is one integer where a list could be as well."""
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

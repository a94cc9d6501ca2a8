"""Integers as mpi4py takes them for ranks, tags, colors, keys and counts: whatever can be cut down to one.

mpi4py is compiled, and C takes what has `__index__` or `__int__`: numpy's booleans and floating-point numbers too (2.7 is
2), arrays of no dimension, but no text and no `None`. What a call is given passes through here before it is compared or
packed. pySDC, for one, splits a communicator by the result of a comparison of numpy's.
"""

from __future__ import annotations

import operator
from typing import Any


def index(value: Any) -> int:
    """`value` as an integer. TypeError when it is no number."""
    try:
        return operator.index(value)
    except TypeError:
        if not hasattr(type(value), "__int__"):
            raise
    return int(value)

"""Bytes inside of numbers that belong to no value: a long double has 16 bytes, of which x86 uses 10.

What is in the other ones is left over from whatever was in that memory or register before. So two processes that compute the
same send other bytes, which replicas that compare what they send would take for an error. `filled` makes them 0.

Not here: gaps between the elements of a datatype, which are not sent (layout.py).
"""

from __future__ import annotations

import functools

from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.layout import LONG_DOUBLES

__all__ = ["filled", "has_gaps"]

_USED, _LONG_DOUBLE, _INDEX = 10, 16, 4

_STEPS = dict(zip(LONG_DOUBLES, (_LONG_DOUBLE, _LONG_DOUBLE, _LONG_DOUBLE + _INDEX), strict=True))
"""Distance of one long double from the next in packed elements."""


@functools.cache
def has_gaps() -> bool:
    """Elsewhere (aarch64) a long double uses all of its bytes."""
    import platform

    return platform.machine() in ("x86_64", "i686")


def filled(data: Buffer, code: str) -> Buffer:
    """Packed elements with the typecode `code`, one of LONG_DOUBLES: a copy in which the gaps are 0, if there are any."""
    if not has_gaps():
        return data
    out, step = bytearray(data), _STEPS[code]
    for first in range(_USED, _LONG_DOUBLE):
        out[first::step] = bytes(len(range(first, len(out), step)))
    return out

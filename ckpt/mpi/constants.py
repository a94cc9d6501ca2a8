"""Named numbers and marker objects. Numbers differ between MPI libraries; only names and distinctness are
promised."""

from __future__ import annotations

ANY_SOURCE = -1
PROC_NULL = -2
ROOT = -3
ANY_TAG = -1
UNDEFINED = -32766
TAG_UB = 0x7FFFFFFF
BSEND_OVERHEAD = 96

# Comparison of groups and communicators.
IDENT = 0
CONGRUENT = 1
SIMILAR = 2
UNEQUAL = 3


class InPlaceType(int):
    """Type of IN_PLACE: the send buffer is the receive buffer."""

    def __repr__(self) -> str:
        return "IN_PLACE"

    def __reduce__(self) -> str:
        return "IN_PLACE"


class BottomType(int):
    """Type of BOTTOM, the origin of absolute addresses: accepted where no data moves."""

    def __repr__(self) -> str:
        return "BOTTOM"

    def __reduce__(self) -> str:
        return "BOTTOM"


IN_PLACE = InPlaceType(-1)
BOTTOM = BottomType(0)

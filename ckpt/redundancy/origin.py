"""Where an error began: the first rank of a plane that sent something else than the other planes. Pure.

What a replica computes wrongly it sends to others of its plane, which then send wrong messages too. The comparison may
see theirs first. So each replica tells its last messages one by one (`Details`), with the times at which it sent them.
All processes have the same monotonic clock (they are on one host; after a restart in another boot to some microseconds):
in one plane a wrong message is sent after those it follows from. So the rank whose first differing message is the
earliest is the one where it began.

Not here: when this is asked (:mod:`ckpt.controller.replicas.supervisor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Details", "Origin", "origin"]

Details = Mapping[str, Sequence[tuple[int, str, int]]]
"""Of one process: for each stream the last messages, ascending: number, digest over all until this one, time in ns."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Message `number` of this stream of `rank` is the first that differs."""

    rank: int
    stream: str
    number: int


def origin(
    odd: Sequence[Details | None], right: Sequence[Details | None], agreed: Sequence[Mapping[str, int]]
) -> Origin | None:
    """Where plane `odd` first differs from plane `right`, each by rank. None: no message is known that differs.

    `agreed`: by rank and stream, the number of a message up to which both are known to be equal. A process that has told
    nothing is passed over."""
    found: list[tuple[int, Origin]] = []
    for rank, (wrong, good) in enumerate(zip(odd, right, strict=True)):
        for stream in wrong or ():
            rows = wrong[stream] if wrong is not None else ()
            first = _first(rows, (good or {}).get(stream, ()), agreed[rank].get(stream, 0))
            if first is not None:
                number, ns = first
                found.append((ns, Origin(rank, stream, number)))
    return min(found, key=lambda each: each[0])[1] if found else None


def _first(
    odd: Sequence[tuple[int, str, int]], right: Sequence[tuple[int, str, int]], agreed: int
) -> tuple[int, int] | None:
    """Number and time of the first message of `odd` that differs, if its predecessor is known to agree."""
    digests = {number: digest for number, digest, _ in right}
    for number, digest, ns in odd:
        other = digests.get(number)
        if other == digest:
            agreed = number
        elif other is not None:
            return (number, ns) if number == agreed + 1 else None
    return None

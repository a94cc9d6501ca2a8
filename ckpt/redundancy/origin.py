"""Where an error began: the first rank of a plane that sent something else than the other planes. Pure.

What a replica computes wrongly it sends to others of its plane, which then send wrong messages too. The comparison may
see theirs first. So each replica tells its last messages one by one (`Details`), with the times at which it sent them; one
whose program fails tells them before it ends.
All processes have the same monotonic clock (they are on one host; after a restart in another boot to some microseconds):
in one plane a wrong message is sent after those it follows from. So the rank whose first differing message is the
earliest is the one where it began.

Rule: a rank is named only if all that the other ranks of its plane had sent until then is known to be right. What is not
known (a process was killed and has told nothing; it remembers no message so old; the other planes have not come so far)
may be what it follows from.

Not here: when this is asked (:mod:`ckpt.controller.replicas.inquiries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Details", "Origin", "agree", "origin"]

Details = Mapping[str, Sequence[tuple[int, str, int]]]
"""Of one process: for each stream the last messages, ascending: number, digest over all until this one, time in ns."""

Counts = Mapping[str, int]
"""By stream, how many messages there are."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Message `number` of this stream of `rank` is the first that differs."""

    rank: int
    stream: str
    number: int


def origin(
    odd: Sequence[Details | None],
    right: Sequence[Details | None],
    agreed: Sequence[Counts],
    counts: Sequence[Counts | None] | None = None,
) -> Origin | None:
    """Where plane `odd` first differs from plane `right`, each by rank. None: no message is known that differs, or it is not
    known whether another rank's differs earlier.

    `agreed`: by rank and stream, the number of a message up to which both are known to be equal. `counts`: how many
    messages each process of `odd` had sent when it told them; None: those that it has told."""
    found: list[tuple[int, Origin]] = []
    unknown: list[int] = []
    for rank, wrong in enumerate(odd):
        sent = None if counts is None else counts[rank]
        first, until = _compared(rank, wrong, right[rank] or {}, agreed[rank], sent or {})
        found += first
        unknown.append(until)
    if not found:
        return None
    ns, began = min(found, key=lambda each: each[0])
    return began if all(until > ns for rank, until in enumerate(unknown) if rank != began.rank) else None


def agree(
    odd: Sequence[Details | None],
    right: Sequence[Details | None],
    agreed: Sequence[Counts],
    counts: Sequence[Counts | None],
) -> bool:
    """Is it known of all messages that plane `odd` has sent that they are those of plane `right`? Arguments as of
    `origin`."""
    for rank, wrong in enumerate(odd):
        compared = _compared(rank, wrong, right[rank] or {}, agreed[rank], counts[rank] or {})
        if compared != ([], _ENDLESS):
            return False
    return True


def _compared(
    rank: int, odd: Details | None, right: Details, agreed: Counts, sent: Counts
) -> tuple[list[tuple[int, Origin]], int]:
    """By stream the first message of a process that differs, with its time; and the time from which on it is not known
    what the process has sent, and whether that was right."""
    if odd is None:
        return [], 0
    found, until = [], _ENDLESS
    for name in {**odd, **sent}:
        rows, last = odd.get(name, ()), agreed.get(name, 0)
        first, known = _first(rows, right.get(name, ()), last)
        if first is not None:
            found.append((first[1], Origin(rank, name, first[0])))
        elif (rows[-1][0] if rows else last) < sent.get(name, 0):  # it has not told all
            known = min(known, rows[-1][2] if rows else 0)
        until = min(until, known)
    return found, until


_ENDLESS = 1 << 64


def _first(
    odd: Sequence[tuple[int, str, int]], right: Sequence[tuple[int, str, int]], agreed: int
) -> tuple[tuple[int, int] | None, int]:
    """Number and time of the first message of `odd` that differs, if its predecessor is known to agree; and the time from
    which on it is not known what was right."""
    digests = {number: digest for number, digest, _ in right}
    until = _ENDLESS
    for number, digest, ns in odd:
        other = digests.get(number)
        if other is None:
            until = min(until, ns)
        elif other == digest:  # proves all messages before it
            agreed, until = number, _ENDLESS
        elif number == agreed + 1:
            return (number, ns), _ENDLESS
        else:
            return None, 0 if until == _ENDLESS else until
    return None, until

"""Decides what follows from what an agent without a controller has found in the job's journal. Pure.

    alone        neither another controller nor the end of this host: ranks may go on for a while
    taken over   another controller has the job. It may be dialled once it has written where
    given up     the controller may start the ranks of this host elsewhere: they end with the lease, even if another one has
                 taken over since, which the former one may not know

Not here: the look itself (`watching.py`, `ckpt.store.job.journal`), how long ranks may go on (`lease.py` of the hosts).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ckpt.store.records.journal import JournalRecord
from ckpt.transport.records import dataclass

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """What a look that began at `began_ns` has found. `generation`, `contact`: of the controller that has taken over, where
    it is dialled; "" while it has not said so."""

    what: Literal["alone", "taken over", "given up"]
    generation: int = 0
    contact: str = ""
    began_ns: int = 0


def judge(
    records: Iterable[JournalRecord], *, host: str, index: int, generation: int, began_ns: int
) -> Verdict:
    """`records`: those behind the one that the controller of this generation has named last, commits left out. `index`: of
    the host, from 1."""
    found = list(records)
    if any(each.what == "restart" and each.generation == generation and host in each.hosts for each in found):
        return Verdict("given up", generation, "", began_ns)
    newest = max((record.generation for record in found), default=0)
    if newest > generation:
        contacts = [each.contact for each in found if each.generation == newest and each.what == "contact"]
        words = contacts[-1].split() if contacts else []
        return Verdict("taken over", newest, words[index - 1] if index <= len(words) else "", began_ns)
    return Verdict("alone", generation, "", began_ns)

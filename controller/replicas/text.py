"""The vote on text: what replicas of one rank write to one stream, byte by byte. Pure.

    agreed     as many replicas as are needed have written these bytes: they may be printed
    behind     a replica has not written yet what the others agreed on: it has to write the same later
    odd        a replica has written something else than what is agreed: its text counts no more, and it is told again until
               it is dropped
    no vote    none of the texts can get as many voices as are needed any more

Needed are more than half of the replicas that the rank began with, or all that are left if these are fewer; and where some
are copies of others, that these have not got an error from one another (:mod:`ckpt.redundancy.membership`).

Not here: files and lines (`output`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from ckpt.redundancy.membership import Lineage
from ckpt.transport.records import dataclass


def common(one: bytes, other: bytes) -> int:
    """The number of bytes at the beginning that are equal in both."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class Conflict:
    """`odd`: the replicas that differ from what is agreed; empty: no text gets enough voices. `at`: offset in bytes."""

    odd: tuple[int, ...]
    at: int


class TextVote:
    """One stream of one rank. `lineage`: of the planes."""

    def __init__(self, replicas: int, lineage: Lineage | None = None) -> None:
        self.lineage = Lineage() if lineage is None else lineage
        self.majority = replicas // 2 + 1
        self.ahead = dict.fromkeys(range(replicas), b"")
        """What each replica has written beyond what is agreed."""
        self.behind = dict.fromkeys(range(replicas), b"")
        """What is agreed and each replica has not written yet."""
        self.odd: dict[int, int] = {}
        """Where each replica that differs from what is agreed has begun to; what it writes from there on is at no known
        place of the text, and is compared with nothing."""
        self.agreed = 0

    @property
    def needed(self) -> int:
        return min(self.majority, len(self.ahead))

    def join(self, replica: int, text: bytes, agreed: bytes) -> None:
        """A copy has a voice from now on, which has written `text` until now; `agreed`: all that is agreed."""
        self.odd.pop(replica, None)
        self.ahead[replica], self.behind[replica] = b"", agreed
        self.write(replica, text)

    def drop(self, replicas: Iterable[int]) -> None:
        """These replicas have no voice any more."""
        for replica in replicas:
            self.ahead.pop(replica, None)
            self.behind.pop(replica, None)
            self.odd.pop(replica, None)

    def write(self, replica: int, data: bytes) -> None:
        """A replica has written `data`."""
        if replica not in self.ahead:
            return
        due = self.behind[replica]
        same = common(due, data)
        self.ahead[replica] += data[same:]
        if same < min(len(due), len(data)):
            self.behind[replica] = b""
            self.odd[replica] = self.agreed - len(due) + same
        else:
            self.behind[replica] = due[same:]

    def take(self) -> tuple[bytes, Conflict | None]:
        """The bytes that have become agreed, and what conflicts with them."""
        text = b""
        if not self.ahead:
            return text, None  # all are lost
        heard = sorted(self.ahead.keys() - self.odd.keys())
        sizes = range(self.needed, len(heard) + 1)
        for group in (group for size in sizes for group in combinations(heard, size)):
            if not self.lineage.decides(group, self.ahead.keys() - set(group)):
                continue
            first = self.ahead[group[0]]
            size = min((common(first, self.ahead[other]) for other in group[1:]), default=len(first))
            if size > len(text):
                text = first[:size]
        for replica in heard:
            written = self.ahead[replica]
            same = common(text, written)
            if same < min(len(text), len(written)):
                self.odd[replica] = self.agreed + same
            else:
                self.behind[replica] += text[same:]
                self.ahead[replica] = written[same:]
        self.agreed += len(text)
        if self.odd:
            return text, Conflict(tuple(sorted(self.odd)), min(self.odd.values()))
        return text, self._no_vote()

    def rest(self, replica: int) -> bytes:
        """What `replica` alone has written, taken without a vote: for what is not compared."""
        found = self.ahead[replica]
        self.drop([other for other in list(self.ahead) if other != replica])
        self.ahead[replica] = self.behind[replica] = b""
        self.agreed += len(found)
        return found

    def _no_vote(self) -> Conflict | None:
        silent = {replica for replica, written in self.ahead.items() if not written}
        first: dict[int, set[int]] = {}
        for replica in self.ahead.keys() - silent:
            first.setdefault(self.ahead[replica][0], set()).add(replica)
        if first and not any(self._may_agree(group | silent) for group in first.values()):
            return Conflict((), self.agreed)
        return None

    def _may_agree(self, group: set[int]) -> bool:
        return len(group) >= self.needed and self.lineage.decides(group, self.ahead.keys() - group)

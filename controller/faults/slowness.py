"""Connections between hosts that are slow beside those of their peers. Pure.

After each checkpoint every rank tells what its kernel has counted of its connections to other hosts anyway (TCP_INFO): the
smoothed round trip, and how many segments were sent, and sent again. Two hosts count as one pair, both ways and all ranks
together. A pair is slow if IN_A_ROW checkpoints in a row its round trip, or the share of what is sent again, is FAR times
that of the best quarter of all pairs, and beyond what is ordinary (LEAST_RTT_NS, LEAST_LOSS). With fewer than three pairs
there are no peers to compare with, and nothing is said.

A process that computes for long answers late, but its kernel does not: so a busy host does not count as slow. Not here: the
packets of ranks (`locator.py`), what a slow pair leads to (`link_failures.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ckpt.transport.records import dataclass, field

__all__ = ["IN_A_ROW", "Counts", "SlowPair", "Slowness"]

IN_A_ROW = 3
FAR = 10.0
LEAST_RTT_NS = 100_000_000
LEAST_LOSS = 0.005
LEAST_SEGMENTS_AGAIN = 10
_ORDINARY_RTT_NS = 1_000_000
_ORDINARY_LOSS = 0.0005

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one connection. `sent`, `again`: segments since it was made."""

    rtt_ns: int
    again: int
    sent: int


@dataclass(frozen=True)
class SlowPair:
    """`loss`: the share of segments that was sent again; `others_`: of the best quarter of all pairs."""

    hosts: Pair
    rtt_ns: int
    loss: float
    others_rtt_ns: int
    others_loss: float


@dataclass
class _Round:
    rtt_ns: dict[Pair, int] = field(default_factory=dict)
    sent: dict[Pair, int] = field(default_factory=dict)
    again: dict[Pair, int] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)


@dataclass
class Slowness:
    """All connections of one job."""

    before: dict[tuple[int, int], Counts] = field(default_factory=dict)
    epoch: int = -1
    round: _Round = field(default_factory=_Round)
    in_a_row: dict[Pair, int] = field(default_factory=dict)
    told: set[Pair] = field(default_factory=set)
    well: set[Pair] = field(default_factory=set)
    """The pairs that were not slow in the last round."""

    def begin_again(self) -> None:
        """The ranks are started anew."""
        self.before.clear()
        self.round, self.epoch = _Round(), -1
        self.in_a_row.clear()

    def counted(
        self, rank: int, epoch: int, peers: Mapping[int, Counts], hosts: Mapping[int, str]
    ) -> list[SlowPair]:
        """What a rank has counted by the checkpoint `epoch`. Returns the pairs that are slow since this round, and were not
        told before."""
        if epoch < self.epoch or rank not in hosts:
            return []
        if epoch > self.epoch:
            self.epoch, self.round = epoch, _Round()
        self.round.ranks.add(rank)
        for peer, counts in peers.items():
            if peer in hosts and hosts[peer] != hosts[rank]:
                self._add(rank, peer, counts, hosts)
        return self._judge() if self.round.ranks >= hosts.keys() else []

    def _add(self, rank: int, peer: int, counts: Counts, hosts: Mapping[int, str]) -> None:
        pair = (min(hosts[rank], hosts[peer]), max(hosts[rank], hosts[peer]))
        before = self.before.get((rank, peer))
        self.before[rank, peer] = counts
        if before is None or before.sent > counts.sent or before.again > counts.again:
            return  # another connection
        found = self.round
        found.rtt_ns[pair] = min(counts.rtt_ns, found.rtt_ns.get(pair, counts.rtt_ns))
        found.sent[pair] = found.sent.get(pair, 0) + counts.sent - before.sent
        found.again[pair] = found.again.get(pair, 0) + counts.again - before.again

    def _judge(self) -> list[SlowPair]:
        found, self.round = self.round, _Round()
        self.epoch += 1  # what comes late of this round is of none
        if len(found.rtt_ns) < 3:
            return []
        loss = {pair: found.again[pair] / max(1, found.sent[pair]) for pair in found.rtt_ns}
        rtt_ns, base_loss = _quarter(found.rtt_ns.values()), _quarter(loss.values())
        slow = []
        self.well = set()
        for pair in sorted(found.rtt_ns):
            is_late = found.rtt_ns[pair] >= max(LEAST_RTT_NS, FAR * max(rtt_ns, _ORDINARY_RTT_NS))
            is_lossy = found.again[pair] >= LEAST_SEGMENTS_AGAIN and loss[pair] >= max(
                LEAST_LOSS, FAR * max(base_loss, _ORDINARY_LOSS)
            )
            if not is_late and not is_lossy:
                self.in_a_row.pop(pair, None)
                self.told.discard(pair)
                self.well.add(pair)
                continue
            self.in_a_row[pair] = self.in_a_row.get(pair, 0) + 1
            if self.in_a_row[pair] >= IN_A_ROW and pair not in self.told:
                slow.append(SlowPair(pair, found.rtt_ns[pair], loss[pair], int(rtt_ns), base_loss))
        self.told |= {each.hosts for each in slow}
        return slow

    def facts(self) -> dict[str, Any]:
        """For the diagnosis (`ckpt.diagnosis.jobs`): a pair that is slow counts as one that does not reach each other."""
        pairs = [(pair, False) for pair in sorted(self.told)] + [(pair, True) for pair in sorted(self.well)]
        return {
            "said": [[a, b, well] for pair, well in pairs for a, b in (pair, pair[::-1])],
            "lost": [{"here": a, "there": b, "error": "silent", "age_s": 0.0} for a, b in sorted(self.told)],
            "missing": [],
            "slow": True,
        }


def _quarter(values: Any) -> float:
    """The value below which the best quarter lies."""
    ordered: Sequence[float] = sorted(values)
    return ordered[len(ordered) // 4]

"""The figures of Li, Zhao, Yan et al. (2018), by discrete-event simulation of the code that ships: 200 ranks, 10 Gb/s.

    python -m benchmarks.reduction --simulated

Every rank is a `ckpt.reduction.members.Members`: the scheduler, its messages, executors and order are those of real jobs.
Simulated are hosts and network, one rank a host:

    message    0.03 ms to the other host, and n / (1.25 GB/s), during which it occupies the sender's link and the receiver's
    handling   a rank takes its messages one after the other, LAMBDA_NS each (the paper's λ; it follows from table 1: 72 ms
               for what is not proportional to n, of which the master's 399 + 199 messages are nearly all)
    combining  GAMMA_NS a byte, one after the other, beside the handling (γ; with 0.8 ns a byte for the network, table 1's
               11.3 ns a byte over ⌈lb 200⌉ = 8 levels leave 0.6 for both this and copying)
    copying    COPY_NS a byte, by the processor: of a rank that reads, as part of its task; under MPI of sender and receiver,
               since two sides take part in each of its messages (the paper's reason for one-sided ones)
    load       of the host by others (PSDM in the paper): handling, combining, copying take a random 1 to 20 times as long

MPI is the binomial tree (MST) of equation (1), or Rabenseifner's of its second line, whichever is faster, with the
same costs, and without handling time, since both sides are in the call. What the paper measured of MPI is not in its text.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, log2
from random import Random
from statistics import mean
from typing import Any

from ckpt.reduction.members import Completed, Computing, Members, Sent, Step
from ckpt.reduction.messages import Call, Contract, Data, Key

RANKS = 200
LATENCY_NS = 30_000
BETA_NS = 0.8
GAMMA_NS = 0.3
LAMBDA_NS = 115_000
COPY_NS = 0.3
MB = 1 << 20
SMALL_BYTES = 130  # of a message without data: table 1 gives 116 in and 144 out
PAPER_MS = {17: 76.4, 19: 79.9, 21: 100.8, 23: 166.2, 25: 432.3, 27: 1596.0}
"""2 ** n bytes: milliseconds, from table 1."""


@dataclass
class Host:
    """A rank with its link. Times in nanoseconds."""

    members: Members
    load: float = 1.0
    handling_until: float = 0.0
    combining_until: float = 0.0
    sending_until: float = 0.0
    receiving_until: float = 0.0
    done: dict[Key, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


class Cluster:
    """Hosts that reduce `count` arrays of `nbytes` at once, to rank 0, each in so many parts."""

    def __init__(
        self, size: int, nbytes: int, count: int = 1, loads: Iterable[float] = (), parts: int = 1
    ) -> None:
        self.nbytes, self.count, self.parts = nbytes / parts, count, parts
        self.hosts = [Host(Members(rank, size)) for rank in range(size)]
        for host, load in zip(self.hosts, loads, strict=False):
            host.load = load
        self.heap: list[tuple[float, int, Any]] = []
        self.number = 0

    def at(self, when: float, *event: Any) -> None:
        self.number += 1
        heapq.heappush(self.heap, (when, self.number, event))

    def run(self) -> float:
        """Milliseconds until rank 0 has all results."""
        contract = Contract(root=0, order="ready", copies=0)
        for rank, host in enumerate(self.hosts):
            for number in range(self.count):
                key, steps = host.members.start(f"r{number}", Call(contract, 1.0), 1)
                self._take(rank, 0.0, steps)
                for part in range(1, self.parts):
                    _, steps = host.members.start_part(key, part, Call(contract, 1.0), 1)
                    self._take(rank, 0.0, steps)
        while self.heap and len(self.hosts[0].done) < self.count * self.parts:
            now, _, (kind, rank, *rest) = heapq.heappop(self.heap)
            getattr(self, f"_{kind}")(now, rank, *rest)
        assert len(self.hosts[0].done) == self.count * self.parts
        return max(self.hosts[0].done.values()) / 1e6

    def _arrive(self, now: float, rank: int, source: int, key: Key, message: Any) -> None:
        host = self.hosts[rank]
        begin = max(now, host.handling_until)
        host.handling_until = begin + LAMBDA_NS * host.load
        host.counts["in"] += 1
        self.at(host.handling_until, "handled", rank, source, key, message)

    def _handled(self, now: float, rank: int, source: int, key: Key, message: Any) -> None:
        self._take(rank, now, self.hosts[rank].members.receive(source, key, message))

    def _computed(self, now: float, rank: int, key: Key, number: int, value: int, took_ns: float) -> None:
        self._take(rank, now, self.hosts[rank].members.computed(key, number, value, int(took_ns)))

    def _take(self, rank: int, now: float, steps: list[Step]) -> None:
        host = self.hosts[rank]
        for step in steps:
            if isinstance(step, Sent):
                self._send(rank, now, step)
            elif isinstance(step, Computing):
                begin = max(now, host.combining_until)
                took = (GAMMA_NS + COPY_NS) * self.nbytes * host.load
                host.combining_until = begin + took
                value = step.left + step.right
                self.at(begin + took, "computed", rank, step.key, step.number, value, begin + took - now)
            elif isinstance(step, Completed):
                host.done[step.key] = now
                assert step.value in (None, len(self.hosts)), "not everybody's contribution, each once"

    def _send(self, rank: int, now: float, step: Sent) -> None:
        host, other = self.hosts[rank], self.hosts[step.dest]
        nbytes = self.nbytes if isinstance(step.message, Data) else SMALL_BYTES
        host.counts["out"] += 1
        host.counts["bytes out"] += nbytes
        if nbytes == SMALL_BYTES:  # packets of a transfer let it pass
            self.at(now + LATENCY_NS, "arrive", step.dest, rank, step.key, step.message)
            return
        begin = max(now, host.sending_until, other.receiving_until)
        end = begin + BETA_NS * nbytes
        host.sending_until = other.receiving_until = end
        self.at(end + LATENCY_NS, "arrive", step.dest, rank, step.key, step.message)


def tree_ms(size: int, nbytes: int, count: int, loads: list[float]) -> float:
    """The binomial tree to rank 0, `count` one after the other at each rank, and Rabenseifner's: the faster one."""
    ready = [0.0] * size
    ends = []
    free = [0.0] * size  # of the rank's processor
    for _ in range(count):
        time = list(ready)
        for level in range(ceil(log2(size))):
            for rank in range(0, size, 2 << level):
                other = rank + (1 << level)
                if other < size:
                    copying = COPY_NS * nbytes * max(loads[rank], loads[other])
                    sent = LATENCY_NS + max(BETA_NS * nbytes, copying)
                    arrival = max(time[rank], time[other], free[rank]) + sent
                    time[rank] = free[rank] = arrival + GAMMA_NS * nbytes * loads[rank]
        ends.append(time[0])
    steps, slowest = ceil(log2(size)), max(loads)
    share = (size - 1) / size * nbytes
    moved = 2 * share * max(BETA_NS, COPY_NS * slowest)
    halving = 2 * steps * LATENCY_NS + moved + share * GAMMA_NS * slowest
    return min(max(ends), halving * count) / 1e6


def loads_of(random: Random, loaded: int) -> list[float]:
    """So many ranks, which ones is random, have a load."""
    loads = [1.0] * RANKS
    for rank in random.sample(range(RANKS), loaded):
        loads[rank] = random.uniform(1, 20)
    return loads


def ideal() -> None:
    """Figure 6a and table 1."""
    print("Figure 6a, table 1: nobody loaded, one reduction, ms")
    print("    bytes      paper   simulated    MPI   messages at the master: in, tasks out")
    for power, paper in PAPER_MS.items():
        cluster = Cluster(RANKS, 1 << power)
        ours = cluster.run()
        counts = cluster.hosts[0].counts
        mpi = tree_ms(RANKS, 1 << power, 1, [1.0] * RANKS)
        print(f"    2^{power}  {paper:9.1f} {ours:10.1f} {mpi:8.1f}   {counts['in']}, {counts['out']}")


def in_parts() -> None:
    """Long data in parts, which the paper does not have: of 200 ranks, and of 16."""
    print("One reduction in parts, ms: in 1, 2, 4, 8")
    for size in (RANKS, 16):
        for megabytes in (8, 32, 128):
            times = [Cluster(size, megabytes * MB, parts=parts).run() for parts in (1, 2, 4, 8)]
            texts = "  ".join(f"{each:8.1f}" for each in times)
            print(f"    {size} ranks, {megabytes} MB:  {texts}")


def concurrent() -> None:
    """Figure 6b."""
    print("Figure 6b: nobody loaded, so many at once of 8 MB, ms")
    for count in (4, 12, 20, 28):
        ours, mpi = Cluster(RANKS, 8 * MB, count).run(), tree_ms(RANKS, 8 * MB, count, [1.0] * RANKS)
        print(f"    {count:2d}   simulated {ours:8.1f}   MPI {mpi:8.1f}   ratio {mpi / ours:.2f}")


def loaded(seeds: int = 3) -> None:
    """Figures 7 and 8: how many times as fast as MPI."""
    gains = {50: (6.59, 1.72), 100: (3.09, 3.21), 150: (4.0, 3.41), 200: (6.15, 4.28)}
    print("Figures 7, 8: loaded ranks; MPI's time / ours, mean; the paper's best in brackets")
    for number, (one, many) in gains.items():
        texts = []
        for nbytes, count in ((MB // 8, 1), (4 * MB, 1), (32 * MB, 1), (8 * MB, 4), (8 * MB, 28)):
            ratios = []
            for seed in range(seeds if count < 28 else 1):
                loads = loads_of(Random(seed), number)
                ratios.append(
                    tree_ms(RANKS, nbytes, count, loads) / Cluster(RANKS, nbytes, count, loads).run()
                )
            texts.append(f"{count} x {nbytes / MB:g} MB: {mean(ratios):.2f}")
        print(f"    {number:3d}: {'; '.join(texts)}   ({one}; at once {many})")


def production(days: int = 7) -> None:
    """Figure 9: 32 MB, another load every time."""
    one, many = [], []
    for day in range(days):
        random = Random(100 + day)
        loads = loads_of(random, random.randrange(20, RANKS))
        one.append(tree_ms(RANKS, 32 * MB, 1, loads) / Cluster(RANKS, 32 * MB, 1, loads).run())
        many.append(tree_ms(RANKS, 32 * MB, 4, loads) / Cluster(RANKS, 32 * MB, 4, loads).run())
    print(
        f"Figure 9: 32 MB, {days} random loads: MPI / ours {mean(one):.2f}, best {max(one):.2f} (2.67, 3.2);",
        end=" ",
    )
    print(f"4 at once {mean(many):.2f}, best {max(many):.2f} (3.55, 5)")


def reliability(copy_ms: float = 1.0) -> None:
    """Equation (5): 1 - t_copy / T(p), for a death at a random moment of the reduction."""
    print(f"Equation (5): whole after a death, a copy takes {copy_ms} ms, 32 MB")
    for size in (4, 8, 32, 100, 200):
        span = Cluster(size, 32 * MB).run()
        print(f"    p = {size:3d}: T = {span:7.1f} ms, {1 - copy_ms / span:.4f}")


def main() -> int:
    """All of them."""
    for figure in (ideal, in_parts, concurrent, loaded, production, reliability):
        figure()
    return 0

"""The figures of Li, Zhao, Yan et al. (2018), by discrete-event simulation of the code that ships: 200 ranks, 10 Gb/s.

    python -m benchmarks.reduction --simulated

Every rank is a `ckpt.reduction.members.Members`: the scheduler, its messages, executors and order are those of real jobs.
Simulated are hosts and network, one rank a host:

    message    LATENCY_NS to the other host, and n / (1.25 GB/s), during which it occupies both links
    handling   a rank takes its messages one after the other, IN_NS each, and sends them, OUT_NS each: the most that the
               paper's master did in a second, 79 365 and 106 383 (4.4)
    waiting    WAIT_NS until a message is looked at, the paper's λ. It follows from table 1, of which 72 ms are not
               proportional to n, while the master was busy for 9 % of that time: so it is no work, and does not add up
    combining  GAMMA_NS a byte, one after the other, beside the handling (γ; with 0.8 ns a byte for the network, table 1's
               11.3 ns a byte over ⌈lb 200⌉ = 8 levels leave 0.6 for both this and copying)
    copying    COPY_NS a byte, by the processor of the rank that reads, as part of its task
    load       of the host by others (PSDM in the paper): so many processes want each processor, a random number from 1 to
               MOST_LOAD. Handling, combining, copying take so many times as long. Who sleeps until its data are there is
               woken at once, as by every scheduler that knows who has waited

The scheduler knows the last tasks of each rank from a reduction before, since the paper's figures are means of nine.

MPI is what MPICH 3.1.4 does above 2 KB (the paper says MVAPICH 3.1.4; that is a number of MPICH's), Rabenseifner's
algorithm: 72 odd ranks of 200 give all of theirs to a neighbour; 128 halve what they exchange seven times; the root collects
the pieces. It has the same network, combining and copying, no handling, no waiting. Its ranks poll, both ends take part in
each message, and nothing of it goes on while its process is not on the processor: of a loaded host it is there for SLICE_NS
at a time, in turn with the others. Meanwhile the kernel takes WINDOW_BYTES for it. What the paper measured of MPI is not in
its text, and its figures are lost: so this model says why MPI may be slow there, and not how slow it was.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from statistics import mean
from typing import Any

from ckpt.reduction.members import Completed, Computing, Members, Sent, Step
from ckpt.reduction.messages import Call, Contract, Data, Key

RANKS = 200
LATENCY_NS = 30_000
BETA_NS = 0.8
GAMMA_NS = 0.3
COPY_NS = 0.3
IN_NS = 12_600
OUT_NS = 9_400
WAIT_NS = 2_350_000
MOST_LOAD = 8.0
SLICE_NS = 1_000_000
WINDOW_BYTES = 256 << 10
MB = 1 << 20
SMALL_BYTES = 130  # of a message without data: table 1 gives 116 in and 144 out
PAPER_MS = {17: 76.4, 19: 79.9, 21: 100.8, 23: 166.2, 25: 432.3, 27: 1596.0}
"""2 ** n bytes: milliseconds, from table 1."""
COUNTS = (4, 12, 20, 28)
LOADED = (50, 100, 150, 200)


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
        """Milliseconds until rank 0 has all results. The scheduler knows all ranks from the time before."""
        self._round(0.0)
        began = self._drain()
        for host in self.hosts:
            host.counts.clear()
        return self._round(began)

    def _round(self, began: float) -> float:
        contract = Contract(root=0, order="ready", copies=0)
        root = self.hosts[0]
        root.done.clear()
        for rank, host in enumerate(self.hosts):
            for number in range(self.count):
                key, steps = host.members.start(f"r{number}", Call(contract, 1.0), 1)
                self._take(rank, began, steps)
                for part in range(1, self.parts):
                    _, steps = host.members.start_part(key, part, Call(contract, 1.0), 1)
                    self._take(rank, began, steps)
        while self.heap and len(root.done) < self.count * self.parts:
            self._next()
        assert len(root.done) == self.count * self.parts
        return (max(root.done.values()) - began) / 1e6

    def _next(self) -> float:
        now, _, (kind, rank, *rest) = heapq.heappop(self.heap)
        getattr(self, f"_{kind}")(now, rank, *rest)
        return now

    def _drain(self) -> float:
        """All messages are handled: when."""
        now = 0.0
        while self.heap:
            now = self._next()
        return max(now, *(host.combining_until for host in self.hosts))

    def _arrive(self, now: float, rank: int, source: int, key: Key, message: Any) -> None:
        host = self.hosts[rank]
        begin = max(now + WAIT_NS, host.handling_until)
        host.handling_until = begin + IN_NS * host.load
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
        host.handling_until = now = max(now, host.handling_until) + OUT_NS * host.load
        if nbytes == SMALL_BYTES:  # packets of a transfer let it pass
            self.at(now + LATENCY_NS, "arrive", step.dest, rank, step.key, step.message)
            return
        begin = max(now, host.sending_until, other.receiving_until)
        end = begin + BETA_NS * nbytes
        host.sending_until = other.receiving_until = end
        self.at(end + LATENCY_NS, "arrive", step.dest, rank, step.key, step.message)


class Mpi:
    """Rabenseifner's reduction to rank 0, `count` at once, round by round: a rank does its part of one after the other."""

    def __init__(self, size: int, nbytes: int, count: int, loads: list[float]) -> None:
        self.size, self.nbytes, self.count, self.loads = size, nbytes, count, loads
        self.ready = [[0.0] * size for _ in range(count)]
        self.free = [0.0] * size
        """Until when a rank has to do with a message, of whichever reduction."""

    def transfer_ns(self, nbytes: float, sender: int, receiver: int) -> float:
        """Of a message, from when both are ready for it."""
        ours, theirs = self.loads[sender], self.loads[receiver]
        most = max(ours, theirs)
        waiting = (theirs - 1) * SLICE_NS / 2
        alone = nbytes * max(BETA_NS, COPY_NS * most)
        if nbytes <= WINDOW_BYTES or most == 1:
            return LATENCY_NS + waiting + alone
        rate = 1 / (BETA_NS * ours * theirs) + WINDOW_BYTES / (
            SLICE_NS * most
        )  # both are there; one of them is
        return LATENCY_NS + waiting + max(alone, nbytes / rate)

    def _exchange(self, pairs: list[tuple[int, int]], nbytes: float, both: bool, combine: bool) -> None:
        """A round: the first of each pair sends to the second; `both`: and the second to the first."""
        for ready in self.ready:
            for sender, receiver in pairs:
                begin = max(ready[sender], ready[receiver], self.free[sender], self.free[receiver])
                end = begin + self.transfer_ns(nbytes, sender, receiver)
                if both:
                    end = max(end, begin + self.transfer_ns(nbytes, receiver, sender))
                for rank in (sender, receiver) if both else (receiver,):
                    work = GAMMA_NS * nbytes * self.loads[rank] if combine else 0.0
                    ready[rank] = self.free[rank] = end + work
                self.free[sender] = max(self.free[sender], end)

    def run(self) -> float:
        """Milliseconds until rank 0 has all results."""
        halvings = self.size.bit_length() - 1
        whole = 1 << halvings
        rest = self.size - whole
        self._exchange([(2 * each + 1, 2 * each) for each in range(rest)], self.nbytes, False, True)
        ranks = [2 * each if each < rest else each + rest for each in range(whole)]
        part = float(self.nbytes)
        for level in reversed(range(halvings)):
            part /= 2
            pairs = [(ranks[a], ranks[a ^ 1 << level]) for a in range(whole) if not a >> level & 1]
            self._exchange(pairs, part, True, True)
        for level in range(halvings):
            pairs = [(ranks[a + (1 << level)], ranks[a]) for a in range(0, whole, 2 << level)]
            self._exchange(pairs, part, False, False)
            part *= 2
        return max(ready[0] for ready in self.ready) / 1e6


def loads_of(random: Random, loaded: int, size: int = RANKS) -> list[float]:
    """So many ranks, which ones is random, have a load."""
    loads = [1.0] * size
    for rank in random.sample(range(size), loaded):
        loads[rank] = random.uniform(1, MOST_LOAD)
    return loads


def gain(nbytes: int, count: int = 1, loads: list[float] | None = None, size: int = RANKS) -> float:
    """MPI's time / ours."""
    loads = loads or [1.0] * size
    return Mpi(size, nbytes, count, loads).run() / Cluster(size, nbytes, count, loads).run()


def ideal() -> None:
    """Figure 6a and table 1."""
    print("Figure 6a, table 1: nobody loaded, one reduction, ms")
    print("    bytes      paper   simulated    MPI   messages at the master: in, tasks out")
    for power, paper in PAPER_MS.items():
        cluster = Cluster(RANKS, 1 << power)
        ours = cluster.run()
        counts = cluster.hosts[0].counts
        mpi = Mpi(RANKS, 1 << power, 1, [1.0] * RANKS).run()
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
    for count in COUNTS:
        ours, mpi = Cluster(RANKS, 8 * MB, count).run(), Mpi(RANKS, 8 * MB, count, [1.0] * RANKS).run()
        print(f"    {count:2d}   simulated {ours:8.1f}   MPI {mpi:8.1f}   ratio {mpi / ours:.2f}")


def loaded(seeds: int = 3) -> None:
    """Figures 7 and 8: how many times as fast as MPI."""
    best = {50: (6.59, 1.72), 100: (3.09, 3.21), 150: (4.0, 3.41), 200: (6.15, 4.28)}
    powers = (17, 19, 21, 22, 23, 25, 27)
    print("Figure 7: loaded ranks; MPI's time / ours, mean of", seeds, "loads; the paper's best in brackets")
    print("         " + "".join(f"    2^{power}" for power in powers))
    for number in LOADED:
        draws = [loads_of(Random(seed), number) for seed in range(seeds)]
        means = [mean(gain(1 << power, 1, loads) for loads in draws) for power in powers]
        print(f"    {number:3d}: {''.join(f'{each:8.2f}' for each in means)}   ({best[number][0]})")
    print("Figure 8: so many at once of 8 MB")
    print("         " + "".join(f"{count:8d}" for count in COUNTS))
    for number in LOADED:
        ratios = [gain(8 * MB, count, loads_of(Random(0), number)) for count in COUNTS]
        print(f"    {number:3d}: {''.join(f'{each:8.2f}' for each in ratios)}   ({best[number][1]})")


def production(days: int = 7) -> None:
    """Figure 9: 32 MB, another load every day."""
    draws = []
    for day in range(days):
        random = Random(100 + day)
        draws.append(loads_of(random, random.randrange(20, RANKS)))
    for title, count, paper in (("one", 1, "2.67, 3.2"), ("4 at once", 4, "3.55, 5")):
        ratios = [gain(32 * MB, count, loads) for loads in draws]
        texts = " ".join(f"{each:.2f}" for each in ratios)
        ends = f"mean {mean(ratios):.2f}, best {max(ratios):.2f} ({paper})"
        print(f"Figure 9: 32 MB, {title}, MPI / ours on {days} days: {texts}; {ends}")


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

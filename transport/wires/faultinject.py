"""Fault injection on a real wire: loss, duplication, reordering, delay, corruption, partition, by seed. (driver)

`FaultyWire` stands between a port and any wire and applies faults to the frames that leave. Faults are applied on the
sending side only: every rank of a job under test has a `FaultyWire`, so each direction of each link is covered, and the
sending side knows the peer. Decisions come from one random generator per rank, seeded by (seed, rank), so the sequence of
decisions is the same in every run; which frame meets which decision still depends on timing, as on any real network.

    loss       the frame is dropped
    dup        the frame is sent twice, the second copy up to `reorder_ns` later
    reorder    the frame is held back up to `reorder_ns`, so that later frames overtake it
    delay      every frame is held back by a random time up to `delay_ns`
    corrupt    a copy with a bit flipped, a part cut short or a part missing is sent instead of the frame
    partition  for some time frames between ranks of different groups are dropped

Frames held back are kept by reference, like those in any queue; `deadline_ns` tells when the next has to leave. What
does not belong here: repair of any damage, knowledge of the content of a frame.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from ckpt.transport.errors import FaultPlanError
from ckpt.transport.protocol.state import Buffer
from ckpt.transport.records import dataclass
from ckpt.transport.records import names as field_names
from ckpt.transport.wires.wire import Frame, Wire

ENVIRONMENT_VARIABLE = "CKPT_FAULTS"
_SECOND_NS = 1_000_000_000
_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": _SECOND_NS}


@dataclass(frozen=True, slots=True)
class Partition:
    """Frames between ranks of different groups are dropped in [begin_ns, end_ns), counted from the opening of the wire."""

    groups: tuple[frozenset[int], ...]
    begin_ns: int
    end_ns: int

    def separates(self, a: int, b: int) -> bool:
        """Are the ranks `a` and `b` in different groups? A rank in no group is separated from none."""
        of_a = [index for index, group in enumerate(self.groups) if a in group]
        of_b = [index for index, group in enumerate(self.groups) if b in group]
        return bool(of_a) and bool(of_b) and not set(of_a) & set(of_b)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `0+1|2+3@0.5-1.5`: ranks 0 and 1 apart from 2 and 3 between 0.5 s and 1.5 s. Raises FaultPlanError."""
        try:
            groups, _, period = text.partition("@")
            begin, _, end = period.partition("-")
            parsed = tuple(frozenset(int(rank) for rank in group.split("+")) for group in groups.split("|"))
            result = cls(parsed, int(float(begin) * _SECOND_NS), int(float(end) * _SECOND_NS))
        except ValueError as error:
            raise FaultPlanError(f"partition={text}: write it like 0+1|2+3@0.5-1.5 (seconds)") from error
        if len(parsed) < 2 or result.begin_ns >= result.end_ns:
            raise FaultPlanError(
                f"partition={text}: needs two groups, and a period that begins before it ends"
            )
        return result


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which faults to inject: probabilities per frame (0 … 1) and times in nanoseconds. Raises FaultPlanError."""

    seed: int = 0
    loss: float = 0.0
    dup: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay_ns: int = 0
    reorder_ns: int = 2_000_000
    partition: Partition | None = None

    def __post_init__(self) -> None:
        for name in ("loss", "dup", "reorder", "corrupt"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise FaultPlanError(f"{name}={getattr(self, name)}: a probability lies between 0 and 1")
        for name in ("delay_ns", "reorder_ns"):
            if getattr(self, name) < 0:
                raise FaultPlanError(f"{name}={getattr(self, name)}: a time cannot be negative")

    @property
    def harmless(self) -> bool:
        """Does this plan inject no fault at all?"""
        return not (self.loss or self.dup or self.reorder or self.corrupt or self.delay_ns or self.partition)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `seed=1,loss=0.1,dup=0.05,reorder=0.1,reorder_by=2ms,delay=2ms,corrupt=0.01,partition=0|1@0.5-1.5`.

        Each item may be missing. Raises FaultPlanError.
        """
        values: dict[str, int | float | Partition] = {}
        known = set(field_names(cls))
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = item.partition("=")
            if not equals:
                raise FaultPlanError(f"{item!r}: write name=value")
            if name == "partition":
                values[name] = Partition.parse(value)
            elif name in known and not name.endswith("_ns"):
                values[name] = _parse_number(name, value)
            elif f"{name}_ns" in known:
                values[f"{name}_ns"] = _parse_time_ns(name, value)
            elif name == "reorder_by":
                values["reorder_ns"] = _parse_time_ns(name, value)
            else:
                names = ", ".join(sorted(name.removesuffix("_ns") for name in known))
                raise FaultPlanError(f"{name!r} is no fault; there are {names}")
        return cls(**values)  # type: ignore[arg-type]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """The plan in CKPT_FAULTS, or None when there is none. Raises FaultPlanError."""
        text = environment.get(ENVIRONMENT_VARIABLE, "")
        return cls.parse(text) if text.strip() else None


def _parse_number(name: str, text: str) -> int | float:
    try:
        return int(text) if name == "seed" else float(text)
    except ValueError:
        raise FaultPlanError(f"{name}={text}: not a number") from None


def _parse_time_ns(name: str, text: str) -> int:
    number = text.rstrip("mnus")
    try:
        return int(float(number) * _UNITS_NS[text[len(number) :]])
    except (ValueError, KeyError):
        raise FaultPlanError(f"{name}={text}: write a time like 500us, 2ms or 1s") from None


class FaultyWire:
    """Any wire, with the faults of a plan. See the module's description."""

    def __init__(
        self, inner: Wire, plan: FaultPlan, rank: int, *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`rank`: the rank that owns this wire; `clock`: monotonic nanoseconds."""
        self._inner = inner
        self._plan = plan
        self._rank = rank
        self._clock = clock
        self._opened_ns = clock()
        self._random = random.Random(f"{plan.seed}/{rank}")
        self._cut: frozenset[int] = frozenset()
        self._held: list[tuple[int, int, int, Frame]] = []
        self._serial = 0
        self._counters = dict.fromkeys(("lost", "duplicated", "reordered", "delayed", "corrupted", "cut"), 0)

    @property
    def address(self) -> str:
        """The inner wire's address."""
        return self._inner.address

    def connect(self, rank: int, address: str) -> None:
        """As the inner wire; frames held back for the rank's former address are dropped."""
        self._held = [held for held in self._held if held[2] != rank]
        heapq.heapify(self._held)
        self._inner.connect(rank, address)

    def cut(self, ranks: Iterable[int]) -> None:
        """Drop all frames for these ranks, and for these only, from now on; `cut(())` ends that."""
        self._cut = frozenset(ranks)

    def renew(self, rank: int) -> None:
        """As the inner wire."""
        self._inner.renew(rank)

    def send(self, rank: int, parts: Frame) -> bool:
        """Take a frame, even one that a fault drops.

        False only when the inner wire refuses a frame that is sent at once.
        """
        now_ns = self._clock()
        self._release(now_ns)
        plan, chance, counters = self._plan, self._random.random, self._counters
        # All decisions are drawn for every frame, so that the setting of one fault does not change the sequence of
        # decisions of another.
        lost, doubled, overtaken, corrupted, late = (chance() for _ in range(5))
        if rank in self._cut or self._partitioned(rank, now_ns):
            counters["cut"] += 1
            return True
        if lost < plan.loss:
            counters["lost"] += 1
            return True
        if corrupted < plan.corrupt:
            counters["corrupted"] += 1
            parts = self._corrupt(parts)
        delay_ns = int(late * plan.delay_ns)
        if delay_ns:
            counters["delayed"] += 1
        if doubled < plan.dup:
            counters["duplicated"] += 1
            self._hold(now_ns + delay_ns + int(chance() * plan.reorder_ns), rank, parts)
        if overtaken < plan.reorder:
            counters["reordered"] += 1
            delay_ns += 1 + int(chance() * plan.reorder_ns)
        if delay_ns:
            self._hold(now_ns + delay_ns, rank, parts)
            return True
        return self._inner.send(rank, parts)

    def receive(self) -> Frame | None:
        """As the inner wire, after sending the held frames that are due."""
        if self._held:
            self._release(self._clock())
        return self._inner.receive()

    def spin(self, end_ns: int) -> None:
        """As the inner wire."""
        self._inner.spin(end_ns)

    def fileno(self) -> int:
        """The inner wire's descriptor."""
        return self._inner.fileno()

    def deadline_ns(self) -> int | None:
        """When the next held frame is due, or the inner wire's deadline, if that is earlier."""
        inner_ns = self._inner.deadline_ns()
        if not self._held:
            return inner_ns
        return self._held[0][0] if inner_ns is None else min(inner_ns, self._held[0][0])

    def counters(self) -> dict[str, int]:
        """Faults injected so far, as `fault_` + the fault's name, and the inner wire's own counters."""
        return self._inner.counters() | {f"fault_{name}": count for name, count in self._counters.items()}

    def close(self) -> None:
        """Drop the held frames and close the inner wire."""
        self._held.clear()
        self._inner.close()

    def _partitioned(self, rank: int, now_ns: int) -> bool:
        cut = self._plan.partition
        since_ns = now_ns - self._opened_ns
        return cut is not None and cut.begin_ns <= since_ns < cut.end_ns and cut.separates(self._rank, rank)

    def _hold(self, due_ns: int, rank: int, parts: Frame) -> None:
        self._serial += 1
        heapq.heappush(self._held, (due_ns, self._serial, rank, parts))

    def _release(self, now_ns: int) -> None:
        """Send the held frames that are due. A frame that the inner wire refuses then counts as lost."""
        held = self._held
        while held and held[0][0] <= now_ns:
            _, _, rank, parts = heapq.heappop(held)
            if not self._inner.send(rank, parts):
                self._counters["lost"] += 1

    def _corrupt(self, parts: Frame) -> Frame:
        """Return a damaged copy. The original stays unchanged, since a retransmission sends it from the same memory."""
        choose = self._random
        damaged: list[Buffer] = list(parts)
        index = choose.randrange(len(damaged))
        part = bytearray(damaged[index])
        damage = choose.choice(("flip", "flip", "truncate", "drop"))
        if damage == "drop" and len(damaged) > 1:
            return damaged[:1]
        if damage == "flip" and part:
            part[choose.randrange(len(part))] ^= 1 << choose.randrange(8)
        else:
            del part[choose.randrange(len(part) + 1) // 2 :]
        damaged[index] = bytes(part)
        return damaged

"""The master of one reduction: who takes part, what is there, how it ends. (pure)

    fresh       rank 0, and nobody has called yet: it knows all there is
    collecting  it asks all that live what they hold: a new master; or nobody is known to hold an original
    running     the scheduler makes tasks
    delivering  the root alone was told where the result lies
    ended       all were told the outcome
    over        all that live have what they are to have, and were told so

Rules:

- A contribution counts as *lost* only when all living ranks have said, each after it had heard of the deaths, that they do
  not hold it (`Query`).
- An outcome that a living rank may have given to its program stands: an error, or a result that it still holds.
- The root hears first: so nobody's program goes on as if the root had the result while it can still be lost.
- What belongs to an older term is dropped: after collecting, only new tasks count.

Not here: what a rank holds and computes (member.py), which pairs (scheduler.py), disjoint covers (recovery.py).
"""

from __future__ import annotations

from ckpt.reduction import recovery
from ckpt.reduction.messages import (
    Call,
    Contract,
    Copied,
    Deliver,
    Done,
    End,
    Expired,
    Failed,
    Have,
    Message,
    NoResult,
    Outcome,
    Over,
    Path,
    Query,
    Report,
    Send,
    Sends,
    Task,
    Term,
    Trouble,
    ranks_of,
)
from ckpt.reduction.partial import Attendance, difference
from ckpt.reduction.scheduler import Action, Ask, Assign, Ranks, Ready, Scheduler, is_node


class Master:
    """One reduction. Each event returns what is to be sent, to the master's own rank too."""

    __slots__ = (
        "asked_dead",
        "attendance",
        "awaited",
        "contract",
        "dead",
        "ended",
        "expired",
        "have",
        "number",
        "outcome",
        "over",
        "rank",
        "ranks",
        "reports",
        "scheduler",
        "size",
        "term",
        "weights",
        "without",
    )

    def __init__(self, rank: int, size: int, dead: Path, ranks: Ranks) -> None:
        self.rank, self.size, self.dead, self.ranks = rank, size, dead, ranks
        self.term: Term = (rank, 0)
        self.number = (rank << 40) + 1
        """Of the next task: no two masters give the same one."""
        self.contract: Contract | None = None
        self.attendance = Attendance(size)
        self.scheduler: Scheduler | None = None
        self.weights: dict[Path, float] = {}
        self.outcome: Outcome | None = None
        self.ended = self.over = self.expired = False
        self.have = 0
        self.without: Path = 0
        """Who could not give the result when it was asked."""
        self.awaited = self.asked_dead = 0
        self.reports: dict[int, Report] = {}

    @property
    def living(self) -> Path:
        return ((1 << self.size) - 1) & ~self.dead

    def _all(self, message: Message, ranks: Path = -1) -> Sends:
        return [Send(rank, message) for rank in ranks_of(self.living & ranks)]

    # -- events

    def receive(self, source: int, message: Message) -> Sends:
        """A message for the master, from a rank that is not known to be dead."""
        if self.over:
            return [Send(source, Over())]
        if isinstance(message, Expired):
            self.expired = True
        if isinstance(message, Report):
            return self._report(source, message)
        if self.awaited:
            report = self.reports.get(source)
            if report is not None:
                self.reports[source] = recovery.amended(report, source, message)
            return []
        if self.scheduler is None and not self.ended:
            if self.term != (0, 0) or self.dead:
                return self.collect()
            if not isinstance(message, Call):
                return []  # the sender's own call will follow, or it is of no use without
            self._open(message.contract)
        return self._act(source, message)

    def _act(self, source: int, message: Message) -> Sends:
        if isinstance(message, Have):
            self.have |= 1 << source
            return self._had(source)
        if isinstance(message, NoResult):
            return self._no_result(source, message)
        scheduler = self.scheduler
        if self.ended or scheduler is None:
            return []
        if isinstance(message, Call):
            return self._call(source, message)
        if isinstance(message, Copied):
            self.weights[1 << message.owner] = message.weight
            return self._go(scheduler.copied(message.owner, source, message.where))
        if isinstance(message, Done) and message.term == self.term:
            return self._go(scheduler.done(message.number, message.elapsed_ns, message.where))
        if isinstance(message, Failed) and message.term == self.term:
            return self._go(scheduler.failed(message.number, message.path, message.holder))
        if isinstance(message, Trouble):
            return self._fail(message.error, f"rank {source}: {message.text}", 1 << source)
        if isinstance(message, Expired):
            return self._go(scheduler.expire())
        return []

    def died(self, rank: int) -> Sends:
        """A rank is dead."""
        self.dead |= 1 << rank
        if self.awaited:
            self.awaited &= ~(1 << rank)
            self.reports.pop(rank, None)
            return [] if self.awaited else self._rebuild()
        if self.ended:
            return self._had(rank)
        if self.scheduler is None or self.contract is None:
            return []
        if rank == self.contract.root and self.contract.on_root_loss == "raise":
            return self._root_lost()
        if rank == self.scheduler.root:
            return self.collect()
        return self._go(self.scheduler.died(rank))

    def close(self) -> None:
        """No task that was given away is waited for."""
        if self.scheduler is not None:
            self.scheduler.close()

    # -- calls

    def _open(self, contract: Contract) -> None:
        self.contract = contract
        self.attendance = Attendance(self.size, contract.quorum, contract.deadline_ns > 0)
        self._new_scheduler(contract)

    def _new_scheduler(self, contract: Contract) -> Scheduler:
        root = contract.root
        self.scheduler = Scheduler(
            self.attendance,
            root=root if root < 0 else recovery.next_root(root, self.size, self.dead),
            order=contract.order,
            commutative=contract.commutative,
            ranks=self.ranks,
            dead=self.dead,
            first_number=self.number,
        )
        return self.scheduler

    def _call(self, source: int, call: Call) -> Sends:
        assert self.scheduler is not None
        wrong = self._wrong(source, call)
        if wrong:
            return wrong
        self.weights[1 << source] = call.weight
        sends = self._go(self.scheduler.call(source, call.where))
        if self.expired and not self.attendance.closed:
            sends += self._go(self.scheduler.expire())
        return sends

    def _wrong(self, source: int, call: Call) -> Sends:
        """What is to be told if a rank's call cannot be part of this reduction; nothing if it can."""
        assert self.contract is not None
        if call.problem:
            return self._fail("InvalidInput", f"rank {source}: {call.problem}", 1 << source)
        if call.contract != self.contract:
            wrong = difference(call.contract, self.contract)
            return self._fail("Mismatch", f"rank {source} asks for another reduction: {wrong}", 1 << source)
        return []

    # -- the end

    def _go(self, actions: list[Action]) -> Sends:
        sends: Sends = []
        for action in actions:
            if isinstance(action, Assign):
                self.number = action.number + 1
                path, weight = 0, 0.0
                for place in action.places:
                    path, weight = path | place.path, weight + self.weights[place.path]
                self.weights[path] = weight
                task = Task(self.term, action.number, action.left, action.right, weight, action.more)
                sends.append(Send(action.executor, task))
            elif isinstance(action, Ready):
                sends += self._ready(action)
            elif isinstance(action, Ask):
                sends += self.collect()
        return sends

    def _ready(self, ready: Ready) -> Sends:
        assert self.scheduler is not None
        assert self.contract is not None
        if self.attendance.short and self.contract.on_loss != "partial":
            return self._fail("QuorumNotReached", *self.attendance.why_short)
        everybody = (1 << self.size) - 1
        root = self.scheduler.root
        weight = self.weights[ready.path]
        where = self.scheduler.where.get((ready.path, ready.holder))
        self.outcome = Outcome(
            "", ready.path, everybody & ~ready.path, root, ready.holder, weight, where=where
        )
        if root >= 0 and ready.holder != root:
            return [Send(root, Deliver(self.outcome))]
        return self._end(self.outcome)

    def _end(self, outcome: Outcome) -> Sends:
        """Who called last is told first: it is the one that is behind. This rank itself comes after all others."""
        self.outcome, self.ended = outcome, True
        self.close()
        called = [path.bit_length() - 1 for path in reversed(self.weights) if not path & (path - 1)]
        rest = [rank for rank in range(self.size) if rank not in called]
        order = [rank for rank in (*called, *rest) if rank != self.rank]
        return [Send(rank, End(outcome)) for rank in (*order, self.rank) if not self.dead >> rank & 1]

    def _fail(self, error: str, text: str, ranks: Path) -> Sends:
        return self._end(Outcome(error, 0, (1 << self.size) - 1, -1, -1, 0.0, text, ranks))

    def _root_lost(self) -> Sends:
        assert self.contract is not None
        root = self.contract.root
        return self._fail("RootLost", f"rank {root} died, and it was to have the result", 1 << root)

    def _lost(self, lost: Path) -> Sends:
        names = ", ".join(map(str, ranks_of(lost)))
        text = f"what these ranks gave is lost, since they died and no copy is left: {names}"
        return self._fail("ContributionLost", text, lost)

    def _had(self, rank: int) -> Sends:
        """A rank has its part, or is dead."""
        outcome = self.outcome
        if not self.ended:
            if outcome is None or rank != outcome.root or not self.have >> rank & 1:
                return []
            return self._end(outcome._replace(holder=rank, where=None)) + self._had(rank)
        if self.living & ~self.have:
            return []
        self.over = True
        return self._all(Over())

    def _no_result(self, source: int, message: NoResult) -> Sends:
        """A rank could not get the result: from another one that has it, or all over again."""
        outcome = self.outcome
        if outcome is None or outcome.error:
            return []
        if not message.is_dead:
            self.without |= 1 << message.holder
        having = self.have & self.living & ~(message.is_dead << message.holder)
        others = having & ~self.without
        if self.ended and outcome.root < 0 and others:
            self.outcome = outcome._replace(holder=next(ranks_of(others)), where=None)
            return [Send(source, End(self.outcome))]
        if self.ended and having and not message.is_dead:  # programs have it, and nobody can read it any more
            return self._fail(
                "ContributionLost", "the result is lost, which some ranks already have", self.dead
            )
        return self.collect()

    # -- asking all that live

    def collect(self) -> Sends:
        """Begin a new term: ask all that live what they hold."""
        self.term = (self.rank, self.term[1] + 1)
        self.close()
        self.scheduler, self.outcome, self.ended = None, None, False
        self.awaited, self.asked_dead, self.reports = self.living, self.dead, {}
        return self._all(Query(self.term, self.dead))

    def _report(self, source: int, report: Report) -> Sends:
        if report.term != self.term or not self.awaited >> source & 1:
            return []
        self.reports[source] = report
        self.awaited &= ~(1 << source)
        return [] if self.awaited else self._rebuild()

    def _rebuild(self) -> Sends:
        """All that live have said what they hold: go on from there."""
        reports = self.reports
        if any(report.over for report in reports.values()):
            self.over = True
            return self._all(Over())
        self.have = 0
        for rank, report in reports.items():
            self.have |= report.complete << rank
            self.expired |= report.expired
        for rank, report in sorted(reports.items()):
            outcome = report.outcome
            if outcome is not None and (outcome.error or report.complete):
                if outcome.root < 0 and outcome.holder != rank:
                    outcome = outcome._replace(holder=rank, where=None)
                return self._end(outcome) + self._had(rank)
        contracts = [report.contract for _, report in sorted(reports.items()) if report.contract]
        if not contracts:
            return []  # nobody who lives has called: who calls makes us ask again
        self.contract = contracts[0]
        for rank, report in sorted(reports.items()):
            wrong = self._wrong(rank, report.call) if report.call is not None else []
            if wrong:
                return wrong
        root = self.contract.root
        if root >= 0 and self.dead >> root & 1 and self.contract.on_root_loss == "raise":
            return self._root_lost()
        return self._resume(self.contract)

    def _resume(self, contract: Contract) -> Sends:
        held = {rank: tuple(report.items) for rank, report in self.reports.items()}
        self.weights = {
            path: kept.weight for report in self.reports.values() for path, kept in report.items.items()
        }
        joined = 0
        for path in self.weights:
            joined |= path
        attendance = self.attendance = Attendance(self.size, contract.quorum, contract.deadline_ns > 0)
        attendance.joined = joined
        lost = self.dead & ~joined
        orphans = 0
        if self.dead != self.asked_dead:
            # a copy may be under way from who died meanwhile: ask again before it is lost
            orphans, lost = lost, 0
        while True:
            if lost and contract.on_loss != "partial" and not attendance.tolerant:
                return self._lost(lost)
            attendance.leave(lost)
            if not attendance.possible:
                return self._lost(self.dead)
            quorum = contract.quorum and attendance.joined.bit_count() >= contract.quorum
            attendance.expired = self.expired and attendance.deadline
            attendance.closed = bool(attendance.joined and (quorum or attendance.expired))
            cover = recovery.cover(held, attendance.joined, self._usable)
            if not cover.lost:
                break
            lost = cover.lost
        scheduler = self._new_scheduler(contract)
        for rank, paths in held.items():
            for path in paths:
                if not path & (path - 1) and path != 1 << rank:
                    scheduler.copies.setdefault(path.bit_length() - 1, set()).add(rank)
        for rank, report in self.reports.items():
            for path, kept in report.items.items():
                scheduler.where[path, rank] = kept.where
        for path, holders in cover.items.items():
            scheduler.add(path, holders)
        for rank, holders in cover.originals.items():
            scheduler.add(1 << rank, holders)
        scheduler.orphans = orphans & attendance.possible
        return self._go(scheduler.go())

    def _usable(self, path: Path) -> bool:
        """May an intermediate result of an earlier term be part of this one?"""
        assert self.contract is not None
        possible = self.attendance.possible
        if self.contract.order == "tree":
            return is_node(path, possible)
        between = ((1 << path.bit_length()) - 1) & ~((path & -path) - 1)
        return self.contract.commutative or not between & possible & ~path

"""One rank's part of one reduction: what it holds, computes and waits for. (pure)

    not called   the program has not come to it yet; others have. It keeps copies, and answers
    pending      the program has called; tasks come and go
    complete     the program has the outcome, or may have it at any time; the result is kept for others
    over         all that live have it: nothing is kept

Rules:

- Items are kept by their path. An original is kept until the outcome is there, an intermediate result until it is part of
  another one; what is computed is a new value, so the inputs of a task are whole for as long as the task is there.
- `Query` is answered when all deaths that the master knew are known here: so nothing of the dead is under way any more, and
  what a dead rank sent that comes later is dropped.
- Copies of an original go to the ranks of `recovery.copy_places`, to the master with the call; after a death once more.
- An item is read *where* it lies, in the host's memory, also when its holder is dead; if it is gone the holder is asked.
- The master is the lowest rank that is not known to be dead.

Not here: the master's decisions (master.py), all reductions of a rank (members.py), computing (service.py).
"""

from __future__ import annotations

from typing import Any

from ckpt.reduction import recovery
from ckpt.reduction.master import Master
from ckpt.reduction.messages import (
    AS_COPY,
    TO_MASTER,
    Call,
    Complete,
    Contract,
    Copied,
    Data,
    Deliver,
    Done,
    Effects,
    End,
    Expired,
    Failed,
    Fetch,
    Forget,
    Gone,
    Have,
    HeldItem,
    Kept,
    Message,
    NoResult,
    Original,
    Outcome,
    Over,
    Path,
    Place,
    Query,
    Read,
    Report,
    Send,
    Task,
    Term,
    Trouble,
    Used,
    Vanished,
    Waiting,
    Work,
    over_report,
    ranks_of,
)
from ckpt.reduction.scheduler import Ranks


class Member:
    """One reduction at one rank."""

    __slots__ = (
        "call",
        "complete",
        "contract",
        "dead",
        "deferred",
        "early",
        "expired",
        "fetching",
        "items",
        "lead",
        "master",
        "outcome",
        "over",
        "rank",
        "ranks",
        "reading",
        "sent",
        "size",
        "term",
        "work",
    )

    def __init__(self, rank: int, size: int, dead: Path, ranks: Ranks) -> None:
        """`dead`: path of those known to be dead. `ranks`: for the master's part, shared by all reductions."""
        self.rank, self.size, self.dead, self.ranks = rank, size, dead, ranks
        self.master = recovery.next_master(size, dead)
        self.lead = Master(rank, size, dead, ranks) if self.master == rank else None
        self.term: Term = (0, 0)
        self.call: Call | None = None
        self.contract: Contract | None = None
        self.items: dict[Path, HeldItem] = {}
        self.work: dict[int, Work] = {}
        self.sent: set[tuple[int, int]] = set()
        """(owner, where) of the copies that this rank has sent."""
        self.deferred: list[tuple[int, Query]] = []
        self.early: Path = 0
        """Who takes this rank for the master before it does so itself."""
        self.outcome: Outcome | None = None
        self.fetching = self.reading = False
        self.complete = self.over = self.expired = False

    def _tell(self, message: Message) -> Send:
        return Send(self.master, message)

    # -- the program

    def start(self, call: Call, value: Any) -> Effects:
        """The program calls. `value`: its original, which nobody changes before the end."""
        self.call, self.contract = call, call.contract
        if not call.problem:
            self.items[1 << self.rank] = HeldItem(value, call.weight, call.where)
        if self.outcome is not None:
            return self._settle()
        if call.contract.copies and not call.problem and self.master != self.rank:
            self.sent.add((self.rank, self.master))
            call = call._replace(held=self.items[1 << self.rank])
        return [self._tell(call), *self._copies()]

    def computed(self, number: int, value: Any, elapsed_ns: int, where: Any = None) -> Effects:
        """A task's combination is there; dropped if it was taken back. Its items stay until the last one, which may fail."""
        work = self.work.get(number)
        if work is None:
            return []
        held = HeldItem(value, work.task.weight, where)
        for _ in range(work.also):
            work.advance(held, 0)
        path = work.path
        if work.advance(held, elapsed_ns):
            return self._compute(number, work)
        del self.work[number]
        for place in (used := [place for place in work.places if place.path & (place.path - 1)]):
            self.items.pop(place.path, None)
        self.items[path] = held
        told = [Send(place.holder, Used(place.path)) for place in used if place.holder != self.rank]
        return [*told, self._tell(Done(work.task.term, number, work.each_ns, where))]

    def trouble(self, number: int, error: str, text: str) -> Effects:
        """A task's operation failed."""
        return [self._tell(Trouble(error, text))] if self.work.pop(number, None) else []

    def vanished(self, number: int, which: int) -> Effects:
        """What was to be combined (0: left, 1: right, more) could not be read: it is not where it was. If it is a copy, its
        holder has it no more."""
        work = self.work.get(number)
        if work is None:
            return []
        work.computing = False
        place = work.left_over[which]
        if self.items.pop(place.path, None) is not None:
            return self._failed(number, place._replace(holder=self.rank))
        if place.path in work.direct:
            work.direct.discard(place.path)
            del work.found[place.path]
            if self.dead >> place.holder & 1:
                return self._failed(number, place)
            return [Send(place.holder, Fetch(place.path, number))]
        return [Send(place.holder, Vanished(place.path)), *self._failed(number, place)]

    def read(self, path: Path, where: Any, value: Any) -> Effects:
        """The result was read. It is dropped if another one is wanted by now."""
        outcome = self.outcome
        if not self.reading or outcome is None or (outcome.contributors, outcome.where) != (path, where):
            return []
        return self._complete(outcome, HeldItem(where, outcome.weight, where), value)

    def unread(self, path: Path, where: Any) -> Effects:
        """The result is not where it was: its holder is asked."""
        outcome = self.outcome
        if not self.reading or outcome is None or (outcome.contributors, outcome.where) != (path, where):
            return []
        self.reading = False
        return self._ask(outcome)

    def fail(self, error: str, text: str) -> Effects:
        """Something is wrong with what this rank gave, found later."""
        return [] if self.complete else [self._tell(Trouble(error, text))]

    def expire(self) -> Effects:
        """The deadline has passed."""
        self.expired = True
        return [] if self.outcome is not None else [self._tell(Expired())]

    # -- deaths

    def died(self, rank: int) -> Effects:
        """A rank is dead: nothing comes from it any more."""
        self.dead |= 1 << rank
        effects: Effects = []
        before, self.master = self.master, recovery.next_master(self.size, self.dead)
        if self.master != before:
            if self.master == self.rank:
                self.lead = Master(self.rank, self.size, self.dead, self.ranks)
                effects += self.lead.collect()
            else:
                effects.append(self._tell(Waiting()))
        elif self.lead is not None:
            effects += self.lead.died(rank)
        for number, work in list(self.work.items()):
            for place in work.places:
                if place.holder == rank and place.path not in work.found and number in self.work:
                    effects += self._failed(number, place)
        if self.fetching and self.outcome is not None and self.outcome.holder == rank:
            self.fetching = False
            effects.append(self._tell(NoResult(rank, True)))
        deferred, self.deferred = self.deferred, []
        for source, query in deferred:
            effects += self._query(source, query)
        return effects + self._copies()

    def _copies(self) -> Effects:
        """Copies of the originals here, to whom they are to be sent now."""
        effects: Effects = []
        if self.contract is None or not self.contract.copies or self.outcome is not None:
            return effects
        for owner in range(self.size):
            held = self.items.get(1 << owner)
            if held is None or (owner != self.rank and not self.dead >> owner & 1):
                continue
            for place in recovery.copy_places(owner, self.size, self.dead, self.contract.copies):
                if place != self.rank and (owner, place) not in self.sent:
                    self.sent.add((owner, place))
                    effects.append(Send(place, Original(owner, self.contract, held)))
        return effects

    # -- messages

    def receive(self, source: int, message: Message) -> Effects:
        """A message of a rank that is not known to be dead, or of this one."""
        if isinstance(message, TO_MASTER):
            return self._for_master(source, message)
        if isinstance(message, Task):
            return self._task(message)
        if isinstance(message, Fetch):
            return self._fetch(source, message)
        if isinstance(message, Data):
            return self._data(message)
        if isinstance(message, Gone):
            return self._gone(source, message)
        if isinstance(message, (End, Deliver)):
            return self._end(message.outcome)
        if isinstance(message, Query):
            return self._query(source, message)
        if isinstance(message, Original):
            return self._keep(message.owner, message.contract, message.held)
        if isinstance(message, (Used, Vanished)):
            outcome = self.outcome
            kept = 1 << self.rank if isinstance(message, Vanished) else outcome and outcome.contributors
            if message.path != kept:
                self.items.pop(message.path, None)
            return []
        self.over = True  # Over
        self.items.clear()
        self.work.clear()
        early = [Send(rank, Over()) for rank in ranks_of(self.early)]
        return [*early, *(Send(source, over_report(query)) for source, query in self.deferred), Forget()]

    def _keep(self, owner: int, contract: Contract, held: HeldItem) -> Effects:
        """A copy of an original. The master alone notes where it is: who becomes master later asks all that live."""
        if self.complete or self.contract not in (None, contract):
            return []  # what does not fit is refused when its owner calls, and is never combined
        self.items.setdefault(1 << owner, held)
        self.contract = self.contract or contract
        told = [self._tell(Copied(owner, held.weight, held.where))] if self.lead is not None else []
        return [*told, *self._copies()]

    def _for_master(self, source: int, message: Message) -> Effects:
        effects: Effects = []
        if isinstance(message, Call) and message.held is not None:
            effects = self._keep(source, message.contract, message.held)
            message = message._replace(held=None)
        if self.lead is None:
            self.early |= 1 << source  # it knows of deaths that this rank has not heard of
        return effects if self.lead is None else [*self.lead.receive(source, message), *effects]

    def _query(self, source: int, query: Query) -> Effects:
        if query.term <= self.term or self.dead >> source & 1:
            return []
        if query.dead & ~self.dead:
            self.deferred.append((source, query))
            return []
        self.term = query.term
        self.work.clear()
        outcome = self.outcome
        if outcome is not None and not outcome.error and not self.complete:
            self.outcome, self.fetching, self.reading = None, False, False
        items = {path: Kept(held.weight, held.where) for path, held in self.items.items()}
        said = self.call, self.contract, items, outcome, self.complete, self.over, self.expired
        return [Send(source, Report(query.term, *said))]

    # -- tasks

    def _task(self, task: Task) -> Effects:
        if task.term != self.term or self.outcome is not None:
            return []
        work = self.work[task.number] = Work(task)
        effects: Effects = []
        for place in work.places:
            if place.path in self.items:
                work.found[place.path] = self.items[place.path]
            elif place.where is not None:
                work.found[place.path] = HeldItem(place.where, 0.0, place.where)
                work.direct.add(place.path)
            elif place.holder == self.rank or self.dead >> place.holder & 1:
                return self._failed(task.number, place)
            else:
                effects.append(Send(place.holder, Fetch(place.path, task.number)))
        return effects + self._compute(task.number, work)

    def _compute(self, number: int, work: Work) -> Effects:
        """Combine the first two of what is left, if both are here and that is not under way."""
        compute = None if work.computing else work.compute(number)
        return [] if compute is None else [compute]

    def _failed(self, number: int, place: Place) -> Effects:
        term = self.work.pop(number).task.term
        return [self._tell(Failed(term, number, place.path, place.holder))]

    def _fetch(self, source: int, fetch: Fetch) -> Effects:
        held = self.items.get(fetch.path)
        if held is None:
            return [Send(source, Gone(fetch.path, fetch.number))]
        if fetch.number == AS_COPY and self.contract is not None:
            copy = Original(fetch.path.bit_length() - 1, self.contract, held._replace(where=None))
            return [Send(source, copy)]
        return [Send(source, Data(fetch.path, fetch.number, held))]

    def _data(self, data: Data) -> Effects:
        if not data.number:
            outcome = self.outcome
            if not self.fetching or outcome is None or data.path != outcome.contributors:
                return []
            return self._complete(outcome, data.held)
        work = self.work.get(data.number)
        if work is None:
            return []
        work.found[data.path] = data.held
        return self._compute(data.number, work)

    def _gone(self, source: int, gone: Gone) -> Effects:
        if gone.number in self.work:
            return self._failed(gone.number, Place(gone.path, source))
        outcome = self.outcome
        if gone.number or not self.fetching or outcome is None or gone.path != outcome.contributors:
            return []
        self.fetching = False
        return [self._tell(NoResult(source, False))]

    # -- the end

    def _end(self, outcome: Outcome) -> Effects:
        if self.complete:
            return []
        self.outcome, self.fetching, self.reading = outcome, False, False
        return self._settle()

    def _settle(self) -> Effects:
        """The outcome is known: complete, or get the result."""
        outcome = self.outcome
        if outcome is None or self.call is None or self.complete:
            return []
        path = outcome.contributors
        if outcome.error or outcome.root not in (-1, self.rank):
            return self._complete(outcome, None)
        held = self.items.get(path)
        is_copy = not path & (path - 1) and path != 1 << self.rank
        if held is not None and (not is_copy or outcome.holder == self.rank):
            return self._complete(outcome, held)
        if outcome.where is not None:
            self.reading = True
            return [Read(path, outcome.where)]
        return self._ask(outcome)

    def _ask(self, outcome: Outcome) -> Effects:
        """Ask the holder for the result."""
        if self.dead >> outcome.holder & 1:
            return [self._tell(NoResult(outcome.holder, True))]
        self.fetching = True
        return [Send(outcome.holder, Fetch(outcome.contributors, 0))]

    def _complete(self, outcome: Outcome, held: HeldItem | None, value: Any = None) -> Effects:
        """`held`: the result, kept for others. `value`: the program's, if that is another one."""
        self.complete, self.fetching, self.reading = True, False, False
        self.work.clear()
        self.items = {} if held is None else {outcome.contributors: held}
        value = held.value if value is None and held is not None else value
        return [Complete(outcome, value), self._tell(Have())]

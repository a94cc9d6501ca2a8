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
- Copies of an original go to the ranks that `recovery.copy_places` names; after a death they are made anew.
- The answer to whom to ask is always the same: the lowest rank that is not known to be dead is the master.

Not here: the master's decisions (master.py), names and all reductions of a rank (members.py), sending and computing
(service.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ckpt.reduction import recovery
from ckpt.reduction.master import Master, Send
from ckpt.reduction.messages import (
    Call,
    Contract,
    Copied,
    Data,
    Deliver,
    Done,
    End,
    Expired,
    Failed,
    Fetch,
    Gone,
    Have,
    Held,
    Message,
    NoResult,
    Original,
    Outcome,
    Over,
    Path,
    Place,
    Query,
    Report,
    Task,
    Term,
    Trouble,
    Used,
    Vanished,
    Waiting,
    ranks_of,
)


class Compute(NamedTuple):
    """Combine two values, out of place; `computed` or `trouble` is to be called with the number."""

    number: int
    left: Any
    right: Any


class Complete(NamedTuple):
    """The program may have the outcome. `value`: the result, where this rank is to have it. It must not be changed."""

    outcome: Outcome
    value: Any


class Forget(NamedTuple):
    """Nothing of this reduction is needed any more."""


Effect: TypeAlias = Send | Compute | Complete | Forget
Effects: TypeAlias = list[Effect]

TO_MASTER = (Call, Copied, Done, Failed, Trouble, Expired, Have, NoResult, Waiting, Report)
"""Messages of these classes are the master's."""


def over_report(query: Query) -> Report:
    """The answer of a rank that has let go of all."""
    return Report(query.term, None, None, {}, None, True, True, False)


class Work:
    """A task here: its two places, and the items that have come."""

    __slots__ = ("found", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.found: dict[Path, Held] = {}


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
        "sent",
        "size",
        "term",
        "times",
        "work",
    )

    def __init__(self, rank: int, size: int, dead: Path, times: dict[int, int]) -> None:
        """`dead`: path of those known to be dead. `times`: for the master's part, shared by all reductions."""
        self.rank, self.size, self.dead, self.times = rank, size, dead, times
        self.master = recovery.next_master(size, dead)
        self.lead = Master(rank, size, dead, times) if self.master == rank else None
        self.term: Term = (0, 0)
        self.call: Call | None = None
        self.contract: Contract | None = None
        self.items: dict[Path, Held] = {}
        self.work: dict[int, Work] = {}
        self.sent: set[tuple[int, int]] = set()
        """(owner, where) of the copies that this rank has sent."""
        self.deferred: list[tuple[int, Query]] = []
        self.early: Path = 0
        """Who takes this rank for the master before it does so itself."""
        self.outcome: Outcome | None = None
        self.fetching = False
        self.complete = self.over = self.expired = False

    def _tell(self, message: Message) -> Send:
        return Send(self.master, message)

    # -- the program

    def start(self, call: Call, value: Any) -> Effects:
        """The program calls. `value`: its original, which nobody changes before the end."""
        self.call, self.contract = call, call.contract
        if not call.problem:
            self.items[1 << self.rank] = Held(value, call.weight)
        if self.outcome is not None:
            return self._settle()
        return [self._tell(call), *self._copies()]

    def computed(self, number: int, value: Any, elapsed_ns: int) -> Effects:
        """A task's combination is there. It is dropped if the task was taken back meanwhile."""
        work = self.work.pop(number, None)
        if work is None:
            return []
        task = work.task
        weight = work.found[task.left.path].weight + work.found[task.right.path].weight
        effects: Effects = []
        for path, holder in (task.left, task.right):
            if path & (path - 1):
                self.items.pop(path, None)
                if holder != self.rank:
                    effects.append(Send(holder, Used(path)))
        self.items[task.left.path | task.right.path] = Held(value, weight)
        return [*effects, self._tell(Done(task.term, number, elapsed_ns, weight))]

    def trouble(self, number: int, error: str, text: str) -> Effects:
        """A task's operation failed."""
        return [self._tell(Trouble(error, text))] if self.work.pop(number, None) else []

    def vanished(self, number: int, is_left: bool) -> Effects:
        """What was to be combined is a copy that is not there: its holder has it no more."""
        work = self.work.get(number)
        if work is None:
            return []
        place = work.task.left if is_left else work.task.right
        if self.items.pop(place.path, None) is not None:
            return self._failed(number, place._replace(holder=self.rank))
        return [Send(place.holder, Vanished(place.path)), *self._failed(number, place)]

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
                self.lead = Master(self.rank, self.size, self.dead, self.times)
                effects += self.lead.collect()
            else:
                effects.append(self._tell(Waiting()))
        elif self.lead is not None:
            effects += self.lead.died(rank)
        for number, work in list(self.work.items()):
            for place in (work.task.left, work.task.right):
                if place.holder == rank and place.path not in work.found and number in self.work:
                    effects += self._failed(number, place)
        if self.fetching and self.outcome is not None and self.outcome.holder == rank:
            self.fetching = False
            effects.append(self._tell(NoResult(rank)))
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
            if self.lead is not None:
                return list(self.lead.receive(source, message))
            self.early |= 1 << source  # it knows of deaths that this rank has not heard of
            return []
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
            return self._original(message)
        if isinstance(message, Used):
            if self.outcome is None or message.path != self.outcome.contributors:
                self.items.pop(message.path, None)
            return []
        if isinstance(message, Vanished):
            if message.path != 1 << self.rank:
                self.items.pop(message.path, None)
            return []
        self.over = True  # Over
        self.items.clear()
        self.work.clear()
        early = [Send(rank, Over()) for rank in ranks_of(self.early)]
        return [*early, *(Send(source, over_report(query)) for source, query in self.deferred), Forget()]

    def _original(self, message: Original) -> Effects:
        if self.complete:
            return []
        self.items.setdefault(1 << message.owner, message.held)
        if self.contract is None:
            self.contract = message.contract
        return [self._tell(Copied(message.owner, message.held.weight)), *self._copies()]

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
            self.outcome, self.fetching = None, False
        items = {path: held.weight for path, held in self.items.items()}
        report = Report(
            query.term, self.call, self.contract, items, outcome, self.complete, self.over, self.expired
        )
        return [Send(source, report)]

    # -- tasks

    def _task(self, task: Task) -> Effects:
        if task.term != self.term or self.outcome is not None:
            return []
        work = self.work[task.number] = Work(task)
        effects: Effects = []
        for place in (task.left, task.right):
            if place.path in self.items:
                work.found[place.path] = self.items[place.path]
            elif place.holder == self.rank or self.dead >> place.holder & 1:
                return self._failed(task.number, place)
            else:
                effects.append(Send(place.holder, Fetch(place.path, task.number)))
        return effects or self._compute(task.number, work)

    def _compute(self, number: int, work: Work) -> Effects:
        left, right = (work.found[place.path].value for place in (work.task.left, work.task.right))
        return [Compute(number, left, right)]

    def _failed(self, number: int, place: Place) -> Effects:
        work = self.work.pop(number)
        return [self._tell(Failed(work.task.term, number, place.path, place.holder))]

    def _fetch(self, source: int, fetch: Fetch) -> Effects:
        held = self.items.get(fetch.path)
        if held is None:
            return [Send(source, Gone(fetch.path, fetch.number))]
        return [Send(source, Data(fetch.path, fetch.number, held))]

    def _data(self, data: Data) -> Effects:
        if not data.number:
            outcome = self.outcome
            if not self.fetching or outcome is None or data.path != outcome.contributors:
                return []
            self.items[data.path] = data.held
            return self._settle()
        work = self.work.get(data.number)
        if work is None:
            return []
        work.found[data.path] = data.held
        return self._compute(data.number, work) if len(work.found) == 2 else []

    def _gone(self, source: int, gone: Gone) -> Effects:
        if gone.number in self.work:
            return self._failed(gone.number, Place(gone.path, source))
        outcome = self.outcome
        if gone.number or not self.fetching or outcome is None or gone.path != outcome.contributors:
            return []
        self.fetching = False
        return [self._tell(NoResult(source))]

    # -- the end

    def _end(self, outcome: Outcome) -> Effects:
        if self.complete:
            return []
        self.outcome, self.fetching = outcome, False
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
        if held is not None:
            return self._complete(outcome, held)
        if self.dead >> outcome.holder & 1:
            return [self._tell(NoResult(outcome.holder))]
        self.fetching = True
        return [Send(outcome.holder, Fetch(path, 0))]

    def _complete(self, outcome: Outcome, held: Held | None) -> Effects:
        self.complete, self.fetching = True, False
        self.work.clear()
        self.items = {} if held is None else {outcome.contributors: held}
        value = None if held is None else held.value
        return [Complete(outcome, value), self._tell(Have())]

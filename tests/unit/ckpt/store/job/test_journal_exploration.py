"""Two controllers that both believe they have the job, in every order of their steps, on the shipped code of the journal.

The file system is the weakest that is allowed: creation of a name that exists fails; an absence that was seen once is
remembered until the client creates something itself; a listing may be any earlier one. Flock does not exist.

What must hold, and what is taken out of the shipped code to see that this notices (`MUTANTS`):

- each number is written once, and each record continues the one before it;
- no epoch is committed twice; what a controller was told is committed stays in the journal;
- after a takeover, no record of an earlier generation is written;
- a controller that has taken over knows the newest commit before its takeover;
- an agent that looks finds each takeover that was there when its look began, while others commit and remove.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ckpt.store.job import journal
from ckpt.store.job.journal import (
    EMPTY,
    Absent,
    Append,
    Broken,
    Done,
    Found,
    HintIs,
    HintSet,
    Look,
    Position,
    Read,
    ReadHint,
    Seen,
    SetHint,
    Superseded,
    Taken,
    Touch,
    Touched,
    Write,
    Written,
)
from ckpt.store.records.journal import JournalRecord

COMMITS = 2


class Violation(AssertionError):
    pass


@dataclass
class Store:
    """What is on the server. `removed`: numbers whose record was pruned."""

    records: dict[int, JournalRecord] = field(default_factory=dict)
    removed: dict[int, JournalRecord] = field(default_factory=dict)
    hint: int = 0
    overwrites: bool = False

    def history(self) -> dict[int, JournalRecord]:
        return {**self.removed, **self.records}


def digest(record: JournalRecord) -> str:
    return f"{record.number}.{record.generation}.{record.what}.{record.epoch}"


@dataclass
class Controller:
    """A takeover, then `COMMITS` commits, each of the epoch above the highest it knows; after the last one it prunes."""

    name: str
    make: type[Append] = Append
    position: Position | None = None
    append: Append | None = None
    action: object = None
    absent: frozenset[int] = frozenset()
    listed: tuple[int, ...] = ()
    committed: int = 0
    told: tuple[int, ...] = ()
    ended: str = ""

    def begin(self) -> None:
        if self.position is None:
            self.append = self.make(None, contact=self.name)
        else:
            epoch = self.position.epoch + 1
            self.append = self.make(self.position, epoch=epoch, digest=f"{self.name} {epoch}")
        self.action = self.append.begin()

    def key(self) -> object:
        parts = (
            None if self.append is None else tuple(sorted((k, repr(v)) for k, v in vars(self.append).items()))
        )
        return (repr(self.position), parts, repr(self.action), self.absent, self.committed, self.ended)

    def step(self, store: Store) -> None:
        if self.append is None:
            if self.committed == COMMITS:
                self.prune(store)
                self.ended = "finished"
                return
            self.begin()
            return
        outcome = self.append.handle(self.answer(store))
        if isinstance(outcome, Done):
            self.done(outcome.position, store)
        elif isinstance(outcome, Superseded):
            self.ended = "superseded"
        elif isinstance(outcome, Broken):
            raise Violation(f"{self.name} finds the journal broken at {outcome.number}")
        else:
            self.action = outcome

    def done(self, position: Position, store: Store) -> None:
        if self.position is None:
            earlier = [
                r.epoch for n, r in store.history().items() if n < position.number and r.what == "commit"
            ]
            if position.epoch != max(earlier, default=0):
                raise Violation(f"{self.name} has taken over at {position}, commits before it: {earlier}")
        else:
            self.committed += 1
            self.told = (*self.told, position.epoch)
        self.position, self.append, self.action = position, None, None

    def prune(self, store: Store) -> None:
        for number, record in list(store.records.items()):
            if number < store.hint and record.what == "commit":
                store.removed[number] = store.records.pop(number)

    def answer(self, store: Store) -> object:
        match self.action:
            case ReadHint():
                return HintIs(store.hint if store.hint in store.records else max(store.records, default=0))
            case Read(number=number):
                if number in store.records and number not in self.absent:
                    record = store.records[number]
                    return Found(record, digest(record))
                self.absent |= {number}
                return Absent()
            case Touch():
                self.absent = frozenset()
                return Touched()
            case Write(record=record):
                if record.number in store.records and not store.overwrites:
                    return Taken()
                self.check(record, store)
                store.records[record.number] = record
                return Written(digest(record))
            case SetHint(number=number):
                store.hint = number
                return HintSet()
        raise AssertionError(self.action)

    def check(self, record: JournalRecord, store: Store) -> None:
        history = store.history()
        newest = max(history, default=0)
        if record.number <= newest:
            if record.what == "takeover" and record.number not in store.records:
                return  # in the middle, where records were removed: void, as its writer will see
            raise Violation(f"{record} over {history.get(record.number)}, the newest is {newest}")
        last = history.get(newest)
        if last is not None and (record.previous != digest(last) or record.number != newest + 1):
            raise Violation(f"{record} does not continue {last}")
        if last is not None and record.generation < last.generation:
            raise Violation(f"{record} after {last}")
        if record.what == "takeover" and last is not None and record.generation <= last.generation:
            raise Violation(f"two controllers have generation {record.generation}")
        if record.what == "commit" and last is not None and record.epoch <= last.epoch:
            raise Violation(f"epoch {record.epoch} is committed twice")


@dataclass
class Looker(Controller):
    """An agent whose controller has named record 1 to it, and which looks once behind that."""

    look_type: type[Look] = Look
    expected: frozenset[int] = frozenset()

    def key(self) -> object:
        look = self.append
        parts = None if look is None else tuple(sorted((k, repr(v)) for k, v in vars(look).items()))
        return (parts, repr(self.action), self.absent, self.expected, self.ended)

    def step(self, store: Store) -> None:
        if self.append is None:
            self.append = self.look_type(1)  # type: ignore[assignment]
            self.action = self.append.begin()  # type: ignore[union-attr]
            self.expected = frozenset(n for n, r in store.records.items() if n > 1 and r.what != "commit")
            return
        outcome = self.append.handle(self.answer(store))  # type: ignore[arg-type]
        if not isinstance(outcome, Seen):
            self.action = outcome
            return
        missed = self.expected - {record.number for record in outcome.records}
        if missed:
            raise Violation(f"a look has missed {[store.records[number] for number in missed]}")
        self.ended = "looked"


@dataclass
class State:
    store: Store
    controllers: list[Controller]

    def copy(self) -> State:
        """A copy that shares what never changes."""
        store = copy.copy(self.store)
        store.records, store.removed = dict(store.records), dict(store.removed)
        controllers = [copy.copy(each) for each in self.controllers]
        for each in controllers:
            each.append = copy.copy(each.append)
        return State(store, controllers)

    def key(self) -> object:
        return (
            tuple(sorted((n, digest(r)) for n, r in self.store.records.items())),
            tuple(sorted(self.store.removed)),
            self.store.hint,
            tuple(controller.key() for controller in self.controllers),
        )


def explore(start: State) -> tuple[int, set[tuple[str, ...]]]:
    """All interleavings. Returns the number of states, and how the controllers ended."""
    seen: set[object] = set()
    ends: set[tuple[str, ...]] = set()
    open_states = [start]
    while open_states:
        state = open_states.pop()
        key = state.key()
        if key in seen:
            continue
        seen.add(key)
        running = [index for index, each in enumerate(state.controllers) if not each.ended]
        if not running:
            ends.add(tuple(each.ended for each in state.controllers))
        for index in running:
            after = state.copy()
            after.controllers[index].step(after.store)
            open_states.append(after)
    return len(seen), ends


def two(make: type[Append] = Append, *, overwrites: bool = False) -> State:
    return State(Store(overwrites=overwrites), [Controller("A", make), Controller("B", make)])


def test_two_controllers_in_every_order() -> None:
    states, ends = explore(two())
    assert states > 900
    assert ends == {("finished", "finished"), ("superseded", "finished"), ("finished", "superseded")}


class WithoutGeneration(Append):
    """Adoption without a generation of its own: the takeover has the number that it finds."""

    def _record(self) -> JournalRecord:
        record = super()._record()
        found = max(self.position.generation, 1)
        return journal.replace(record, generation=found) if record.what == "takeover" else record


class AbsenceAtOnce(Append):
    """An absence counts at once, without a creation of one's own."""

    def handle(self, event: journal.Event) -> journal.Action | journal.Outcome:
        self.touched = True
        return super().handle(event)


class HintIsTheEnd(Append):
    """A number that someone has written down (a hint, a listing) is taken for the end: nothing is probed."""

    def _found(self, record: JournalRecord, digest: str) -> journal.Action | journal.Outcome:
        anchor = self.is_anchor
        action = super()._found(record, digest)
        return Write(self._record()) if anchor and isinstance(action, Read) else action

    def handle(self, event: journal.Event) -> journal.Action | journal.Outcome:
        if isinstance(event, Taken) and self.mine is None:
            self.position = journal.replace(self.position, number=self.position.number + 1)
            return Write(self._record())
        return super().handle(event)


class WithoutConfirmation(Append):
    """A takeover does not look at the hint again."""

    def handle(self, event: journal.Event) -> journal.Action | journal.Outcome:
        action = super().handle(event)
        return SetHint(self.position.number) if isinstance(event, Written) else action


MUTANTS: dict[str, Callable[[], State]] = {
    "a commit by rename": lambda: two(overwrites=True),
    "adoption without generation": lambda: two(WithoutGeneration),
    "a listing instead of probing": lambda: two(HintIsTheEnd),
    "a takeover that is not confirmed": lambda: two(WithoutConfirmation),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    with pytest.raises(Violation):
        explore(MUTANTS[mutant]())


def looked_at(look: type[Look] = Look) -> State:
    state = State(Store(), [Controller("A"), Controller("B"), Looker("agent", look_type=look)])
    state.controllers[2].absent = frozenset({2, 3})  # it has looked before
    while state.controllers[0].position is None:
        state.controllers[0].step(state.store)
    return state


@pytest.mark.rotate(2)
def test_an_agent_that_looks_misses_no_takeover() -> None:
    states, ends = explore(looked_at())
    assert states > 5_000
    assert {end[2] for end in ends} == {"looked"}


class WithoutTouch(Look):
    """Absences count at once."""

    def begin(self) -> journal.Action:
        return ReadHint()

    def handle(self, event: journal.Event) -> journal.Action | Seen:
        self.touched = True
        return super().handle(event)


class GapIsTheEnd(Look):
    """The place of a removed record is taken for the end."""

    def handle(self, event: journal.Event) -> journal.Action | Seen:
        if isinstance(event, Absent) and self.hint is not None and self.touched:
            return Seen(self.number, self.records)
        if isinstance(event, Absent):
            return Touch()
        return super().handle(event)


class HintOnce(Look):
    """The hint is not read again at the end."""

    def handle(self, event: journal.Event) -> journal.Action | Seen:
        action = super().handle(event)
        return Seen(self.number, self.records) if isinstance(action, ReadHint) and self.touched else action


@pytest.mark.rotate(3)
@pytest.mark.parametrize("look", [WithoutTouch, GapIsTheEnd, HintOnce])
def test_a_look_that_misses_something(look: type[Look]) -> None:
    with pytest.raises(Violation):
        explore(looked_at(look))


def test_an_absence_that_the_client_remembers_ends_nothing() -> None:
    """Without `Touch`, the number that was taken a moment ago stays absent for this client: no end to it."""
    store = Store()
    first = Controller("A")
    second = Controller("B", AbsenceAtOnce)
    second.step(store)  # looks for the hint
    second.step(store)
    second.step(store)  # number 1 is absent
    while first.position is None:
        first.step(store)
    for _ in range(100):
        second.step(store)
    assert second.position is None
    second.append, second.make, second.absent = None, Append, frozenset({1})
    for _ in range(12):
        second.step(store)
    assert second.position is not None and second.position.generation == 2
    assert EMPTY.number == 0

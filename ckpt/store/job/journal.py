"""The journal: no two controllers commit, whatever locks and directory listings of the file system are worth. Pure.

The journal is a sequence of numbered records (`ckpt/store/records/journal.py`). A record is *written create-only*: of
several writers of one number one succeeds, and the others are told. Nothing else is asked of the file system.

    takeover    hint ──▶ walk: read the next number … until there is none ──▶ write takeover ──▶ confirm ──▶ done
                             ▲                                                    │ taken         │ void    superseded
                             └────────────────────────────────────────────────────┴───────────────┘
    commit      write commit ──▶ done           taken by a later generation ──▶ superseded: this controller stops
    (and contact and restart, see `JournalRecord`)
    look        touch ──▶ hint ──▶ walk, over the gaps of records that were removed ──▶ touch, hint again ──▶ seen

Rules
- A takeover has a generation above that of all records before it. So no two controllers have the same generation.
- A controller writes its next record right behind its last one. The first takeover by another controller takes that very
  number: from then on the former one cannot write, however late it tries, and the record it finds says who took over.
- The end of the journal is found by reading one number after the other, from a hint on. A listing may be old. A network file
  system also remembers that a name was absent: an absence counts only when it is seen again after a file of one's own was
  created in the directory (`Touch`), which makes the client ask the server.
- Records of lines that were pruned are removed, below a durable hint only. Takeovers never are, so the number that a
  superseded controller would write next never becomes free. A controller that walked over a journal while records were
  removed may find a free number in its middle: the hint, read again after the write, shows that, and the takeover is void.
  If the record at the hint is of no earlier generation, another controller has taken over since, and this one stops.
- Who only looks (`Look`: an agent that has lost its controller) walks from the record on that its controller has named, over
  gaps too, as far as the hint: so it misses no takeover, contact or restart, since these are never removed.

Source: link(2) and open(2) of POSIX, and their notes on NFS, for files that are created once.

Not here: files (`journal_files.py`), what a controller does when it is superseded.
"""

from __future__ import annotations

from typing import Literal

from ckpt.store.records.journal import JournalRecord
from ckpt.transport.records import dataclass, replace

__all__ = [
    "EMPTY",
    "Absent",
    "Action",
    "Append",
    "Broken",
    "Done",
    "Event",
    "Found",
    "HintIs",
    "HintSet",
    "Look",
    "Position",
    "Read",
    "ReadHint",
    "Seen",
    "SetHint",
    "Superseded",
    "Taken",
    "Touch",
    "Touched",
    "Write",
    "Written",
]


@dataclass(frozen=True)
class Position:
    """The record behind which the next one is written: its number, its file's digest, its generation and epoch."""

    number: int = 0
    digest: str = ""
    generation: int = 0
    epoch: int = 0


EMPTY = Position()


@dataclass(frozen=True)
class ReadHint:
    """Ask for the hint. Answer with `HintIs`: the number of a record that exists, as high as is known; 0 for an empty
    journal."""


@dataclass(frozen=True)
class Read:
    """Read one record. Answer with `Found` or `Absent`."""

    number: int


@dataclass(frozen=True)
class Touch:
    """Create a file in the journal's directory, and remove it; answer with `Touched`."""


@dataclass(frozen=True)
class Write:
    """Write the record create-only; answer with `Written` when it is durable, or with `Taken`."""

    record: JournalRecord


@dataclass(frozen=True)
class SetHint:
    """Set the hint; answer with `HintSet`."""

    number: int


@dataclass(frozen=True)
class HintIs:
    number: int


@dataclass(frozen=True)
class Found:
    """The record exists. `digest`: of the record's file."""

    record: JournalRecord
    digest: str


@dataclass(frozen=True)
class Absent:
    pass


@dataclass(frozen=True)
class Touched:
    pass


@dataclass(frozen=True)
class Written:
    """The record was written. `digest`: of the record's file."""

    digest: str


@dataclass(frozen=True)
class Taken:
    pass


@dataclass(frozen=True)
class HintSet:
    pass


@dataclass(frozen=True)
class Done:
    """The record is written; `position` is its place."""

    position: Position


@dataclass(frozen=True)
class Superseded:
    """Another controller has written `by`: this one must stop."""

    by: JournalRecord


@dataclass(frozen=True)
class Seen:
    """All records behind the one from which the look began, but those of commits. `number`: of the last record."""

    number: int
    records: tuple[JournalRecord, ...]


@dataclass(frozen=True)
class Broken:
    """Record `number` does not continue the one before it: records were lost or exchanged by hand."""

    number: int


Action = ReadHint | Read | Touch | Write | SetHint
Event = HintIs | Found | Absent | Touched | Written | Taken | HintSet
Outcome = Done | Superseded | Broken
Kind = Literal["commit", "contact", "restart"]


class Append:
    """One record to be appended.

    `position`: behind the last record that this controller has written; None for a takeover, which looks for the end.
    `floor`: a takeover's generation is above this number too. `what`: the kind of any other record. The others: see
    `JournalRecord`.
    """

    def __init__(
        self,
        position: Position | None,
        *,
        floor: int = 0,
        epoch: int = 0,
        digest: str = "",
        contact: str = "",
        what: Kind = "commit",
        incarnation: int = 0,
        hosts: tuple[str, ...] = (),
    ) -> None:
        self.mine = None if position is None else position.generation
        self.position = EMPTY if position is None else position
        self.floor = floor
        self.epoch = epoch
        self.digest = digest
        self.contact = contact
        self.what: Kind = what
        self.incarnation, self.hosts = incarnation, hosts
        self.touched = False
        self.is_anchor = False  # the record at the hint is being read: it need not continue `position`
        self.is_written = False

    def begin(self) -> Action:
        """Return the first action."""
        return ReadHint() if self.mine is None else Write(self._record())

    def handle(self, event: Event) -> Action | Outcome:
        """Handle the answer to the last action; return the next action or the outcome."""
        match event:
            case HintIs(number=number):
                return self._hint(number)
            case Found(record=record, digest=digest):
                return self._found(record, digest)
            case Absent():
                if self.is_written:
                    return ReadHint()
                if self.touched:
                    return Write(self._record())
                self.touched = True
                return Touch()
            case Touched() | Taken():
                self.touched = isinstance(event, Touched)
                return Read(self.position.number + 1)
            case Written(digest=digest):
                record = self._record()
                self.position = Position(record.number, digest, record.generation, record.epoch)
                self.is_written = True
                return ReadHint() if self.mine is None else SetHint(record.number)
            case HintSet():
                return Done(self.position)

    def _hint(self, number: int) -> Action:
        if self.is_written and number <= self.position.number:
            return SetHint(self.position.number)
        self.touched = False
        self.is_anchor = number > 0
        return Read(number or 1)

    def _found(self, record: JournalRecord, digest: str) -> Action | Outcome:
        if self.is_written:
            if record.generation >= self.position.generation:
                return Superseded(record)
            self.is_written = (
                False  # the takeover is in the middle, where records had been removed: it does not count
            )
        if not self.is_anchor and record.previous != self.position.digest:
            return Broken(record.number)
        if self.mine is not None and record.generation != self.mine:
            return Superseded(record)
        self.is_anchor = self.touched = False
        self.position = Position(record.number, digest, record.generation, record.epoch)
        return Read(record.number + 1)

    def _record(self) -> JournalRecord:
        last = self.position
        record = JournalRecord(
            last.number + 1, last.digest, last.generation, self.what, max(last.epoch, self.epoch), self.digest
        )
        if self.mine is not None:
            contact = self.contact if self.what == "contact" else ""
            return replace(record, contact=contact, incarnation=self.incarnation, hosts=self.hosts)
        generation = max(last.generation, self.floor) + 1
        return replace(record, what="takeover", generation=generation, contact=self.contact)


class Look:
    """A look at the records behind number `after`, which has been there, without writing any. The answers are those of
    `Append`; it needs no `Written`."""

    def __init__(self, after: int) -> None:
        self.number = after
        self.hint: int | None = None
        self.touched = False
        self.records: tuple[JournalRecord, ...] = ()

    def begin(self) -> Action:
        """Return the first action."""
        return Touch()

    def handle(self, event: Event) -> Action | Seen:
        """Handle the answer to the last action; return the next action, or what was seen."""
        match event:
            case HintIs(number=number):
                if self.touched and number <= self.number:
                    return Seen(self.number, self.records)
                self.hint, self.touched = number, False
            case Found(record=record):
                self.touched = False
                self.number = record.number
                if record.what != "commit":
                    self.records = (*self.records, record)
            case Absent():
                if self.number + 1 < (self.hint or 0):
                    self.number += 1  # it was removed
                else:
                    return ReadHint() if self.touched else Touch()
            case _:
                assert isinstance(event, Touched), event
                if self.hint is None:
                    return ReadHint()
                self.touched = True
        return Read(self.number + 1)

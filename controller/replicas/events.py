"""Events and actions of a job with replicas, beside those of every job (`ckpt.controller.supervision.events`). Pure.

Not here: what follows from them (`supervisor`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ckpt.redundancy.membership import Numbering
from ckpt.redundancy.memory.comparison import Record, parse
from ckpt.redundancy.origin import Details
from ckpt.transport.records import dataclass, field


@dataclass(frozen=True, slots=True)
class Reported:
    """A process has told marks, by stream, and how many messages it has `sent`; or its last messages one by one, in answer
    to `question` (0: before it ends, since its program has failed); or that it is stuck with a choice of a wrong leader; or
    that it holds choices for the copy `held`; or which replicas come too `late` to a change of files, or to what is given by
    `at`; or a message on which the replicas of its rank `disagree`: stream, number, and whether this one is outvoted. `of`:
    the rank that has made this message, if it is another one, whose replica in the same plane is meant."""

    rank: int
    incarnation: int
    marks: Mapping[str, list[tuple[int, str]]]
    stuck: bool = False
    details: Details | None = None
    counts: Mapping[str, int] | None = None
    question: int = 0
    sent: int | None = None
    held: int | None = None
    late: tuple[int, ...] = ()
    at: str = ""
    disagree: tuple[str, int, bool] | None = None
    of: int | None = None


@dataclass(frozen=True, slots=True)
class LineTold:
    """A process has told what it had sent at the place of the image of `epoch`, or at that of another replica's: by stream
    the number of messages, and the digest over them. In `parts` events. `written`: length of its standard output there."""

    rank: int
    incarnation: int
    epoch: int
    marks: Mapping[str, tuple[int, str]]
    parts: int
    written: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryTold:
    """A process has told, for the line of `epoch` and the `place` that it was asked for: that its program is `at` another
    one; or `none`, why it tells nothing (`is_excused`: see `Comparison`); or its arrays, in `parts` events."""

    rank: int
    incarnation: int
    epoch: int
    place: int
    at: int | None = None
    none: str = ""
    where: str = ""
    parts: int = 1
    blocks: Mapping[str, Record] = field(default_factory=dict)
    is_excused: bool = False


@dataclass(frozen=True, slots=True)
class AwaitPrinted:
    """Tell, with `LinePrinted`, when of each rank so many bytes of standard output have been agreed on."""

    epoch: int
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinePrinted:
    """The answer to `AwaitPrinted`."""

    epoch: int


class Inquiry:
    """Planes differ: where did it begin? Two questions, one after the other:

        to the processes of `plane`       what they have sent since the last message that was agreed on
        to those of `right`, the others   the same messages; who has not come so far is asked again

    `odd`: the planes that are wrong; empty: it cannot be told which. `is_certain`: something has been seen to differ;
    else the question is whether anything does. `rank`, `fields`: where, and what has been seen. `agreed`: by rank, see
    `ckpt.redundancy.vote.Vote.agreed`."""

    def __init__(
        self,
        odd: Collection[int],
        planes: tuple[int, tuple[int, ...]],
        seen: tuple[int | None, dict[str, Any]],
        agreed: list[dict[str, int]],
        *,
        is_certain: bool,
    ) -> None:
        self.odd = tuple(sorted(odd))
        self.plane, self.right = planes
        self.rank, self.fields = seen
        self.agreed = agreed
        self.is_certain = is_certain
        self.question = 0
        self.until_ns = 0
        self.again_ns: int | None = None
        self.open: set[int] = set()
        self.first: dict[int, Details] = {}
        self.counts: dict[int, Mapping[str, int]] = {}
        self.second: dict[int, Details] = {}

    @property
    def is_second(self) -> bool:
        return self.again_ns is not None

    def ranges(self, process: int, numbers: Numbering) -> dict[str, tuple[int, int]]:
        """The messages that a process of the right plane is asked for: those that the other plane's has told."""
        rank, _ = numbers.parts(process)
        told = self.first.get(numbers.process(rank, self.plane), {})
        return {name: (rows[0][0], rows[-1][0]) for name, rows in told.items() if rows}


@dataclass(frozen=True, slots=True)
class TextDiffers:
    """Replicas of `rank` have written different text; `odd` as in `text.Conflict`, `at`: offset in bytes."""

    rank: int
    odd: tuple[int, ...]
    at: int


@dataclass(frozen=True, slots=True)
class OutputRead:
    """All that finished processes have written has been read and compared. The answer to `ReadOutput`."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """Read and compare what the processes have written until now. The answer is `OutputRead`."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class DropVoices:
    """The text of these planes counts no more."""

    planes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartCopy:
    """Fork the processes of `plane`, which go on from the images that `donor` has given for the line of `epoch`, beside the
    planes `living`. `resumed`: the line from which the incarnation began."""

    plane: int
    epoch: int
    donor: int
    living: tuple[int, ...]
    resumed: int | None


@dataclass(frozen=True, slots=True)
class CopyFailed:
    """The processes of `plane` could not be started."""

    plane: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class JoinVoices:
    """The text of this plane counts from now on."""

    plane: int


def reported(process: int, incarnation: int, packet: Mapping[str, Any]) -> Reported | LineTold | MemoryTold:
    """The event of a packet of the kind `layer`. What is not well-formed in it is left out: it then counts as not told."""
    told = packet.get("marks")
    line, parts = packet.get("line"), packet.get("parts")
    if isinstance(line, int) and isinstance(parts, int):
        return _line(process, incarnation, line, parts, packet)
    if isinstance(packet.get("memory"), int) and isinstance(packet.get("place"), int):
        return _memory(process, incarnation, packet)
    marks = {
        name: [
            (mark[0], mark[1])
            for mark in rows
            if isinstance(mark, list) and len(mark) == 2 and type(mark[0]) is int and type(mark[1]) is str
        ]
        for name, rows in (told.items() if isinstance(told, dict) else ())
        if isinstance(rows, list)
    }
    details, question = packet.get("details"), packet.get("question")
    late = packet.get("late")
    counts, sent, held = packet.get("counts"), packet.get("sent"), packet.get("held")
    return Reported(
        process,
        incarnation,
        marks,
        packet.get("stuck") is True,
        _details(details) if isinstance(details, dict) else None,
        counts if isinstance(counts, dict) else {},
        question if isinstance(question, int) else 0,
        sent if isinstance(sent, int) else None,
        held if isinstance(held, int) else None,
        tuple(each for each in late if isinstance(each, int)) if isinstance(late, list) else (),
        "message" if packet.get("at") == "message" else "",
        _disagree(packet.get("disagree")),
        packet["of"] if type(packet.get("of")) is int else None,
    )


def _disagree(told: Any) -> tuple[str, int, bool] | None:
    if isinstance(told, list) and [type(value) for value in told] == [str, int, bool]:
        return told[0], told[1], told[2]
    return None


def _details(told: dict[str, Any]) -> Details:
    return {
        name: [
            (row[0], row[1], row[2])
            for row in rows
            if isinstance(row, list) and [type(value) for value in row] == [int, str, int]
        ]
        for name, rows in told.items()
        if isinstance(rows, list)
    }


def _memory(process: int, incarnation: int, packet: Mapping[str, Any]) -> MemoryTold:
    at, none, where, parts = (packet.get(name) for name in ("at", "none", "where", "parts"))
    return MemoryTold(
        process,
        incarnation,
        packet["memory"],
        packet["place"],
        at if isinstance(at, int) else None,
        none if isinstance(none, str) else "",
        where if isinstance(where, str) else "",
        parts if isinstance(parts, int) else 1,
        parse(packet.get("blocks")),
        packet.get("by") == "program",
    )


def _line(process: int, incarnation: int, line: int, parts: int, packet: Mapping[str, Any]) -> LineTold:
    told, written = packet.get("marks"), packet.get("written")
    marks = {
        name: (rows[0][0], rows[0][1])
        for name, rows in (told.items() if isinstance(told, dict) else ())
        if isinstance(rows, list)
        and len(rows) == 1
        and isinstance(rows[0], list)
        and [type(value) for value in rows[0]] == [int, str]
    }
    length = written if isinstance(written, int) else None
    return LineTold(process, incarnation, line, marks, parts, length)

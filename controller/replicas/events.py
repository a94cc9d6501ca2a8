"""Events and actions of a job with replicas, beside those of every job (`ckpt.controller.supervision.events`). Pure.

Not here: what follows from them (`supervisor`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ckpt.redundancy.origin import Details
from ckpt.transport.records import dataclass


@dataclass(frozen=True, slots=True)
class Reported:
    """A process has told marks, by stream; or its last messages one by one, in answer to `question`; or that it is stuck
    with a choice of a wrong leader."""

    rank: int
    incarnation: int
    marks: Mapping[str, list[tuple[int, str]]]
    stuck: bool = False
    details: Details | None = None
    question: int = 0


class Inquiry:
    """Planes that are wrong: where did it begin? `fields`: what has been seen, of `rank`; `answers`: by process."""

    def __init__(
        self, question: int, odd: Collection[int], rank: int | None, fields: dict[str, Any], until_ns: int
    ) -> None:
        self.question = question
        self.odd = tuple(sorted(odd))
        self.rank = rank
        self.fields = fields
        self.until_ns = until_ns
        self.answers: dict[int, Details] = {}


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


def reported(process: int, incarnation: int, packet: Mapping[str, Any]) -> Reported:
    """The event of a packet of the kind `layer`. What is not well-formed in it is left out: it then counts as not told."""
    told = packet.get("marks")
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
    return Reported(
        process,
        incarnation,
        marks,
        packet.get("stuck") is True,
        _details(details) if isinstance(details, dict) else None,
        question if isinstance(question, int) else 0,
    )


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

"""The facts of a trial: how they are read, and the texts for a place and a difference. Pure.

*Facts* come from `ckpt.controller.doctor.trial` (and there from the rank's side, `ckpt.doctor`): what the program did,
and the lines that each rank wrote, each of one kind (`lines_of`).

Not here: what follows from them (`problems`, `report`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt.transport.records import NamedTuple

__all__ = ["OUTPUT_BYTES", "Difference", "Facts", "last_samples", "lines_of", "listed", "place", "tail"]

Facts = Mapping[str, Any]
OUTPUT_BYTES = 64 << 20
"""The first bytes of a rank's output that are kept and compared."""
_NAMES_SHOWN = 5
_ERROR_LINES = 12


def lines_of(facts: Facts, kind: str) -> list[tuple[int, Mapping[str, Any]]]:
    return [
        (rank, line)
        for rank, lines in sorted(facts["ranks"].items())
        for line in lines
        if line["kind"] == kind
    ]


def last_samples(facts: Facts) -> list[tuple[int, Mapping[str, Any]]]:
    newest = dict(lines_of(facts, "samples"))
    return sorted(newest.items())


class Difference(NamedTuple):
    """A difference between the output of a restored run and that of the first run.

    `did`: "wrote" or "printed"; `output`: the file, or the rank that printed; `position`: line or byte; `restored`, `first`:
    what each of the two runs wrote or printed there.
    """

    did: str
    output: str
    position: str
    restored: str
    first: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Difference:
        """The difference that the facts of a restart describe ("differs" or "unsure")."""
        return cls(
            "wrote" if "path" in row else "printed",
            f"file {row['path']}" if "path" in row else f"output of rank {row['rank']}",
            f"byte {row['byte']}" if "byte" in row else f"line {row['line']}",
            row["restored"],
            row["first"],
        )


def listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def place(where: str) -> str:
    """``frame 3 (solve) local 'x'`` → ``solve() variable 'x'``; modules likewise. Equal places get equal texts."""
    text = re.sub(r"^frame \d+ \((.*?)\) local ", r"\1() variable ", where)
    text = re.sub(r"^frame \d+ \((.*?)\)", r"\1()", text)
    return re.sub(r"^module (\S+) variable ", r"\1 variable ", text)


def tail(text: str) -> str:
    """The last lines of an error."""
    return "\n".join(text.strip().splitlines()[-_ERROR_LINES:])

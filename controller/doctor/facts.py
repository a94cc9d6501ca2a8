"""The facts of a trial: how they are read, and the words for a place and a difference. Pure.

*Facts* come from `ckpt.controller.doctor.trial` (and there from the rank's side, `ckpt.doctor`): what the program did,
and the lines that each rank wrote, each of one kind (`lines_of`).

Not here: what follows from them (`problems`, `report`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "OUTPUT_BYTES",
    "Facts",
    "did",
    "last_samples",
    "lines_of",
    "listed",
    "output_of",
    "place",
    "position",
]

Facts = Mapping[str, Any]
OUTPUT_BYTES = 64 << 20
"""So much of a rank's output is kept and compared."""
_NAMES_SHOWN = 5


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


def did(difference: Mapping[str, Any]) -> str:
    return "wrote" if "path" in difference else "printed"


def output_of(difference: Mapping[str, Any]) -> str:
    return f"file {difference['path']}" if "path" in difference else f"output of rank {difference['rank']}"


def position(difference: Mapping[str, Any]) -> str:
    return f"byte {difference['byte']}" if "byte" in difference else f"line {difference['line']}"


def listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def place(where: str) -> str:
    """``frame 3 (solve) local 'x'`` → ``solve() variable 'x'``; modules likewise. Equal places get equal texts."""
    text = re.sub(r"^frame \d+ \((.*?)\) local ", r"\1() variable ", where)
    text = re.sub(r"^frame \d+ \((.*?)\)", r"\1()", text)
    return re.sub(r"^module (\S+) variable ", r"\1 variable ", text)

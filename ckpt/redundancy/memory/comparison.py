"""Do the replicas of a rank hold the same in memory, at the same place of the program? Pure.

A *place* is a number: so often has the program started an operation of the library (a send, a collective, a question that
the leader answers). All replicas start the same operations in the same order, so at one place all of them have the same
variables, whatever the time. Receives that name their source do not count: one whose message is there already takes a way of
its own. A comparison of one rank:

    asked ──all have told where they are──▶ placed: a place in front of all ──▶ each tells what it holds as it comes there
      ▲                                       │
      └── one was there already: a place further on, TRIES_MAX times ───────────┘

Compared is what all have under the same name with the same type and shape, block by block, without blocks that are *open* in
one of them (:mod:`ckpt.redundancy.memory.arrays`). What else replicas hold may differ by design, and is not compared.

A value (`VALUE`, or a row of them) that is another one in each of three replicas or more is no error of one of them: the
program does not compute it alike. It is named (`unlike`), and from then on not compared.

    same        nothing differs
    differs     `odd` planes have other content than enough others that are independent of one another; empty: nobody knows
    none        it could not be compared: `reason`; `is_excused` where that follows from the program, which has ended or has
                threads, so that no other place would help

Not here: when this is done, what follows from it (:mod:`ckpt.controller.replicas`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

__all__ = ["BLOCKS", "VALUE", "Comparison", "Difference", "Record", "difference", "parse"]

Decides = Callable[[Collection[int], Collection[int]], bool]
"""Do these planes, which agree, count against those others? (`ckpt.redundancy.membership.Lineage.decides`)"""

BLOCKS = 64
"""An array is compared in at most so many blocks."""

VALUE = "value"
"""The form of a single value. Its digest is the value itself, where that is a short number; others have a "#" in it."""

VALUES = (VALUE, "values")
"""So end the forms of single values and of rows of them."""

TRIES_MAX = 16
"""So many places are tried, each twice as far in front of the replicas as the one before."""


class Record(NamedTuple):
    """What a replica tells of one variable. `form`: type and shape; `block_bytes`, `row_bytes`; a digest for each block;
    numbers of the blocks that are open."""

    form: str
    block_bytes: int
    row_bytes: int
    digests: tuple[str, ...]
    opened: tuple[int, ...]


class Difference(NamedTuple):
    """`odd`: the planes that are wrong, as far as that can be told; `text` names variable and block."""

    odd: tuple[int, ...]
    variable: str
    block: int
    text: str


def parse(told: object) -> dict[str, Record]:
    """The records of a packet; what is not well-formed is left out, and then not compared."""
    found: dict[str, Record] = {}
    for name, row in told.items() if isinstance(told, dict) else ():
        if type(row) is str:
            found[name] = Record(VALUE, 1, 1, (row,), () if row else (0,))
            continue
        if not isinstance(row, list) or [type(value) for value in row] != [str, int, int, list, list]:
            continue
        texts, opened = row[3], row[4]
        if all(type(text) is str for text in texts) and all(type(number) is int for number in opened):
            found[name] = Record(row[0], row[1], row[2], tuple(texts), tuple(opened))
    return found


def difference(
    told: Mapping[int, Mapping[str, Record]], needed: int, decides: Decides, unlike: set[str] | None = None
) -> Difference | None:
    """The first block that differs between the planes, of what each has `told`; None: all is the same. Values with a name in
    `unlike` are not compared; those that are others in each plane are put into it."""
    planes = sorted(told)
    known = set() if unlike is None else unlike
    found: Difference | None = None
    for name, first in told[planes[0]].items():
        records = {plane: told[plane].get(name) for plane in planes}
        if any(each is None or each[:3] != first[:3] for each in records.values()):
            continue  # not all have it, or in another form
        present = {plane: each for plane, each in records.items() if each is not None}
        opened = {number for each in present.values() for number in each.opened}
        for block in range(min(len(each.digests) for each in present.values())):
            if block in opened:
                continue
            ballots: dict[str, list[int]] = {}
            for plane, each in present.items():
                ballots.setdefault(each.digests[block], []).append(plane)
            if first.form.endswith(VALUES) and len(ballots) == len(planes) > 2:
                known.add(name)
            elif len(ballots) > 1 and name not in known and found is None:
                odd = _odd(ballots, needed, decides)
                found = Difference(odd, name, block, _text(name, first, block, ballots))
    return found


def _odd(ballots: Mapping[str, list[int]], needed: int, decides: Decides) -> tuple[int, ...]:
    most = max(ballots.values(), key=len)
    others = [plane for planes in ballots.values() for plane in planes if planes is not most]
    return tuple(sorted(others)) if len(most) >= needed and decides(most, others) else ()


def _text(name: str, record: Record, block: int, ballots: Mapping[str, list[int]]) -> str:
    if record.form == VALUE:
        if any("#" in text for text in ballots):
            return f"variable {name}"
        rows = [f"{text} in replica {' and '.join(map(str, planes))}" for text, planes in ballots.items()]
        return f"variable {name} ({', '.join(rows)})"
    if len(record.digests) == 1:
        return f"variable {name}"
    first = block * record.block_bytes
    last = first + record.block_bytes - 1
    return f"variable {name}, block {block} (rows {first // record.row_bytes} to {last // record.row_bytes})"


class Comparison:
    """The comparison of one rank, between the `planes`."""

    def __init__(
        self, planes: Collection[int], needed: int, decides: Decides, unlike: set[str] | None = None
    ) -> None:
        self.planes, self.needed, self.decides = set(planes), needed, decides
        self.place = 0
        self.tries = 0
        self.at: dict[int, int] = {}
        self.told: dict[int, dict[str, Record]] = {}
        self.missing: dict[int, int] = {}
        self.where: dict[int, str] = {}
        self.outcome = ""
        self.reason = ""
        self.is_excused = False
        self.found: Difference | None = None
        self.unlike: set[str] = set() if unlike is None else unlike
        """Values that are others in each of three planes; those of former comparisons are not compared."""
        self.is_to_ask = True
        """The planes are to be asked for `place`."""
        self._step = 1

    def was_at(self, plane: int, place: int, at: int) -> None:
        """A replica has started `at` operations: so it has passed `place`, or has been asked for none (0)."""
        if self.outcome or plane not in self.planes or place != self.place:
            return
        self.at[plane] = at
        if place or self.planes <= self.at.keys():
            self._place_again()

    def tells(self, plane: int, place: int, where: str, parts: int, records: Mapping[str, Record]) -> None:
        """A part of what a replica holds. `where`: the functions that its program is in."""
        if self.outcome or plane not in self.planes or place != self.place or not place:
            return
        self.told.setdefault(plane, {}).update(records)
        self.where[plane] = where
        self.missing[plane] = self.missing.get(plane, parts) - 1
        self._look()

    def cannot(self, plane: int, reason: str, *, is_excused: bool = False) -> None:
        """A replica tells why it has nothing to compare."""
        if not self.outcome and plane in self.planes:
            self.outcome, self.reason, self.is_excused = "none", reason, is_excused

    @property
    def is_verified(self) -> bool:
        """Has all been compared that can be, and was it the same?"""
        return self.outcome == "same" or (self.outcome == "none" and self.is_excused)

    def left(self, planes: Collection[int]) -> None:
        """Only these planes compute."""
        if self.outcome or self.planes <= set(planes):
            return
        self.planes &= set(planes)
        if not self.place and self.planes <= self.at.keys():
            self._place_again()
        self._look()

    def _place_again(self) -> None:
        if self.tries == TRIES_MAX:
            self.outcome, self.reason = "none", "the replicas were always too fast"
            return
        self.place = max([self.place, *self.at.values()]) + self._step
        self._step, self.tries, self.is_to_ask = 2 * self._step, self.tries + 1, True
        self.told, self.missing, self.where = {}, {}, {}

    def _look(self) -> None:
        if len(self.planes) < 2:
            self.outcome, self.reason = "none", "one replica is left"
        elif all(self.missing.get(plane, 1) == 0 for plane in self.planes):
            told = {plane: self.told[plane] for plane in self.planes}
            if len({self.where[plane] for plane in self.planes}) > 1:
                self.outcome, self.reason = "none", "the replicas are in different functions"
                return
            self.found = difference(told, self.needed, self.decides, self.unlike)
            self.outcome = "same" if self.found is None else "differs"

    def summary(self) -> dict[str, Any]:
        """For the event log: how many variables have been compared, or why not."""
        if self.outcome in ("", "none"):
            return {"reason": self.reason or "not all replicas have come to the place"}
        return {"variables": min(len(told) for told in self.told.values())}

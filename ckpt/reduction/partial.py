"""Decides who takes part in a reduction that does not wait for everybody, and reports who is late, slow or gone. (pure)

    open       everybody who lives may still call
    closed     who has called by then takes part, and nobody else: the quorum is reached, the deadline has passed, or
               everybody who lives has called

`Attendance` records that for the master. Who contributed is part of the outcome, so it is the same at every rank.
Source: partial collectives and eager-SGD (arXiv 1908.04207): solo and majority are `quorum=1` and `quorum=0.5`.

Not here: clocks (the driver says when a deadline has passed), what is done with a late contribution (service.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ckpt.reduction.messages import Contract, Key, Outcome, Path, ranks_of

SLOW_FACTOR = 5
SLOW_TASKS = 50
SLOW_LEAST_NS = 5_000_000
_SHOWN = 4  # reductions in one line of `ckpt status`


def quorum_of(quorum: int | float | None, size: int) -> int:
    """A quorum as a number of ranks; 0: none. A float is a fraction of `size` in (0, 1], rounded up.

    Raises ValueError if there cannot be so many ranks.
    """
    if quorum is None:
        return 0
    if isinstance(quorum, bool) or not isinstance(quorum, (int, float)):
        raise ValueError(f"quorum is a number of ranks or a fraction, not {quorum!r}")
    if isinstance(quorum, float) and not 0 < quorum <= 1:
        raise ValueError(f"quorum as a fraction is above 0 and at most 1, not {quorum!r}")
    count = math.ceil(round(quorum * size, 9)) if isinstance(quorum, float) else quorum
    if not 1 <= count <= size:
        raise ValueError(f"quorum is a number of ranks from 1 to {size}, not {quorum!r}")
    return count


def difference(theirs: Contract, ours: Contract) -> str:
    """In which options, as a program gives them, a call differs from the first one."""
    return ", ".join(
        f"{_OPTIONS.get(name, name)} is {_said(name, their)} there and {_said(name, our)} elsewhere"
        for name, their, our in zip(Contract._fields, theirs, ours, strict=True)
        if their != our
    )


_OPTIONS = {
    "content": "what is reduced",
    "deadline_ns": "deadline_s",
    "commutative": "that the operation commutes",
}


def _said(name: str, value: Any) -> str:
    if name == "root" and value < 0:
        return "none (allreduce)"
    if name == "content":
        what, _, op = str(value).rpartition("|")
        return f"{what} with {op.replace('_', '.', 1)}" if op else what
    if name in ("quorum", "deadline_ns") and not value:
        return "None"
    return repr(value / 1e9 if name == "deadline_ns" else value)


def event_of(key: Key, outcome: Outcome, dead: Path, tolerant: bool, told: Path = 0) -> dict[str, Any]:
    """The line for the job's event log: its `name` and fields; empty if there is nothing to tell. `tolerant`: ranks may be
    missing, so that is none. `told`: that these are missing was told before."""
    fields: dict[str, Any] = {"reduction": key[0] or str(key[1])}
    gone = list(ranks_of(dead))
    if outcome.error in ("ContributionLost", "RootLost"):
        return {
            "name": "reduction-lost",
            **fields,
            "ranks": list(ranks_of(outcome.ranks)),
            "reason": outcome.text,
        }
    if outcome.error:
        return {}
    if outcome.missing and outcome.missing != told and not tolerant:
        return {"name": "reduction-partial", **fields, "missing": list(ranks_of(outcome.missing))}
    if outcome.contributors & dead:
        saved = list(ranks_of(outcome.contributors & dead))
        return {"name": "reduction-recovered", **fields, "ranks": saved, "dead": gone}
    return {}


def pending_text(
    pending: Mapping[Key, tuple[Contract | None, Path | None]], counts: Mapping[str, int]
) -> str:
    """For `ckpt status`: what is pending at a rank, and whom it waits for, as far as the rank knows. `counts`: how many of
    each name the rank has called."""
    texts = []
    for key, (_, waits) in pending.items():
        text = repr(key[0]) if key[0] else f"number {key[1]}"
        if waits:
            text += f" waits for ranks {', '.join(map(str, ranks_of(waits)))}"
        elif key[1] >= counts.get(key[0], 0):
            text += ", not called here"
        texts.append(text)
    most = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"reductions pending: {'; '.join(texts[:_SHOWN])}{most}" if texts else ""


class Pace:
    """Who is slow, and stays so, as the master sees it. Told once, until the rank is as fast as the others again."""

    __slots__ = ("_count", "_last")

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def look(self, times: Mapping[int, int]) -> list[dict[str, Any]]:
        """`times`: nanoseconds of each rank's last task. Returns the ranks that are slow for `SLOW_TASKS` tasks by now."""
        found = []
        for rank, elapsed_ns in times.items():
            others = sorted(each for other, each in times.items() if other != rank)
            if not others or self._last.get(rank) == elapsed_ns:
                continue
            self._last[rank] = elapsed_ns
            usual_ns = others[len(others) // 2]
            is_slow = elapsed_ns > SLOW_FACTOR * usual_ns and elapsed_ns > SLOW_LEAST_NS
            self._count[rank] = self._count.get(rank, 0) + 1 if is_slow else 0
            if self._count[rank] == SLOW_TASKS:
                found.append(
                    {"slow": rank, "ms": round(elapsed_ns / 1e6, 1), "others_ms": round(usual_ns / 1e6, 1)}
                )
        return found


class Attendance:
    """Who may still contribute and who has. All sets of ranks are paths."""

    __slots__ = ("closed", "deadline", "expired", "gone", "joined", "quorum", "size")

    def __init__(self, size: int, quorum: int = 0, deadline: bool = False) -> None:
        self.size, self.quorum, self.deadline = size, quorum, deadline
        self.joined = 0
        self.gone = 0
        """Ranks whose contribution cannot come any more, or is lost."""
        self.closed = self.expired = False

    @property
    def possible(self) -> Path:
        """Who is, or may still be, a contributor."""
        return self.joined if self.closed else ((1 << self.size) - 1) & ~self.gone

    @property
    def complete(self) -> bool:
        """Nobody is waited for any more."""
        return self.possible == self.joined

    @property
    def tolerant(self) -> bool:
        """Ranks that never come are not an error."""
        return bool(self.quorum) or self.deadline

    def join(self, rank: int) -> bool:
        """A rank has called. False: it is late, or gone."""
        if self.closed or self.gone >> rank & 1:
            return bool(self.joined >> rank & 1)
        self.joined |= 1 << rank
        if self.expired or (self.quorum and self.joined.bit_count() >= self.quorum):
            self.closed = True
        return True

    def leave(self, path: Path) -> None:
        """The contributions of these ranks are lost, or will never come."""
        self.joined &= ~path
        self.gone |= path

    def expire(self) -> None:
        """The deadline has passed. If nobody has called, the first one to call is the only one."""
        self.expired, self.closed = True, self.closed or self.joined != 0

    @property
    def short(self) -> bool:
        """The quorum cannot be reached: all that can contribute have, and they are fewer."""
        return self.complete and self.joined.bit_count() < self.quorum

    @property
    def why_short(self) -> tuple[str, Path]:
        """A text for that, and the ranks that are missing."""
        if not self.expired:
            return (
                f"{self.joined.bit_count()} ranks can contribute, and the quorum is {self.quorum}",
                self.gone,
            )
        missing = ((1 << self.size) - 1) & ~self.joined
        names = ", ".join(map(str, ranks_of(missing)))
        return (
            f"the quorum is {self.quorum}, and by the deadline these ranks had not called: {names}",
            missing,
        )

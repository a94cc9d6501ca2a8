"""An operation of all ranks of a grid that goes on when one dies: meet, follow what all decide alike, go on.

    meet → follow → go → meet → … → all have the result

from anywhere back to the first, when a call is interrupted (link.py). An exception of any rank is told at the meeting that
follows, so that all ranks raise: nobody waits for a rank that has given up. While nothing fails, there are two
meetings and no other collective call.

`Protected` is that loop; an operation gives it `follow` (decide, from what all have said) and `go` (compute and
communicate). `raise_problems` and `told` are also the solve's (solve.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import ckpt
from ckpt.abft import errors
from ckpt.abft.decisions.progress import Progress
from ckpt.abft.errors import AbftError, InputError, RankFailed
from ckpt.abft.solver.link import Interrupted, Link
from ckpt.abft.solver.report import Loss

__all__ = ["Protected", "log_corrected", "log_loss", "put_right", "raise_problems", "told"]


class _Said(Protocol):
    @property
    def problem(self) -> str | None: ...
    @property
    def signature(self) -> str: ...
    @property
    def corrected(self) -> int: ...
    @property
    def redone(self) -> int: ...


def told(error: Exception) -> str:
    """An exception as it is told at a meeting."""
    if isinstance(error, AbftError):
        text = str(error)
    else:
        text = " ".join(str(error).split()) or "(no text)"
    return f"{type(error).__name__}: {text}"


def raise_problems(states: Mapping[int, _Said], operation: str) -> None:
    """Raise what a rank has told, at all ranks; the lowest one's, if there are several."""
    for rank, state in sorted(states.items()):
        if state.problem is not None:
            name, _, text = state.problem.partition(": ")
            kind = getattr(errors, name, None)
            if kind is None:
                raise RankFailed(f"rank {rank} raised {state.problem}")
            raise kind(f"rank {rank}: {text}")
    said = {state.signature: rank for rank, state in sorted(states.items(), reverse=True)}
    if len(said) > 1:
        (one, at), (other, there) = sorted(said.items(), key=lambda item: item[1])[:2]
        raise InputError(
            f"ranks {at} and {there} called {operation} with different arguments: {one}; {other}"
        )


def log_loss(operation: str, loss: Loss, *, recovered: bool = False) -> None:
    """Write to the job's log what came of a death. To be called at one rank. `recovered`: replaced columns are computed back
    at once."""
    for happened, column in loss.happened:
        fields = {
            "operation": operation,
            "ranks": sorted({*loss.ranks, *loss.corrupt}),
            "step": loss.step if loss.steps else None,
            "steps": loss.steps or None,
        }
        if happened == "replaced":
            ckpt.log_event("abft-recovered" if recovered else "abft-replaced", column=column, **fields)
        elif happened in ("again", "recovered"):
            ckpt.log_event("abft-recovered", column=column if column >= 0 else None, **fields)


def put_right(states: Mapping[int, _Said]) -> tuple[int, int]:
    """How many wrong numbers all have put right, and how often something was made, or sent, again."""
    said = states.values()
    return sum(each.corrected for each in said), sum(each.redone for each in said)


def log_corrected(operation: str, corrected: int, redone: int = 0) -> None:
    """Write to the job's log that so many wrong numbers were put right, and how often something was made again. To be called
    at one rank."""
    for what, count in (("corrected", corrected), ("computed again", redone)):
        if count:
            ckpt.log_event("abft-corrected", operation=operation, what=what, count=count, place=None)


class Protected:
    """One call of an operation. `signature`: of its arguments, the same at all ranks. `problem`: an error in them."""

    operation = ""

    def __init__(self, link: Link, signature: str, problem: str | None = None) -> None:
        self.began = time.perf_counter()
        self.link = link
        self.signature, self.problem = signature, problem
        self.states: Mapping[int, Progress] = {}
        self.losses: list[Loss] = []
        self.seen_ns = 0
        self.meetings = self.checked = 0

    def progress(self) -> Progress:
        """What this rank says at a meeting, but for problem and signature."""
        raise NotImplementedError

    def follow(self, states: Mapping[int, Progress]) -> bool:
        """Take the decision that all take alike. True: everybody has the result."""
        raise NotImplementedError

    def go(self) -> None:
        """Go on to the result. Any communication in it may be interrupted."""
        raise NotImplementedError

    def taken_in(self, said: Progress, states: Mapping[int, Progress]) -> Mapping[int, Progress]:
        """What all have said, and new processes, if there are to be some. `said`: by this rank."""
        return states

    def said(self) -> Progress:
        """What this rank says at a meeting."""
        return self.progress()._replace(
            problem=self.problem,
            signature=self.signature,
            checked=self.checked,
            redone=self.link.spoilt,
        )

    def run(self, begins: Mapping[int, Progress] | None = None) -> None:
        """To the result, at all living ranks; or raise the same error at all of them. `begins`: what all have said, if this
        rank was started meanwhile."""
        original: Exception | None = None
        try:
            while True:
                said = self.said()
                states = self.link.meet(said) if begins is None else begins
                begins = None
                try:
                    raise_problems(states, self.operation)
                except RankFailed as failed:
                    raise (original if original is not None else failed) from None
                self.states = self.taken_in(said, states)
                if self.follow(self.states):
                    return
                self.meetings += 1
                try:
                    self.go()
                    self.checked = self.meetings
                except Interrupted:
                    self.seen_ns = self.seen_ns or time.perf_counter_ns()
                except Exception as error:
                    original, self.problem = error, told(error)
                if self.problem is not None or self.seen_ns:
                    self.link.end()
        finally:
            self.link.close()

    def all_checked(self, died: Sequence[int]) -> bool:
        """Does everybody have the result, looked at by all since the last meeting?"""
        everybody = self.states.values()
        return not died and all(each.done and each.checked == self.meetings for each in everybody)

    def note(self, died: Sequence[int], step: int, steps: int, happened: Sequence[tuple[str, int]]) -> None:
        """Note what came of deaths, for the report and the job's log."""
        if died:
            took_ms = (time.perf_counter_ns() - (self.seen_ns or time.perf_counter_ns())) / 1e6
            loss = Loss(tuple(died), (), step, steps, tuple(happened), took_ms, 0)
            self.losses.append(loss)
            if self.link.rank == min(self.states):
                log_loss(self.operation, loss)
        self.seen_ns = 0

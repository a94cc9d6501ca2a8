"""Which committed line the ranks start from, and what follows when they cannot. Pure.

    newest     the line that the next incarnation starts from; None: the start of the program
    behind     newer lines than that are on disk, and the job's record does not say yet that they are left behind: it has to
               before ranks go on from an older one (`SetBranch`)

A line that a rank cannot go on from, whatever the reason (a damaged block, a disk error, a module that is missing), is set
aside, and the next older one tried; each is named. It stays on disk: what stood in the way may be mended. A rank that is
killed while it loads a line is an accident, until it has happened `DEATHS` times to the same line.

Where none is left the choice is that of a job which never committed anything: `start_over` (`ckpt run`) begins with
the program's start, and says so; else (`ckpt restart`) the job ends with code 12, and the user decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ckpt.controller.errors import EXIT_UNRECOVERABLE
from ckpt.controller.supervision.events import Action, End, Log, Say

DEATHS = 3


class Lines:
    """Of one supervisor. `epochs`: the lines that may be used, ascending."""

    def __init__(self, epochs: Iterable[int], *, start_over: bool = False, behind: bool = False) -> None:
        self.epochs = sorted(epochs)
        self.start_over = start_over
        self.behind = behind
        self._deaths = 0

    @property
    def newest(self) -> int | None:
        return self.epochs[-1] if self.epochs else None

    def committed(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def keep(self, epochs: Collection[int]) -> None:
        """Only these are left on disk."""
        self.epochs = [epoch for epoch in self.epochs if epoch in epochs]

    def loaded(self) -> None:
        """All ranks have loaded the newest line."""
        self._deaths = 0

    def origin(self) -> str:
        """Where the next incarnation starts, in words."""
        if self.epochs:
            return f"epoch {self.epochs[-1]}"
        return "the start (no checkpoint can be used)" if self.behind else "the start (nothing was committed)"

    def died_loading(self) -> bool:
        """A rank was killed while it loaded the newest line. True: once too often, and there is an older one."""
        self._deaths += 1
        return self._deaths >= DEATHS and len(self.epochs) > 1

    def set_aside(self, rank: int, why: str) -> tuple[list[Action], End | None]:
        """The newest line cannot be used by `rank`: what is said, and the job's end, if it is one."""
        bad = self.epochs.pop()
        self.behind, self._deaths = True, 0
        said: list[Action] = [Log("line-unusable", {"epoch": bad, "rank": rank, "reason": why})]
        trouble = f"rank {rank} cannot go on from epoch {bad}"
        if self.epochs:
            said.append(Say(f"{trouble}, trying epoch {self.epochs[-1]}: {why}"))
            return said, None
        if self.start_over:
            said.append(Log("starting-over", {"epoch": bad, "reason": why}))
            said.append(Say(f"{trouble}, and there is no other checkpoint: the program starts over: {why}"))
            return said, None
        reason = (
            f"{trouble}, and there is no other checkpoint: {why}; once that is mended `ckpt restart JOB@{bad}` goes on from "
            "there; `ckpt run --resume auto` starts the program over"
        )
        return said, End(EXIT_UNRECOVERABLE, reason, "interrupted")

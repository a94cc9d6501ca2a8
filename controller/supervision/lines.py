"""The committed line from which the ranks start, and the next choice when they cannot load it. Pure.

    newest         the line from which the next incarnation starts; None: the start of the program
    needs_branch   newer lines are on disk, and the job's record does not yet say that they do not count any more: a
                   `SetBranch` has to come before ranks go on from an older line

    absent         ranks that were dead for good when a line was taken (``--on-failure continue``): it has no images of them,
                   and they are not started again from it

If a rank cannot go on from a line, whatever the reason (a damaged block, a disk error, a missing module), or a copy of the
program's files that the line needs is damaged, the line is excluded and the next older one is tried; a message names each
such line. The line stays on disk, because the cause may be removed later. If a rank is killed while it loads a line, the
line is tried again, until this has happened `DEATHS` times.

If no line is left, the rule is that of a job that never committed anything: with `start_over` (`ckpt run`) the program
starts from its beginning, and a message says so; otherwise (`ckpt restart`) the job ends with code 12: the user decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from ckpt.controller.errors import EXIT_UNRECOVERABLE
from ckpt.controller.supervision.events import Action, End, Log, Say

DEATHS = 3


NOBODY: frozenset[int] = frozenset()


def ranks_text(ranks: Collection[int]) -> str:
    """ "rank 3", "ranks 1, 3"."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"


class Lines:
    """The lines of one supervisor. `epochs`: the lines that may be used, in ascending order; `absent`: by epoch."""

    def __init__(
        self,
        epochs: Iterable[int],
        *,
        start_over: bool = False,
        needs_branch: bool = False,
        absent: Mapping[int, Iterable[int]] = MappingProxyType({}),
    ) -> None:
        self.epochs = sorted(epochs)
        self.absent = {epoch: frozenset(ranks) for epoch, ranks in absent.items() if ranks}
        self.start_over = start_over
        self.needs_branch = needs_branch
        self._deaths = 0

    @property
    def newest(self) -> int | None:
        return self.epochs[-1] if self.epochs else None

    def committed(self, epoch: int, absent: frozenset[int] = NOBODY) -> None:
        self.epochs.append(epoch)
        if absent:
            self.absent[epoch] = absent

    def keep(self, epochs: Collection[int]) -> None:
        """Forget all lines but `epochs`, which are left on disk."""
        self.epochs = [epoch for epoch in self.epochs if epoch in epochs]
        self.absent = {epoch: ranks for epoch, ranks in self.absent.items() if epoch in epochs}

    def without(self, epoch: int | None) -> frozenset[int]:
        """The ranks that this line (None: the start of the program) has no images of."""
        return NOBODY if epoch is None else self.absent.get(epoch, NOBODY)

    def newest_with(self, absent: frozenset[int]) -> int | None:
        """The newest line that has all ranks but those that are `absent`; None: there is none."""
        return next((epoch for epoch in reversed(self.epochs) if self.without(epoch) <= absent), None)

    def go_back(self, absent: frozenset[int]) -> None:
        """The next incarnation needs all ranks but those that are `absent`: lines that lack more are passed over."""
        while self.epochs and not self.without(self.epochs[-1]) <= absent:
            self.epochs.pop()
            self.needs_branch = True

    def loaded(self) -> None:
        """All ranks have loaded the newest line."""
        self._deaths = 0

    def origin(self) -> str:
        """A text that says where the next incarnation starts."""
        if self.epochs:
            return f"epoch {self.epochs[-1]}"
        return (
            "the start (no checkpoint can be used)"
            if self.needs_branch
            else "the start (nothing was committed)"
        )

    @property
    def has_older(self) -> bool:
        """Is there a line besides the newest one?"""
        return len(self.epochs) > 1

    def died_loading(self) -> bool:
        """A rank was killed while it loaded the newest line. True: this happened too often, and there is an older line."""
        self._deaths += 1
        return self._deaths >= DEATHS and self.has_older

    def exclude(self, rank: int | None, why: str, who: str = "") -> tuple[list[Action], End | None]:
        """Exclude the newest line, which `rank` cannot use (None: to which files cannot be put back). `who`: its name.

        Returns (log lines and messages, the job's end or None).
        """
        bad = self.epochs.pop()
        self.needs_branch, self._deaths = True, 0
        actions: list[Action] = [Log("line-unusable", {"epoch": bad, "rank": rank, "reason": why})]
        trouble = f"{who or 'the job'} cannot go on from epoch {bad}"
        if self.epochs:
            actions.append(Say(f"{trouble}, trying epoch {self.epochs[-1]}: {why}"))
            return actions, None
        if self.start_over:
            actions.append(Log("starting-over", {"epoch": bad, "reason": why}))
            actions.append(
                Say(f"{trouble}, and there is no other checkpoint, trying the start of the program: {why}")
            )
            return actions, None
        reason = (
            f"{trouble}, and there is no other checkpoint: {why}; once that is mended `ckpt restart JOB@{bad}` goes on from "
            "there; `ckpt run --resume auto` starts the program over"
        )
        return actions, End(EXIT_UNRECOVERABLE, reason, "interrupted")

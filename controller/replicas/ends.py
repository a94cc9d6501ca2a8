"""What planes have come to at their end, and which of them agree. Pure.

A plane has finished, or some of its ranks have failed. Which of these is seen first is a matter of time: a program that
raises the same error in all its ranks fails first in rank 0 in one plane, and in rank 2 in the other. So a plane counts for
the end of each rank of it that has failed, and its other processes, which nobody ends, may still come to that of the others.

    agree        both finished · one rank has failed in both, with the same exit code, after as many messages and changes of
                 files of its program
    contrary     one finished, one failed · a rank has failed in both, but not so
    open         other ranks have failed: not known yet

Two replicas that have got different errors may well fail with the same exit code, but hardly at the same place. A process
that ends without a word (`os._exit`) does not tell how many messages it has sent: then the exit code counts.

Not here: how many have to agree (`supervisor`).
"""

from __future__ import annotations

from ckpt.controller.replicas.inquiries import Outcome

FINISHED: Outcome = ("finished",)


class Ends:
    """The ends of ranks, by plane."""

    def __init__(self) -> None:
        self.failures: dict[int, dict[int, tuple[int, ...]]] = {}

    def failed(self, plane: int, rank: int, code: int, sent: tuple[int, ...] = ()) -> None:
        """`rank` has failed in this plane, after so many messages and changes (`sent`; empty: not told); what is told first
        counts."""
        self.failures.setdefault(plane, {}).setdefault(rank, (code, *sent))

    def forget(self, plane: int) -> None:
        """The plane is lost: what comes in its place has not failed."""
        self.failures.pop(plane, None)

    def ballots(self, planes: dict[int, Outcome]) -> dict[Outcome, list[int]]:
        """By end, the planes that have come to it; `planes`: what each has come to first."""
        found: dict[Outcome, list[int]] = {}
        for plane, outcome in planes.items():
            failures = self.failures.get(plane, {})
            ends = (
                [outcome]
                if outcome == FINISHED
                else [("failed", rank, *how) for rank, how in failures.items()]
            )
            for end in ends:
                found.setdefault(end, []).append(plane)
        return found

    def is_contrary(self, plane: int, outcome: Outcome, end: Outcome) -> bool:
        """Can this plane, which has come to `outcome` first and not to `end`, not come to `end` any more?"""
        if FINISHED in (outcome, end):
            return True
        return end[1] in self.failures.get(plane, {})

    def may_agree(self, planes: dict[int, Outcome]) -> bool:
        """Can any two of these planes, none of which agree, still do so?"""
        if sum(outcome != FINISHED for outcome in planes.values()) < 2:
            return False
        ballots = self.ballots(planes)
        return any(
            not self.is_contrary(plane, outcome, end)
            for plane, outcome in planes.items()
            for end, agree in ballots.items()
            if plane not in agree
        )


def came_to(plane: int, outcome: Outcome) -> str:
    if outcome == FINISHED:
        return f"replica {plane} of all ranks finished"
    return f"replica {plane} of rank {outcome[1]} failed with exit code {outcome[2]}"

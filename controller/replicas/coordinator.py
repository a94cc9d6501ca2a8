"""Checkpoint rounds of a job whose ranks are computed by several processes each. Pure.

The images of a line are those of one plane, the one that leads (`donor`). As in every round the processes of that plane are
asked, take their images, and vote. All others take the number of the epoch only, since planes exchange choices, which carry
it. They are told of the epoch when all images are taken: an earlier message of theirs would have the image taken at once
where it is still to be taken, which is not possible while a process waits for them inside a change of files. Then the line
is verified:

    collecting ──all votes──▶ verifying ──most replicas have sent the same before it, and what it has printed
                                 │         has been printed by most──▶ writing ──▶ committed, verified
                                 ├── one plane is left ──▶ writing ──▶ committed, *not verified*
                                 └── replicas differ · too far ahead · timeout · the donor is lost ──▶ burnt

The vote is `ckpt.redundancy.lines`. A line that is not verified is on disk, and said to be so; no restart uses it by itself.
A plane that is lost leaves the others with their rounds: if it was the donor's, the open round is burnt, and the next plane
takes the next one. A copy that joins has a voice from the next round on. Where one plane alone has gone on for a time, what
it computed then was compared with nothing, and all copies of it have it: no line is verified any more until all planes are
started again (`was_alone`).

Another rank's leader, whose image is taken, may have brought the number of the epoch to the replicas that a process waits
for inside a change of files. Then the round fails, and holds that process up for a moment. So the schedule's next round
comes a moment later (AGAIN_NS), AGAIN_MAX times in a row, and not when it would after other failures.

Not here: rounds in general (`ckpt.controller.supervision.coordinator`), which planes live (`supervisor`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ckpt.controller.replicas.events import AwaitPrinted, LineTold
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    Captured,
    ControlWritten,
    Failed,
    RoundEvent,
    Send,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.rounds import Round
from ckpt.redundancy.lines import LineVote
from ckpt.redundancy.membership import Lineage, Numbering
from ckpt.redundancy.vote import Mark
from ckpt.transport.records import replace

COUNTS_OF_A_PACKET = 1000

AGAIN_MAX = 3
AGAIN_NS = 200_000_000


class ReplicaCoordinator(Coordinator):
    """`size`: number of processes with which all begins, n·N; `replicas`: N."""

    def __init__(self, size: int, *, replicas: int, lineage: Lineage | None = None, **options: Any) -> None:
        super().__init__(size, **options)
        self.replicas = replicas
        self.numbers = Numbering(size // replicas, replicas)
        self.lineage = Lineage() if lineage is None else lineage
        self.needed = replicas // 2 + 1
        self.begin()

    def begin(self) -> None:
        """All planes are started."""
        self.planes = set(range(self.replicas))
        self.lineage.begin()
        self.was_alone = False
        self.burnt = ""
        """Why the last round was burnt."""
        self.vote: LineVote | None = None
        self.is_printed = False
        self.votes: list[Voted] = []
        self.told: dict[int, tuple[dict[str, Mark], int]] = {}
        """What each process has told for the line of the open round, and how many parts of it are to come."""
        self.again = AGAIN_MAX
        """So many rounds that a rank gives up are tried again at once, before the next line."""
        self.written: dict[int, int] = {}
        """By rank, the length of the donor's standard output in its image."""

    @property
    def donor(self) -> int:
        return min(self.planes)

    @property
    def members(self) -> tuple[int, ...]:
        return self.numbers.of_plane(self.donor)

    def rank_of(self, process: int) -> int:
        return self.numbers.parts(process)[0]

    def joined(self, plane: int) -> None:
        """A copy has a voice from now on."""
        self.planes.add(plane)

    def want(self, now_ns: int) -> list[Action]:
        """Take a line as soon as it can be had."""
        self.wanted = True
        return self._maybe_start(now_ns)

    def left(self, planes: Collection[int], why: str, now_ns: int) -> list[Action]:
        """Only these planes are left, at least one."""
        former, self.planes = self.donor, set(planes)
        if self.round is None:
            return self._maybe_start(now_ns)
        if self.round.writing:
            return []
        if self.donor != former:
            self.vote = None
            return [*self._burn(why, keep_requests=True), *self._maybe_start(now_ns)]
        if self.vote is not None:
            self.vote.drop(self.vote.others - self.planes)
            if self.vote.is_too_small and len(self.planes) >= self.needed:  # a copy has joined meanwhile
                self.vote, self.wanted = None, True
                return [*self._burn(why, keep_requests=True), *self._maybe_start(now_ns)]
        return self._look(now_ns)

    def line_told(self, event: LineTold, now_ns: int) -> list[Action]:
        """A process has told a part of its marks for a line."""
        rank, plane = self.numbers.parts(event.rank)
        if self.round is None or self.round.writing or event.epoch != self.round.epoch:
            return []
        if plane not in self.planes:
            return []
        marks, left = self.told.get(event.rank, ({}, event.parts))
        marks |= event.marks
        self.told[event.rank] = marks, left - 1
        if plane == self.donor and event.written is not None:
            self.written[rank] = event.written
        if self.vote is not None and plane != self.donor and left == 1:
            self.vote.answer(rank, plane, marks)
            return self._look(now_ns)
        return []

    def printed(self, epoch: int, now_ns: int) -> list[Action]:
        """What the line of `epoch` has printed has been printed by most replicas."""
        if self.round is None or self.round.epoch != epoch:
            return []
        self.is_printed = True
        return self._look(now_ns)

    def handle(self, event: RoundEvent, *, now_ns: int) -> list[Action]:
        failed = isinstance(event, Failed) and self._concerns_round(event)
        actions = super().handle(event, now_ns=now_ns)
        if isinstance(event, Captured) and self._concerns_round(event):
            assert self.round is not None
            if self.round.captured.issuperset(self.members):
                actions.append(super()._take())
        elif isinstance(event, ControlWritten):
            self.again = AGAIN_MAX
        elif failed and self.due_ns is not None and self.again:
            self.again -= 1
            self.due_ns = min(self.due_ns, now_ns + AGAIN_NS)
        return actions

    # ---- the inside --------------------------------------------------------------------------------------

    def _take(self) -> Send:
        return replace(super()._take(), ranks=self.members)

    def _maybe_start(self, now_ns: int) -> list[Action]:
        if self.round is None:
            self.vote, self.is_printed = None, False
            self.told, self.written = {}, {}
        return super()._maybe_start(now_ns)

    def _complete(self, votes: list[Voted], now_ns: int) -> list[Action]:
        assert self.round is not None
        self.votes = votes
        silent = [process for process in self.members if self.told.get(process, ({}, 1))[1]]
        if silent:
            return self._fail(f"process {silent[0]} has not told what it had sent before its image", now_ns)
        ranks = self.numbers.ranks
        vote = self.vote = LineVote(ranks, self.donor, self.planes - {self.donor}, self.needed, self.lineage)
        actions: list[Action] = []
        for rank, process in enumerate(self.members):
            counts = vote.begin(rank, self.told[process][0])
            asked = tuple(self.numbers.process(rank, plane) for plane in sorted(vote.others))
            actions += self._ask(counts, asked)
        lengths = tuple(self.written.get(rank, 0) for rank in range(ranks))
        wait: Any = AwaitPrinted(self.round.epoch, lengths)
        return [*actions, wait, *self._look(now_ns)]

    def _ask(self, counts: dict[str, int], processes: tuple[int, ...]) -> list[Action]:
        assert self.round is not None
        rows = list(counts.items())
        pieces = [rows[at : at + COUNTS_OF_A_PACKET] for at in range(0, len(rows), COUNTS_OF_A_PACKET)] or [
            []
        ]
        if not processes:
            return []
        return [
            Send(messages.layer(line=self.round.epoch, counts=dict(piece), parts=len(pieces)), processes)
            for piece in pieces
        ]

    def _look(self, now_ns: int) -> list[Action]:
        """Can the line be written, or not any more?"""
        if self.round is None or self.round.writing or self.vote is None or self.incarnation is None:
            return []
        state = self.vote.state()
        if state == "failed":
            why, self.vote = self.vote.trouble(), None
            return self._fail(f"the line cannot be verified: {why}", now_ns)
        if state == "open" or not self.is_printed:
            return []
        self.round.writing = True
        self.round.verified = state == "verified" and not self.was_alone
        self.vote = None
        ranks = tuple(replace(vote, rank=rank) for rank, vote in enumerate(self.votes))
        return [WriteControl(self.round.epoch, self.incarnation, ranks, verified=self.round.verified)]

    def _burn(self, reason: str, *, keep_requests: bool = False) -> list[Action]:
        self.burnt = reason
        return super()._burn(reason, keep_requests=keep_requests)

    def _missing(self, late: Round) -> str:
        if self.vote is None:
            return super()._missing(late)
        if self.vote.state() == "open":
            return self.vote.trouble()
        return "most replicas have not printed yet what the images have"

"""A plane that is lost is replaced by a copy of another one: what the supervisor does for that. Pure.

The states of a copy and their rules are in `clones`. Here is what they mean for the rest of the job: when one is begun, that
a line is asked for, and who is told what when all processes of the copy are there.

A copy is begun and goes on only while the job computes: not once a plane has come to its end, nor when the job is to stop.

Not here: when a plane is lost, and what ends of processes of a copy mean (`supervisor`); the images (`coordinator`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ckpt.controller.replicas.clones import Clones
from ckpt.controller.replicas.coordinator import ReplicaCoordinator
from ckpt.controller.replicas.events import JoinVoices
from ckpt.controller.replicas.inquiries import Inquiries
from ckpt.controller.replicas.silence import Silence
from ckpt.controller.replicas.stalls import Stalls
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.events import Action, Send
from ckpt.redundancy.ahead import Floors


class Copies(Inquiries):
    """The part of the supervisor that makes copies. `clones`: so many may be made for each place and hour; `reserved`: and
    so many planes in all, in one incarnation. `replicas`, `coordinator`: see `lines`."""

    floors: Floors
    stalls: Stalls
    silence: Silence

    def __init__(
        self,
        coordinator: ReplicaCoordinator,
        *,
        replicas: int,
        clones: int = 0,
        reserved: int = 0,
        **options: Any,
    ) -> None:
        self.clones = Clones(coordinator.numbers, most=clones, reserved=reserved)
        super().__init__(coordinator, replicas=replicas, **options)

    def _begin(self) -> None:
        super()._begin()
        self.clones.begin()

    @property
    def needed_lines(self) -> Collection[int]:
        copy = self.clones.copy
        return {*super().needed_lines, *([copy.epoch] if copy is not None and copy.epoch else [])}

    @property
    def _may_copy(self) -> bool:
        return self.phase == "running" and not self.outcomes and self.stopping.request is None

    def _look_at_copies(self, now_ns: int) -> list[Action]:
        """Begin a copy, go on with one, or give it up: see `clones`."""
        clones, rounds = self.clones, self.coordinator
        if self.phase not in ("starting", "running"):
            return clones.abandon()
        copy = clones.copy
        if copy is None:
            return clones.begin_copy(self.planes, now_ns) if self._may_copy else []
        if copy.until_ns is not None and now_ns >= copy.until_ns:
            slow = "the processes of the copy" if copy.state == "starting" else "not all replicas"
            return clones.give_up(f"{slow} have answered within a minute", now_ns)
        if clones.is_held(self.planes, self.gone, rounds.highest):
            tell = messages.layer(copy=copy.plane, step="image", after=copy.after)
            return [Send(tell, self.processes(self.planes)), *rounds.want(now_ns)]
        if copy.state == "imaging" and rounds.round is None and not rounds.wanted and self._may_copy:
            return clones.give_up(f"no checkpoint could be taken: {rounds.burnt}", now_ns)
        return []

    def _start_copy(self, epoch: int, donor: int, now_ns: int) -> list[Action]:
        if not self._may_copy:
            return []
        actions = self.clones.committed(epoch, donor, self.planes, self.resumed, now_ns)
        if self.clones.voiceless:
            self.size = max(self.size, max(self.clones.voiceless) + 1)
        return actions

    def _join(self, now_ns: int) -> list[Action]:
        """All processes of the copy are there: the others are told, and it votes."""
        others = sorted(self.planes)
        targets = {
            rank: max(counts.get(plane, 0) for plane in others)
            for rank, counts in enumerate(self.floors.counts)
        }
        copy = self.clones.joined(targets)
        plane = copy.plane
        self.planes.add(plane)
        self.lineage.copied(plane, copy.donor, copy.epoch)
        self.floors.joined(plane)
        self.stalls.joined(plane, now_ns)
        self.coordinator.joined(plane)
        for vote in self.votes:
            vote.join(plane)
        processes = self.numbers.of_plane(plane)
        for process in processes:
            self.silence.waits(process)
        table = self._table()
        origins = [[each, *origin] for each, origin in self.lineage.origins.items()]
        return [
            Send(table.packet, self.processes(self.planes)),
            Send(messages.layer(copy=plane, step="join", origins=origins), self.processes(others)),
            Send(messages.layer(copy=plane, step="joined", living=others, origins=origins), processes),
            JoinVoices(plane),  # type: ignore[list-item]
        ]

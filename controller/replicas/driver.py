"""What the service does differently for a job with replicas: which supervisor, which output, which actions.

Not here: the loop (`ckpt.controller.service.service`).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

from ckpt.controller.replicas.coordinator import ReplicaCoordinator
from ckpt.controller.replicas.events import (
    AwaitPrinted,
    DropVoices,
    LinePrinted,
    LineTold,
    OutputRead,
    ReadOutput,
    Reported,
    TextDiffers,
    reported,
)
from ckpt.controller.replicas.output import Emit, ReplicaOutput
from ckpt.controller.replicas.supervisor import ReplicaSupervisor
from ckpt.controller.replicas.text import Conflict
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.supervisor import Supervisor
from ckpt.store import ImageReader, JobDirectory


class ReplicaPart:
    """The part of the service that only a job with replicas has. `feed`: takes events for the supervisor."""

    def __init__(
        self,
        job: JobDirectory,
        replicas: int,
        emit: Emit,
        say: Callable[[str], None],
        feed: Callable[[Any], None],
    ) -> None:
        def on_conflict(rank: int, conflict: Conflict) -> None:
            feed(TextDiffers(rank, conflict.odd, conflict.at))

        self.replicas, self.feed = replicas, feed
        self.job = job
        directory = os.path.dirname(job.output_path(0, "out"))
        self.output = ReplicaOutput(directory, job.size, replicas, emit, say, on_conflict)

    def coordinator(self, size: int, **options: Any) -> Coordinator:
        """`options`: of `Coordinator`; `size`: number of processes."""
        return ReplicaCoordinator(size, replicas=self.replicas, **options)

    def supervisor(self, coordinator: Coordinator, **options: Any) -> Supervisor:
        """`options`: of `Supervisor`."""
        assert isinstance(coordinator, ReplicaCoordinator)
        return ReplicaSupervisor(coordinator, replicas=self.replicas, **options)

    def perform(self, action: object) -> OutputRead | None:
        """Carry out an action of `ReplicaSupervisor` alone; returns the event that answers it, if any."""
        match action:
            case DropVoices(planes=planes):
                self.output.drop(planes)
            case AwaitPrinted(epoch=epoch, lengths=lengths):
                self.output.await_printed(lengths, lambda: self.feed(LinePrinted(epoch)))
            case ReadOutput(incarnation=incarnation):
                while self.output.poll():
                    pass
                return OutputRead(incarnation)
        return None

    def begin_again(self, epoch: int | None) -> None:
        """The program is about to be started, or to go on from the line of this epoch; no process of it lives."""
        lengths = {} if epoch is None else output_lengths(self.job, epoch)
        self.output.begin_again(lengths)

    def event(self, process: int, incarnation: int, packet: Mapping[str, Any]) -> Reported | LineTold:
        """The event of a packet of the kind `layer`."""
        return reported(process, incarnation, packet)

    def located(self, fields: Mapping[str, Any], pids: Mapping[int, int]) -> dict[str, Any]:
        """The fields of an entry of the event log, with pid and host of the process that it names."""
        process = fields.get("process")
        if process is None:
            return dict(fields)
        return {**fields, "pid": pids.get(process), "host": platform.node()}


def output_lengths(job: JobDirectory, epoch: int) -> dict[tuple[int, str], int]:
    """How much each rank had written when its image of this epoch was taken: by rank and stream ("out", "err"), in bytes.
    Raises StoreError."""
    found: dict[tuple[int, str], int] = {}
    for rank in range(job.size):
        lengths = ImageReader(job, epoch=epoch, rank=rank).meta.get("output") or {}
        found |= {(rank, stream): length for stream, length in lengths.items()}
    return found

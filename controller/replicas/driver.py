"""What the service does differently for a job with replicas: which supervisor, which output, which actions.

Not here: the loop (`ckpt.controller.service.service`).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

from ckpt.controller.replicas.events import DropVoices, OutputRead, ReadOutput, TextDiffers
from ckpt.controller.replicas.output import Emit, ReplicaOutput
from ckpt.controller.replicas.supervisor import ReplicaSupervisor
from ckpt.controller.replicas.text import Conflict
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.supervisor import Supervisor
from ckpt.store import JobDirectory

NO_CHECKPOINTS = "there are no checkpoints under --redundancy"


def supervisor_of(coordinator: Coordinator, replicas: int, **options: Any) -> Supervisor:
    """The supervisor of a job with so many replicas of each rank; `options`: of `Supervisor`."""
    if replicas == 1:
        return Supervisor(coordinator, **options)
    return ReplicaSupervisor(coordinator, replicas=replicas, **options)


def output_of(
    job: JobDirectory, replicas: int, emit: Emit, say: Callable[[str], None], feed: Callable[[Any], None]
) -> ReplicaOutput:
    """The output of a job with replicas. `feed`: takes events for the supervisor."""

    def on_conflict(rank: int, conflict: Conflict) -> None:
        feed(TextDiffers(rank, conflict.odd, conflict.at))

    directory = os.path.dirname(job.output_path(0, "out"))
    return ReplicaOutput(directory, job.size, replicas, emit, say, on_conflict)


def located(fields: Mapping[str, Any], pids: Mapping[int, int]) -> dict[str, Any]:
    """The fields of an entry of the event log, with pid and host of the process that it names."""
    process = fields.get("process")
    if process is None:
        return dict(fields)
    return {**fields, "pid": pids.get(process), "host": platform.node()}


def perform(action: object, output: object) -> OutputRead | None:
    """Carry out an action of `ReplicaSupervisor` alone; returns the event that answers it, if any."""
    assert isinstance(output, ReplicaOutput)
    match action:
        case DropVoices(planes=planes):
            output.drop(planes)
        case ReadOutput(incarnation=incarnation):
            while output.poll():
                pass
            return OutputRead(incarnation)
    return None

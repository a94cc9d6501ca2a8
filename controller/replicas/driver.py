"""What the service does differently for a job with replicas: which supervisor, which output, which actions.

Not here: the loop (`ckpt.controller.service.service`).
"""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ckpt.controller.errors import UsageError
from ckpt.controller.replicas.coordinator import ReplicaCoordinator
from ckpt.controller.replicas.events import (
    AwaitPrinted,
    CopyFailed,
    DropVoices,
    JoinVoices,
    LinePrinted,
    LineTold,
    MemoryTold,
    OutputRead,
    ReadOutput,
    Reported,
    StartCopy,
    TextDiffers,
    reported,
)
from ckpt.controller.replicas.output import Emit, ReplicaOutput
from ckpt.controller.replicas.supervisor import ReplicaSupervisor
from ckpt.controller.replicas.text import Conflict
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.supervisor import Supervisor
from ckpt.redundancy.membership import Lineage, Numbering
from ckpt.store import ImageReader, JobDirectory
from ckpt.store.errors import StoreError

OTHER_FILES: Final = 100
"""So many files the controller has open for itself."""

RESERVED_PLANES: Final = 32
"""So many planes may be started as copies, in one incarnation."""

_ATTACH: Final = {
    "late": "ckpt.redundancy.layer:attach",
    "sender": "ckpt.redundancy.comparison.sender:attach",
    "receiver": "ckpt.redundancy.comparison.receiver:attach",
}

Start = Callable[[int | None, Sequence[int], Callable[[int], Mapping[str, Any]]], None]


def check_open_files(ranks: int, replicas: int) -> None:
    """The output of each process, and what is printed of each rank, are open all the time. Raises UsageError."""
    needed, allowed = 2 * ranks * (replicas + 1), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if needed + OTHER_FILES > allowed != resource.RLIM_INFINITY:
        raise UsageError(
            f"--redundancy {replicas} with {ranks} ranks: {ranks * replicas} processes, whose output takes {needed} open "
            f"files, and this process may have {allowed} (ulimit -n)"
        )


class ReplicaPart:
    """The part of the service that only a job with replicas has. `feed`: takes events for the supervisor; `start(epoch,
    processes, more)`: forks these processes in the present incarnation, see `plan.specs`; `clones`: so many copies may be
    made for each place and hour; `memory`: what of it is compared, "all" or "arrays"; `compare`: when messages are compared,
    "late", "sender" or "receiver"."""

    def __init__(
        self,
        job: JobDirectory,
        replicas: int,
        emit: Emit,
        say: Callable[[str], None],
        feed: Callable[[Any], None],
        start: Start,
        clones: int,
        memory: str,
        compare: str,
    ) -> None:
        def on_conflict(rank: int, conflict: Conflict) -> None:
            feed(TextDiffers(rank, conflict.odd, conflict.at))

        self.replicas, self.feed, self.start, self.clones = replicas, feed, start, clones
        self.job, self.memory = job, memory
        self.attach = _ATTACH[compare]
        self.numbers = Numbering(job.size, replicas)
        self.reserved = RESERVED_PLANES if clones else 0
        lineage = self.lineage = Lineage()
        check_open_files(job.size, replicas)
        directory = os.path.dirname(job.output_path(0, "out"))
        self.output = ReplicaOutput(directory, job.size, replicas, emit, say, on_conflict, lineage)

    def coordinator(self, size: int, **options: Any) -> Coordinator:
        """`options`: of `Coordinator`; `size`: number of processes."""
        return ReplicaCoordinator(size, replicas=self.replicas, lineage=self.lineage, **options)

    def supervisor(self, coordinator: Coordinator, **options: Any) -> Supervisor:
        """`options`: of `Supervisor`."""
        assert isinstance(coordinator, ReplicaCoordinator)
        limits = {"clones": self.clones, "reserved": self.reserved}
        return ReplicaSupervisor(coordinator, replicas=self.replicas, **limits, **options)

    def described(
        self, incarnation: int, resumed: int | None, living: Sequence[int] | None = None
    ) -> Callable[[int], dict[str, Any]]:
        """What a process is to its program, and the layer that makes it so (`ckpt.mpi.base.layer`): `more` of `plan.specs`.
        `resumed`: the line from which this incarnation began; `living`: the planes beside which a copy is started."""
        numbers = self.numbers
        size, reserved = numbers.ranks, numbers.ranks * self.reserved
        began = {"time": time.time(), "monotonic": time.monotonic(), "perf_counter": time.perf_counter()}

        def more(process: int) -> dict[str, Any]:
            rank, plane = numbers.parts(process)
            own = {"rank": rank, "size": size, "local_rank": rank, "local_size": size}
            return {
                "size": size * self.replicas + reserved,
                "reserved": reserved,
                "identity": {**own, "streams": f"{rank}.replica-{plane}"},
                "layer": {
                    "attach": self.attach,
                    "replicas": self.replicas,
                    "ranks": size,
                    "run": incarnation,
                    "began": began,
                    "resume": resumed,
                    "memory": self.memory,
                    **({} if living is None else {"living": list(living)}),
                },
            }

        return more

    def _start_copy(self, action: StartCopy, incarnation: int) -> CopyFailed | None:
        more = self.described(incarnation, action.resumed, action.living)
        try:
            self.output.prepare(action.plane, action.donor, output_lengths(self.job, action.epoch))
        except (OSError, StoreError) as failure:
            return CopyFailed(action.plane, incarnation, str(failure))
        self.start(action.epoch, self.numbers.of_plane(action.plane), more)
        return None

    def perform(self, action: object, incarnation: int) -> OutputRead | CopyFailed | None:
        """Carry out an action of `ReplicaSupervisor` alone; returns the event that answers it, if any."""
        match action:
            case DropVoices(planes=planes):
                self.output.drop(planes)
            case AwaitPrinted(epoch=epoch, lengths=lengths):
                self.output.await_printed(lengths, lambda: self.feed(LinePrinted(epoch)))
            case ReadOutput(incarnation=present):
                while self.output.poll():
                    pass
                return OutputRead(present)
            case StartCopy():
                return self._start_copy(action, incarnation)
            case JoinVoices(plane=plane):
                self.output.join(plane)
        return None

    def begin_again(self, epoch: int | None) -> None:
        """The program is about to be started, or to go on from the line of this epoch; no process of it lives."""
        lengths = {} if epoch is None else output_lengths(self.job, epoch)
        self.output.begin_again(lengths)

    def event(
        self, process: int, incarnation: int, packet: Mapping[str, Any]
    ) -> Reported | LineTold | MemoryTold:
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

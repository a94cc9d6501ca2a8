"""Some rounds on a simulated disk, and what must hold after a crash at any moment of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from store_helpers import control_of, on_disk, read_image, write_image

from ckpt.store import JobDirectory, latest_committed, list_epochs, prune, write_control
from ckpt.store.disk.simulated import SimulatedDisk

CONSTANT = bytes(range(256)) * 300  # above the size from which blocks are looked up in the base
EPOCHS = 3

Step = Callable[[], object]


def data_of(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "constant": bytearray(CONSTANT), "text": f"state {epoch}"}


def rounds(job: JobDirectory) -> list[tuple[str, int, Step]]:
    """The steps of a few rounds: (what, epoch, do it)."""
    steps: list[tuple[str, int, Step]] = []
    entries: dict[tuple[int, int], Any] = {}

    def image(rank: int, epoch: int) -> None:
        entries[rank, epoch] = write_image(job, rank, epoch, [rank, data_of(epoch)])

    def control(epoch: int) -> None:
        write_control(job, control_of(epoch, [entries[rank, epoch] for rank in range(job.size)]))

    for epoch in range(1, EPOCHS + 1):
        steps += [("image", epoch, partial(image, rank, epoch)) for rank in range(job.size)]
        steps.append(("commit", epoch, partial(control, epoch)))
        steps.append(("prune", epoch, lambda: prune(job)))
    return steps


class Witness(SimulatedDisk):
    """A disk that is looked at after every change: `check` sees every state a crash at that moment could
    leave."""

    def __init__(self, inner: SimulatedDisk, check: Callable[[dict[str, bytes]], None]) -> None:
        self.__dict__.update(inner.__dict__)
        self._check = check
        self._looked_at: set[frozenset[tuple[str, bytes]]] = set()
        self.states = 0

    def look(self) -> None:
        for state in self.crash_states():
            key = frozenset(state.items())
            if key not in self._looked_at:
                self._looked_at.add(key)
                self.states += 1
                self._check(state)

    def promise_more(self) -> None:
        """What was checked must be checked again, against more."""
        self._looked_at.clear()

    def create(self, path: str, *, direct: bool = False) -> int:
        fd = super().create(path, direct=direct)
        self.look()
        return fd

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        taken = super().pwrite(fd, data, offset)
        self.look()
        return taken

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self.look()

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.look()

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self.look()

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.look()


class Promises:
    """What must hold in every crash state: all that was committed, except what was pruned since, stands."""

    def __init__(self, job: JobDirectory) -> None:
        self.job = job
        self.committed = 0
        self.attempted = 0

    def check(self, state: dict[str, bytes]) -> None:
        job, _ = on_disk(self.job, state)
        found = latest_committed(job)
        newest = 0 if found is None else found.epoch
        assert self.committed <= newest <= self.attempted, "a committed line was lost"
        whole = 0
        for epoch in list_epochs(job):
            if epoch > self.committed - 2:
                for rank in range(job.size):
                    assert read_image(job, rank, epoch) == [rank, data_of(epoch)]
                whole += 1
        assert whole >= min(2, self.committed), "two lines are kept"


def run_and_watch(job: JobDirectory, ignore_sync: int | None = None) -> tuple[int, int]:
    """All steps, each crash state of each moment checked; (states, syncs)."""
    promises = Promises(job)
    _, disk = on_disk(job, ignore_sync=ignore_sync)
    witness = Witness(disk, promises.check)
    simulated, _ = on_disk(job)
    simulated.fs = witness
    for what, epoch, step in rounds(simulated):
        if what == "commit":
            promises.attempted = epoch
        step()
        if what == "commit":
            promises.committed = epoch
            witness.promise_more()
        witness.look()
    assert witness.open_files == 0
    return witness.states, witness.syncs

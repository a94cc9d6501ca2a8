"""Images of burnt rounds go only when nothing that refers to them can come back."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from ckpt.controller.service.commit import commit_line, remove_burnt
from ckpt.controller.supervision.events import ControlFailed, Voted, WriteControl
from ckpt.store import ImageWriter, JobDirectory, RankEntry, latest_committed
from ckpt.store.disk.simulated import Faults, SimulatedDisk
from ckpt.store.job.directory import image_directory
from ckpt.store.job.lines import load_manifest
from ckpt.transport import records


class Held:
    journal = None
    """A lock that is held."""

    generation = 1

    def check(self) -> None:
        """Still."""


def vote(job: JobDirectory) -> Voted:
    writer = ImageWriter(job, rank=0, incarnation=0, label=(0, 1), threads=0)
    writer.write(b"state")
    receipt = writer.finish({})
    return Voted(0, 0, 1, (0, 1), receipt.manifest_path, receipt.digest, {})


def test_a_control_file_that_was_taken_back_does_not_come_back_without_its_images(tmp_path: Path) -> None:
    """Found by simulation (seed 338): the rename had happened, the close failed, the file was removed again and
    the round burnt; then the host died, and of the two unsynced changes only the rename had reached the disk. The
    next controller found a committed line without images, and gave the job up."""
    real = JobDirectory.create(tmp_path / "job", command=["app.py"], size=1)
    names = ["", "control", "images", image_directory(0)]
    disk = SimulatedDisk([os.path.join(real.path, name).rstrip("/") for name in names])
    job = records.replace(real, fs=disk)
    voted = vote(job)
    disk.faults = Faults(at=0, error=errno.EIO, only=frozenset({"close"}))
    lock: Any = Held()
    failed = commit_line(job, lock, WriteControl(1, 0, (voted,)), previous=None)
    assert isinstance(failed, ControlFailed)
    disk.faults = Faults()

    assert remove_burnt(job, committed=0, upto=1) is None

    for files in disk.crash_states():
        after = records.replace(real, fs=SimulatedDisk(disk.directories, files))
        line = latest_committed(after)
        if line is not None:
            entry: RankEntry = line.ranks[0]
            load_manifest(after, entry)


def test_images_stay_when_the_removal_of_the_control_file_cannot_be_made_durable(tmp_path: Path) -> None:
    real = JobDirectory.create(tmp_path / "job", command=["app.py"], size=1)
    names = ["", "control", "images", image_directory(0)]
    disk = SimulatedDisk([os.path.join(real.path, name).rstrip("/") for name in names])
    job = records.replace(real, fs=disk)
    vote(job)
    before = disk.files
    disk.faults = Faults(at=0, error=errno.EIO, only=frozenset({"sync_directory"}))
    assert "Input/output error" in str(remove_burnt(job, committed=0, upto=1))
    assert disk.files == before

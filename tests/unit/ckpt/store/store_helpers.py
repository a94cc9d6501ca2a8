"""What the store's tests share: a job on a simulated disk, images of known content, and their check."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckpt.store import (
    ControlFile,
    ImageReader,
    ImageWriter,
    JobDirectory,
    LockHandle,
    RankEntry,
    write_control,
)
from ckpt.store.disk.simulated import Faults, SimulatedDisk
from ckpt.store.job.directory import image_directory
from ckpt.transport import records


def make_job(path: Path, size: int = 1) -> JobDirectory:
    """A real job directory."""
    return JobDirectory.create(path / "job", command=["app.py"], size=size)


def directories_of(job: JobDirectory) -> list[str]:
    names = ["", "control", "images", *(image_directory(rank) for rank in range(job.size))]
    return [os.path.join(job.path, name).rstrip("/") for name in names]


def on_disk(
    job: JobDirectory,
    files: Mapping[str, bytes] | None = None,
    *,
    faults: Faults | None = None,
    ignore_sync: int | None = None,
) -> tuple[JobDirectory, SimulatedDisk]:
    """The same job on a simulated disk that holds `files`."""
    disk = SimulatedDisk(directories_of(job), files, faults=faults, ignore_sync=ignore_sync)
    return records.replace(job, fs=disk), disk


def write_image(
    job: JobDirectory,
    rank: int,
    epoch: int,
    data: Any,
    *,
    incarnation: int = 0,
    previous: int | None = None,
    **options: Any,
) -> RankEntry:
    """Write the image of `data` and return the vote for it."""
    label = (epoch - 1 if previous is None else previous, epoch)
    writer = ImageWriter(job, rank=rank, incarnation=incarnation, label=label, **options)
    pickle.Pickler(writer, protocol=5, buffer_callback=writer.buffer).dump(data)
    receipt = writer.finish({"note": "test"})
    return RankEntry(
        rank=rank,
        incarnation=incarnation,
        label=label,
        manifest=receipt.manifest_path,
        digest=receipt.digest,
        bytes_raw=receipt.bytes_raw,
        bytes_written=receipt.bytes_written,
        vectors={0: (3, 1, 2)},
    )


def read_image(job: JobDirectory, rank: int, epoch: int | None = None, **options: Any) -> Any:
    reader = ImageReader(job, epoch=epoch, rank=rank, **options)
    return pickle.load(reader.stream(), buffers=reader.buffers())


def control_of(epoch: int, entries: list[RankEntry], *, generation: int = 1) -> ControlFile:
    return ControlFile(
        epoch=epoch,
        previous=epoch - 1,
        incarnation=entries[0].incarnation,
        generation=generation,
        ranks=entries,
        committed_at="2026-01-01T00:00:00.000+00:00",
    )


def commit(
    job: JobDirectory, epoch: int, data: Any, *, lock: LockHandle | None = None, **options: Any
) -> ControlFile:
    """A whole round: every rank writes `[rank, data]`, the controller commits."""
    entries = [write_image(job, rank, epoch, [rank, data], **options) for rank in range(job.size)]
    control = control_of(epoch, entries)
    write_control(job, control, lock=lock)
    return control

"""The image store: a job's directory, the images of its ranks, and the control file that commits a line.

A *line* (recovery line) is one image of every rank, all of one epoch; a line counts from the moment its control file is
durable. An epoch number whose round was aborted is *burnt*: never used again.

    job/       the job directory, its lock, commit of lines, event log. Start reading at `job/directory.py`
    records/   the JSON records: manifest (one image) and control file (one line), both authenticated
    images/    writing and reading one rank's image
    disk/      system calls, file owners and modes, aligned memory, threads; and a simulated disk
    upkeep/    verify, inspect, prune
    errors.py  all errors

The import of this package is cheap (json, blake3), since every command and every rank imports it.
What does not belong here: how the state of a process is captured, and when an image is taken.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ckpt.store.disk.fsio import FileSystem
from ckpt.store.errors import (
    BlockDamaged,
    Damaged,
    EpochMissing,
    Incompatible,
    JobExists,
    JobLocked,
    JobMissing,
    KeyUnreadable,
    LockLost,
    Misplaced,
    NotCommitted,
    NotFound,
    NotPrivate,
    RankMissing,
    RecordDamaged,
    StorageFailed,
    StoreError,
)
from ckpt.store.job.directory import JobDirectory
from ckpt.store.job.eventlog import EventLog, EventPage
from ckpt.store.records.control import ControlFile, RankEntry

if TYPE_CHECKING:
    from ckpt.store.images.reader import ImageReader
    from ckpt.store.images.writer import ImageReceipt, ImageWriter
    from ckpt.store.job.epochs import committed_epochs, list_epochs
    from ckpt.store.job.lines import (
        Line,
        latest_committed,
        list_lines,
        load_control,
        load_manifest,
        write_control,
    )
    from ckpt.store.job.lock import LockHandle
    from ckpt.store.records.manifest import Manifest
    from ckpt.store.upkeep.pruning import PruneReport, prune
    from ckpt.store.upkeep.verification import Finding, VerifyReport, verify

__all__ = [
    "BlockDamaged",
    "ControlFile",
    "Damaged",
    "EpochMissing",
    "EventLog",
    "EventPage",
    "FileSystem",
    "Finding",
    "ImageReader",
    "ImageReceipt",
    "ImageWriter",
    "Incompatible",
    "JobDirectory",
    "JobExists",
    "JobLocked",
    "JobMissing",
    "KeyUnreadable",
    "Line",
    "LockHandle",
    "LockLost",
    "Manifest",
    "Misplaced",
    "NotCommitted",
    "NotFound",
    "NotPrivate",
    "PruneReport",
    "RankEntry",
    "RankMissing",
    "RecordDamaged",
    "StorageFailed",
    "StoreError",
    "VerifyReport",
    "committed_epochs",
    "latest_committed",
    "list_epochs",
    "list_lines",
    "load_control",
    "load_manifest",
    "prune",
    "verify",
    "write_control",
]


_LATER = {
    "Finding": "upkeep.verification",
    "ImageReader": "images.reader",
    "ImageReceipt": "images.writer",
    "ImageWriter": "images.writer",
    "Line": "job.lines",
    "LockHandle": "job.lock",
    "Manifest": "records.manifest",
    "PruneReport": "upkeep.pruning",
    "VerifyReport": "upkeep.verification",
    "committed_epochs": "job.epochs",
    "latest_committed": "job.lines",
    "list_epochs": "job.epochs",
    "list_lines": "job.lines",
    "load_control": "job.lines",
    "load_manifest": "job.lines",
    "prune": "upkeep.pruning",
    "verify": "upkeep.verification",
    "write_control": "job.lines",
}
"""Imported on first use: what reads and writes images, because the command that runs a job does neither; what reads and
commits lines, because ranks do neither; and `verify`, which needs pydantic, whose import takes longer than the commit of a
small image."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The image store: a job's directory, the images of its ranks, and what makes a line of them count.

Start reading at `job.py` (what lies where), then `manifest.py` and `control.py` (the records), `writer.py`,
`reader.py`, `lines.py` (commit) and `pruning.py`. Errors: `errors.py`.

Importing this package is cheap (json, blake3, zstandard): the image child and a restarting rank
do.
"""

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
    LockLost,
    Misplaced,
    NotFound,
    NotPrivate,
    RankMissing,
    RecordDamaged,
    StorageFailed,
    StoreError,
)
from ckpt.store.images.reader import ImageReader
from ckpt.store.images.writer import ImageReceipt, ImageWriter
from ckpt.store.job.directory import JobDirectory
from ckpt.store.job.eventlog import EventLog, EventPage
from ckpt.store.job.lines import (
    Line,
    latest_committed,
    list_epochs,
    list_lines,
    load_control,
    load_manifest,
    write_control,
)
from ckpt.store.job.lock import LockHandle
from ckpt.store.records.control import ControlFile, RankEntry
from ckpt.store.records.manifest import Manifest
from ckpt.store.upkeep.pruning import PruneReport, prune

if TYPE_CHECKING:
    from ckpt.store.upkeep.verification import VerifyReport, verify

__all__ = [
    "BlockDamaged",
    "ControlFile",
    "Damaged",
    "EpochMissing",
    "EventLog",
    "EventPage",
    "FileSystem",
    "ImageReader",
    "ImageReceipt",
    "ImageWriter",
    "Incompatible",
    "JobDirectory",
    "JobExists",
    "JobLocked",
    "JobMissing",
    "Line",
    "LockHandle",
    "LockLost",
    "Manifest",
    "Misplaced",
    "NotFound",
    "NotPrivate",
    "PruneReport",
    "RankEntry",
    "RankMissing",
    "RecordDamaged",
    "StorageFailed",
    "StoreError",
    "VerifyReport",
    "latest_committed",
    "list_epochs",
    "list_lines",
    "load_control",
    "load_manifest",
    "prune",
    "verify",
    "write_control",
]


def __getattr__(name: str) -> Any:
    """`verify` reads the records with pydantic, which takes longer to import than a small image to commit."""
    if name in ("verify", "VerifyReport"):
        from ckpt.store.upkeep import verification

        return getattr(verification, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

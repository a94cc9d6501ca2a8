"""The image store: a job's directory, the images of its ranks, and what makes a line of them count.

Start reading at `job.py` (what lies where), then `manifest.py` and `control.py` (the records), `writer.py`,
`reader.py`, `lines.py` (commit) and `prune.py`. Errors: `errors.py`.

Importing this package is cheap (json, dataclasses, blake3, zstandard): the image child and a restarting rank
do.
"""

from .control import ControlFile, RankEntry
from .errors import (
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
    RecordDamaged,
    StorageFailed,
    StoreError,
)
from .eventlog import EventLog, EventPage
from .fsio import FileSystem
from .job import JobDirectory
from .lines import Line, latest_committed, list_epochs, list_lines, load_control, load_manifest, write_control
from .lock import LockHandle
from .manifest import Manifest
from .reader import ImageReader
from .writer import ImageReceipt, ImageWriter

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
    "RankEntry",
    "RecordDamaged",
    "StorageFailed",
    "StoreError",
    "latest_committed",
    "list_epochs",
    "list_lines",
    "load_control",
    "load_manifest",
    "write_control",
]

"""Functions that several verbs use: they find the job that the user means, and print.

JOB is a directory; if none is given, the newest job under ./.ckpt is meant. ``JOB@EPOCH`` names one of its checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ckpt.controller.errors import NoSuchJob

DEFAULT_ROOT = ".ckpt"


def split_epoch(text: str) -> tuple[str, int | None]:
    """``JOB@EPOCH`` → (JOB, EPOCH); ``JOB`` → (JOB, None). Directories may have an @ in their names."""
    path, at, epoch = text.rpartition("@")
    if at and epoch.isdecimal() and not os.path.exists(text):
        return path, int(epoch)
    return text, None


def find_job(text: str | None) -> str:
    """The directory of the job that the user means. Raises NoSuchJob if none is named and there is none under ./.ckpt."""
    if text is not None:
        return text
    try:
        candidates = [entry.path for entry in os.scandir(DEFAULT_ROOT)]
    except OSError:
        candidates = []
    jobs = [path for path in candidates if os.path.exists(os.path.join(path, "job.json"))]
    if not jobs:
        raise NoSuchJob(f"no job named, and none in ./{DEFAULT_ROOT}")
    return max(jobs, key=lambda path: os.stat(os.path.join(path, "job.json")).st_mtime_ns)


def show(fields: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print `fields` as one JSON object if `as_json`, otherwise print `text`."""
    print(json.dumps(fields, default=str) if as_json else text)
    sys.stdout.flush()


def size_text(nbytes: float) -> str:
    """Bytes for people: 880.0 KB, 1.2 GB (powers of 1000)."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(nbytes) < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"

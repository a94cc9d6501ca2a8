"""Functions that several verbs use: they find the job that the user means, read values of options, and print.

JOB is a directory; if none is given, the newest job under ./.ckpt is meant. ``JOB@EPOCH`` names one of its checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from ckpt.controller.errors import NoSuchJob

if TYPE_CHECKING:
    from ckpt.controller.service.report import Reporter
    from ckpt.controller.supervision.history import History
    from ckpt.controller.supervision.lines import Lines
    from ckpt.store import JobDirectory

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


def new_directory(name: str) -> str:
    """A job directory for a job that the user has not named. `name`: of its program."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return os.path.join(DEFAULT_ROOT, f"{name.removesuffix('.py')}-{stamp}-{os.getpid()}")


def show_error(name: str, reason: str, exit_code: int) -> None:
    """What `--json` prints of an error."""
    print(json.dumps({"ok": False, "error": name, "reason": reason, "exit_code": exit_code}))


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


_UNITS_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:ms|min|[smhd])?")


def seconds(text: str) -> float:
    """A duration: a number of seconds, or numbers with units: 10, 0.5, 500ms, 1s, 5m, 1h30m, 2d.

    Raises argparse.ArgumentTypeError for what is none, or is not more than 0 and less than a billion seconds.
    """
    rest, total = text.strip(), 0.0
    while rest and (part := _DURATION.match(rest)):
        number = part[0].rstrip("mshdin")
        unit = part[0][len(number) :]
        if not unit and len(part[0]) != len(text.strip()):
            break  # a number without a unit stands alone
        total += float(number) * _UNITS_S[unit or "s"]
        rest = rest[part.end() :].lstrip()
    if not rest and text.strip() and total == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too short: give more than 0 (500ms, 1s, 5m), or leave the option out for its default"
        )
    if rest or not 0 < total < 1e9:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration: give seconds, or a number and a unit (500ms, 1s, 5m, 1h30m, 2d)"
        )
    return total


_UNITS_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)


def nbytes(text: str) -> int:
    """A size: a number of bytes, or one with a unit, powers of 1024: 100000, 500M, 2G, 1.5GiB.

    Raises argparse.ArgumentTypeError for what is none, or less than a byte.
    """
    found = _SIZE.fullmatch(text.strip())
    size = int(float(found[1]) * _UNITS_BYTES[found[2].upper()]) if found else 0
    if size < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size: give bytes, or a number and a unit (500M, 2G)"
        )
    return size


def not_empty(text: str) -> str:
    """The type of a value that an unset variable of a shell script would leave empty. Raises ArgumentTypeError."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; leave it out for its default")
    return text


def at_least(least: int, most: int | None = None) -> Any:
    """The type of a whole number that is not less, and not more than `most`."""

    def count(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"{text} is more than {most}")
        return value

    return count


def usable_with_files(job: JobDirectory, lines: Lines, reporter: Reporter, *, required: bool) -> Lines:
    """Those of the lines to which the program's files can be put back."""
    from ckpt.controller.service.file_lines import lines_with_files
    from ckpt.controller.supervision.lines import Lines

    found = lines_with_files(job, lines.epochs, reporter.say, required=required)
    needs_branch = lines.needs_branch or found[-1:] != lines.epochs[-1:]
    return Lines(found, start_over=lines.start_over, needs_branch=needs_branch, absent=lines.absent)


def was_reported(history: History) -> bool:
    """Was this result reported to the user, by the controller of that time or by a later `ckpt restart`?"""
    return history.outcome is not None and (history.outcome.get("by") != "agent" or history.result_reported)


class Files(argparse.Action):
    """Each time one word more; what they mean together is checked at once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        from ckpt.undo.selection.patterns import chosen, words_of

        try:
            setattr(namespace, self.dest, chosen([*words_of(getattr(namespace, self.dest)), values]))
        except ValueError as failure:
            raise argparse.ArgumentError(self, str(failure)) from None

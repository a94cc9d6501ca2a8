"""Reads undo logs, and tells whether one is whole.

A log is a file of lines: MAC, space, JSON of a record. The MAC of a line covers the line before; that of the first line
covers which log it is. So no line can be changed or left out in the middle unseen, but lines could be missing at the end.
Therefore others note where a log ends, once nothing is added any more (:data:`Ends`): the image that is taken when the
interval ends, and the controller when the job ends. Of an interval in which all processes were killed together with the
controller, nobody has noted the end. The first line says in which boot of the machine the log was begun: where that is
another one now, and nobody has noted the end, lines may be missing.

Where not one line more can be written (a quota, on a file system that writes all data elsewhere), the sticky bit says so:
that of the log, or, if no log could be made, that of the interval's directory, or else of the innermost above it. A change
of the mode needs no new space.

Not here: how logs are written (:mod:`ckpt.undo.keeping`).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from blake3 import blake3

from ckpt.transport import jsontext
from ckpt.undo import DIRECTORY
from ckpt.undo._watch import mac
from ckpt.undo.errors import LogDamaged
from ckpt.undo.records import AnyRecord, Began, Noted, Record, Uncovered, Whole, from_plain

__all__ = [
    "LOG",
    "Ends",
    "boot_id",
    "boot_of",
    "end_of",
    "epoch_of",
    "forget_unmade",
    "host_of",
    "line_key",
    "mark_unmade",
    "mark_unwritable",
    "name_of",
    "read_lines",
    "read_log",
    "read_records",
    "unmade",
]

LOG = "log"
_MAC_DIGITS = 32

Ends = Mapping[str, set[tuple[int, str]]]
"""Name of a log (:func:`name_of`) -> where it was seen to end: its length in bytes, and the MAC of its last line. It may be
longer."""


def read_log(directory: str, key: bytes, ends: Ends | None = None) -> Iterator[Record]:
    """The records of an interval, in the order of time; none if there is no log. A last line that is not whole is left out:
    its change has not begun.

    Raises LogDamaged: a line does not verify, or (when all that is there has been read) lines are missing at the end.
    Raises OSError.
    """
    return read_records(directory, line_key(key), (ends or {}).get(name_of(directory), set()))


def read_records(
    directory: str, key_of_lines: bytes, ends: set[tuple[int, str]] | None = None
) -> Iterator[Record]:
    """As :func:`read_log`, with the key that :func:`line_key` makes. ``ends``: of this log."""
    for record in read_lines(directory, LOG, key_of_lines, ends):
        if not isinstance(record, (Began, Noted, Whole)):
            yield record
    since_ns = _unwritable_since_ns(os.path.join(directory, LOG))
    if since_ns:
        yield Uncovered("", "the undo log could not be written", since_ns)


def mark_unwritable(fd: int) -> None:
    """Changes will follow that the log cannot hold. Raises OSError."""
    os.fchmod(fd, 0o600 | stat.S_ISVTX)


def _unwritable_since_ns(log: str) -> int:
    """When the log was marked, in ns since 1970 by its file system; 0: it was not."""
    try:
        status = os.stat(log)
    except FileNotFoundError:
        return 0
    return status.st_ctime_ns if status.st_mode & stat.S_ISVTX else 0


def mark_unmade(directory: str) -> None:
    """Changes will follow, and the log in this directory cannot be made. Raises OSError."""
    directory = os.path.dirname(directory)
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    os.chmod(directory, stat.S_IMODE(os.stat(directory).st_mode) | stat.S_ISVTX)


def unmade(job: str) -> list[str]:
    """The directories in which a log could not be made. Raises OSError."""
    undo = os.path.join(job, DIRECTORY)
    intervals = [entry.path for entry in os.scandir(undo) if entry.is_dir()] if os.path.isdir(undo) else []
    places = [job, *([undo] if os.path.isdir(undo) else ()), *sorted(intervals)]
    return [path for path in places if os.stat(path).st_mode & stat.S_ISVTX]


def forget_unmade(directories: Iterable[str]) -> None:
    """What could not be recorded has been told, and is left behind. Raises OSError."""
    for path in directories:
        with contextlib.suppress(FileNotFoundError):
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~stat.S_ISVTX)


def read_lines(
    directory: str, file: str, key_of_lines: bytes, ends: set[tuple[int, str]] | None = None
) -> Iterator[AnyRecord]:
    """All lines of the log, or of another file that is written in this way. Raises as :func:`read_log`."""
    path = os.path.join(directory, file)
    before, nbytes, missing = _first(directory, file), 0, {end for end in ends or () if end[0]}
    for number, line in enumerate(_lines(path), 1):
        text = line[_MAC_DIGITS + 1 :]
        before = mac(key_of_lines, before, text)
        if line[: _MAC_DIGITS + 1] != f"{before} ".encode("ascii"):
            raise LogDamaged(f"line {number} does not verify", path=path)
        try:
            yield from_plain(jsontext.parse(text.decode("ascii")))
        except ValueError as failure:
            raise LogDamaged(f"line {number} verifies, and is no record ({failure})", path=path) from failure
        nbytes += len(line) + 1
        missing.discard((nbytes, before))
    if missing:
        expected = max(length for length, _ in missing)
        raise LogDamaged(
            f"lines are missing at its end: it had {expected} bytes, and has {nbytes}", path=path
        )


def _first(directory: str, file: str) -> str:
    """What stands for the line before the first."""
    return name_of(directory) if file == LOG else f"{name_of(directory)}/{file}"


def boot_of(directory: str, key_of_lines: bytes) -> str:
    """The boot in which the log was begun; "": there is no log, or it is of an earlier version. Raises as
    :func:`read_lines`."""
    first = next(read_lines(directory, LOG, key_of_lines), None)
    return first.boot if isinstance(first, Began) else ""


def host_of(directory: str, key_of_lines: bytes) -> str:
    """The host on which the log was begun, where ranks are on several; "": they are not. Raises as :func:`read_lines`."""
    first = next(read_lines(directory, LOG, key_of_lines), None)
    return first.host if isinstance(first, Began) else ""


def boot_id() -> str:
    """The present boot of the machine; "": the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _lines(path: str) -> list[bytes]:
    """The whole lines, without the line feeds."""
    try:
        with open(path, "rb") as file:
            return file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


def end_of(directory: str) -> tuple[int, str]:
    """Where the log ends now; it has been read before. Raises OSError."""
    lines = _lines(os.path.join(directory, LOG))
    if not lines:
        return 0, name_of(directory)
    return sum(map(len, lines)) + len(lines), lines[-1][:_MAC_DIGITS].decode("ascii")


def name_of(directory: str) -> str:
    """Interval and rank. It stands for the line before the first."""
    above, rank = os.path.split(directory)
    return f"{os.path.basename(above)}/{rank}"


def epoch_of(directory: str) -> int:
    """The epoch of the checkpoint with which the interval of this log began."""
    return int(name_of(directory).split("-")[1])


def line_key(key: bytes) -> bytes:
    """The key of the MACs of lines. ``key``: of the job."""
    return blake3(key, derive_key_context="checkpoint toolkit, undo log").digest(length=16)

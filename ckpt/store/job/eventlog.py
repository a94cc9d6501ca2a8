"""The job's event log: one JSON object per line, only appended to.

Status, pictures, reports and tests read the log and nothing else. Several processes append at the same time:
each line is one write(2) on a descriptor opened with O_APPEND, which a local file system does not interleave.

The log is a report: which lines are committed, only the control files say. The log must never stop a job. A line that the
disk refuses is counted, and the next line that is written has the count as its field `"lost"`. A crash or a full
disk may leave half a line: the next writer starts on a new line, and a reader reports the torn line and
goes on.

The log is bounded: when the file has grown long, the holder of the job's lock begins a new one (`begin_anew`), whose first
line sums up all events before it. The previous file is kept beside it, older ones are not.

A log that cannot be read any more is renamed (`rename_unreadable`), and a new one is begun: the next controller reads all
that it needs for a restart from the record of the lock and the control files (`lock.py`, `lines.py`).
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

from ckpt.store.disk.privacy import open_regular
from ckpt.store.disk.replacing import replace_file
from ckpt.store.errors import StorageFailed, StoreError
from ckpt.transport import jsontext
from ckpt.transport.records import dataclass, field

__all__ = ["EventLog", "EventPage", "iso_time"]


@dataclass(frozen=True)
class EventPage:
    """The result of `EventLog.read`.

    Attributes:
        events: the lines, oldest first.
        damaged: (byte offset, text) of lines that are no JSON object.
        torn: the file ends in the middle of a line: its writer died, or is writing it now.
        end: byte offset after the last whole line; the next `read` from there returns only new lines.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[tuple[int, str]] = field(default_factory=list)
    torn: bool = False
    end: int = 0


class EventLog:
    """Appends to and reads one log file; the file appears with the first line.

    Args:
        clock_ns: wall clock in nanoseconds since 1970, UTC.
        write: the system call; a test passes one that fails.
    """

    def __init__(
        self,
        path: str,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.path = path
        self.previous_path = path.removesuffix(".jsonl") + ".1.jsonl"
        self.length = 0  # bytes in the file, after the last write of this object
        self.lost = 0
        self._clock_ns = clock_ns
        self._write = write
        self._fd = -1

    def _at_line_start(self) -> bool:
        """Does the file end with a whole line? Checked before every line, since any writer may have died."""
        if self._fd < 0:
            self._fd = open_regular(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
            self.length = os.fstat(self._fd).st_size
        length = os.fstat(self._fd).st_size
        return length == 0 or os.pread(self._fd, 1, length - 1) == b"\n"

    def append(self, event: str, **fields: Any) -> bool:
        """Add one line `{"t": ISO time, "ns": …, "event": event, **fields}`. False: it was not written, or not wholly."""
        if self.lost:
            fields["lost"] = self.lost
        data = b""
        try:
            data = self._line(event, fields)
            if not self._at_line_start():
                data = b"\n" + data
            written = self._write(self._fd, data)
        except (OSError, StoreError, MemoryError):
            written = -1
        if written != len(data):
            self.lost += 1
            return False
        self.lost = 0
        self.length += written
        return True

    def _line(self, event: str, fields: dict[str, Any]) -> bytes:
        now_ns = self._clock_ns()
        line = {"t": iso_time(now_ns), "ns": now_ns, "event": event, **fields}
        return json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n"

    def begin_anew(self, event: str, **fields: Any) -> bool:
        """Replace the log by a new file with this one line; the old file becomes the previous one. False: the system
        refused.

        At any moment, and after a crash, a reader finds either the old or the new log. Only the holder of the job's lock
        may call this. A line that another process appends at the same time goes to the previous file.
        """
        try:
            line = self._line(event, fields)
            replace_file(self.path, line, sync=True, previous_path=self.previous_path, write=self._write)
        except (OSError, MemoryError):
            self.length = 0  # so the caller tries again only after as many bytes have been added again
            return False
        self.close()
        return True

    def rename_unreadable(self) -> str | None:
        """Rename the log file, which cannot be read; the next line begins a new file. Returns the new path; None: the
        system refused.

        Only the holder of the job's lock may call this. A file that was renamed earlier is never replaced.
        """
        self.close()
        stem = self.path.removesuffix(".jsonl")
        try:
            number = next(
                n for n in itertools.count(1) if not os.path.lexists(f"{stem}.unreadable-{n}.jsonl")
            )
            new_path = f"{stem}.unreadable-{number}.jsonl"
            os.rename(self.path, new_path)
        except OSError:
            return None
        return new_path

    def read(self, offset: int = 0) -> EventPage:
        """Return the events from byte `offset` on. A missing file is an empty log.

        Raises:
            StorageFailed: the file exists and cannot be read.
            NotPrivate: it is not a regular file.
        """
        try:
            with open(open_regular(self.path, os.O_RDONLY), "rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return EventPage(end=offset)
        except OSError as error:
            raise StorageFailed("read", self.path, error) from error
        whole, newline, rest = data.rpartition(b"\n")
        events: list[dict[str, Any]] = []
        damaged: list[tuple[int, str]] = []
        position = offset
        for line in whole.split(b"\n") if newline else ():
            if line:
                value = _parse(line)
                if value is None:
                    damaged.append((position, line[:200].decode("utf-8", "replace")))
                else:
                    events.append(value)
            position += len(line) + 1
        return EventPage(events, damaged, bool(rest), offset + len(whole) + len(newline))

    def close(self) -> None:
        """Close the descriptor; a later `append` opens it again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = jsontext.parse(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def iso_time(since_1970_ns: int, timespec: str = "microseconds") -> str:
    """ISO 8601, UTC, as of ``datetime.isoformat``; this module needs nothing else of ``datetime``. `timespec`: "seconds",
    "milliseconds" or "microseconds"."""
    seconds, rest_ns = divmod(since_1970_ns, 1_000_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    digits = {"seconds": 0, "milliseconds": 3, "microseconds": 6}[timespec]
    return text + (f".{rest_ns:09d}"[: digits + 1] if digits else "") + "+00:00"

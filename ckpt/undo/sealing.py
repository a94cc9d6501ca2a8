"""Ends an interval when a checkpoint is taken: what it has kept becomes durable, and the state of its files is noted.

    JOB/undo/epoch-…-…/rank-…/noted     lines as those of a log: of each path that the rank has changed in the interval, what
                                        it is bound to now; a last line says that it is whole

Done by the process that writes the image, before the image counts: so all that a restart from this line or an older one
needs of the past survives a failure of the host. The program has gone on meanwhile, and may have changed a path again before
it is looked at. That path stands in the log of the next interval; only what stands in no newer log is compared with the
note.

Where ranks are several, the image also says when this rank last changed a path, since another rank may have taken its own
image a moment before, and have changed the path, too (:class:`~ckpt.undo.records.LastChange`).

Log and copies are synced one by one while they are few, else with all their file system (syncfs(2)): for ten thousand files
the difference is that between 0.1 and 6 s, on an SSD.

Not here: what a note is good for (:mod:`ckpt.undo.restart.others`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from ckpt.undo import _status
from ckpt.undo._watch import mac
from ckpt.undo.keeping import Keeper, look
from ckpt.undo.logs import boot_id, epoch_of, line_key, name_of, read_lines
from ckpt.undo.records import FileId, LastChange, Noted, Uncovered, Whole, to_json

__all__ = ["changes_of", "last_changes", "make_durable", "note", "read_notes", "seal", "Told"]

_NOTED = "noted"
_SYNCED_EACH = 64
_MOST_TOLD = 200
_WRITE_BYTES = 1 << 16
_MOST_CHANGES = 1000
_ROUND_NS = 60_000_000_000  # ranks take their images of one line within a shorter time


class Told:
    """The newest changes that this process has reported as not covered, each with the epoch of the line before it."""

    def __init__(self) -> None:
        self._newest: deque[tuple[int, Uncovered]] = deque(maxlen=_MOST_TOLD)
        self._count = 0

    def add(self, epoch: int, each: Uncovered) -> None:
        self._newest.append((epoch, each))
        self._count += 1

    def fields(self) -> dict[str, Any]:
        """As `formats.FILES` of :mod:`ckpt.store.records` has it."""
        rows = [[epoch, each.path, each.reason] for epoch, each in self._newest]
        return {"uncovered": rows, "more": self._count - len(rows)}


def last_changes(
    changes: dict[str, int], image_ns: int, first: int = 0, last: int = _MOST_CHANGES
) -> list[LastChange]:
    """Of the paths that this rank has changed before its image, the last ones, without the ``first`` ones of them:
    what is there now, the newest first. ``changes``: see :meth:`ckpt.undo.recorder.Recorder.changes`."""
    found = []
    for path, time_ns in islice(reversed(changes.items()), first, last):
        if time_ns < image_ns - _ROUND_NS:
            break
        with contextlib.suppress(OSError):
            if (status := look(path)) is not None:
                found.append(LastChange(path, time_ns, image_ns, status.file, status.nbytes, status.mtime_ns))
    return found


def seal(keeper: Keeper, told: Told, changes: Iterable[LastChange] = ()) -> dict[str, Any]:
    """The interval of the keeper has ended with an image. ``changes``: the last ones of this rank, where others may change
    the same paths. Returns what its manifest says of files."""
    if keeper.is_made:
        with contextlib.suppress(OSError):  # then nobody can tell later what others have changed
            note(keeper.directory, keeper.key_of_lines, keeper.changed_paths)
        try:
            make_durable(keeper.directory)
        except OSError as failure:
            reason = f"what was kept of files might not survive a failure of the host: {failure.strerror}"
            told.add(epoch_of(keeper.directory), Uncovered(keeper.directory, reason, time.time_ns()))
    rows = [[*each[:3], "{}:{}:{}".format(*each.file), *each[4:]] for each in changes]
    return {
        "log": name_of(keeper.directory),
        "bytes": keeper.end.nbytes,
        "mac": keeper.end.mac,
        "boot": boot_id(),
        **told.fields(),
        **({"changes": rows} if rows else {}),
    }


def changes_of(said: Mapping[str, Any]) -> list[LastChange]:
    """The last changes that :func:`seal` was given. ``said``: what the manifest says of files."""
    return [
        LastChange(path, time_ns, image_ns, FileId(*map(int, file.split(":"))), nbytes, mtime_ns)
        for path, time_ns, image_ns, file, nbytes, mtime_ns in said.get("changes", ())
    ]


def note(directory: str, key_of_lines: bytes, paths: Iterable[str]) -> None:
    """Note what these paths are bound to. ``directory``: of the rank and interval. Raises OSError: there is no note."""
    fd = os.open(os.path.join(directory, _NOTED), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        before, lines = f"{name_of(directory)}/{_NOTED}", bytearray()
        for text in _texts(paths):
            before = mac(key_of_lines, before, text)
            lines += b"%b %b\n" % (before.encode("ascii"), text)
            if len(lines) >= _WRITE_BYTES:
                _write_all(fd, lines)
        _write_all(fd, lines)
    finally:
        os.close(fd)


def _texts(paths: Iterable[str]) -> Iterator[bytes]:
    """The records as JSON."""
    count = 0
    for path in paths:
        with contextlib.suppress(OSError):  # of this path nothing is known, then
            yield _status.noted(path) or to_json(Noted(path, look(path)))
            count += 1
    yield to_json(Whole(count))


def _write_all(fd: int, lines: bytearray) -> None:
    while lines:
        del lines[: os.write(fd, lines)]


def read_notes(directory: str, key: bytes) -> list[Noted] | None:
    """The notes; None: there are none, or they are not whole. ``key``: of the job. Raises LogDamaged, OSError."""
    found = list(read_lines(directory, _NOTED, line_key(key)))
    if not found or not isinstance(found[-1], Whole):
        return None
    return [each for each in found if isinstance(each, Noted)]


def make_durable(directory: str) -> None:
    """What is kept in the directory of a rank and interval survives a failure of the host from now on. Raises OSError."""
    names = os.listdir(directory)
    if len(names) > _SYNCED_EACH or not _synced_each(os.path.join(directory, name) for name in names):
        with _opened(directory) as fd:
            _status.sync_file_system(fd)
    for _ in range(4):  # to the job directory
        with _opened(directory) as fd:
            os.fsync(fd)
        directory = os.path.dirname(directory)


def _synced_each(paths: Iterable[str]) -> bool:
    """False: a hard link is one to a file that this process may not read."""
    try:
        for path in paths:
            with _opened(path) as fd:
                os.fdatasync(fd)
    except PermissionError:
        return False
    return True


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)

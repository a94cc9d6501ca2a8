"""The state of a job's undo log as a whole, which must survive a kill: a small authenticated file.

    JOB/undo/state    MAC, line feed, JSON:

since       the oldest line that a restart can put files back to: from there on they are recorded; None: they are not
untouched   had no rank changed a file before that line? Then the program can also start over
left        ranges (L, H): a restart has gone back to line L when H was the highest epoch in use. The files of the lines
            above L, up to H, are not known any more. Written before the first change of such a restart
renumbered  files that had to be made again -> the numbers that they have now; older intervals know them by the old ones
chosen      which files are covered, where a restart has chosen others than the job's start (``Choices`` in
            :mod:`ckpt.undo.selection.patterns`)
foreign     paths and files that a restart under way leaves as they are (:mod:`ckpt.undo.restart.ending`)
booted      (L, B): a restart has gone back to line L in boot B of the machine, after L itself had been taken in another one
moved       (I, S, T): before incarnation I, the user has renamed directory S to T; older intervals know it as S

Without the file, files are recorded from the job's start or not at all, as the job's options say. Files that are not put
back at one restart are not recorded either, so the chain of intervals ends there (``give_up`` in
:mod:`ckpt.undo.restart.restoring`).

Not here: the intervals (:mod:`ckpt.undo.chain`), what a restart does with all this (:mod:`ckpt.undo.restart.restoring`).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from blake3 import blake3

from ckpt.transport import jsontext
from ckpt.transport.records import NamedTuple, dataclass, field
from ckpt.undo import _status
from ckpt.undo.chain import undo_path
from ckpt.undo.errors import LogDamaged, NotUndone
from ckpt.undo.records import FileId, dirname
from ckpt.undo.selection.patterns import Chosen

__all__ = [
    "DONE",
    "Moved",
    "State",
    "follow",
    "free_name",
    "from_plain",
    "is_there",
    "load",
    "read_record",
    "remove_record",
    "retire",
    "save",
    "sync_directory",
    "sync_file_systems",
    "to_plain",
    "write_record",
]

DONE = "done-"
"""With this begin the names of intervals that have left the chain: to be removed."""

_STATE = "state"
_MAC_DIGITS = 32


class Moved(NamedTuple):
    """The user has renamed the directory of the program, before this incarnation."""

    incarnation: int
    source: str
    target: str


@dataclass(slots=True)
class State:
    """See the module's header."""

    since: int | None = None
    left: list[tuple[int, int]] = field(default_factory=list)
    renumbered: dict[FileId, FileId] = field(default_factory=dict)
    moved: list[Moved] = field(default_factory=list)
    chosen: list[tuple[int, Chosen]] = field(default_factory=list)
    foreign: list[tuple[str, FileId]] = field(default_factory=list)
    booted: tuple[int, str] = (-1, "")
    untouched: bool = False  # of no meaning where `since` is 0


def is_there(job: str) -> bool:
    """Has the state been saved?"""
    return os.path.lexists(undo_path(job, _STATE))


def load(job: str, key: bytes, from_start: bool) -> State:
    """The state. ``from_start``: what holds if it has not been saved. Raises LogDamaged, OSError."""
    plain = read_record(job, key, _STATE)
    if plain is None:
        return State(since=0 if from_start else None)
    try:
        return from_plain(plain)
    except (KeyError, TypeError, ValueError) as failure:
        path = undo_path(job, _STATE)
        raise LogDamaged(f"it verifies, and is no record ({failure})", path=path) from failure


def from_plain(plain: Any) -> State:
    """The inverse of :func:`to_plain`. Raises KeyError, TypeError, ValueError: this is no state."""
    return State(
        plain["since"],
        [(low, high) for low, high in plain["left"]],
        {FileId(*old): FileId(*now) for old, now in plain["renumbered"]},
        [Moved(*each) for each in plain.get("moved", ())],
        [(epoch, Chosen(*chosen)) for epoch, chosen in plain.get("chosen", ())],
        [(path, FileId(*file)) for path, file in plain.get("foreign", ())],
        _booted(*plain.get("booted", (-1, ""))),
        bool(plain.get("untouched")),
    )


def to_plain(state: State) -> dict[str, Any]:
    """The state as JSON values."""
    return {
        "since": state.since,
        "left": state.left,
        "renumbered": [[old, now] for old, now in state.renumbered.items()],
        "moved": state.moved,
        "chosen": state.chosen,
        "foreign": state.foreign,
        "booted": state.booted,
        "untouched": state.untouched,
    }


def _booted(line: int, boot: str) -> tuple[int, str]:
    return line, boot


def save(job: str, key: bytes, state: State) -> None:
    """Save the state, durably. Raises OSError."""
    write_record(job, key, _STATE, to_plain(state))


def follow(known: dict[FileId, FileId], renumbered: dict[FileId, FileId]) -> None:
    """A file that had been made again has been made another time: all its numbers lead to the last one."""
    firsts: dict[FileId, list[FileId]] = {}
    for first, now in known.items():
        firsts.setdefault(now, []).append(first)
    again = [(old, now) for old, now in renumbered.items() if known.get(old) != now]
    for old, now in again:
        for number in (old, known.get(old, old)):
            for first in firsts.get(number, ()):
                if renumbered[first] == number:
                    renumbered[first] = now


def read_record(job: str, key: bytes, name: str) -> Any:
    """What :func:`write_record` has written; None: nothing. Raises LogDamaged: it does not verify. Raises OSError."""
    path = undo_path(job, name)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mac, _, text = file.read().decode("latin-1").partition("\n")
    except FileNotFoundError:
        return None
    if mac != _mac(key, name, text):
        raise LogDamaged("it does not verify", path=path)
    try:
        return jsontext.parse(text)
    except ValueError as failure:
        raise LogDamaged(f"it verifies, and is no record ({failure})", path=path) from failure


def write_record(job: str, key: bytes, name: str, plain: Any) -> None:
    """Write JSON values as a record of the undo log, durably. Raises OSError."""
    text = json.dumps(plain, separators=(",", ":"))
    directory = undo_path(job)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    temporary = undo_path(job, f".{name}")
    with open(temporary, "wb") as file:
        file.write(f"{_mac(key, name, text)}\n{text}".encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, undo_path(job, name))
    sync_directory(directory)
    sync_directory(job)


def remove_record(job: str, name: str) -> None:
    """What :func:`write_record` has written is gone, durably, if it was there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(undo_path(job, name))
        sync_directory(undo_path(job))


def sync_file_systems(paths: Iterable[str]) -> None:
    """What was changed at these paths survives a failure of the host from now on. Other file systems are not waited for: one
    whose server is gone would never answer. Raises OSError."""
    synced: set[int] = set()
    for directory in sorted({dirname(path) for path in paths}):
        try:
            fd = _open_nearest(directory)
        except OSError:  # it may not be read
            os.sync()
            return
        try:
            device = os.fstat(fd).st_dev
            if device not in synced:
                _status.sync_file_system(fd)
            synced.add(device)
        finally:
            os.close(fd)


def _open_nearest(directory: str) -> int:
    """Open the directory or, where there is none any more, the nearest one above it."""
    while True:
        try:
            return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            if directory == os.path.dirname(directory):
                raise
            directory = os.path.dirname(directory)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _mac(key: bytes, name: str, text: str) -> str:
    derived = blake3(key, derive_key_context=f"checkpoint toolkit, undo {name}").digest()
    return blake3(text.encode("latin-1"), key=derived).hexdigest(length=_MAC_DIGITS // 2)


@contextlib.contextmanager
def named(job: str) -> Iterator[None]:
    """An OSError of the job directory becomes a NotUndone."""
    try:
        yield
    except OSError as failure:
        raise NotUndone(failure.strerror or str(failure), path=str(failure.filename or job)) from failure


def free_name(path: str) -> str:
    """The path or, while something has that name already, the path with plus signs behind it."""
    while os.path.lexists(path):
        path += "+"
    return path


def retire(path: str) -> None:
    """Take an interval out of the chain, for all ranks at once, durably."""
    above, name = os.path.split(path)
    os.rename(path, free_name(os.path.join(above, DONE + name)))
    sync_directory(above)

"""Changes in directories of the program that no rank has recorded: noticed by inotify(7), told, not undone.

What child processes do, other programs, and system calls that the watch of a rank does not see, all show in the directory:
a name has come, gone, or a file has been closed behind a writer. Whether a rank has recorded the change says its undo log. A
change is in the log before it happens, so the log that is read behind the events has it.

    add(directory)   from now on; directories below it are not watched
    read()           takes what the kernel has; to be called before its queue is full (16 384 events, as a rule)
    take()           what has changed since the last call, and whether events were lost

:func:`unrecorded` is the comparison. Not found: a change of a file that a rank has changed, too, since the checkpoint; one
by a process that keeps the file open; one in a directory that is not watched, such as /tmp, which belongs to everybody. A
file that was made and removed again is no change, nor one that was opened for writing and not written.

Not here: which directories, when logs are compared, and who is told (the controller).
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping

from ckpt.transport.records import NamedTuple
from ckpt.undo import _status

__all__ = ["Change", "DirectoryWatch", "changes_since_now", "events_of", "fold", "unrecorded"]

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _DIRECTORY = 0x4000, 0x8000, 0x40000000
_MADE_HERE = _CREATE | _MOVED_TO
_ALL = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_ONLY_DIRECTORIES, _NO_LINKS, _NOT_UNLINKED = 0x01000000, 0x02000000, 0x04000000
_HEAD = struct.Struct("iIII")
_READ_BYTES = 1 << 16
_MOST_DIRECTORIES = 1000
_CLOCK_NS = 50_000_000  # file systems stamp files with the time of the last tick of the kernel's clock
_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE (linux/time.h): that of the last tick
_TICK_S, _TICKS = 0.001, 100


class Change(NamedTuple):
    """What happened to a name: the first event's mask, and all masks together."""

    first: int
    every: int


def events_of(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Watch descriptor, mask and name of each event."""
    at = 0
    while at < len(data):
        number, mask, _, nbytes = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield number, mask, os.fsdecode(data[at : at + nbytes].rstrip(b"\0"))
        at += nbytes


def fold(changes: dict[str, Change], directories: dict[int, str], data: bytes) -> bool:
    """Add events to changes. ``directories``: by watch descriptor; those that are gone are removed. Returns whether events
    were lost."""
    is_lost = False
    for number, mask, name in events_of(data):
        if mask & _OVERFLOW:
            is_lost = True
        elif mask & _IGNORED:
            directories.pop(number, None)
        elif number in directories and name:
            path = f"{directories[number]}/{name}"
            before = changes.get(path)
            changes[path] = Change(before.first, before.every | mask) if before else Change(mask, mask)
            if mask & _MOVED_FROM and mask & _DIRECTORY:
                _forget(directories, path)
    return is_lost


def _forget(directories: dict[int, str], path: str) -> None:
    """A directory that is watched has another name now."""
    for number, directory in list(directories.items()):
        if directory == path or directory.startswith(path + "/"):
            del directories[number]


class DirectoryWatch:
    """Directories whose entries are watched. Raises OSError: the kernel has no more such objects for this user."""

    def __init__(self, most: int = _MOST_DIRECTORIES) -> None:
        self._fd = _status.inotify_open()
        self._most = most
        self._directories: dict[int, str] = {}
        self._changes: dict[str, Change] = {}
        self._is_lost = False

    def add(self, directory: str) -> str:
        """Watch the directory. Returns why it is not watched; "": it is."""
        if _is_for_all(directory):
            return ""
        if len(self._directories) >= self._most and directory not in self._directories.values():
            return f"{self._most} directories are watched already"
        flags = _ALL | _ONLY_DIRECTORIES | _NO_LINKS | _NOT_UNLINKED
        try:
            number = _status.inotify_add(self._fd, directory, flags)
        except FileNotFoundError:
            return ""  # nothing can change in it
        except OSError as failure:
            return failure.strerror or str(failure)
        self._directories[number] = directory
        return ""

    def read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            self._is_lost |= fold(self._changes, self._directories, data)

    def take(self) -> tuple[dict[str, Change], bool]:
        """The changes since the last call, by path; whether some were lost."""
        self.read()
        found = self._changes, self._is_lost
        self._changes, self._is_lost = {}, False
        return found

    def end(self) -> None:
        """Watch nothing any more. The process is about to end, and the kernel closes the descriptor. close(2) would wait
        some 15 ms, until the kernel has done with the watches. A thread is no better place to wait: in a process of two
        threads, the first file under a high number (dup(2)) takes as long to open."""
        for number in self._directories:
            with contextlib.suppress(OSError):  # the directory is gone
                _status.inotify_remove(self._fd, number)
        self._directories.clear()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _is_for_all(directory: str) -> bool:
    """Do all programs of the machine put their files there?"""
    try:
        return bool(os.stat(directory).st_mode & stat.S_ISVTX)
    except OSError:
        return True  # it is gone


# ---------------------------------------------------------------------- comparison


def changes_since_now(*, after_ns: int | None = None) -> int:
    """A time for :func:`unrecorded`: what is changed from now on is stamped with no earlier one. ``after_ns``: when this
    process had last changed files itself, which shall have earlier ones; so the first tick of the kernel's clock since then
    is waited for, if it has not come."""
    if after_ns is None:
        return time.time_ns() - _CLOCK_NS
    for _ in range(_TICKS):  # more are needed if somebody sets the clock back just now
        tick_ns = time.clock_gettime_ns(_COARSE_CLOCK)
        if tick_ns > after_ns:
            return tick_ns
        time.sleep(_TICK_S)
    return time.time_ns() - _CLOCK_NS


def unrecorded(changes: Mapping[str, Change], logs: Iterable[str], since_ns: int) -> list[tuple[str, str]]:
    """Of these changes those that no log has: (path, "made", "changed" or "removed"). ``since_ns``: a file whose time of
    change is before has only been opened. ``logs``: the paths of undo logs; they are not verified, because nothing is done
    by them."""
    left, logs = dict(changes), list(logs)
    above: set[str] = set()  # what is below goes with it, or has had another name
    for log in logs:
        for path, kind, text in _lines(log):
            left.pop(path, None)
            if kind == b"moved":
                above.update(each for each in json.loads(text)[3:5] if each)
            elif kind == b"name" and b'",null,' in text:
                above.add(path)
    found = {
        path: what
        for path, change in left.items()
        if above.isdisjoint(_above(path)) and (what := _effect(path, change, since_ns))
    }
    if found:
        known = {file for log in logs for _, _, text in _lines(log) for file in _files(json.loads(text))}
        found = {path: what for path, what in found.items() if _file_of(path) not in known}
    return sorted(found.items())


def _effect(path: str, change: Change, since_ns: int) -> str:
    """What has become of the path; "": nothing."""
    try:
        found = os.lstat(path)
    except OSError:
        return "" if change.first & _MADE_HERE else "removed"
    if change.every & _ALL == _CLOSE_WRITE and found.st_ctime_ns < since_ns:
        return ""
    return "made" if change.first & _CREATE else "changed"


def _lines(log: str) -> Iterator[tuple[str, bytes, bytes]]:
    """Path, kind and text of each record of a log that may just be written."""
    with contextlib.suppress(FileNotFoundError), open(log, "rb") as file:
        for line in file:
            _, _, text = line.partition(b" ")
            if not text.endswith(b"]\n"):
                return
            _, kind, _, path, _ = text.split(b'"', 4)
            yield json.loads(text)[1] if b"\\" in path else path.decode("ascii"), kind, text


def _files(record: list[object]) -> Iterator[tuple[int, int]]:
    """Device and number of the file that a record is about."""
    status = record[2] if len(record) > 2 and record[0] in ("name", "content", "attributes") else None
    if isinstance(status, list):
        yield status[0][0], status[0][1]


def _file_of(path: str) -> tuple[int, int] | None:
    from ckpt.undo.keeping import look  # seldom needed, and slow to import

    with contextlib.suppress(OSError):
        status = look(path)
        if status is not None:
            return status.file.device, status.file.inode
    return None


def _above(path: str) -> Iterator[str]:
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        yield path

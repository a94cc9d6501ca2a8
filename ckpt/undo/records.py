"""The records of an undo log: before-images of names, contents and attributes.

A *name* is an absolute path whose directories are no symbolic links. A name has a binding: nothing, a file (an inode), a
directory, a symbolic link, or another file type. A *file* is an inode, (device, number); it has contents and attributes,
and one or more names. Names and files are apart because `rename(2)` changes names only, `write(2)` files only, and because
a file that has two names must have two names again.

An *interval* is what a rank does between two of its checkpoints. Names in a log are those at the beginning of the interval:
where a directory has been renamed since, a path below its new name stands in the log with the old name.

A log is a sequence of records in the order of time. Only the first record of a name, and of a file, in an interval counts.

Pure. Not here: how before-images are kept on disk (:mod:`ckpt.undo.keeping`).
"""

from __future__ import annotations

import functools
import json
import posixpath
import stat
from collections.abc import Callable
from typing import Any

from ckpt.transport.records import NamedTuple

__all__ = [
    "AnyRecord",
    "CLOCK_LIMIT_NS",
    "CLOCK_NS",
    "Attributes",
    "Began",
    "Binding",
    "Content",
    "FileId",
    "LastChange",
    "Kept",
    "MARGIN_NS",
    "Moved",
    "Name",
    "Noted",
    "Outcome",
    "Record",
    "Status",
    "Uncovered",
    "Whole",
    "above",
    "and_above",
    "below_another",
    "dirname",
    "from_plain",
    "renamed",
    "status_of",
    "to_json",
    "to_plain",
]


CLOCK_NS = 10_000_000
"""File systems stamp files with the time of the last tick of the kernel's clock, which is not older than this."""

MARGIN_NS = 1_000_000_000
"""Ranks on several hosts: times of two hosts, or of a host and a file system's server, that are closer than this do not say
which was first."""

CLOCK_LIMIT_NS = MARGIN_NS // 2
"""Ranks on several hosts: a clock that is farther off than this is not relied on."""


class FileId(NamedTuple):
    """An inode: its device, its number, and the time at which it was made, in ns (0: unknown). A number alone is given away
    again when its file has been removed.
    """

    device: int
    inode: int
    born_ns: int


class Status(NamedTuple):
    """What lstat(2) says of a name that exists. Sizes in bytes, times in ns; ``target``: of a symbolic link."""

    file: FileId
    mode: int
    links: int
    nbytes: int
    mtime_ns: int
    user: int
    group: int
    target: str = ""

    @property
    def is_file(self) -> bool:
        return self.mode & _TYPE == stat.S_IFREG

    @property
    def is_directory(self) -> bool:
        return self.mode & _TYPE == stat.S_IFDIR

    @property
    def is_symlink(self) -> bool:
        return self.mode & _TYPE == stat.S_IFLNK


_TYPE = 0o170000  # S_IFMT of <sys/stat.h>

Binding = Status | None
"""What a name refers to; None: the name does not exist."""


def status_of(found: tuple[int, ...], target: str = "") -> Status:
    """Of what :mod:`ckpt.undo._status` has found. A restart makes several for each file: without the calls of `__new__`."""
    new = tuple.__new__
    return new(Status, (new(FileId, found[:3]), *found[3:], target))


class Name(NamedTuple):
    """What a name was bound to. ``kept``: the number of a hard link to its file, 0: there is none."""

    path: str
    binding: Binding
    kept: int
    time_ns: int


class Content(NamedTuple):
    """What was in a file, and its attributes. ``path``: a name of the file. ``copy``: the number of a copy of its contents;
    0: only bytes behind ``status.nbytes`` are new. ``tail``: digest of the bytes before that, as far as
    :mod:`ckpt.undo.keeping` reads them; "": not known. ``written``: the end, as an offset in bytes, of what this rank had
    last written to the file before the interval began; 0: not known, or nothing. ``is_unsure``: 1 if the file may have been
    made in the interval. ``digest``: of the copy (:func:`ckpt.undo.copying.content_digest`); "": the copy shares its blocks
    with the file, and was not read. ``clone``: what such a copy was when it had been made; by that it is known again.
    ``copied_ns``: when the copy was whole. ``is_open``: 1 if the program had the file open when the interval began; then
    ``time_ns`` says when that was. ``start``: the copy has nothing of what is before this offset, which does not change.
    (Logs of earlier versions have none of these.)
    """

    path: str
    status: Status
    copy: int
    tail: str
    written: int
    is_unsure: int
    time_ns: int
    digest: str = ""
    clone: Binding = None
    copied_ns: int = 0
    is_open: int = 0
    start: int = 0


class Attributes(NamedTuple):
    """Mode, owner and times of a file or directory. ``is_unsure`` as in :class:`Content`."""

    path: str
    status: Status
    is_unsure: int
    time_ns: int


class Moved(NamedTuple):
    """A directory that had the name ``path`` when the interval began is about to be renamed from ``source`` to ``target``,
    or removed (``target`` is empty). ``is_new``: 1 for one that has been made in the interval; it matters because of what
    may lie below it. ``path`` is a name of the checkpoint only if it is 0.
    """

    path: str
    file: FileId
    source: str
    target: str
    is_new: int
    time_ns: int


class Outcome(NamedTuple):
    """Whether what the last :class:`Moved` say has happened: 1 or 0. Without this record it is not known."""

    path: str
    happened: int
    time_ns: int


class Uncovered(NamedTuple):
    """A change that cannot be undone, and why."""

    path: str
    reason: str
    time_ns: int


class Kept(NamedTuple):
    """From here on changes of the files that match this absolute pattern stay, so those since the interval began do, too."""

    path: str
    time_ns: int


class Began(NamedTuple):
    """The first line of a log: the boot of the machine (boot_id of the kernel) in which it was begun. It is no change.
    ``host``: of the rank, where ranks are on several. (Logs of earlier versions have none.)"""

    boot: str
    time_ns: int
    host: str = ""


class LastChange(NamedTuple):
    """When a rank began its last change of a path before its image, when the image was, and which file the path was then,
    with how many bytes, last written to when. In the manifest of the image, where ranks are several: another rank may have
    changed the path, too, a moment before, and after its own image."""

    path: str
    time_ns: int
    image_ns: int
    file: FileId
    nbytes: int
    mtime_ns: int


class Noted(NamedTuple):
    """What a path was bound to when a checkpoint had been taken: of each path that the rank had changed in the interval
    before. In a file of its own (:mod:`ckpt.undo.sealing`)."""

    path: str
    binding: Binding


class Whole(NamedTuple):
    """The last line of a file of :class:`Noted` records. ``records``: the number of lines before it."""

    records: int


Record = Name | Content | Attributes | Moved | Outcome | Uncovered | Kept
AnyRecord = Record | Began | Noted | Whole

_KINDS: dict[str, type[Any]] = {
    "name": Name,
    "content": Content,
    "attributes": Attributes,
    "moved": Moved,
    "outcome": Outcome,
    "uncovered": Uncovered,
    "kept": Kept,
    "began": Began,
    "noted": Noted,
    "whole": Whole,
}
_ADDED: dict[type[Any], int] = {Content: 5, Began: 1}
"""The last fields of a record that logs of earlier versions do not have."""
_WORDS = {kind: word for word, kind in _KINDS.items()}


def renamed(path: str, source: str, target: str) -> str:
    """The path after ``source`` has been renamed to ``target``."""
    if path == source or path.startswith(source + posixpath.sep):
        return target + path[len(source) :]
    return path


def dirname(path: str) -> str:
    """Of an absolute path in which no name is empty, or of ""; in a third of the time of :func:`posixpath.dirname`."""
    return path.rpartition(posixpath.sep)[0] or path[:1]


@functools.lru_cache(1024)
def _and_above(directory: str) -> tuple[str, ...]:
    above = dirname(directory)
    return () if directory == above else (directory, *_and_above(above))


def and_above(path: str) -> tuple[str, ...]:
    """The path, and the directories above it but for the root, nearest first."""
    above = dirname(path)
    return () if path == above else (path, *_and_above(above))


def above(path: str) -> tuple[str, ...]:
    """The directories above the path, nearest first; the root is the last."""
    found = and_above(path)
    return (*found[1:], posixpath.sep) if found else ()


_PATHS = ("path", "source", "target")


def below_another(record: Record, source: str, target: str) -> Record:
    """The record, as if all had happened after ``source`` was renamed to ``target``."""
    paths = {
        name: renamed(getattr(record, name), source, target) for name in _PATHS if name in record._fields
    }
    return record._replace(**paths)  # type: ignore[arg-type]


def to_plain(record: AnyRecord) -> list[Any]:
    """The record as JSON values."""
    return [_WORDS[type(record)], *record]


_encode = json.JSONEncoder(
    separators=(",", ":")
).encode  # made once: `json.dumps` would make one for each line


def to_json(record: AnyRecord) -> bytes:
    """The record as a line of a log has it: JSON, in ASCII."""
    return _encode(to_plain(record)).encode("ascii")


def from_plain(plain: Any) -> AnyRecord:
    """The inverse of :func:`to_plain`. Raises ValueError: this is no record."""
    try:
        word, *values = plain
        kind, readers, least = _READERS[word]
        if not least <= len(values) <= len(readers):
            raise ValueError(f"{len(values)} values")
        return kind(*[read(value) for read, value in zip(readers, values, strict=False)])  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError) as failure:
        raise ValueError(f"no record of an undo log: {failure}") from failure


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no integer")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def _file(value: Any) -> FileId:
    device, inode, born_ns = value
    return FileId(_whole(device), _whole(inode), _whole(born_ns))


def _status(value: Any) -> Status:
    (device, inode, born_ns), mode, links, nbytes, mtime_ns, user, group, target = value
    numbers = (device, inode, born_ns, mode, links, nbytes, mtime_ns, user, group)
    if {*map(type, numbers)} != {int}:
        raise ValueError(f"{numbers!r} are not all integers")
    return status_of(numbers, _text(target))


def _binding(value: Any) -> Binding:
    return None if value is None else _status(value)


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        (
            "kept",
            "copy",
            "written",
            "is_new",
            "is_unsure",
            "is_open",
            "happened",
            "time_ns",
            "copied_ns",
            "records",
            "start",
        ),
        _whole,
    ),
    **dict.fromkeys(("path", "tail", "source", "target", "reason", "digest", "boot", "host"), _text),
    "file": _file,
    "status": _status,
    "binding": _binding,
    "clone": _binding,
}

_READERS: dict[str, tuple[type[Any], list[Callable[[Any], Any]], int]] = {
    word: (kind, [_READ[name] for name in kind._fields], len(kind._fields) - _ADDED.get(kind, 0))
    for word, kind in _KINDS.items()
}
"""Of each kind: how its fields are read, and how many there are at least."""

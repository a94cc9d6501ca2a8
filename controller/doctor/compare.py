"""Compares the output and the files of a restored run with those of the first run, for `ckpt doctor`.

The reference is the run of which the image was taken, and which went on after the image: up to the image, both runs have the
same history. If a restored run differs from the first run, the program is restored a second time from the same image, with
the same files. If both restored runs show the same difference, it does not come from the clock, from random numbers of the
system or from the order of messages: the image has lost state. If the two restored runs differ from each other too, the
cause is not known, and the report says so.

Files are compared when the first run and the restored run have both ended. They are the files under the working directory
that the program's ranks have written or renamed during the first run, and those that only the restored run has made. Files
that others change there meanwhile (an editor, another job, processes that the ranks have started) are left alone. Before
each restored run and at the end, the files of the first run are put back as the first run left them. Files that only a
restored run has made are moved away meanwhile (`MovedFiles`), and are never deleted. Text is compared line by line, other
data byte by byte, compressed data by what it is of. Not compared: large files and the end of a long output, which the report
names, and files outside of the working directory.

Not here: processes (`ckpt.controller.doctor.trial`).
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from itertools import zip_longest
from typing import Any

Outputs = Mapping[Any, bytes | None]
"""Contents by rank (output) or by path (file); None: there is no such file."""

_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "lzma", b"PK\x03\x04": "zipfile"}
_FILES = 1000
_LOOKED_AT = 20_000
_FILE_BYTES = 8 << 20
_ALL_BYTES = 64 << 20
_SHOWN = 80
_BEFORE = 30  # so many bytes of a long line are shown before the first difference
_PIECE = 16
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def judge(first: Outputs, once: Outputs, twice: Outputs | None, *, whole: bool) -> tuple[Any, Any]:
    """(the first difference that both restored runs show, the first difference that they do not both show).

    Each is None or ``{"rank" or "path", "line" or "byte", "first", "restored"}`` (lines count from 1, bytes from 0).
    `first`: of the first run; `once` and `twice`: of the restored runs. `twice` None: there was one restored run only, so no
    difference is known to be in both. `whole`: the runs have ended, so missing lines are differences.
    """
    unsure = None
    for name in dict.fromkeys((*first, *once)):
        alike, not_alike = _judge_one(
            name, first.get(name), once.get(name), None if twice is None else (twice.get(name),), whole=whole
        )
        unsure = unsure or not_alike
        if alike is not None:
            return alike, unsure
    return None, unsure


def judge_files(first: Outputs, once: Outputs, twice: Outputs | None) -> tuple[Any, Any, list[str]]:
    """As `judge`, for files of runs that have ended; third: names of all other files that differ in both restored runs."""
    found, unsure = [], None
    first, once, twice = _unpacked(first), _unpacked(once), twice and _unpacked(twice)
    for name in sorted({*first, *once}):
        if is_laid_out_anew(first.get(name)) and is_laid_out_anew(once.get(name)):
            continue
        alike, not_alike = judge(
            {name: first.get(name)},
            {name: once.get(name)},
            None if twice is None else {name: twice.get(name)},
            whole=True,
        )
        found += [alike] if alike else []
        unsure = unsure or not_alike
    return (found[0] if found else None), unsure, [each["path"] for each in found[1:]]


def _unpacked(contents: Outputs) -> dict[Any, bytes | None]:
    """What is in compressed files counts: one that is open when the image is taken is packed in another way after it, with
    the same content."""
    return {name: None if data is None else _content(data) for name, data in contents.items()}


def _content(data: bytes) -> bytes:
    packed = next((module for magic, module in _PACKED.items() if data.startswith(magic)), None)
    if packed is None:
        return data
    try:
        if packed == "zipfile":
            members = import_module(packed).ZipFile(io.BytesIO(data)).infolist()
            return "".join(f"{each.filename} {each.file_size} {each.CRC:08x}\n" for each in members).encode()
        with import_module(packed).open(io.BytesIO(data)) as file:
            content: bytes = file.read(_FILE_BYTES + 1)
    except Exception:  # it is cut, only begins like one, or this Python lacks the module
        return data
    return content if len(content) <= _FILE_BYTES else data


def is_laid_out_anew(data: bytes | None) -> bool:
    """Is it a file of HDF5? One that is open when the image is taken has the same content after it, at other places."""
    return data is not None and data.startswith(b"\x89HDF\r\n\x1a\n")


def _judge_one(
    name: Any, first: bytes | None, once: bytes | None, twice: tuple[bytes | None] | None, *, whole: bool
) -> tuple[Any, Any]:
    if first == once or ((first is None or once is None) and not whole):
        return None, None
    again = twice[0] if twice else None
    named = {"path": name} if isinstance(name, str) else {"rank": name}
    if first is None or once is None:
        found = {**named, "line": 1, "first": _beginning(first), "restored": _beginning(once)}
        return (found, None) if twice and again == once else (None, found)
    if not whole:
        both = min(len(first), len(once))
        first, once, again = first[:both], once[:both], again and again[:both]
    unit, pieces = ("byte", _blocks) if b"\0" in first or b"\0" in once else ("line", _lines)
    unsure = None
    rows = enumerate(zip_longest(pieces(first), pieces(once), pieces(again or b"")))
    for number, (one, other, third) in rows:
        if one == other or (one is None and other is None):
            continue
        alike = twice is not None and again is not None and third == other
        if alike or unsure is None:
            position, texts = _shown(one, other, as_bytes=unit == "byte")
            place = number * _PIECE + position if unit == "byte" else number + 1
            row = {**named, unit: place, "first": texts[0], "restored": texts[1]}
            if alike:
                return row, unsure
            unsure = row
    return None, unsure


def _lines(data: bytes) -> Iterator[bytes]:
    """The lines of `data`, one by one: a list of all lines of a large output would take several times its memory."""
    for line in io.BytesIO(data):
        yield from line.splitlines()


def _blocks(data: bytes) -> Iterator[bytes]:
    return (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))


def _beginning(data: bytes | None) -> str:
    if data is None:
        return "no file"
    return _text(data[:_SHOWN].hex(" ", 4).encode() if b"\0" in data else next(_lines(data), None))


def _shown(one: bytes | None, other: bytes | None, *, as_bytes: bool) -> tuple[int, tuple[str, str]]:
    """(position of the first differing byte, texts of both from a little before that position)."""
    position = next(
        (at for at, (a, b) in enumerate(zip(one or b"", other or b"", strict=False)) if a != b),
        min(len(one or b""), len(other or b"")),
    )
    if as_bytes:
        return position, (_hex(one, position), _hex(other, position))
    begin = max(0, position - _BEFORE) if max(len(one or b""), len(other or b"")) > _SHOWN else 0
    return position, (_text(one, begin), _text(other, begin))


def _hex(data: bytes | None, begin: int) -> str:
    return "nothing" if data is None or begin >= len(data) else data[begin:].hex(" ")


def _text(line: bytes | None, begin: int = 0) -> str:
    if line is None:
        return "nothing"
    return ("…" if begin else "") + line[begin : begin + _SHOWN].decode(errors="replace")


# -- files -----------------------------------------------------------------------------------------------------------------


def canonical(path: str) -> str:
    """The absolute path without symbolic links above its last component."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _is_among(path: str, changed: Collection[str]) -> bool:
    """Is it one of these, or below one of these (a directory that was renamed)?"""
    path = canonical(path)
    while path not in changed:
        path, below = os.path.dirname(path), path
        if path == below:
            return False
    return True


def written(
    directory: str, since_ns: int, changed: Collection[str], but: Collection[str] = ()
) -> tuple[dict[str, bytes], list[str]]:
    """Contents by name of the regular files under `directory` that were written, made or renamed since `since_ns`.

    Only files among `changed` (:class:`ckpt.controller.doctor.files.FilesOfTrial`) count. Files named in `but` are left out.
    Second: the names of files that are too large, or too many, to be kept.
    """
    found: dict[str, bytes] = {}
    left_out: list[str] = []
    total = 0
    for path in _files(directory):
        name = os.path.relpath(path, directory)
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if (
                name in but
                or not stat.S_ISREG(status.st_mode)
                or max(status.st_mtime_ns, status.st_ctime_ns) < since_ns
                or not _is_among(path, changed)
            ):
                continue
            size = status.st_size
            if size > _FILE_BYTES or total + size > _ALL_BYTES or len(found) >= _FILES:
                left_out.append(name)
                continue
            total += size
            with open(path, "rb") as file:
                found[name] = file.read()
    return found, left_out


def present(directory: str) -> set[str]:
    """The names of the files under a directory."""
    return {os.path.relpath(path, directory) for path in _files(directory)}


def _files(directory: str) -> Iterator[str]:
    looked_at = 0
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not _is_skipped(name))
        for name in sorted(names):
            yield os.path.join(place, name)
        looked_at += len(names)
        if looked_at > _LOOKED_AT:
            return


def _is_skipped(name: str) -> bool:
    return name in _SKIPPED or name.startswith((".", "ckpt-"))


def contents(directory: str, names: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """The present contents of the files `names`; None: the file cannot be read."""
    found: dict[str, bytes | None] = dict.fromkeys(names)
    for name in names:
        with contextlib.suppress(OSError), open(os.path.join(directory, name), "rb") as file:
            found[name] = file.read()
    return found


def put_back(directory: str, kept: Mapping[str, bytes]) -> None:
    """Write the contents `kept` into the files. They are written in place, so a file keeps its inode."""
    for name, data in contents(directory, kept).items():
        if data != kept[name]:
            with contextlib.suppress(OSError):
                descriptor = os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT, 0o666)
                with open(descriptor, "wb") as file:
                    file.write(kept[name])
                    file.truncate()


class MovedFiles:
    """Files that only a restored run has made, moved to a directory where the next restored run does not see them.

    Another process may have made such a file, for example a user's editor. So no file is deleted, and all are moved back.
    """

    def __init__(self, directory: str, store: str) -> None:
        self._directory, self._store = directory, store
        self._kept: list[tuple[str, str]] = []

    def move_away(self, names: Collection[str]) -> None:
        """Move the files `names` out of the working directory."""
        os.makedirs(self._store, exist_ok=True)
        for name in names:
            kept = os.path.join(self._store, str(len(self._kept)))
            with contextlib.suppress(OSError):
                shutil.move(os.path.join(self._directory, name), kept)
                self._kept.append((name, kept))

    def move_back(self) -> None:
        """Move the files back, the oldest first. A file stays away if there is another file in its place now."""
        for name, kept in self._kept:
            place = os.path.join(self._directory, name)
            if not os.path.lexists(place):
                with contextlib.suppress(OSError):
                    os.makedirs(os.path.dirname(place), exist_ok=True)
                    shutil.move(kept, place)
        self._kept.clear()

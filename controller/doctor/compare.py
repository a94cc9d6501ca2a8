"""What a restored program printed and wrote, beside what the first run did: for `ckpt doctor`. No processes here.

The reference is the very run that the image was taken of, which went on: up to the image both are one. Where a restored run
differs, it is run a second time from the same image, with the same files: what both say alike, and the first run did not,
does not come from the clock, from random numbers of the system or from the order of messages: something was lost. Where the
two differ from each other, too, nothing can be told, which is said.

Files: those under the working directory that were written or renamed during the first run, and those that only the restored
run has made, compared when it and the first run have both come to their end. They are put back, as the first run left them,
before each restored run and at the end; what only a restored run has made lies elsewhere meanwhile (`Aside`), and is never
deleted. Text is compared line by line, anything else by its bytes. Not compared: large files, which are named, and what
lies outside of the working directory.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from itertools import zip_longest
from typing import Any

Outputs = Mapping[Any, bytes | None]
"""By rank or path; None: there is no such file."""

OUTPUT_BYTES = 64 << 20  # of a rank's output; what comes behind them is not compared
_FILES = 1000
_LOOKED_AT = 20_000
_FILE_BYTES = 8 << 20
_ALL_BYTES = 64 << 20
_SHOWN = 80
_BEFORE = 30  # of a long line, before the first difference
_PIECE = 16
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def judge(first: Outputs, once: Outputs, twice: Outputs | None, *, whole: bool) -> tuple[Any, Any]:
    """(the first difference that both restored runs show alike, the first that they do not).

    Each is None or ``{"rank" or "path", "line" or "byte", "first", "restored"}`` (lines count from 1, bytes from 0). twice:
    None when there was one restored run only, so that nothing is known to be alike. whole: both have come to their end, so
    that missing lines are differences.
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
    """As `judge`, of runs that have come to their end; and the names of all other files that differ alike."""
    found, unsure = [], None
    for name in sorted({*first, *once}):
        alike, not_alike = judge(
            {name: first.get(name)},
            {name: once.get(name)},
            None if twice is None else {name: twice.get(name)},
            whole=True,
        )
        found += [alike] if alike else []
        unsure = unsure or not_alike
    return (found[0] if found else None), unsure, [each["path"] for each in found[1:]]


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
    """One by one: those of a large output together would take several times its memory."""
    for line in io.BytesIO(data):
        yield from line.splitlines()


def _blocks(data: bytes) -> Iterator[bytes]:
    return (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))


def _beginning(data: bytes | None) -> str:
    if data is None:
        return "no file"
    return _text(data[:_SHOWN].hex(" ", 4).encode() if b"\0" in data else next(_lines(data), None))


def _shown(one: bytes | None, other: bytes | None, *, as_bytes: bool) -> tuple[int, tuple[str, str]]:
    """(where they begin to differ, both from a little before that)."""
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


def written(directory: str, since_ns: int, but: Collection[str] = ()) -> tuple[dict[str, bytes], list[str]]:
    """Contents of the regular files under a directory that were written, made or renamed since then, those named in `but`
    left out; and the names of those that are too large, or too many, to be kept."""
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
    """What is in these files now."""
    found: dict[str, bytes | None] = dict.fromkeys(names)
    for name in names:
        with contextlib.suppress(OSError), open(os.path.join(directory, name), "rb") as file:
            found[name] = file.read()
    return found


def put_back(directory: str, kept: Mapping[str, bytes]) -> None:
    """The files as they were; in place, so that a file stays the file it is."""
    for name, data in contents(directory, kept).items():
        if data != kept[name]:
            with contextlib.suppress(OSError):
                descriptor = os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT, 0o666)
                with open(descriptor, "wb") as file:
                    file.write(kept[name])
                    file.truncate()


class Aside:
    """Files that only a restored run has made, kept where the next restored run does not see them.

    Nobody can tell whether another process made them, a person's editor say: so none is deleted, and all come back.
    """

    def __init__(self, directory: str, store: str) -> None:
        self._directory, self._store = directory, store
        self._kept: list[tuple[str, str]] = []

    def put(self, names: Collection[str]) -> None:
        """Out of the working directory."""
        os.makedirs(self._store, exist_ok=True)
        for name in names:
            kept = os.path.join(self._store, str(len(self._kept)))
            with contextlib.suppress(OSError):
                shutil.move(os.path.join(self._directory, name), kept)
                self._kept.append((name, kept))

    def give_back(self) -> None:
        """Where there is no other file now; the oldest first."""
        for name, kept in self._kept:
            place = os.path.join(self._directory, name)
            if not os.path.lexists(place):
                with contextlib.suppress(OSError):
                    os.makedirs(os.path.dirname(place), exist_ok=True)
                    shutil.move(kept, place)
        self._kept.clear()

"""What a restored program printed and wrote, beside what the first run did: for `ckpt doctor`. No processes here.

The reference is the very run that the image was taken of, which went on: up to the image both are one. Where a restored run
differs, it is run a second time from the same image, with the same files: what both say alike, and the first run did not,
does not come from the clock, from random numbers of the system or from the order of messages: something was lost. Where the
two differ from each other, too, nothing can be told, which is said.

Files: those under the working directory that were written or renamed during the first run, compared when it and the
restored run have both come to their end; they are put back, as the first run left them, before each restored run and at the
end. Not compared: large files, and what lies elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

Outputs = Mapping[Any, bytes | None]
"""By rank or path; None: there is no such file."""

_FILES = 1000
_LOOKED_AT = 20_000
_FILE_BYTES = 8 << 20
_ALL_BYTES = 64 << 20
_SHOWN = 80
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def judge(first: Outputs, once: Outputs, twice: Outputs | None, *, whole: bool) -> tuple[Any, Any]:
    """(the first difference that both restored runs show alike, the first that they do not).

    Each is None or ``{"rank" or "path", "line", "first", "restored"}``. twice: None when there was one restored run only, so
    that nothing is known to be alike. whole: both have come to their end, so that missing lines are differences.
    """
    alike, unsure = None, None
    for name, data in first.items():
        for number, one, other in _differences(data, once.get(name), whole=whole):
            again = None if twice is None else _line(twice.get(name), number)
            found = {**_named(name), "line": number, "first": _text(one), "restored": _text(other)}
            if twice is not None and again == other:
                alike = alike or found
            else:
                unsure = unsure or found
        if alike is not None:
            break
    return alike, unsure


def _named(name: Any) -> dict[str, Any]:
    return {"path": name} if isinstance(name, str) else {"rank": name}


def _differences(first: bytes | None, restored: bytes | None, *, whole: bool) -> list[tuple[int, Any, Any]]:
    if first is None or restored is None:
        return [] if first == restored or not whole else [(1, _line(first, 1), _line(restored, 1))]
    if not whole:
        both = min(len(first), len(restored))
        first, restored = first[:both], restored[:both]
    found: list[tuple[int, Any, Any]] = []
    lines = zip_longest(first.splitlines(), restored.splitlines())
    for number, (one, other) in enumerate(lines, start=1):
        if one != other:
            found.append((number, one, other))
    return found


def _line(data: bytes | None, number: int) -> bytes | None:
    """None: there is no such line, or no such file."""
    lines = (data or b"").splitlines()
    return lines[number - 1] if number <= len(lines) else None


def _text(line: bytes | None) -> str:
    return "nothing" if line is None else line[:_SHOWN].decode(errors="replace")


# -- files -----------------------------------------------------------------------------------------------------------------


def written(directory: str, since_ns: int) -> dict[str, bytes]:
    """Contents of the regular files under a directory that were written, made or renamed since then."""
    found: dict[str, bytes] = {}
    looked_at = total = 0
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not _is_skipped(name)]
        for name in names:
            looked_at += 1
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if not stat.S_ISREG(status.st_mode) or max(status.st_mtime_ns, status.st_ctime_ns) < since_ns:
                    continue
                if status.st_size > _FILE_BYTES or total + status.st_size > _ALL_BYTES:
                    continue
                total += status.st_size
                with open(path, "rb") as file:
                    found[os.path.relpath(path, directory)] = file.read()
        if looked_at > _LOOKED_AT or len(found) > _FILES:
            break
    return found


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

"""Temporary directories: their content is part of the image, since they are removed when the program ends.

A :class:`tempfile.TemporaryDirectory` that is in use is known by its finalizer. The forked child reads its files as they are
at that moment. At load, before anything else, a directory that is gone is made again with these files; a directory that is
still there is left as it is. If all directories together have more than ``LIMIT_BYTES``, nothing of them is saved: then they
must still be there at a restart.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from ckpt.compat.stdlib import finalizers
from ckpt.transport.records import dataclass, field

__all__ = ["LIMIT_BYTES", "are_there", "note_directories", "restore_directories"]

LIMIT_BYTES = 64 << 20

Saved = dict[str, Any]
"""``{"path", "directories": [(relative path, mode)], "files": [(relative path, mode, content)]}`` of one directory."""


@dataclass(slots=True)
class _Reading:
    left_bytes: int = LIMIT_BYTES
    found: list[Saved] = field(default_factory=list)


def note_directories() -> list[Saved]:
    tempfile: Any = sys.modules.get("tempfile")
    registry = finalizers()
    if tempfile is None or not registry:
        return []
    reading = _Reading()
    for info in list(registry.values()):
        owner = info.weakref()
        if isinstance(owner, tempfile.TemporaryDirectory) and os.path.isdir(owner.name):
            _read_tree(os.path.abspath(owner.name), reading)
    return reading.found


def _read_tree(top: str, reading: _Reading) -> None:
    saved: Saved = {"path": top, "directories": [(".", os.stat(top).st_mode & 0o7777)], "files": []}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            with contextlib.suppress(OSError):  # gone meanwhile: the program goes on
                status = os.lstat(path)
                place = (os.path.relpath(path, top), status.st_mode & 0o7777)
                if name in names:
                    saved["directories"].append(place)
                elif os.path.isfile(path) and not os.path.islink(path):
                    if status.st_size > reading.left_bytes:
                        return
                    with open(path, "rb") as file:
                        content = file.read(reading.left_bytes)
                    reading.left_bytes -= len(content)
                    saved["files"].append((*place, content))
    reading.found.append(saved)


def are_there(saved: list[Saved]) -> bool:
    """Is none of these directories gone?"""
    return all(os.path.isdir(tree["path"]) for tree in saved)


def restore_directories(saved: list[Saved]) -> None:
    for tree in saved:
        top = tree["path"]
        if os.path.isdir(top):
            continue
        for name, mode in tree["directories"]:
            os.makedirs(os.path.join(top, name), exist_ok=True)
            os.chmod(os.path.join(top, name), mode)
        for name, mode, content in tree["files"]:
            path = os.path.join(top, name)
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, mode)

"""What one host sees of file systems that may be shared, and the file by which it is proven. (driver)

Looked at are the file systems of the job directory, of the directory in which the job works, and of those that
:data:`DIRECTORIES` name. Not here: what follows from it (:mod:`ckpt.controller.sharing.proof`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ckpt.undo.logs import boot_id
from ckpt.undo.shared import Mount, Mounts

__all__ = ["DIRECTORIES", "candidates", "look_for", "mounts_of", "token"]

DIRECTORIES = ("HOME", "SCRATCH", "WORK")
"""Environment variables that name directories on file systems that hosts may share."""


def candidates(job: str, cwd: str) -> list[str]:
    """The directories to be looked at, without symbolic links."""
    named = [each for name in DIRECTORIES if (each := os.environ.get(name))]
    found = dict.fromkeys(os.path.realpath(each) for each in (job, cwd, *named))
    return [each for each in found if os.path.isdir(each)]


def mounts_of(directories: Iterable[str]) -> dict[str, Mount]:
    """What is mounted there, one directory for each mount. Raises OSError."""
    mounts = Mounts()
    found: dict[str, tuple[str, Mount]] = {}
    for directory in directories:
        mount = mounts.of(directory)
        found.setdefault(mount.path, (directory, mount))
    return dict(found.values())


@contextlib.contextmanager
def token(directories: Iterable[str], name: str) -> Iterator[None]:
    """Make the file in each directory where this user may, and remove it in the end."""
    made = []
    try:
        for directory in directories:
            path = os.path.join(directory, name)
            with contextlib.suppress(OSError):  # then no host finds it
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                made.append(path)
                os.close(fd)
        yield
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                os.unlink(path)


def look_for(directories: Iterable[str], name: str) -> dict[str, Any]:
    """What an agent finds on its host, as JSON can hold it. Raises OSError."""
    mounts = Mounts()
    found = {}
    for directory in directories:
        mount = mounts.of(directory)
        is_seen = os.path.realpath(directory) == directory and os.path.lexists(os.path.join(directory, name))
        found[directory] = {"mount": mount.path, "number": mount.number, "is_seen": is_seen}
    return {"found": found, "boot": boot_id(), "time_ns": time.time_ns()}

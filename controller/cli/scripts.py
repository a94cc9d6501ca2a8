"""Notes for a new job its script, to see later whether it has changed since, and its standard input.

A restart goes on with the program as it was when the job was started: its code is part of the image. A user who has changed
the script in the meantime should get a message. Only the script itself is compared, not the modules that it imports.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any


def note(path: str | None) -> dict[str, str] | None:
    """The script's path and digest, which the job's options keep; None: there is no such file."""
    digest = None if path is None else _digest(path)
    return None if path is None or digest is None else {"path": path, "sha256": digest}


def changed(noted: Any, directory: str) -> str | None:
    """What is to be said at a restart of a job whose script was noted, and that goes on in `directory`; None: nothing."""
    if not isinstance(noted, dict):
        return None
    digest = _digest(os.path.join(directory, noted["path"]))
    if digest is None or digest == noted["sha256"]:
        return None
    return (
        f"{noted['path']} has changed since the job was started; the job goes on with the program as it was. "
        "To run what is there now: a new job"
    )


def _digest(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def standard_input() -> dict[str, Any] | None:
    """The standard input of rank 0: `{"kind": "file", "path", "offset"}`. Another kind cannot be read. None: no input."""
    try:
        status = os.fstat(0)
    except OSError:
        return None  # closed
    if stat.S_ISREG(status.st_mode):
        if status.st_nlink == 0:
            return {"kind": "a file that is deleted already (a here-document, say)"}
        return {"kind": "file", "path": os.readlink("/proc/self/fd/0"), "offset": os.lseek(0, 0, os.SEEK_CUR)}
    if stat.S_ISCHR(status.st_mode):
        return {"kind": "a terminal"} if os.isatty(0) else None
    return {"kind": "a pipe" if stat.S_ISFIFO(status.st_mode) else "a socket"}

"""The names of the files that the program changes itself. (driver)

The trial of `ckpt doctor` compares files, and puts them back. Others may change files below the same directory meanwhile: an
editor, another job. So it must know which ones are the program's: with this audit hook (PEP 578), and by the undo log, which
also has what compiled libraries change.

The names go to ``doctor/changed-N`` in the job directory, one as JSON a line, when they are first met.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

__all__ = ["PREFIX", "Changes"]

PREFIX = "changed-"
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NAMES = {
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "os.remove": 1,
    "os.truncate": 1,
    "sqlite3.connect": 1,
}
"""Audit event -> the number of its arguments that are names."""
_OF_A_DATABASE = ("", "-journal", "-wal", "-shm")


class Changes:
    """Writes down the names, from :meth:`watch` on."""

    def __init__(self, directory: str, rank: int) -> None:
        self._job = os.path.dirname(directory)
        path = os.path.join(directory, f"{PREFIX}{rank}")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._known: set[str] = set()

    def watch(self) -> None:
        """Install the audit hook, which cannot be removed from a process."""
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        # called for every audit event of the interpreter, so it must be quick; an exception here would come out of open()
        if event == "open":
            if isinstance(args[2], int) and args[2] & _WRITES:
                self._note(args[0])
        elif event in _NAMES:
            for name in args[: _NAMES[event]]:
                for ending in _OF_A_DATABASE if event == "sqlite3.connect" else ("",):
                    self._note(name, ending)

    def _note(self, name: object, ending: str = "") -> None:
        if not isinstance(name, (str, bytes, os.PathLike)):
            return  # a descriptor was given, not a path
        with contextlib.suppress(OSError, ValueError, TypeError):
            path = os.path.abspath(os.fsdecode(name)) + ending
            if path in self._known or path.startswith((self._job, "/dev/", "/proc/")):
                return
            self._known.add(path)
            os.write(self._file, f"{json.dumps(path)}\n".encode())

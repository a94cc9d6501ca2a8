"""The errors of the undo log, as one tree.

::

    UndoError
    ├── LogDamaged    a log does not verify
    ├── CopyDamaged   what was kept of a file is gone, or is not what was kept
    ├── NotRecorded   the files of the line that a restart goes back to are not known
    └── NotUndone     the file system refuses what a restart has to put back
        └── NotKept   it could not be taken back
"""

from __future__ import annotations

__all__ = ["CopyDamaged", "LogDamaged", "NotKept", "NotRecorded", "NotUndone", "UndoError"]


class UndoError(Exception):
    """Base of the errors of the undo log. ``path``: the file concerned."""

    def __init__(self, what: str, *, path: str) -> None:
        super().__init__(f"{what}: {path}")
        self.what = what
        self.path = path


class LogDamaged(UndoError):
    """The log has been changed, or is of another job."""


class CopyDamaged(UndoError):
    """A copy of a file, or a hard link to it, is gone, or is not what was kept. ``path``: of the copy. Another line may not
    need it."""


class NotRecorded(UndoError):
    """Changes were made that no log tells of, or the files have been put back to an older line since."""


class NotUndone(UndoError):
    """A file cannot be put back; the restart can be tried again when the cause is gone."""


class NotKept(NotUndone):
    """There is no room to keep what a restart is about to change, so the change could not be taken back."""

"""★ The working directory: which it was, and what of it a restart can make again.

At a restart it may be gone: a scratch directory, cleaned up in between. As with open files, what the image knows the content
of is made again, and all else is an input that is missing, and named:

    was removed already     a directory that is removed again, so that `getcwd` fails as before
    was empty               made again, with its mode; files that the program has open do not count: they are made again
                            themselves, or named
    held other files        RestoreError: they are not in the image

Not here: where it has moved to (:mod:`ckpt.image.files.moved`), temporary directories (:mod:`ckpt.image.stdlib.temporary`).
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.files import reopen
from ckpt.image.files.file_notes import FileNote
from ckpt.image.files.moved import moved

__all__ = ["go_back", "note_directory"]

_FILES = ("file", "deleted")


def note_directory(notes: Iterable[FileNote]) -> dict[str, Any]:
    """``directory``: its path, None if it was removed; ``directory_mode``: None if it cannot be made again.

    ``notes``: of all descriptors; those of regular files have paths.
    """
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        return {"directory": None, "directory_mode": None}
    mode = None
    try:
        opened = {note.path for note in notes if note.kind in _FILES}
        with os.scandir(directory) as entries:
            is_empty = all(os.path.join(directory, entry.name) in opened for entry in entries)
        if is_empty:
            mode = stat.S_IMODE(os.stat(directory).st_mode)
    except OSError:
        pass  # may be entered, and not read
    return {"directory": directory, "directory_mode": mode}


def go_back(saved: Mapping[str, Any]) -> None:
    """Change to it. Raises RestoreError: it is gone, or cannot be entered."""
    if saved["directory"] is None:
        removed = tempfile.mkdtemp()
        os.chdir(removed)
        os.rmdir(removed)
        return
    directory, mode = moved(saved["directory"]), saved.get("directory_mode")  # of an earlier version: None
    try:
        if mode is not None and not os.path.lexists(directory):
            reopen.make_directory(directory)
            os.chmod(directory, mode)
        os.chdir(directory)
    except OSError as failure:
        held = "" if mode is not None else " with what it held, which is not in the image"
        raise RestoreError(
            f"the working directory {directory!r} of the program: {failure.strerror}. Put it back{held}, and run "
            "`ckpt restart`; if the directory in which the job was started has moved: --chdir DIR"
        ) from failure

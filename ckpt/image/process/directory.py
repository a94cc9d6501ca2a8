"""The working directory of the program, in an image and after a restart. (driver)

At a restart the directory may be gone, for example a scratch directory that has been cleaned up. What a restart then does
depends on the directory's state when the image was taken:

    removed already         the restart makes a directory and removes it, so that `getcwd` fails as before
    empty                   made again, with its mode; files that the program has open do not count: they are made again
                            themselves, or a RestoreError names them
    with other files        RestoreError: these files are not in the image

Not here: where it has moved to (:mod:`ckpt.image.interface.moved`), temporary directories
(:mod:`ckpt.image.stdlib.temporary`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.files import reopen
from ckpt.image.files.file_notes import FileNote
from ckpt.image.interface.moved import moved

__all__ = ["go_back", "is_there", "note_directory"]

_FILES = ("file", "deleted")


def note_directory(notes: Iterable[FileNote]) -> dict[str, Any]:
    """Part of the early state: ``directory``: the path, None if the directory has been removed; ``directory_mode``: its
    permission bits, None if a restart cannot make it again.

    ``notes``: the notes of all descriptors; those of regular files have paths.
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
        pass  # a directory that may be entered but not read
    return {"directory": directory, "directory_mode": mode}


def is_there(saved: Mapping[str, Any]) -> bool:
    """Can it be entered?"""
    return saved["directory"] is not None and os.access(moved(saved["directory"]), os.X_OK)


def go_back(saved: Mapping[str, Any]) -> None:
    """Change to the saved directory. Raises RestoreError: the directory is gone, or cannot be entered."""
    if saved["directory"] is None:
        import tempfile

        removed = tempfile.mkdtemp()
        os.chdir(removed)
        os.rmdir(removed)
        return
    # Images of an earlier version have no mode
    directory, mode = (
        moved(saved["directory"]),
        saved.get("directory_mode"),
    )
    try:
        if mode is not None and not os.path.lexists(directory):
            reopen.make_directory(directory)
            os.chmod(directory, mode)
        os.chdir(directory)
    except OSError as failure:
        files = "" if mode is not None else " with what it held, which is not in the image"
        raise RestoreError(
            f"the working directory {directory!r} of the program: {failure.strerror}. Put it back{files}, and run "
            "`ckpt restart`; if the directory in which the job was started has moved: --chdir DIR"
        ) from failure

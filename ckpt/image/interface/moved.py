"""New paths of files when the program's directory has moved since the image was taken. (driver)

The user who restarts the job names the new directory (`ckpt restart --chdir`), before an image is loaded. Paths in or below
the directory in which the job was started are then translated to the same place in the new directory: the working
directory, open files, entries of ``sys.path``, the script. Strings in variables of the program are not changed.

Not here: environments that have moved (:mod:`ckpt.image.modules.search_path`).
"""

from __future__ import annotations

import os

__all__ = ["declare_moved", "moved"]

_moved: list[tuple[str, str]] = []


def declare_moved(before: str, now: str) -> None:
    """Declare that the directory `before` is now the directory `now`; both are absolute paths."""
    _moved[:] = [(before.rstrip(os.sep), now.rstrip(os.sep))] if before != now else []


def moved(path: str) -> str:
    """The path as it is now: in the new directory if it was in the old one, else unchanged."""
    for before, now in _moved:
        if path == before or path.startswith(before + os.sep):
            return now + path[len(before) :]
    return path

"""★ The program's directory has moved since the image: where its paths lead now.

Said by whoever restarts the job (`ckpt restart --chdir`), before an image is loaded. What lay in or below the directory in
which the job was started is looked for at the same place in the new one: the working directory, open files, entries of
``sys.path``, the script. Texts in variables of the program stay what they are.

Not here: environments that have moved (:mod:`ckpt.image.modules.search_path`).
"""

from __future__ import annotations

import os

__all__ = ["declare_moved", "moved"]

_moved: list[tuple[str, str]] = []


def declare_moved(before: str, now: str) -> None:
    """What was in `before` is in `now`; both absolute."""
    _moved[:] = [(before.rstrip(os.sep), now.rstrip(os.sep))] if before != now else []


def moved(path: str) -> str:
    """Where this path leads now."""
    for before, now in _moved:
        if path == before or path.startswith(before + os.sep):
            return now + path[len(before) :]
    return path

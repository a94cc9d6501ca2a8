"""Private names of ``subprocess``, which tell whether a child process was started, and which method waits for its end.

For a new minor version: do these methods of ``Popen`` still wait, and no others?
"""

from __future__ import annotations

from typing import Any

__all__ = ["CHILD_WAITS", "disown_child", "was_started"]

CHILD_WAITS = ("communicate", "_communicate", "wait", "_wait", "_try_wait")
"""Methods of ``subprocess.Popen`` in which a program waits for its child."""


def was_started(child: Any) -> bool:
    """Has a ``subprocess.Popen`` started a child process? One whose ``__init__`` has failed has not."""
    return bool(getattr(child, "_child_created", True))


def disown_child(child: Any) -> None:
    """Another ``subprocess.Popen`` stands for the process now: the end of this object is not to warn of it."""
    child._child_created = False

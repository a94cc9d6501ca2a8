"""Finds where a rank is that does not answer: its signal handler, in C (faulthandler), writes its stack to a file. (driver)

    clear ──signal `WHERE_SIGNAL`──▶ the rank writes ──▶ innermost

On several hosts the agent of each does this (`ckpt.controller.hosts.agent`), on one host the controller does.
"""

from __future__ import annotations

import contextlib
import os

from ckpt.controller.launch.forked import where_path

__all__ = ["clear", "innermost", "innermost_frame"]


def clear(runtime_dir: str, rank: int) -> None:
    """Forget what the rank has written before. Then signal it."""
    with contextlib.suppress(OSError):
        os.truncate(where_path(runtime_dir, rank), 0)


def innermost(runtime_dir: str, rank: int) -> str:
    """The innermost frame of the stack that the rank has written: ``file:line function``, or "unknown"."""
    try:
        with open(where_path(runtime_dir, rank), encoding="utf-8", errors="replace") as file:
            return innermost_frame(file.read())
    except OSError:
        return "unknown"


def innermost_frame(text: str) -> str:
    """``file:line function`` of the first frame in a text of `faulthandler`; or "unknown"."""
    for line in text.splitlines():
        head, found, rest = line.strip().partition('File "')
        if not head and found:
            file, _, rest = rest.partition('", line ')
            number, _, function = rest.partition(" in ")
            return f"{file}:{number} {function}"
    return "unknown"

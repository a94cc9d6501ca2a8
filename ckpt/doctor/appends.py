"""Files that are opened for appending again and again. (driver)

An image records the files that are open, and a restart cuts these files back to the length they had at the image. If the
program opens a file, appends a line and closes the file, no image finds that file open: the lines that were appended after
the image stay in the file, and the restarted program appends them once more.

This module installs an audit hook (PEP 578), which cannot be removed from a process.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

__all__ = ["Appends"]

_KEPT = 50


class Appends:
    """Counts how often each file was opened for appending, by any function, and keeps where it was opened last."""

    def __init__(self) -> None:
        self._opened: dict[str, tuple[int, str]] = {}

    def watch(self) -> None:
        """Install the audit hook: files are counted from now on."""
        sys.addaudithook(self._on_event)

    def found(self) -> list[dict[str, Any]]:
        """Regular files that were opened for appending more than once: ``{"path", "times", "where"}``."""
        return [
            {"path": path, "times": times, "where": where}
            for path, (times, where) in list(self._opened.items())
            if times > 1 and os.path.isfile(path)
        ]

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        # called for every audit event of the interpreter, so it must be quick; an exception here would come out of open()
        if event != "open" or not isinstance(args[2], int) or not args[2] & os.O_APPEND:
            return
        if not isinstance(args[0], (str, bytes, os.PathLike)):
            return  # a descriptor was given, not a path
        path = os.path.abspath(os.fsdecode(args[0]))
        if path in self._opened or len(self._opened) < _KEPT:
            times, _ = self._opened.get(path, (0, ""))
            self._opened[path] = times + 1, _caller()


def _caller() -> str:
    """The line of the innermost frame of the stack that is not in the standard library: ``file:line function``."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == "__main__" or package not in sys.stdlib_module_names:
            code = frame.f_code
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_qualname}"
        frame = frame.f_back
    return ""

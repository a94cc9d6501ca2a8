"""★ Files that are opened for appending again and again (installs an audit hook, which stays for ever).

An image has the files that are open, and a restart cuts them back to their length of then. A file that the program opens,
appends a line to and closes is open at no image: what was appended after the image stays, and is appended once more.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

__all__ = ["Appends"]

_KEPT = 50


class Appends:
    """Counts how often each file was opened for appending, by whatever way, and where last."""

    def __init__(self) -> None:
        self._opened: dict[str, tuple[int, str]] = {}

    def watch(self) -> None:
        """From now on."""
        sys.addaudithook(self._on_event)

    def found(self) -> list[dict[str, Any]]:
        """Regular files that were opened so more than once: ``{"path", "times", "where"}``."""
        return [
            {"path": path, "times": times, "where": where}
            for path, (times, where) in list(self._opened.items())
            if times > 1 and os.path.isfile(path)
        ]

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        # for every event that the interpreter knows, most of which are of no interest; what is raised here, open() raises
        if event != "open" or not isinstance(args[2], int) or not args[2] & os.O_APPEND:
            return
        if not isinstance(args[0], (str, bytes, os.PathLike)):
            return  # a descriptor
        path = os.path.abspath(os.fsdecode(args[0]))
        if path in self._opened or len(self._opened) < _KEPT:
            times, _ = self._opened.get(path, (0, ""))
            self._opened[path] = times + 1, _caller()


def _caller() -> str:
    """The nearest line that is not the standard library's: ``file:line function``."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == "__main__" or package not in sys.stdlib_module_names:
            code = frame.f_code
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_qualname}"
        frame = frame.f_back
    return ""

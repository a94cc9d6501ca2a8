"""What the program does to files by itself, by an audit hook (PEP 578). (driver)

The trial of `ckpt doctor` compares files, and puts them back. Others may change files below the same directory meanwhile: an
editor, another job. So it must know which ones are the program's: by this hook, and by the undo log, which also has what
compiled libraries change. The names go to ``doctor/changed-N`` in the job directory when they are first changed at a place
in the program, as JSON, one a line: ``[path, place]``. What the program looks up by name in a C library (``ctypes``), and
could change files with unseen, goes there, too: ``["", place, function]``. Which events change which files is what
:mod:`ckpt.undo.operations` says.

Files that are opened for appending again and again are counted. An image records the files that are open, and without an
undo log (``--files off``) a restart cuts only these back to the length that they had. If the program opens a file,
appends a line and closes the file, no image finds that file open: the lines that were appended after the image stay in the
file, and the restarted program appends them once more.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from types import FrameType
from typing import Any

from ckpt.doctor.surroundings import is_below
from ckpt.undo.operations import operations_of, place_of

__all__ = ["PREFIX", "Changes"]

PREFIX = "changed-"
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OTHERS = frozenset({"os.rename", "os.link", "os.symlink", "os.remove", "os.truncate", "sqlite3.connect"})
"""Not those that make a directory or remove one, or change attributes: by that, what others have in the directory, or write
to the file, is not the program's."""
_LOOKED_UP = ("ctypes.dlsym", "ctypes.dlsym/handle")
_UNSEEN = (
    *("creat", "fdopen", "fopen", "fopen64", "freopen", "open", "open64", "openat", "openat64"),
    *("fprintf", "fputs", "fwrite", "pwrite", "pwrite64", "pwritev", "write", "writev"),
    *("ftruncate", "link", "linkat", "mkdir", "mkdirat", "remove", "rename", "renameat", "rmdir", "symlink"),
    *("system", "truncate", "unlink", "unlinkat"),
)
_MEMORY = "/dev/shm/"
_SHARING = (
    "multiprocessing.heap",
    "multiprocessing.shared_memory",
)  # what these make there is part of images
_MOST_COUNTED = 50
_MOST_PLACES = 3  # of one path


class Changes:
    """Writes down the names, and counts what is opened for appending, from :meth:`watch` on."""

    def __init__(self, directory: str, rank: int) -> None:
        self._job = os.path.realpath(os.path.dirname(directory))
        path = os.path.join(directory, f"{PREFIX}{rank}")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._known: dict[str, set[str]] = {}  # paths -> where they are changed
        self._looked_up: set[str] = set()
        self._opened: dict[str, tuple[int, str]] = {}

    def watch(self) -> None:
        """Install the audit hook, which cannot be removed from a process."""
        sys.addaudithook(self._on_event)

    def appended(self) -> list[dict[str, Any]]:
        """Regular files that were opened for appending more than once: ``{"path", "times", "where"}``, by any function, and
        where that was last."""
        return [
            {"path": path, "times": times, "where": where}
            for path, (times, where) in list(self._opened.items())
            if times > 1 and os.path.isfile(path)
        ]

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        # called for every audit event of the interpreter, so it must be quick; an exception here would come out of open()
        if event == "open":
            if not isinstance(args[2], int) or not args[2] & _CHANGES or isinstance(args[0], int):
                return
        elif event in _LOOKED_UP:
            self._look_up(args)
            return
        elif event not in _OTHERS:
            return
        with contextlib.suppress(OSError, ValueError, TypeError):
            for operation in operations_of(event, args):
                for path in filter(None, (operation.path, operation.target)):
                    self._note(path)
            if event == "open" and args[2] & os.O_APPEND:
                self._count(os.path.abspath(os.fsdecode(args[0])))

    def _note(self, path: str) -> None:
        is_in_memory = path.startswith(_MEMORY)
        is_device = path.startswith(("/dev/", "/proc/")) and not is_in_memory
        places = self._known.get(path, set())
        if len(places) >= _MOST_PLACES or is_device or is_below(path, self._job):
            return
        package, where = place_of(sys._getframe(2))
        if is_in_memory and (package == "ckpt" or _is_below_call_of(_SHARING)):
            return
        if where not in places:
            self._known.setdefault(path, places).add(where)
            self._write(path, where)

    def _look_up(self, args: tuple[Any, ...]) -> None:
        name = args[1] if len(args) > 1 else ""
        name = name.decode(errors="replace") if isinstance(name, bytes) else name
        if name not in _UNSEEN or name in self._looked_up:
            return
        package, where = place_of(sys._getframe(2))
        if where and package != "ckpt":
            self._looked_up.add(name)
            self._write("", where, name)

    def _write(self, *row: str) -> None:
        os.write(self._file, f"{json.dumps(row)}\n".encode())

    def _count(self, path: str) -> None:
        if path in self._opened or len(self._opened) < _MOST_COUNTED:
            times, _ = self._opened.get(path, (0, ""))
            self._opened[path] = times + 1, place_of(sys._getframe(2))[1]


def _is_below_call_of(modules: tuple[str, ...]) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in modules:
            return True
        frame = frame.f_back
    return False

"""Files that a program with replicas changes: each change is made once, when all replicas of the rank have come to it, and
mean the same (together.py). (driver)

    open(path, "w" | "a" | "x")       text and buffers are the replica's own; what they write below is a change (objects.py)
    os.mkdir, rmdir, remove, unlink,  a change; so are os.makedirs, shutil.copy, shutil.rmtree and pathlib, which call these
    rename, replace, link, symlink,   (names.py)
    truncate, fsync
    os.open for writing               opens it as `open` does; what is written to the number is a change (opening.py)
    reading, stat, listing            each replica does it itself: all changes before are made, and none that comes after is

The leader makes the change, and tells what came of it: the number of bytes, or the error, which all replicas raise. A leader
that dies has made it, or not, or in part. So the next one makes it again, and that must come to the same:

    a write has its offset, opening "w" empties the file, …    once more is the same as once
    others (append, mkdir, rename, …)                          what was there *before* is told to all first. Where it is not
                                                               so any more, the former leader has made the change

No descriptor is kept: a file is opened for each change, and has to be the one that was opened first (device and inode). So
images have no descriptors of such files, and load where there are no replicas: there these objects write by themselves.

After a restart, or when the program goes back, files are what they were at the checkpoint (notes.py). A copy changes
nothing.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.redundancy.files.notes import Notes

__all__ = ["CALLS_PROGRAM", "STATE", "Meet", "RefusedMode", "change", "inside_library", "is_of_ckpt"]

Meet = Callable[[bytes, Callable[[], Any]], Any]
Outcome = tuple[Any, ...]
"""("done", value), or ("failed", errno, text, path, second path)."""


class STATE:
    """Of this process. Without replicas (`meet` is None) everything is done as the program says."""

    meet: Meet | None = None
    flipped: Callable[[bytes], bytes] = bytes
    session: object = object()
    notes = Notes("")
    opened: list[weakref.ref[Any]] = []  # noqa: RUF012 (one object for the process)


class RefusedMode(NotReplicable, OSError):
    """A file was to be opened in a way that replicas cannot share. Also an OSError: some libraries try another way then."""


def change(
    what: str,
    act: Callable[[Any, bool], Any],
    before: Callable[[], Any] | None = None,
    content: bytes = b"",
    *,
    by_library: bool = False,
) -> Any:
    """Make a change. `act(seen, again)` makes it; `seen`: what `before` has found; `again`: another process may have made
    it. `by_library`: the library makes it for the program, and does not hold the lock."""
    meet = STATE.meet
    if meet is None:
        return _result(_attempt(act, None if before is None else before(), False))
    if threading.current_thread() is not threading.main_thread():
        raise NotReplicable(f"under --redundancy only the main thread changes files: {what}")
    if not by_library and inside_library():
        raise NotReplicable(f"under --redundancy no function that the library calls changes files: {what}")
    text = what.encode("utf-8", "surrogatepass") + b"\0" + content
    if before is None:
        return _result(meet(text, lambda: _attempt(act, None, True)))
    decided: list[object] = []
    see = before

    def look() -> Any:
        decided.append(STATE.session)
        return see()

    seen = meet(text, look)
    return _result(meet(b"", lambda: _attempt(act, seen, not (decided and decided[-1] is STATE.session))))


def _attempt(act: Callable[[Any, bool], Any], seen: Any, again: bool) -> Outcome:
    try:
        return ("done", act(seen, again))
    except OSError as failure:
        second = failure.filename2
        return ("failed", failure.errno, failure.strerror or str(failure), failure.filename, second)


def _result(outcome: Outcome) -> Any:
    if outcome[0] == "done":
        return outcome[1]
    _, number, text, path, second = outcome
    raise OSError(number, text, path, None, second) if second is not None else OSError(number, text, path)


_IMPORTS = "ckpt.transport.driver.originals"
"""Through a function of this module every module is imported."""


def inside_library() -> bool:
    """Is a function of the library on the stack that may hold the lock? That through which each module is imported
    holds none."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(("ckpt.mpi.", "ckpt.transport.")) and name != _IMPORTS:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_LIBRARY = sysconfig.get_path("stdlib") + os.sep


CALLS_PROGRAM: set[types.CodeType] = set()
"""Functions of ckpt that call one of the program's (`opener`), which may be one of `os`."""


def is_of_ckpt() -> bool:
    """Has ckpt itself called this, perhaps through the standard library?"""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if frame.f_code in CALLS_PROGRAM:
            return False
        if name.startswith("ckpt."):
            return True
        file = frame.f_code.co_filename
        if not file.startswith(("<frozen", _LIBRARY)) or "-packages" in file:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False

"""Going back: what a rank's notes say is undone, up to an image, or to the program's start. (driver)

    1. what was not there is removed; a directory only if nothing is in it: else the program may make it again
    2. what was there comes back: directories, files from what was kept, symbolic links, pipes
    3. contents, in place, so that all names of a file have them; attributes

A directory that has moved gets its path back when all that follows that has been undone; so do those that moved before it.
Each step looks at what is there first: going back can be done again after it was killed.

Not here: what is noted (:mod:`ckpt.redundancy.files.notes`).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from functools import partial

from ckpt.redundancy.files.notes import (
    NOT_KEPT,
    Line,
    Notes,
    Was,
    copy_bytes,
    look,
    number_of,
)

__all__ = ["go_back"]

_GONE = "what was to be put back is not known any more"


def go_back(notes: Notes, image: str | None) -> list[tuple[str, str]]:
    """Files become what they were when the notes got this `image`; None: at the program's start. Returns what cannot be put
    back: paths and reasons. Raises OSError."""
    if not notes.path or not os.path.exists(notes.path):
        return []
    with notes.locked():
        lines = notes.lines()
        if image is None:
            end = 0
        elif ["image", image] in lines:
            end = lines.index(["image", image]) + 1
        else:
            return [("", _GONE)]
        later = lines[end:]
        notes.may_exist.clear()  # an interrupted going back may have found some of them under names of a later time
        notes.may_exist.update(line[1] for line in later if line[0] == "left")
        problems = _undo(notes, lines[:end], later)
        left = _left(notes)
        if later != left:
            notes.rewrite([*lines[:end], *left])
        for line in later:
            if number_of(line) > 0:
                with contextlib.suppress(OSError):
                    os.unlink(notes.place(number_of(line)))
        return problems


def _left(notes: Notes) -> list[Line]:
    return [["left", path] for path in sorted(notes.may_exist)]


def _undo(notes: Notes, before: list[Line], later: list[Line]) -> list[tuple[str, str]]:
    """Undo what these lines say; the lines `before` stay."""
    problems = list[tuple[str, str]]()
    while True:
        moves = [at for at, line in enumerate(later) if line[0] == "moved"]
        start = moves[-1] + 1 if moves else 0
        problems += _Undoing(notes, later[start:]).run()
        if not moves:
            return problems
        _, path, target, _ = later[start - 1]
        try:
            if not os.path.lexists(path):  # else it had not moved
                os.rename(target, path)
        except OSError as failure:
            problems.append(
                (path, f"it has been renamed to {target}, and cannot be again: {failure.strerror}")
            )
        later = later[: start - 1]
        notes.rewrite([*before, *later, *_left(notes)])


class _Undoing:
    """One way back. `later`: the lines that are undone; no directory has moved meanwhile."""

    def __init__(self, notes: Notes, later: list[Line]) -> None:
        self._notes, self._problems = notes, list[tuple[str, str]]()
        self._names: dict[str, tuple[Was | None, int, bool]] = {}
        self._contents: dict[tuple[int, int], list[Line]] = {}
        self._first: dict[tuple[int, int], tuple[str, Was]] = {}
        """Of each file the path and what it was."""
        self._old: set[tuple[int, int]] = set()  # files that the names of then were bound to
        for line in later:
            if line[0] in ("name", "left"):
                self._take_name(line[1], *(line[2:] or (None, 0, False)))
            elif line[0] in ("content", "attributes"):
                self._take_change(line)

    def _take_name(self, path: str, was: Was | None, kept: int, is_copy: bool) -> None:
        if path in self._names:
            return
        self._names[path] = was, kept, is_copy
        if was is not None and not is_copy:
            file = was[1], was[2]
            self._old.add(file)
            self._first[file] = path, self._first.get(file, (path, was))[1]

    def _take_change(self, line: Line) -> None:
        path, was = line[1], line[2]
        file = was[1], was[2]
        if path in self._names and file not in self._old:
            return  # the file has been made since
        self._first.setdefault(file, (path, was))
        if line[0] == "content":
            self._contents.setdefault(file, []).append(line)

    def run(self) -> list[tuple[str, str]]:
        by_depth = sorted(self._names, key=lambda path: path.count(os.sep))
        for path in reversed(by_depth):
            if self._names[path][0] is None:
                self._try(path, partial(self._remove, path))
        for path in by_depth:
            was, kept, is_copy = self._names[path]
            if was is not None:
                self._try(path, partial(self._bind, path, was, kept, is_copy))
        for file, lines in self._contents.items():
            path = self._first[file][0]
            self._try(path, partial(self._put_content, path, lines))
        for path, was in self._first.values():
            self._try(path, partial(self._put_attributes, path, was))
        return self._problems

    def _try(self, path: str, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as failure:
            self._problems.append((path, failure.strerror or str(failure)))

    def _remove(self, path: str) -> None:
        if _leads_through_link(path):
            return  # what was above has gone, with all that was in it
        now = look(path)
        if now is None:
            return
        if now[0] != "directory":
            os.unlink(path)
            return
        try:
            os.rmdir(path)
        except OSError:  # something is in it
            self._notes.may_exist.add(path)

    def _bind(self, path: str, was: Was, kept: int, is_copy: bool) -> None:
        now = look(path)
        if _is(now, was) and not is_copy:  # else it may be another file, which has got its inode
            return
        if now is not None and was[0] == "directory" == now[0]:
            return  # it was made again
        if was[0] == "file" and kept == NOT_KEPT:
            self._problems.append((path, "it was too large to be kept"))
            return
        if was[0] == "file" and not os.path.exists(self._notes.place(kept)):
            return  # going back was interrupted behind this step
        if now is not None:
            os.rmdir(path) if now[0] == "directory" else os.unlink(path)
        if was[0] == "directory":
            os.mkdir(path)
        elif was[0] == "link":
            os.symlink(was[9], path)
        elif was[0] == "file":
            self._bring_back(path, was, self._notes.place(kept))
        elif was[10] == stat.S_IFIFO:
            os.mkfifo(path)
        else:
            self._problems.append((path, "it was a special file, and is gone"))
            return
        if was[0] in ("directory", "other"):
            self._put_attributes(path, was)

    def _bring_back(self, path: str, was: Was, kept: str) -> None:
        if _is(look(kept), was):
            os.link(kept, path)
        else:  # it is a copy
            copy_bytes(kept, path, was[8])
            self._put_attributes(path, self._first.get((was[1], was[2]), (path, was))[1])

    def _put_content(self, path: str, lines: list[Line]) -> None:
        nbytes, now = lines[0][3], look(path)
        if now is None or now[0] != "file":
            self._problems.append((path, "it is gone"))
            return
        for line in reversed(lines):
            if line[4] == NOT_KEPT:
                self._problems.append((path, "it was too large to be kept"))
            elif line[4] and os.path.exists(self._notes.place(line[4])):
                copy_bytes(self._notes.place(line[4]), path, line[3])
        if os.stat(path).st_size > nbytes:
            os.truncate(path, nbytes)

    def _put_attributes(self, path: str, was: Was) -> None:
        now = look(path)
        if now is None or now[0] != was[0] or now[0] == "link":
            return
        if [now[4], now[5]] != [was[4], was[5]]:
            os.chown(path, was[4], was[5])
        if now[3] != was[3]:
            os.chmod(path, was[3])
        if now[7] != was[7] and now[0] == "file":
            os.utime(path, ns=(was[6], was[7]))


def _leads_through_link(path: str) -> bool:
    while (above := os.path.dirname(path)) != path:
        if os.path.islink(above):
            return True
        path = above
    return False


def _is(now: Was | None, was: Was) -> bool:
    return now is not None and now[:3] == was[:3]

"""A restart puts names and files back, as a plan says.

Every step looks at what is there first, and does nothing where that is right already: a restart that is killed can be done
again. What stands in the way is not removed, but moved to the directory ``undone``.

1. directories of the checkpoint that have moved, or are in something new, are put aside;
2. names, from the root down: new ones go to ``undone``, directories come back, files are linked again, or copied where no
   link could be made;
3. contents, in place, so that all names of a file have them; then attributes.

Not here: what is to be put back (:mod:`ckpt.undo.plan`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator

from ckpt.transport.records import dataclass
from ckpt.undo.errors import NotUndone
from ckpt.undo.keeping import copy_extents, look, tail_digest
from ckpt.undo.plan import FilePlan, Plan
from ckpt.undo.records import Binding, FileId, Status

__all__ = ["Problem", "put_back"]

_ASIDE = ".ckpt-undo-"
_NAME_BYTES = 240  # of a name in `undone`, without its number


@dataclass(frozen=True, slots=True)
class Problem:
    """A path that is not what it was at the checkpoint, and why. ``is_final``: ranks that resume leave it as it is now."""

    path: str
    reason: str
    is_final: bool = False


def put_back(plan: Plan, undone: str, renumbered: dict[FileId, FileId]) -> list[Problem]:
    """Undo one interval. ``undone``: the directory for what is new; it is made if needed. ``renumbered``: files and
    directories that have been made again, which earlier intervals know by their old numbers; it is added to.

    Returns what could not be undone. Raises NotUndone: the file system refuses a step; it can be done again.
    """
    return _PuttingBack(plan, undone, renumbered).run()


class _PuttingBack:
    def __init__(self, plan: Plan, undone: str, renumbered: dict[FileId, FileId]) -> None:
        self._plan = plan
        self._undone = undone
        self._renumbered = renumbered
        self._aside: dict[str, str] = {}  # path at the checkpoint -> where the directory is put aside
        self._made: dict[FileId, list[str]] = {}  # files that had to be made again -> their names
        self._problems = [Problem(each.path, each.reason) for each in plan.uncovered]
        self._problems += [Problem(each.path, each.reason, is_final=True) for each in plan.doubled]
        self._real: dict[str, bool] = {}  # directories: is no symbolic link in the path?
        self._present: dict[FileId, list[str]] = {}  # names that files have now
        self._has_present = False
        self._numbers: dict[bytes, int] = {}  # names in `undone` -> the next number

    def run(self) -> list[Problem]:
        self._put_aside()
        for path, binding in self._plan.names.items():
            with _named(path):
                self._put_name(path, binding)
        for file, plan in self._plan.files.items():
            with _named(plan.path):
                self._put_file(file, plan)
        return self._problems

    # ------------------------------------------------------------------ directories

    def _put_aside(self) -> None:
        found = {}
        for path, places in self._plan.directories.items():
            binding = self._plan.names.get(path)
            if binding is None:
                continue
            aside = f"{_ASIDE}{binding.file.inode}"
            places = [*places, path]
            places += [os.path.join(above, aside) for above in dict.fromkeys(_above(places))]
            place = next((each for each in places if self._is(look(each), binding.file)), None)
            if place is not None and place != path:
                found[path] = (place, aside)
        unsteady = self._unsteady(found)
        for path, (place, aside) in sorted(found.items(), key=lambda item: -item[1][0].count(os.sep)):
            above = os.path.dirname(place)
            while not unsteady.isdisjoint((above, *_above([above]))):
                above = os.path.dirname(above)
            with _named(path):
                os.rename(place, os.path.join(above, aside))
            self._aside[path] = os.path.join(above, aside)

    def _unsteady(self, found: dict[str, tuple[str, str]]) -> set[str]:
        """Names that will be bound to something else."""
        return {*self._plan.names, *(place for place, _ in found.values())}

    # ------------------------------------------------------------------ names

    def _put_name(self, path: str, binding: Binding) -> None:
        parent = os.path.dirname(path)
        if not self._is_real(parent):  # a symbolic link again, below which there was no such name
            if binding is not None:
                self._problems.append(Problem(path, f"{parent} is a symbolic link"))
            return
        now = look(path)
        if binding is None:
            if now is not None:
                self._move_out(path)
        elif binding.is_directory:
            self._put_directory(path, binding, now)
        elif binding.is_file:
            self._put_link(path, binding, now)
        elif binding.is_symlink:
            if now is None or now.target != binding.target:
                self._move_out(path)
                os.symlink(binding.target, path)
        elif now is None:
            self._problems.append(Problem(path, "it was a special file, and is gone"))

    def _is_real(self, directory: str) -> bool:
        """Is there no symbolic link in the path? It stays so: what is above has been put back before."""
        if directory not in self._real:
            self._real[directory] = os.path.realpath(directory) == directory
        return self._real[directory]

    def _put_directory(self, path: str, binding: Status, now: Binding) -> None:
        if path in self._aside:
            self._move_out(path)
            os.rename(self._aside[path], path)
            self._has_present = False
        elif now is None or not now.is_directory or self._is_another(path, binding, now):
            self._move_out(path)
            os.mkdir(path, 0o700)
            os.chmod(path, stat.S_IMODE(binding.mode))
            self._renumber(path, binding.file)

    def _is_another(self, path: str, binding: Status, now: Status) -> bool:
        """Has another directory the name now?"""
        return path in self._plan.directories and not self._is(now, binding.file)

    def _put_link(self, path: str, binding: Status, now: Binding) -> None:
        if self._is(now, binding.file):
            return
        plan = self._plan.files[binding.file]
        made = self._made.get(binding.file, [])
        source = plan.link or (made[0] if made else self._present_name(binding.file))
        if not source and not plan.copy and plan.nbytes != 0:
            self._problems.append(Problem(path, "its contents have not been kept"))
            return
        self._move_out(path)
        if source:
            os.link(source, path, follow_symlinks=False)
            made.append(path)
            self._present.setdefault(self._renumbered.get(binding.file, binding.file), []).append(path)
        else:
            self._made[binding.file] = [path]
            _make(path, plan)
            self._renumber(path, binding.file)

    def _present_name(self, file: FileId) -> str:
        """A name that the file has now; "": none is known."""
        if not self._has_present:
            self._has_present = True
            self._present = {}
            for name in self._plan.names:
                now = look(name)
                if now is not None and now.is_file:
                    self._present.setdefault(now.file, []).append(name)
        names = (*self._plan.files[file].names, *self._present.get(self._renumbered.get(file, file), ()))
        return next((name for name in names if self._is(look(name), file)), "")

    def _is(self, now: Binding, file: FileId) -> bool:
        """Is this the file or directory of the checkpoint?"""
        return now is not None and now.file == self._renumbered.get(file, file)

    def _renumber(self, path: str, file: FileId) -> None:
        now = look(path)
        assert now is not None
        self._renumbered[file] = now.file

    def _move_out(self, path: str) -> None:
        """Move what has the name now to the directory for what is new."""
        if look(path) is None:
            return
        if not self._numbers:
            os.makedirs(self._undone, mode=0o700, exist_ok=True)
        name = os.fsencode(os.path.basename(path))[:_NAME_BYTES]
        number = self._numbers.get(name, 0)
        while os.path.lexists(target := os.path.join(self._undone, os.fsdecode(b"%d-%b" % (number, name)))):
            number += 1
        self._numbers[name] = number + 1
        try:
            os.rename(path, target)
        except OSError as failure:
            if failure.errno != errno.EXDEV:
                raise
            shutil.move(path, target)

    # ------------------------------------------------------------------ files

    def _put_file(self, file: FileId, plan: FilePlan) -> None:
        if file in self._made:
            names = self._made[file]
            _set_attributes(names[0], plan.status)
            if len(names) < plan.status.links:
                self._problems.append(
                    Problem(
                        names[0],
                        "it had other names, which are not known and are left as they are",
                    )
                )
            return
        path = plan.link or plan.path
        now = look(path)
        if plan.status.is_directory and now is not None and now.is_directory:
            _set_attributes(path, plan.status)  # it may have been made again
            return
        if now is None or not self._is(now, file):
            if plan.has_attributes and not plan.is_unsure:
                self._problems.append(Problem(plan.path, "another file has taken its place"))
            return
        if plan.nbytes is not None:
            self._put_contents(path, plan, now)
        if plan.has_attributes:
            _set_attributes(path, plan.status)

    def _put_contents(self, path: str, plan: FilePlan, now: Status) -> None:
        assert plan.nbytes is not None
        if plan.copy:
            _overwrite(path, plan.copy, plan.nbytes)
        elif now.nbytes < plan.nbytes or (plan.tail and tail_digest(path, plan.tail_nbytes) != plan.tail):
            self._problems.append(
                Problem(plan.path, "it was open for appending, and has been changed otherwise")
            )
        elif now.nbytes > plan.nbytes:
            os.truncate(path, plan.nbytes)


def _above(paths: list[str]) -> Iterator[str]:
    """The directories above the paths, nearest first."""
    for path in paths:
        while path != os.path.dirname(path):
            path = os.path.dirname(path)
            yield path


def _make(path: str, plan: FilePlan) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if plan.copy:
        _overwrite(path, plan.copy, plan.status.nbytes if plan.nbytes is None else plan.nbytes)


def _overwrite(path: str, source: str, nbytes: int) -> None:
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = _opened(path)
        try:
            copy_extents(reading, writing, nbytes)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _opened(path: str) -> int:
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except PermissionError:  # the mode is put back with the other attributes
        os.chmod(path, 0o600)
        return os.open(path, flags)


def _set_attributes(path: str, status: Status) -> None:
    now = look(path)
    assert now is not None
    if (now.user, now.group) != (status.user, status.group):
        os.chown(path, status.user, status.group, follow_symlinks=False)
    if now.mode != status.mode:
        os.chmod(path, stat.S_IMODE(status.mode))
    if now.is_file and now.mtime_ns != status.mtime_ns:
        os.utime(path, ns=(os.lstat(path).st_atime_ns, status.mtime_ns))


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """An OSError becomes a NotUndone with the path."""
    try:
        yield
    except OSError as failure:
        raise NotUndone(failure.strerror or str(failure), path=path) from failure

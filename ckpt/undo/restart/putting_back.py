"""A restart puts names and files back, as a plan says.

Every step looks at what is there first, and does nothing where that is right already: a restart that is killed can be done
again. What stands in the way is not removed, but moved to the directory ``undone``.

1. directories of the checkpoint that have moved, or are in something new, are put aside;
2. names, from the root down: new ones go to ``undone``, directories come back, files are linked again, or copied where no
   link could be made;
3. contents, in place, so that all names of a file have them; then attributes.

Directories of the plan that their owner may not change are made so first: 3. gives them their modes.

Not here: what is to be put back (:mod:`ckpt.undo.planning.plan`), how files are reached (:mod:`ckpt.undo.restart.places`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

from ckpt.transport.records import dataclass
from ckpt.undo.planning.plan import FilePlan, Plan
from ckpt.undo.records import Binding, FileId, Status, above, dirname
from ckpt.undo.restart.ahead import Found, Undone, record_ahead
from ckpt.undo.restart.places import OpenedFile, Places, Recording, named

__all__ = ["Problem", "put_back"]

_ASIDE = ".ckpt-undo-"
_OF_ANOTHER = "since it was a file of another user ({})"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # link(2)
_OWNER = stat.S_IRWXU


@dataclass(frozen=True, slots=True)
class Problem:
    """A path that is not what it was at the checkpoint, and why. ``is_final``: ranks that resume leave it as it is now.
    ``nameless``: the file, where it had no name any more when the last rank took its checkpoint; then nothing is wrong
    unless an older interval puts the file back.
    """

    path: str
    reason: str
    is_final: bool = False
    nameless: FileId | None = None


def put_back(
    plan: Plan,
    undone: str,
    renumbered: dict[FileId, FileId],
    problems: Iterable[Problem] = (),
    recording: Recording | None = None,
    aside: str = _ASIDE,
) -> list[Problem]:
    """Undo one interval. ``undone``: the directory for what is new; it is made if needed. ``renumbered``: files and
    directories that have been made again, which earlier intervals know by their old numbers; it is added to.
    ``problems``: of the intervals behind it, which have been undone before. ``recording``: all of it may be taken back.
    ``aside``: with this begin the names of directories that are put aside.

    Returns what could not be undone. Raises NotUndone: the file system refuses a step; it can be done again.
    """
    return _PuttingBack(plan, undone, renumbered, problems, recording, aside).run()


class _PuttingBack:
    def __init__(
        self,
        plan: Plan,
        undone: str,
        renumbered: dict[FileId, FileId],
        problems: Iterable[Problem],
        recording: Recording | None,
        aside: str,
    ) -> None:
        self._beside = aside
        self._plan = plan
        self._renumbered = renumbered
        self._aside: dict[str, str] = {}  # path at the checkpoint -> where the directory is put aside
        # As they are numbered now
        self._by_numbers = {renumbered.get(file, file): file for file in plan.files}
        # Files that are right, though they have lost the name that is known
        self._by_new_names: set[FileId] = set()
        self._made: dict[FileId, list[str]] = {}  # files that had to be made again -> their names
        self._problems = [Problem(each.path, each.reason) for each in plan.uncovered]
        self._problems += [Problem(each.path, each.reason, is_final=True) for each in plan.doubled]
        self._unknown = {*(each.path for each in plan.uncovered), *(each.path for each in problems)}
        self._places = Places(recording)
        self._present: dict[FileId, list[str]] = {}  # names that files have now
        self._has_present = False
        self._undone = Undone(undone, self._places)
        self._found: dict[str, Found] = {}  # names of files, or free ones, that have been looked at already

    def run(self) -> list[Problem]:
        try:
            self._run()
        finally:
            self._places.close()
        return self._problems

    def _run(self) -> None:
        self._make_changeable()
        self._put_aside()
        self._found = record_ahead(self._plan, self._places, self._undone, self._is)
        for path, binding in self._plan.names.items():
            with named(path):
                self._put_name(path, binding)
        for file, plan in self._plan.files.items():
            with named(plan.path):
                self._put_file(file, plan)
        self._tell_other_names()

    def _tell_other_names(self) -> None:
        """A file may have got a doubtful name without a record that says which file it was (``rename(2)`` of another rank):
        where such a name is left, the file's own names are not what they were, either."""
        told = {problem.path for problem in self._problems}
        for path in sorted(self._plan.doubtful):
            with named(path):
                now = self._places.look(path)
                if now is None or not now.is_file or now.file not in self._by_numbers:
                    continue
                file = self._by_numbers[now.file]
                for name in self._plan.files[file].names:
                    if name not in told and self._is(self._places.look(name), file):
                        told.add(name)
                        reason = f"the file has another name, {path}, below a directory that another rank has renamed"
                        self._problems.append(Problem(name, reason))

    # ------------------------------------------------------------------ directories

    def _make_changeable(self) -> None:
        """The program may have taken itself the right to change a directory, since or before."""
        for file, plan in self._plan.files.items():
            if plan.status.is_directory:
                for path in (plan.path, *self._plan.directories.get(plan.path, ())):
                    now = self._places.look(path)
                    if now is not None and self._is(now, file) and now.mode & _OWNER != _OWNER:
                        with named(path), self._places.opened(path) as directory:
                            directory.change_mode(stat.S_IMODE(now.mode) | _OWNER)

    def _put_aside(self) -> None:
        found = {}
        for path, places in self._plan.directories.items():
            binding = self._plan.names.get(path)
            if binding is None or not binding.is_directory:
                continue  # another rank has made the directory
            aside = f"{self._beside}{binding.file.inode}"
            places = [*places, path]
            places += [
                os.path.join(each, aside)
                for each in dict.fromkeys(each for place in places for each in above(place))
            ]
            place = next((each for each in places if self._is(self._places.look(each), binding.file)), None)
            stays = path in self._plan.doubtful or not self._is_in_another(path)
            if place is not None and not (place == path and stays):
                found[path] = (place, aside)
        unsteady = self._unsteady(found)
        for path, (place, aside) in sorted(found.items(), key=lambda item: -item[1][0].count(os.sep)):
            into = dirname(place)
            while not unsteady.isdisjoint((into, *above(into))):
                into = dirname(into)
            with named(path):
                self._places.rename(place, os.path.join(into, aside))
            self._aside[path] = os.path.join(into, aside)

    def _is_in_another(self, path: str) -> bool:
        """Is the path below a directory that will make room for the one of the checkpoint? A restart that was killed has
        made it."""
        for each in above(path):
            binding = self._plan.names.get(each)
            if binding is not None and binding.is_directory:
                now = self._places.look(each)
                if now is None or self._is_another(each, binding, now):
                    return True
        return False

    def _unsteady(self, found: dict[str, tuple[str, str]]) -> set[str]:
        """Names that will be bound to something else."""
        return {*self._plan.names, *(place for place, _ in found.values())}

    # ------------------------------------------------------------------ names

    def _put_name(self, path: str, binding: Binding) -> None:
        parent = dirname(path)
        # A symbolic link again, below which there was no such name
        if self._places.leads_through_link(parent):
            if binding is not None:
                self._problems.append(Problem(path, f"{parent} is a symbolic link"))
            return
        if self._is_gone(path, parent):
            if binding is not None:
                self._problems.append(Problem(path, f"the directory {parent} is gone"))
            if path in self._aside:
                self._problems.append(
                    Problem(self._aside[path], f"it may have been {path}, whose directory is gone")
                )
            return
        found = self._found.get(path)
        now = self._places.look(path) if found is None else found.now
        if binding is None:
            self._move_out(path, now)
        elif binding.is_directory:
            self._put_directory(path, binding, now)
        elif binding.is_file:
            self._put_link(path, binding, now)
        elif binding.is_symlink:
            if now is None or now.target != binding.target:
                self._move_out(path, now)
                self._places.make_symlink(binding.target, path)
        elif now is None or stat.S_IFMT(now.mode) != stat.S_IFMT(binding.mode):
            self._put_special(path, binding, now)

    def _put_special(self, path: str, binding: Status, now: Binding) -> None:
        """A named pipe is made again: it held nothing. A socket or device cannot be."""
        self._move_out(path, now)
        if not stat.S_ISFIFO(binding.mode):
            self._problems.append(Problem(path, "it was a special file, and is gone"))
            return
        self._places.make_pipe(path)
        with self._places.opened(path) as made:
            made.change_mode(stat.S_IMODE(binding.mode))

    def _is_gone(self, path: str, directory: str) -> bool:
        """Does the directory of the path not exist, because of a change that could not be recorded, or because the path is
        that of another rank's directory, and was another one at the checkpoint?"""
        if path not in self._plan.doubtful and (
            not self._unknown or self._unknown.isdisjoint(("", directory, *above(directory)))
        ):
            return False
        found = self._places.look(directory)
        return found is None or not found.is_directory

    def _put_directory(self, path: str, binding: Status, now: Binding) -> None:
        if path in self._aside:
            self._move_out(path, now)
            self._places.rename(self._aside[path], path)
            self._has_present = False
        elif now is None or not now.is_directory or self._is_another(path, binding, now):
            self._move_out(path, now)
            self._places.make_directory(path)
            with self._places.opened(path) as directory:
                directory.change_mode(stat.S_IMODE(binding.mode))
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
        if not source and plan.nbytes != 0 and (not plan.copy or plan.copy_start):
            self._problems.append(Problem(path, "its contents have not been kept"))
            return
        self._move_out(path, now)
        if source and self._link(source, path, plan):
            made.append(path)
            self._present.setdefault(self._renumbered.get(binding.file, binding.file), []).append(path)
        else:
            self._made[binding.file] = [path]
            with self._places.make_file(path) as file:
                nbytes = plan.status.nbytes if plan.nbytes is None else plan.nbytes
                if source and (not plan.copy or plan.copy_start):
                    file.overwrite(source, plan.copy_start or nbytes)
                if plan.copy:
                    file.overwrite(plan.copy, nbytes, plan.copy_start)
            self._renumber(path, binding.file)

    def _link(self, source: str, path: str, plan: FilePlan) -> bool:
        """Give the file its name. False: it cannot have another one besides."""
        try:
            self._places.link(source, path)
        except OSError as failure:
            if failure.errno not in _NO_LINKS:
                raise
            if source == plan.link or plan.status.links > 1:
                return False
            self._places.rename(source, path)  # it is the file's only name, so it has been renamed
            self._found.pop(source, None)
        return True

    def _present_name(self, file: FileId) -> str:
        """A name that the file has now; "": none is known."""
        if not self._has_present:
            self._has_present = True
            self._present = {}
            for name in self._plan.names:
                now = self._places.look(name)
                if now is not None and now.is_file:
                    self._present.setdefault(now.file, []).append(name)
        names = (*self._plan.files[file].names, *self._present.get(self._renumbered.get(file, file), ()))
        return next((name for name in names if self._is(self._places.look(name), file)), "")

    def _is(self, now: Binding, file: FileId) -> bool:
        """Is this the file or directory of the checkpoint?"""
        return now is not None and now.file == self._renumbered.get(file, file)

    def _renumber(self, path: str, file: FileId) -> None:
        now = self._places.look(path)
        assert now is not None
        self._renumbered[file] = now.file
        self._by_numbers[now.file] = file

    def _move_out(self, path: str, now: Binding) -> None:
        """Move what has the name now to the directory for what is new."""
        if now is None:
            return
        if now.is_file and now.links > 1:
            self._put_by_new_name(path)
        found = self._found.get(path)
        self._places.move_out(path, self._undone.free_name(path) if found is None else found.free)

    # ------------------------------------------------------------------ files

    def _put_file(self, file: FileId, plan: FilePlan) -> None:
        if file in self._made:
            names = self._made[file]
            with self._places.opened(names[0]) as made:
                self._set_attributes(names[0], made, plan.status)
            if len(names) < plan.status.links:
                reason = "it had other names, which are not known and are left as they are"
                self._problems.append(Problem(names[0], reason))
            return
        if plan.nbytes is None and not plan.has_attributes:
            return  # its names are all that had changed
        path, found = self._find(file, plan.link or plan.path)
        if found is not None:
            with found:
                if self._is(found.status, file):
                    self._put_contents(path, plan, found)
                    return
                if plan.status.is_directory and found.status.is_directory and not plan.is_unsure:
                    self._set_attributes(path, found, plan.status)  # it may have been made again
                    return
        if plan.has_attributes and not plan.is_unsure and file not in self._by_new_names:
            nameless = file if plan.has_no_name else None
            self._problems.append(Problem(plan.path, "another file has taken its place", nameless=nameless))

    def _find(self, file: FileId, path: str) -> tuple[str, OpenedFile | None]:
        """The file under a name that it has now; or what the path is bound to, if no such name is known."""
        found = self._places.find(path)
        if (found is None or not self._is(found.status, file)) and (other := self._present_name(file)):
            if found is not None:
                found.close()
            return other, self._places.find(other)
        return path, found

    def _put_by_new_name(self, path: str) -> None:
        """A name that is new is perhaps the only known one of a file of the checkpoint."""
        with self._places.opened(path) as found:
            file = self._by_numbers.get(found.status.file)
            if file is not None:
                self._put_contents(path, self._plan.files[file], found)
                self._by_new_names.add(file)

    def _put_contents(self, path: str, plan: FilePlan, file: OpenedFile) -> None:
        nbytes = plan.nbytes
        if nbytes is not None and plan.copy:
            file.overwrite(plan.copy, nbytes, plan.copy_start)
        elif nbytes is not None and (
            file.status.nbytes < nbytes or (plan.tail and file.tail_digest(plan.tail_nbytes) != plan.tail)
        ):
            self._problems.append(
                Problem(plan.path, "it was open for appending, and has been changed otherwise")
            )
        elif nbytes is not None and file.status.nbytes > nbytes:
            file.truncate(nbytes)
        if plan.has_attributes:
            self._set_attributes(path, file, plan.status)

    def _set_attributes(self, path: str, file: OpenedFile, status: Status) -> None:
        if refused := file.set_attributes(status):
            reason = f"its {' and '.join(refused)} cannot be put back, {_OF_ANOTHER.format(status.user)}"
            self._problems.append(Problem(path, reason))

"""Finds what somebody else has changed since a line, as far as the line's own notes tell (:mod:`ckpt.undo.sealing`).

When an interval ends with an image, each rank notes what the paths are bound to that it has changed in it. What no rank has
changed in any newer interval must be the same still. If it is not, somebody else has changed it, and a restart from an older
line leaves it as it is: what has the name now would be lost. Something that is gone is put back.

Ranks do not end an interval at the same moment, and one may have changed a file after another one has noted it. So it is
unchanged if any rank has noted of any path what it is now. Where the notes of one rank are missing, because its image was
not taken, or where a newer log does not say all, nothing can be told.

Not here: what is left out of a restart (:mod:`ckpt.undo.restart.ending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckpt.undo.keeping import look
from ckpt.undo.planning.plan import Log, Plan
from ckpt.undo.records import Binding, FileId, Moved, Name, Noted, Uncovered, above
from ckpt.undo.sealing import read_notes

__all__ = ["Touched", "changed_by_others", "differing", "notes_of"]

Told = tuple[object, ...]


class Touched:
    """What ranks have changed in some intervals. ``is_unknown``: their logs do not say all."""

    def __init__(self) -> None:
        self.is_unknown = False
        self._names: set[str] = set()  # changed names; what is below them may be something else
        self._paths: set[str] = set()
        self._files: set[FileId] = set()

    def add(self, logs: Iterable[Log]) -> None:
        for log in logs:
            for record in log.records:
                self._paths.add(record.path)
                match record:
                    case Name(path, binding):
                        self._names.add(path)
                        self._files.update(() if binding is None else (binding.file,))
                    case Moved():
                        self._names.update(filter(None, (record.path, record.source, record.target)))
                        self._files.add(record.file)
                    case Uncovered(path=""):
                        self.is_unknown = True
                    case _ if (status := getattr(record, "status", None)) is not None:
                        self._files.add(status.file)

    def has(self, path: str, files: Iterable[FileId]) -> bool:
        if path in self._paths or not self._files.isdisjoint(files):
            return True
        return not self._names.isdisjoint((path, *above(path)))


def notes_of(logs: Sequence[Log], key: bytes) -> list[Noted] | None:
    """Of all ranks that have a log in this interval; None: not all have. Raises LogDamaged, OSError."""
    found: list[Noted] = []
    for log in logs:
        notes = read_notes(log.directory, key)
        if notes is None:
            return None
        found += notes
    return found


def changed_by_others(
    chain: Sequence[tuple[Sequence[Log], Plan]], key: bytes, renumbered: Mapping[FileId, FileId]
) -> list[tuple[str, FileId]]:
    """Of what a restart that undoes these intervals, newest first, would change: paths, and which files they were. Raises
    LogDamaged, OSError."""
    found: list[tuple[str, FileId]] = []
    touched = Touched()
    for logs, plan in chain:
        if touched.is_unknown:
            break
        wanted = {*plan.names, *(name for each in plan.files.values() for name in each.names)}
        notes = notes_of(logs, key)
        if notes is not None:
            found += [(path, file) for path, file in differing(notes, touched, renumbered) if path in wanted]
        touched.add(logs)
    return found


def differing(
    notes: Sequence[Noted], touched: Touched, renumbered: Mapping[FileId, FileId]
) -> Iterator[tuple[str, FileId]]:
    """The paths that are there, and are not what they were noted to be; and which files they were. Raises OSError."""
    noted: dict[str, list[FileId]] = {}
    same: set[Told] = set()
    for each in notes:
        noted.setdefault(each.path, [])
        if each.binding is not None:
            file = renumbered.get(each.binding.file, each.binding.file)
            same.add(_told(each.binding, file))
            noted[each.path] += (each.binding.file, file)
    for path, files in noted.items():
        if touched.has(path, files):
            continue
        now = look(path)
        if now is None or now.is_directory or _told(now, now.file) in same or touched.has(path, [now.file]):
            continue
        yield path, files[0] if files else now.file


def _told(binding: Binding, file: FileId) -> Told:
    """What tells whether it has been changed. A symbolic link is made again with another number and time."""
    assert binding is not None
    if binding.is_symlink:
        return ("link", binding.target)
    return (*file, binding.mode, binding.nbytes, binding.mtime_ns)

"""Reads what the committed lines say of the undo logs: where each ended, in which boot of the machine, what is not covered.

They also say what each rank had changed last before its image: another rank may have changed it after its own, and before.

Only lines count that the job has not left: the intervals of those are gone.

An interval is missing if a line, or the controller at the job's end, says that one of its logs had lines. Of the last
interval, which no line has ended, nobody may have said so. It is whole if the controller has noted the ends of the logs when
the job had ended, or if the machine has not been booted again since: what processes have written stays when they are killed.
After another boot, lines, copies and even the whole interval may be missing, and that is told.

Not here: lines of logs that do not verify (:mod:`ckpt.undo.logs`), copies (:mod:`ckpt.undo.restart.kept_files`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ckpt.transport.records import NamedTuple
from ckpt.undo.chain import Interval, log_directories, undo_path
from ckpt.undo.errors import LogDamaged
from ckpt.undo.logs import boot_id, boot_of, end_of, line_key, name_of
from ckpt.undo.records import LastChange, renamed
from ckpt.undo.restart.putting_back import Problem
from ckpt.undo.restart.state import Moved, State
from ckpt.undo.sealing import changes_of

__all__ = ["End", "LineNote", "changes_at", "host_was_restarted", "not_covered", "note_of"]
__all__ += ["refuse_missing", "that_count"]

End = tuple[str, int, str]
"""Where a log ends: its name, its length in bytes, the MAC of its last line."""


class LineNote(NamedTuple):
    """What one rank's part of a line says: the end of the log that ended with it, the boot of the machine, (epoch, path,
    reason) of what a restart from this epoch cannot put back, and the rank's last changes before its image."""

    line: int
    log: str
    nbytes: int
    mac: str
    boot: str = ""
    uncovered: Sequence[tuple[int, str, str]] = ()
    changes: Sequence[LastChange] = ()

    @property
    def end(self) -> End:
        return self.log, self.nbytes, self.mac


def note_of(line: int, said: Mapping[str, Any]) -> LineNote:
    """``said``: what the manifest of a rank's image says of files (`formats.FILES` of :mod:`ckpt.store.records`)."""
    uncovered = [(epoch, path, reason) for epoch, path, reason in said["uncovered"]]
    return LineNote(line, said["log"], said["bytes"], said["mac"], said["boot"], uncovered, changes_of(said))


def changes_at(notes: Iterable[LineNote], line: int, moved: Iterable[Moved]) -> list[tuple[str, LastChange]]:
    """The last changes of all ranks before their images of this line, each with the name of the rank's directories.
    ``moved``: directories that the user has renamed."""
    found = []
    for note in (note for note in notes if note.line == line):
        incarnation = int(os.path.dirname(note.log).rpartition("-")[2])
        for change in note.changes:
            for each in moved:
                if incarnation < each.incarnation:
                    change = change._replace(path=renamed(change.path, each.source, each.target))
            found.append((os.path.basename(note.log), change))
    return found


def that_count(notes: Iterable[LineNote], state: State) -> list[LineNote]:
    """Those of lines that have not been left."""
    return [note for note in notes if not any(low < note.line <= high for low, high in state.left)]


def not_covered(notes: Iterable[LineNote], line: int) -> list[Problem]:
    """What a restart from this line cannot put back, as this line and later ones say."""
    return [
        Problem(path, reason)
        for note in notes
        if note.line >= line
        for epoch, path, reason in note.uncovered
        if epoch >= line
    ]


def refuse_missing(job: str, due: Collection[Interval], ends: Iterable[End], line: int, since: int) -> None:
    """Raise LogDamaged if a whole interval is missing that a restart from this line needs. ``since``: older intervals have
    been removed."""
    there = {os.path.basename(interval.path) for interval in due}
    for log, nbytes, _ in ends:
        interval = os.path.dirname(log)
        if nbytes and interval not in there and int(interval.split("-")[1]) >= max(line, since):
            raise LogDamaged("all that was kept in this interval is gone", path=undo_path(job, interval))


def host_was_restarted(
    due: Sequence[Interval],
    key: bytes,
    notes: Iterable[LineNote],
    at_end: Sequence[End],
    line: int,
    booted: tuple[int, str],
    others: frozenset[str] = frozenset(),
) -> bool:
    """May something be missing because the machine has been booted again? ``at_end``: noted when the job had ended.
    ``booted``: see :class:`ckpt.undo.restart.state.State`. ``others``: the boots of other hosts that are there. Raises as
    :func:`ckpt.undo.logs.read_lines`."""
    notes = list(notes)
    ends = {*(note.end for note in notes), *at_end}
    now = {boot_id(), *others}
    logs = [directory for interval in due for directory in log_directories(interval)]
    for directory in logs:
        begun = boot_of(directory, line_key(key))
        if begun and begun not in now and (name_of(directory), *end_of(directory)) not in ends:
            return True
    if at_end or any(interval.epoch == line for interval in due):
        return False
    of_line = {booted[1]} if booted[0] == line else {note.boot for note in notes if note.line == line}
    return bool(of_line - {*now, ""})

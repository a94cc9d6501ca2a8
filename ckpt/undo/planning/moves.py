"""What the renamings and removals of directories say of paths, as ranks have recorded them.

Asked is which name a path may have had at the checkpoint, and at which paths a directory of the checkpoint may be now.

A program may rename thousands of directories. So all is found by a path and the directories above it; nothing here goes
through all renamings for each of them.

While it is not known whether a renaming has happened, what was at its old path may be there or at the new one. Once it is
known, and no other rank was about to rename a directory there meanwhile, it is at the new one only (:func:`settled`). Else
each renaming of a directory to and fro would double all that is known.

Pure. Not here: what is put back (:mod:`ckpt.undo.planning.plan`).
"""

from __future__ import annotations

import bisect
import heapq
import posixpath
import sys
from collections.abc import Iterable, Iterator, Sequence

from ckpt.transport.records import NamedTuple
from ckpt.undo.records import FileId, Moved, Name, Outcome, Record, and_above, dirname, renamed

__all__ = ["Left", "Log", "PathsSince", "Removals", "Renamings", "Settled", "settled"]


class Log(NamedTuple):
    """One rank's records of an interval. ``directory``: where it keeps its links and copies, which no other log has.
    ``host``: of the rank, where ranks are on several."""

    directory: str
    records: Sequence[Record]
    host: str = ""

    @property
    def rank(self) -> str:
        """What the directory is called; the same for a rank in each interval."""
        return posixpath.basename(self.directory)

    def kept(self, number: int) -> str:
        """The path of a link or copy; "": there is none."""
        return posixpath.join(self.directory, str(number)) if number else ""


def _above(path: str) -> tuple[str, ...]:
    return and_above(dirname(path))


class Left:
    """Names that directories have left, by whom, and which directories: a rank that finds its directory, or one above it,
    renamed on takes its own renaming for failed."""

    def __init__(self, logs: Iterable[Log]) -> None:
        self._left: dict[str, dict[str, set[FileId]]] = {}
        for log in logs:
            for record in log.records:
                if isinstance(record, Moved):
                    of_log = self._left.setdefault(record.source, {}).setdefault(log.directory, set())
                    of_log.add(record.file)

    def has_been_taken_on(self, log: Log, moved: Moved) -> bool:
        """May another rank have renamed the directory on, or one above it? Where it is now shows by its number."""
        others = self._left.get(moved.target, {}).items()
        if any(by != log.directory and moved.file in files for by, files in others):
            return True
        return any(by != log.directory for each in _above(moved.target) for by in self._left.get(each, ()))


class Settled(NamedTuple):
    """These renamings, of one operation, have happened, before ``time_ns``, and none of another rank at the same time."""

    path: str
    moves: tuple[Moved, ...]
    time_ns: int


class _Span(NamedTuple):
    """From the record of an operation that renames a directory to that of its outcome, and that one's place in the log."""

    begin_ns: int
    end_ns: int
    at: int
    moves: tuple[Moved, ...]
    happened: bool


def settled(logs: Sequence[Log]) -> dict[str, dict[int, Settled]]:
    """For each log, by its directory, and each place of an :class:`Outcome` in it: what is settled there."""
    spans = {log.directory: _spans(log.records) for log in logs}
    # Path -> log -> the spans in which it is renamed, one after the other
    at: dict[str, dict[str, list[_Span]]] = {}
    for directory, of_log in spans.items():
        for span in of_log:
            for path in _paths(span):
                at.setdefault(path, {}).setdefault(directory, []).append(span)
    unsure: set[tuple[str, int]] = set()
    for directory, of_log in spans.items():
        for span in of_log:
            around = {above: 0 for path in _paths(span) for above in and_above(path)}
            for above in around:
                for other, others in at.get(above, {}).items():
                    if other == directory:
                        continue
                    for each in _at_the_same_time(span, others):
                        unsure.update(((directory, span.at), (other, each.at)))
    return {
        directory: {
            span.at: Settled(span.moves[0].path, span.moves, span.end_ns)
            for span in of_log
            if span.happened and (directory, span.at) not in unsure
        }
        for directory, of_log in spans.items()
    }


def _spans(records: Sequence[Record]) -> list[_Span]:
    found: list[_Span] = []
    moves: list[Moved] = []
    for at, record in enumerate(records):
        if isinstance(record, Moved):
            moves.append(record)
        elif isinstance(record, Outcome) and moves:
            found.append(_Span(moves[0].time_ns, record.time_ns, at, tuple(moves), bool(record.happened)))
            moves = []
    if moves:  # it was killed meanwhile
        found.append(_Span(moves[0].time_ns, sys.maxsize, len(records), tuple(moves), False))
    return found


def _paths(span: _Span) -> dict[str, int]:
    return {path: 0 for moved in span.moves for path in (moved.source, moved.target) if path}


def _at_the_same_time(span: _Span, others: Sequence[_Span]) -> Iterator[_Span]:
    """``others``: one after the other."""
    at = bisect.bisect_left(others, span.begin_ns, key=lambda each: each.end_ns)
    while at < len(others) and others[at].begin_ns <= span.end_ns:
        yield others[at]
        at += 1


class Removals:
    """Which directories have been removed, by whom, and since when."""

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self._since: dict[str, dict[str, int]] = {}

    def note(self, log: Log, removed: Moved) -> None:
        for path in (removed.source, removed.path):
            self._since.setdefault(path, {}).setdefault(log.directory, removed.time_ns)

    def may_have_replaced(self, log: Log, record: Name) -> bool:
        """Is what has this name, below a directory that another rank has removed, younger than the removal? Then it may be
        in a new directory of the same name, which this rank has taken for the old one. Or the removal has failed, and
        another rank has made it before its own checkpoint.
        """
        if record.binding is None or not self._since:
            return False
        born_ns = record.binding.file.born_ns
        return any(
            by != log.directory and born_ns > time_ns - self._tick_ns
            for each in _above(record.path)
            for by, time_ns in self._since.get(each, {}).items()
        )


class Renamings:
    """Which directories have been renamed by whom, and so what ranks say of names that others have changed."""

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        # In the order of time: the directory of the log, "" if no rank knows of it; and what was renamed.
        self._found: list[tuple[str, Moved]] = []
        self._known: dict[tuple[str, str, str, str, FileId], int] = {}  # the same -> its number in the list
        self._by: dict[str, set[str]] = {}  # a path before or after -> the logs that say so
        self._to: dict[str, dict[int, None]] = {}  # a path after -> numbers in the list
        self._to_below: dict[str, dict[int, None]] = {}  # the same, and each directory above it
        self._noted: dict[str, dict[str, int]] = {}  # name -> the logs that have it, and since when

    def note(self, log: Log, record: Name) -> None:
        """The rank may put a directory there, and then records no name below."""
        self._noted.setdefault(record.path, {}).setdefault(log.directory, record.time_ns)

    def doubted(self, log: Log, path: str) -> list[str]:
        """The names that a path in this log may stand for, if another rank has renamed a directory above it."""
        if not self._by or not any(
            by != log.directory for each in and_above(path) for by in self._by.get(each, ())
        ):
            return []
        return self._names_then(path)

    def follow(self, log: Log, moved: Moved) -> list[str]:
        """Another renaming. Returns the directories of the checkpoint that are now where another rank may take them for
        some that it has made."""
        carried = [
            (
                by if by == log.directory else "",
                each._replace(target=renamed(each.target, moved.source, moved.target)),
            )
            for by, each in (self._found[number] for number in self._to_below.get(moved.source, ()))
        ]
        found = [*carried, *([] if moved.is_new else [(log.directory, moved)])]
        mistaken = [move.path for by, move in found if self._may_be_taken_for_new(by, move)]
        for by, move in found:
            self._add(by, move)
        return mistaken

    def settle(self, moves: Iterable[Moved]) -> None:
        """What was at the old paths of these renamings is no longer there."""
        for moved in moves:
            for number in list(self._to_below.get(moved.source, ())) if moved.target else ():
                self._forget(number)

    def _add(self, by: str, moved: Moved) -> None:
        said = _said(by, moved)
        if said in self._known:
            return
        number = self._known[said] = len(self._found)
        self._found.append((by, moved))
        for path in (moved.source, moved.target):
            self._by.setdefault(path, set()).add(by)
        self._to.setdefault(moved.target, {})[number] = None
        for path in and_above(moved.target):
            self._to_below.setdefault(path, {})[number] = None

    def _forget(self, number: int) -> None:
        by, moved = self._found[number]
        del self._known[_said(by, moved)]
        del self._to[moved.target][number]
        for path in and_above(moved.target):
            del self._to_below[path][number]

    def _names_then(self, path: str) -> list[str]:
        """The names that the path may have had at the checkpoint, itself first. A rank that moves a directory does not know
        that another one has moved it before."""
        found = {path: 0}
        due = [-number for number in self._that_led_to(path, len(self._found))]
        heapq.heapify(due)  # the last one first
        while due:
            number = -heapq.heappop(due)
            moved = self._found[number][1]
            names = dict.fromkeys(renamed(each, moved.target, moved.path) for each in found)
            for name in [name for name in names if name not in found]:
                found[name] = 0
                for earlier in self._that_led_to(name, number):
                    heapq.heappush(due, -earlier)
        return list(found)

    def _that_led_to(self, path: str, before: int) -> Iterator[int]:
        """Numbers of the renamings before that one, of directories to this path, or to one above it."""
        for each in and_above(path):
            for number in self._to.get(each, ()):
                if number < before:
                    yield number

    def _may_be_taken_for_new(self, by: str, moved: Moved) -> bool:
        born_ns = moved.file.born_ns
        return any(
            noted_by != by and (not born_ns or born_ns > time_ns - self._tick_ns)
            for path in self._names_then(moved.target)
            for each in and_above(path)
            for noted_by, time_ns in self._noted.get(each, {}).items()
        )


def _said(by: str, moved: Moved) -> tuple[str, str, str, str, FileId]:
    return (by, moved.path, moved.source, moved.target, moved.file)


class PathsSince:
    """Where the directories of the checkpoint are now."""

    def __init__(self) -> None:
        # Path at the checkpoint -> paths since, in the order of time
        self._at: dict[str, dict[str, None]] = {}
        self._below: dict[str, dict[tuple[str, str], None]] = {}
        """A path -> those of the directories that have been there or below it, each with the path at which it was."""

    def follow(self, moved: Moved) -> None:
        if moved.target:
            for path, place in list(self._below.get(moved.source, ())):  # both places: it may have failed
                self._add(path, renamed(place, moved.source, moved.target))
        if not moved.is_new:
            self._at.setdefault(moved.path, {})
            for place in filter(None, (moved.source, moved.target)):
                self._add(moved.path, place)

    def settle(self, moves: Iterable[Moved]) -> None:
        """What was at the old paths of these renamings is no longer there."""
        for moved in moves:
            for path, place in list(self._below.get(moved.source, ())) if moved.target else ():
                del self._at[path][place]
                for each in and_above(place):
                    del self._below[each][path, place]

    def _add(self, path: str, place: str) -> None:
        if place not in self._at[path]:
            self._at[path][place] = None
            for each in and_above(place):
                self._below.setdefault(each, {})[path, place] = None

    def found(self) -> dict[str, list[str]]:
        return {path: list(places)[::-1] for path, places in self._at.items()}

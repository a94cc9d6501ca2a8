"""Works out what a restart has to put back, from the undo logs of all ranks for one interval.

The earliest record of a name, and of a file, counts, whichever rank wrote it. Moves of directories are followed in the order
of time, so that each directory of the checkpoint is known by the paths at which it may be now.

A rank does not know which directories another rank renames: what it then changes below one is uncovered. Nor does it record
what it changes in a directory that it has made. If another rank puts a directory of the checkpoint there, that is uncovered
as a whole, unless the first rank sees by its age that it is another one (:mod:`ckpt.undo.recorder`).

Pure. Not here: how it is done (:mod:`ckpt.undo.restart.putting_back`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from ckpt.transport.records import NamedTuple, dataclass, field
from ckpt.undo.records import (
    CLOCK_NS,
    Attributes,
    Binding,
    Content,
    FileId,
    Kept,
    Moved,
    Name,
    Outcome,
    Record,
    Status,
    Uncovered,
    renamed,
)
from ckpt.undo.restart.across_hosts import HostRecord, across_hosts
from ckpt.undo.selection.patterns import Patterns

__all__ = ["Clocks", "FilePlan", "Log", "Plan", "make_plan"]

_DOUBTFUL = "another rank has renamed a directory above it"
_REPLACED = "another rank has removed or replaced a directory above it"
_TAKEN_FOR_NEW = (
    "another rank may have taken it for a directory that it has made, and have changed what is in it"
)


class Log(NamedTuple):
    """One rank's records of an interval. ``directory``: where it keeps its links and copies. ``host``: of the rank, where
    ranks are on several."""

    directory: str
    records: Sequence[Record]
    host: str = ""

    def kept(self, number: int) -> str:
        """The path of a link or copy; "": there is none."""
        return posixpath.join(self.directory, str(number)) if number else ""


@dataclass(slots=True)
class FilePlan:
    """A file of the checkpoint. ``status``: at the checkpoint. ``path``: a name that it had; ``names``: all that are known.
    ``link``: a hard link to it, ``copy``: a copy of its contents; "": none. ``linked``, ``copied``: what their records say,
    by which they are known again. ``nbytes``: its length; None: its contents have not changed. ``tail``: digest of the file
    up to ``nbytes`` or, where ranks have appended to it between their checkpoints, up to ``tail_nbytes``; "": not known.
    ``has_attributes``: they are put back, too. ``is_unsure``: no record says for sure that the file was there at the
    checkpoint. ``has_no_name``: other ranks say that its names were bound to something else at theirs: it was removed, or
    replaced, while the checkpoint was taken.
    """

    status: Status
    path: str
    link: str = ""
    copy: str = ""
    linked: Status | None = None
    copied: Content | None = None
    nbytes: int | None = None
    tail: str = ""
    tail_nbytes: int = 0
    has_attributes: bool = False
    is_unsure: bool = True
    has_no_name: bool = False
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """What a restart puts back for one interval. ``names``: what each path was bound to, directories before what is in them.
    ``directories``: path → the paths at which the directory may be now, the likeliest first; none: it has been removed.
    ``uncovered``: changes that cannot be undone. ``doubled``: files that are put back, but for bytes that will be there
    twice. ``doubtful``: names below directories of other ranks, which may be wrong; they are in ``uncovered``, too."""

    names: dict[str, Binding] = field(default_factory=dict)
    directories: dict[str, list[str]] = field(default_factory=dict)
    files: dict[FileId, FilePlan] = field(default_factory=dict)
    uncovered: list[Uncovered] = field(default_factory=list)
    doubled: list[Uncovered] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)


class Clocks(NamedTuple):
    """``tick_ns``: by so much the time of a file may differ from that of a record. ``hosts_ns``: by so much two hosts'
    clocks may; None: it is not known."""

    tick_ns: int
    hosts_ns: int | None = None


def make_plan(logs: Iterable[Log], clocks: Clocks | None = None) -> Plan:
    """The plan that undoes one interval. ``clocks``: where ranks are on several hosts."""
    plan = Plan()
    tick_ns = CLOCK_NS if clocks is None else clocks.tick_ns
    names: dict[str, Binding] = {}
    places = _Places()
    renamings = _Renamings(tick_ns)
    removed: list[tuple[Log, Moved]] = []
    written: dict[FileId, int] = {}
    doubtful: dict[str, Uncovered] = {}
    logs = list(logs)
    stays = Patterns([record.path for log in logs for record in log.records if isinstance(record, Kept)])
    happened = [log._replace(records=_that_happened(log.records, _left_by_others(log, logs))) for log in logs]
    for log, record in _by_time(happened):
        if stays.match(record.path) and not isinstance(record, Moved):
            continue
        for path in renamings.doubted(log, record.path):
            doubtful.setdefault(path, Uncovered(path, _DOUBTFUL, record.time_ns))
        match record:
            case Name(path, binding, kept):
                if any(
                    each is not log and _is_younger(path, binding, move, tick_ns) for each, move in removed
                ):
                    doubtful.setdefault(path, Uncovered(path, _REPLACED, record.time_ns))
                names.setdefault(path, binding)
                renamings.note(log, record)
                if binding is not None and binding.is_file:
                    file = _file(plan, binding, path)
                    file.linked = file.linked if file.link or not kept else binding
                    file.link = file.link or log.kept(kept)
                    file.is_unsure = False
            case Content(path, status, copy, tail, end):
                file = _changed(plan, record, names)
                if file.nbytes is None:
                    file.nbytes = file.tail_nbytes = file.status.nbytes
                    file.tail = tail
                file.copied = file.copied if file.copy or not copy else record
                file.copy = file.copy or log.kept(copy)
                written[status.file] = max(written.get(status.file, 0), end)
            case Attributes():
                _changed(plan, record, names)
            case Moved():
                places.follow(record)
                if not record.target:
                    removed.append((log, record))
                else:
                    mistaken = renamings.follow(log, record)
                    plan.uncovered += [Uncovered(path, _TAKEN_FOR_NEW, record.time_ns) for path in mistaken]
            case Uncovered():
                plan.uncovered.append(record)
    _settle_between_hosts(plan, names, [HostRecord(log.host, r) for log, r in _by_time(happened)], clocks)
    for path, binding in sorted(names.items(), key=lambda item: item[0].count(posixpath.sep)):
        if not _is_below_none(path, names):
            plan.names[path] = binding
    for identity, file in plan.files.items():
        bound = [names.get(path, file.status) for path in file.names]
        file.has_no_name = all(each is None or each.file != identity for each in bound)
    plan.directories = places.found()
    _keep_what_was_written(plan, written)
    plan.uncovered += _with_other_names(doubtful, plan)
    plan.doubtful = set(doubtful)
    return plan


def _settle_between_hosts(
    plan: Plan, names: dict[str, Binding], records: list[HostRecord], clocks: Clocks | None
) -> None:
    """The order of records of several hosts may not be that of their times."""
    across = across_hosts(records, None if clocks is None else clocks.hosts_ns)
    names.update(dict.fromkeys(across.free))
    for identity, record in across.shortest.items():
        file = plan.files[identity]
        file.status, file.tail = record.status, record.tail
        file.nbytes = file.tail_nbytes = record.status.nbytes
    plan.uncovered += across.uncovered


def _with_other_names(doubtful: dict[str, Uncovered], plan: Plan) -> Iterator[Uncovered]:
    """A name that may be wrong is one of a file that has others, too: they are as doubtful."""
    yield from doubtful.values()
    told = set(doubtful)
    for file in plan.files.values():
        if wrong := next((name for name in file.names if name in doubtful), ""):
            for name in [name for name in file.names if name not in told]:
                told.add(name)
                reason = f"another rank has renamed a directory above {wrong}, which may be another name of the file"
                yield Uncovered(name, reason, doubtful[wrong].time_ns)


def _keep_what_was_written(plan: Plan, written: dict[FileId, int]) -> None:
    """Ranks do not take a checkpoint at the same moment. What one has appended before its image may lie behind what another
    has appended after its own: such a file is not cut before the end of what belongs to the checkpoint.
    """
    for identity, end in written.items():
        file = plan.files[identity]
        if not file.copy and file.nbytes is not None and end > file.nbytes:
            nbytes, file.nbytes = end - file.nbytes, end
            reason = (
                f"appended by several ranks while the checkpoint was taken; {nbytes} bytes may be there twice"
            )
            plan.doubled.append(Uncovered(file.path, reason, 0))


def _changed(plan: Plan, record: Content | Attributes, names: dict[str, Binding]) -> FilePlan:
    """``names``: those recorded before. Another rank may have made the file, or a directory above it, meanwhile."""
    file = _file(plan, record.status, record.path)
    file.has_attributes = True
    if file.is_unsure and not record.is_unsure:
        then = names.get(record.path, record.status)
        is_new = then is None or then.file != record.status.file or _is_below_none(record.path, names)
        file.is_unsure = is_new
    return file


def _by_time(logs: Iterable[Log]) -> list[tuple[Log, Record]]:
    every = [(log, record) for log in logs for record in log.records]
    return sorted(
        every, key=lambda item: item[1].time_ns
    )  # stable: the records of a rank stay in their order


def _is_below_none(path: str, names: dict[str, Binding]) -> bool:
    """Is the path below a name that was no directory? Another rank has made the directory, and this one did not know."""
    above = posixpath.dirname(path)
    while above != posixpath.dirname(above):
        binding = names.get(above, ...)
        if binding is not ... and (binding is None or not binding.is_directory):
            return True
        above = posixpath.dirname(above)
    return False


def _is_in(path: str, moved: Moved) -> bool:
    """Is the path that of the directory, or below it, before or after it was renamed?"""
    return any(path == each or path.startswith(each + posixpath.sep) for each in (moved.source, moved.target))


def _is_younger(path: str, binding: Binding, removed: Moved, tick_ns: int) -> bool:
    """Is what has this path, below a removed directory, younger than the removal? Then it may be in a new directory of the
    same name, which this rank has taken for the old one. Or the removal has failed, and another rank has made it before its
    own checkpoint.
    """
    is_below = any(path.startswith(each + posixpath.sep) for each in (removed.source, removed.path))
    return is_below and binding is not None and binding.file.born_ns > removed.time_ns - tick_ns


def _names_then(path: str, moves: Sequence[Moved]) -> list[str]:
    """The names that the path may have had at the checkpoint, itself first. A rank that moves a directory does not know
    that another one has moved it before."""
    found = {path: 0}
    for move in reversed(moves):
        found |= {renamed(each, move.target, move.path): 0 for each in found}
    return list(found)


def _file(plan: Plan, status: Status, path: str) -> FilePlan:
    file = plan.files.setdefault(status.file, FilePlan(status, path))
    file.names.append(path)
    return file


def _left_by_others(log: Log, logs: Sequence[Log]) -> dict[str, set[FileId]]:
    """Names that directories have left, by other ranks, and which directories: a rank that finds its directory, or one above
    it, renamed on takes its own renaming for failed."""
    left: dict[str, set[FileId]] = {}
    for each in logs:
        for record in each.records if each is not log else ():
            if isinstance(record, Moved):
                left.setdefault(record.source, set()).add(record.file)
    return left


def _has_been_taken_on(moved: Moved, left: Mapping[str, Container[FileId]]) -> bool:
    """May another rank have renamed the directory on, or one above it? Where it is now shows by its number."""
    if moved.file in left.get(moved.target, ()):
        return True
    return any(moved.target.startswith(name + posixpath.sep) for name in left)


def _that_happened(records: Sequence[Record], left: Mapping[str, Container[FileId]]) -> list[Record]:
    """The records without those of renamings and removals that have failed. ``left``: see
    :func:`_left_by_others`."""
    found: list[Record] = []
    open_from = 0  # the records behind are of an operation whose outcome is not known yet
    for record in records:
        if not isinstance(record, Outcome):
            found.append(record)
            continue
        if not record.happened:
            found[open_from:] = [
                each
                for each in found[open_from:]
                if not isinstance(each, Moved) or _has_been_taken_on(each, left)
            ]
        open_from = len(found)
    return found


class _Renamings:
    """Which directories have been renamed by whom, and so what ranks say of names that others have changed."""

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self._found: list[tuple[Log | None, Moved]] = []  # in the order of time; None: no rank knows of it
        self._noted: dict[
            str, dict[str, int]
        ] = {}  # name -> directories of the logs that have it, and since when

    def note(self, log: Log, record: Name) -> None:
        """The rank may put a directory there, and then records no name below."""
        self._noted.setdefault(record.path, {}).setdefault(log.directory, record.time_ns)

    def doubted(self, log: Log, path: str) -> list[str]:
        """The names that a path in this log may stand for, if another rank has renamed a directory above it."""
        if not any(each is not log and _is_in(path, moved) for each, moved in self._found):
            return []
        return _names_then(path, [moved for _, moved in self._found])

    def follow(self, log: Log, moved: Moved) -> list[str]:
        """Another renaming. Returns the directories of the checkpoint that are now where another rank may take them for
        some that it has made."""
        carried = [
            (
                by if by is log else None,
                each._replace(target=renamed(each.target, moved.source, moved.target)),
            )
            for by, each in self._found
            if each.target == moved.source or each.target.startswith(moved.source + posixpath.sep)
        ]
        found: list[tuple[Log | None, Moved]] = [*carried, *([] if moved.is_new else [(log, moved)])]
        mistaken = [move.path for each, move in found if self._may_be_taken_for_new(each, move)]
        self._found += found
        return mistaken

    def _may_be_taken_for_new(self, log: Log | None, moved: Moved) -> bool:
        for path in _names_then(moved.target, [each for _, each in self._found]):
            while path != posixpath.dirname(path):
                for directory, time_ns in self._noted.get(path, {}).items():
                    born_ns = moved.file.born_ns
                    is_other = log is None or log.directory != directory
                    if is_other and (not born_ns or born_ns > time_ns - self._tick_ns):
                        return True
                path = posixpath.dirname(path)
        return False


class _Places:
    """Where the directories of the checkpoint are now."""

    def __init__(self) -> None:
        self._at: dict[str, list[str]] = {}  # path at the checkpoint -> paths since, in the order of time

    def follow(self, moved: Moved) -> None:
        if moved.target:
            for places in self._at.values():  # both places: it may have failed
                since = [renamed(place, moved.source, moved.target) for place in places]
                places += [place for place in since if place not in places]
        if not moved.is_new:
            places = self._at.setdefault(moved.path, [])
            places += [place for place in (moved.source, moved.target) if place and place not in places]

    def found(self) -> dict[str, list[str]]:
        return {path: places[::-1] for path, places in self._at.items()}

"""Works out what a restart has to put back, from the undo logs of all ranks for one interval.

The earliest record of a name, and of a file, counts, whichever rank wrote it; of copies, the one that was whole first. Moves
of directories are followed in the order of time, so that each directory of the checkpoint is known by the paths at which it
may be now.

Ranks do not take their images at the same moment. Where one has written to a file before its own, and after another one had
made the first copy, a copy counts that was made later, when the first one had its image. What the other has written
meanwhile may be in it, too; after the restart that rank writes it again.

A rank does not know which directories another rank renames: what it then changes below one is uncovered. Nor does it record
what it changes in a directory that it has made. If another rank puts a directory of the checkpoint there, that is uncovered
as a whole, unless the first rank sees by its age that it is another one (:mod:`ckpt.undo.recorder`).

Pure. Not here: how it is done (:mod:`ckpt.undo.restart.putting_back`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping

from ckpt.transport.records import NamedTuple, dataclass, field
from ckpt.undo.records import (
    CLOCK_NS,
    MARGIN_NS,
    Attributes,
    Binding,
    Content,
    FileId,
    Kept,
    LastChange,
    Moved,
    Name,
    Outcome,
    Record,
    Status,
    Uncovered,
    and_above,
)
from ckpt.undo.restart.across_hosts import HostRecord, across_hosts
from ckpt.undo.restart.moves import Left, Log, PathsSince, Removals, Renamings, Settled, settled
from ckpt.undo.selection.patterns import Patterns

__all__ = ["Clocks", "FilePlan", "Log", "Plan", "make_plan"]

_DOUBTFUL = "another rank has renamed a directory above it"
_REPLACED = "another rank has removed or replaced a directory above it"
_HELD_NS = 1_000_000_000  # files that are opened for one change are closed by then
_SEVERAL = "changed by several ranks while the checkpoint was taken; what one of them wrote just"
_LOST = f"{_SEVERAL} before may be missing"
_LATER = f"{_SEVERAL} after it may be there"
_TAKEN_FOR_NEW = (
    "another rank may have taken it for a directory that it has made, and have changed what is in it"
)


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

    @property
    def copy_start(self) -> int:
        """The offset from which on the copy has the contents."""
        return 0 if self.copied is None else self.copied.start


@dataclass(slots=True)
class Plan:
    """What a restart puts back for one interval. ``names``: what each path was bound to, directories before what is in them.
    ``directories``: path → the paths at which the directory may be now, the likeliest first; none: it has been removed.
    ``uncovered``: changes that cannot be undone. ``doubled``: files that are put back, but for bytes that will be there
    twice, or may be missing. ``doubtful``: names below directories of other ranks, which may be wrong; they are in
    ``uncovered``, too."""

    names: dict[str, Binding] = field(default_factory=dict)
    directories: dict[str, list[str]] = field(default_factory=dict)
    files: dict[FileId, FilePlan] = field(default_factory=dict)
    uncovered: list[Uncovered] = field(default_factory=list)
    doubled: list[Uncovered] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)

    def touched(self, undone: str) -> Iterator[str]:
        """At which paths something may be put back, or from which it may be moved to the directory ``undone``."""
        yield posixpath.join(undone, "new")
        yield from self.names
        for path, places in self.directories.items():
            yield from (path, *places)
        for file in self.files.values():
            yield from (file.path, *file.names)


class Clocks(NamedTuple):
    """``tick_ns``: by so much the time of a file may differ from that of a record. ``hosts_ns``: by so much two hosts'
    clocks may; None: it is not known."""

    tick_ns: int
    hosts_ns: int | None = None


def make_plan(
    logs: Iterable[Log], clocks: Clocks | None = None, changes: Iterable[tuple[str, LastChange]] = ()
) -> Plan:
    """The plan that undoes one interval. ``clocks``: where ranks are on several hosts. ``changes``: the last ones of all
    ranks before their images, each with the name of the rank's directory, where the interval is the first one after the line
    to which the restart goes back."""
    plan = Plan()
    tick_ns = CLOCK_NS if clocks is None else clocks.tick_ns
    names: dict[str, Binding] = {}
    places, renamings, removals = PathsSince(), Renamings(tick_ns), Removals(tick_ns)
    written: dict[FileId, int] = {}
    held: list[tuple[Content, str]] = []
    before = _BeforeImages(changes, tick_ns, 0 if clocks is None else clocks.hosts_ns or MARGIN_NS)
    doubtful: dict[str, Uncovered] = {}
    logs = list(logs)
    stays = Patterns([record.path for log in logs for record in log.records if isinstance(record, Kept)])
    left = Left(logs)
    sure = settled(logs) if clocks is None else {}
    happened = _by_time((log, _that_happened(log, left, sure.get(log.directory, {}))) for log in logs)
    for log, record in happened:
        if isinstance(record, Settled):
            places.settle(record.moves)
            renamings.settle(record.moves)
            continue
        if stays.match(record.path) and not isinstance(record, Moved):
            continue
        for path in renamings.doubted(log, record.path):
            doubtful.setdefault(path, Uncovered(path, _DOUBTFUL, record.time_ns))
        match record:
            case Name(path, binding, kept):
                if removals.may_have_replaced(log, record):
                    doubtful.setdefault(path, Uncovered(path, _REPLACED, record.time_ns))
                names.setdefault(path, binding)
                before.note(log, record)
                renamings.note(log, record)
                if binding is not None and binding.is_file:
                    file = _file(plan, binding, path)
                    file.linked = file.linked if file.link or not kept else binding
                    file.link = file.link or log.kept(kept)
                    file.is_unsure = False
            case Content(path, status, copy, _, end):
                file = _changed(plan, record, names)
                _note_content(file, record, log.kept(copy))
                before.note(log, record)
                if copy and record.is_open:
                    held.append((record, log.kept(copy)))
                written[status.file] = max(written.get(status.file, 0), end)
            case Attributes():
                _changed(plan, record, names)
            case Moved():
                places.follow(record)
                if not record.target:
                    removals.note(log, record)
                else:
                    mistaken = renamings.follow(log, record)
                    plan.uncovered += [Uncovered(path, _TAKEN_FOR_NEW, record.time_ns) for path in mistaken]
            case Uncovered():
                plan.uncovered.append(record)
    _settle_between_hosts(
        plan, names, [HostRecord(log.host, r) for log, r in happened if not isinstance(r, Settled)], clocks
    )
    _note_names(plan, names)
    plan.directories = places.found()
    plan.doubled += _changed_before_an_image(plan, before, written)
    _keep_what_was_written(plan, written)
    plan.doubled += _written_before_an_image(plan, held, tick_ns)
    plan.uncovered += _with_other_names(doubtful, plan)
    plan.doubtful = set(doubtful)
    return plan


def _note_names(plan: Plan, names: dict[str, Binding]) -> None:
    for path, binding in sorted(names.items(), key=lambda item: item[0].count(posixpath.sep)):
        if not _is_below_none(path, names):
            plan.names[path] = binding
    for identity, file in plan.files.items():
        bound = [names.get(path, file.status) for path in file.names]
        file.has_no_name = all(each is None or each.file != identity for each in bound)


def _note_content(file: FilePlan, record: Content, copy: str) -> None:
    """``copy``: of the contents; "": there is none."""
    status = record.status
    if file.nbytes is None:
        file.nbytes = file.tail_nbytes = file.status.nbytes
        file.tail = record.tail
    if not copy or (file.copied is not None and not _was_copied_before(record, file.copied)):
        return
    if file.copied is not None and file.status is file.copied.status:
        file.status, file.nbytes = status, status.nbytes
    file.copied, file.copy = record, copy


def _was_copied_before(record: Content, other: Content) -> bool:
    """Each rank changes a file only after its own copy of it is whole. So the copy that was whole first has nothing of what
    ranks have changed since their images, whichever rank was the first to begin its copy."""
    return 0 < record.copied_ns < other.copied_ns


def _written_before_an_image(
    plan: Plan, held: Iterable[tuple[Content, str]], tick_ns: int
) -> Iterator[Uncovered]:
    """What a rank has written to an open file after the copy that counts, and before its own image, is not in that copy. It
    is in the copy that this rank has made at its image: ``held``, each with its path, in the order of time."""
    for record, copy in held:
        file = plan.files[record.status.file]
        kept = file.copied
        if kept is None or not 0 < kept.copied_ns < record.time_ns:
            continue
        is_known = bool(kept.digest and record.digest)
        may_differ = record.status.mtime_ns + tick_ns >= kept.copied_ns
        if kept.digest != record.digest if is_known else may_differ:
            _take(file, record, copy)
            yield Uncovered(file.path, _LATER, 0)


class _BeforeImages:
    """Paths that one rank has changed before its image, and another one after its own. ``changes``: see
    :func:`make_plan`. ``tick_ns``, ``margin_ns``: of the clock of files, and of the clocks of ranks."""

    def __init__(self, changes: Iterable[tuple[str, LastChange]], tick_ns: int, margin_ns: int) -> None:
        self._changes, self._tick_ns, self._margin_ns = list(changes), tick_ns, margin_ns
        self._first: dict[str, dict[str, Name | Content]] = {each.path: {} for _, each in self._changes}
        self._copies: dict[FileId, list[tuple[Content, str]]] = {}

    def note(self, log: Log, record: Name | Content) -> None:
        """A rank has begun to change this after its image."""
        if (first := self._first.get(record.path)) is None:
            return
        first.setdefault(log.rank, record)
        if isinstance(record, Content) and record.copy and not record.start:
            self._copies.setdefault(record.status.file, []).append((record, log.kept(record.copy)))

    def late(self) -> Iterator[tuple[LastChange, list[Name | Content]]]:
        """What a rank may have written before its image, and after other ones, after theirs, had begun to change the same;
        with what these have kept first."""
        for rank, each in self._changes:
            others = [record for other, record in self._first[each.path].items() if other != rank]
            if others := [other for other in others if self._may_be_later(each, other)]:
                yield each, others

    def _may_be_later(self, each: LastChange, other: Name | Content) -> bool:
        """Another rank began this before the image, not much later than the rank; and the file was written to since."""
        last_ns = self._margin_ns + min(each.image_ns, each.time_ns + _HELD_NS)
        is_written = each.mtime_ns + self._tick_ns + self._margin_ns >= other.time_ns
        return other.time_ns <= last_ns and (is_written or isinstance(other, Name))

    def has_all(self, each: LastChange, record: Content | None) -> bool:
        """Is all in this copy that the rank has written before its image?"""
        return record is not None and record.time_ns >= each.image_ns + self._margin_ns

    def copy_with_all(self, each: LastChange) -> tuple[Content, str] | None:
        """The first such copy."""
        return next((copy for copy in self._copies.get(each.file, ()) if self.has_all(each, copy[0])), None)


def _changed_before_an_image(
    plan: Plan, before: _BeforeImages, written: dict[FileId, int]
) -> Iterator[Uncovered]:
    """What a rank has written to a path before its image may not be in what another rank has kept of it after its own. So a
    later copy counts, if there is one; a file to which ranks have only appended is not cut before its end at the image."""
    for each, others in before.late():
        file = plan.files.get(each.file)
        bound = plan.names.get(each.path, None if file is None else file.status)
        if file is None or file.nbytes is None or bound is None or bound.file != each.file:
            yield Uncovered(each.path, _LOST, 0)
        elif not file.copy:
            written[each.file] = max(written.get(each.file, 0), each.nbytes)
        elif before.has_all(each, file.copied):
            # Others that have copied it have not changed it before: their copies were whole later (`_note_content`).
            if not all(isinstance(other, Content) and other.copy for other in others):
                yield Uncovered(each.path, _LATER, 0)
        elif (later := before.copy_with_all(each)) is None:
            yield Uncovered(each.path, _LOST, 0)
        elif not _are_equal(file.copied, later[0]):
            _take(file, *later)
            yield Uncovered(each.path, _LATER, 0)


def _are_equal(copied: Content | None, later: Content) -> bool:
    return copied is not None and bool(later.digest) and copied.digest == later.digest


def _take(file: FilePlan, record: Content, copy: str) -> None:
    """This copy counts, and no other one."""
    file.copied, file.copy = record, copy
    file.status, file.nbytes = record.status, record.status.nbytes


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


def _by_time(logs: Iterable[tuple[Log, list[Record | Settled]]]) -> list[tuple[Log, Record | Settled]]:
    every = [(log, record) for log, records in logs for record in records]
    # Stable: the records of a rank stay in their order
    return sorted(every, key=lambda item: item[1].time_ns)


def _is_below_none(path: str, names: dict[str, Binding]) -> bool:
    """Is the path below a name that was no directory? Another rank has made the directory, and this one did not know."""
    for above in and_above(path)[1:]:
        binding = names.get(above, ...)
        if binding is not ... and (binding is None or not binding.is_directory):
            return True
    return False


def _file(plan: Plan, status: Status, path: str) -> FilePlan:
    file = plan.files.setdefault(status.file, FilePlan(status, path))
    file.names.append(path)
    return file


def _that_happened(log: Log, left: Left, sure: Mapping[int, Settled]) -> list[Record | Settled]:
    """The records without those of renamings and removals that have failed. ``sure``: see
    :func:`ckpt.undo.restart.moves.settled`."""
    found: list[Record | Settled] = []
    open_from = 0  # the records behind are of an operation whose outcome is not known yet
    for at, record in enumerate(log.records):
        if not isinstance(record, Outcome):
            found.append(record)
            continue
        if not record.happened:
            found[open_from:] = [
                each
                for each in found[open_from:]
                if not isinstance(each, Moved) or left.has_been_taken_on(log, each)
            ]
        if at in sure:
            found.append(sure[at])
        open_from = len(found)
    return found

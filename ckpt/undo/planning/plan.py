"""Works out what a restart has to put back, from the undo logs of all ranks for one interval.

The earliest record of a name, and of a file, counts, whichever rank wrote it; of copies, the one that was whole first. Moves
of directories are followed in the order of time, so that each directory of the checkpoint is known by the paths at which it
may be now.

A rank does not know which directories another rank renames: what it then changes below one is uncovered. Nor does it record
what it changes in a directory that it has made. If another rank puts a directory of the checkpoint there, that is uncovered
as a whole, unless the first rank sees by its age that it is another one (:mod:`ckpt.undo.recorder`).

Pure. Not here: what ranks have changed while the checkpoint was taken (:mod:`ckpt.undo.planning.before_images`), how files
are put back (:mod:`ckpt.undo.restart.putting_back`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping

from ckpt.transport.records import NamedTuple
from ckpt.undo.planning.across_hosts import HostRecord, across_hosts
from ckpt.undo.planning.before_images import (
    BeforeImages,
    changed_before_an_image,
    keep_what_was_written,
    written_before_an_image,
)
from ckpt.undo.planning.moves import Left, Log, PathsSince, Removals, Renamings, Settled, settled
from ckpt.undo.planning.planned import FilePlan, Plan
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
from ckpt.undo.selection.patterns import Patterns

__all__ = ["Clocks", "FilePlan", "Log", "Plan", "make_plan"]

_DOUBTFUL = "another rank has renamed a directory above it"
_REPLACED = "another rank has removed or replaced a directory above it"
_TAKEN_FOR_NEW = (
    "another rank may have taken it for a directory that it has made, and have changed what is in it"
)


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
    before = BeforeImages(changes, tick_ns, 0 if clocks is None else clocks.hosts_ns or MARGIN_NS)
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
    plan.doubled += changed_before_an_image(plan, before, written)
    keep_what_was_written(plan, written)
    plan.doubled += written_before_an_image(plan, held, tick_ns)
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
    :func:`ckpt.undo.planning.moves.settled`."""
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

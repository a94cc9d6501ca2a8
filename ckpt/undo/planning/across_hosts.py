"""What ranks on several hosts have changed in one interval, where no clock says who was first.

Records are put in order by time, and the first one of a name or file says what it was. Between hosts that holds only for
times that are farther apart than the clocks may be (``margin_ns``; None: that is not known). Else one of these rules
decides:

same        all hosts say the same: the order does not matter
lengths     ranks have only appended to a file, so it is longer later: the shortest length was first
made        one host says that a name was free, another one that it is a directory, and no rank has removed or renamed that
            directory: so it was made in between, and the name was free

What is left is named. A directory that a rank renames or removes is another matter: names that ranks of other hosts change
below it, at any time of the interval, are named, because their order to the renaming is not known. (On one host
:mod:`ckpt.undo.planning.plan` finds out by time what such a name stands for.)

Pure. Not here: which clocks are how far apart (:mod:`ckpt.controller.sharing`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set

from ckpt.transport.records import NamedTuple, dataclass, field
from ckpt.undo.records import Binding, Content, FileId, Moved, Name, Record, Status, Uncovered, and_above

__all__ = ["Across", "HostRecord", "across_hosts"]

_AT_ONCE = "ranks on {} have changed it at about the same time, and it is not known which was first"
_DIRECTORY = "a rank on host {} has changed it, and one on host {} has renamed or removed a directory there"


class HostRecord(NamedTuple):
    """A record, and the host of its rank."""

    host: str
    record: Record


@dataclass(slots=True)
class Across:
    """``free``: names that were free, whatever the order of the records says. ``shortest``: of a file that was appended to,
    the record that was first. ``uncovered``: what is not known."""

    free: set[str] = field(default_factory=set)
    shortest: dict[FileId, Content] = field(default_factory=dict)
    uncovered: list[Uncovered] = field(default_factory=list)


def across_hosts(records: Sequence[HostRecord], margin_ns: int | None) -> Across:
    """``records``: of all ranks for one interval, in the order of time."""
    found = Across()
    if len({each.host for each in records}) < 2:
        return found
    moves = [(host, record) for host, record in records if isinstance(record, Moved)]
    moved = {record.file for _, record in moves}
    found.uncovered += _near_moves(records, moves)
    for path, said in _by_key(records, _name_of).items():
        if _is_known(said, margin_ns, _binding_of):
            continue
        if _was_made([_binding_of(record) for _, record in said], moved):
            found.free.add(str(path))
        else:
            found.uncovered.append(_at_once(path, said))
    rewritten = {_file_of(record) for _, record in records if isinstance(record, Content) and record.copy}
    for file, said in _by_key(records, _file_of).items():
        lengths = [record for _, record in said if isinstance(record, Content) and not record.copy]
        if len(lengths) == len(said) and file not in rewritten and isinstance(file, FileId):
            found.shortest[file] = min(
                lengths, key=lambda record: (record.status.nbytes, record.status.mtime_ns)
            )
        elif not _is_known(said, margin_ns, _state_of):
            found.uncovered += [
                _at_once(path, said) for path in dict.fromkeys(record.path for _, record in said)
            ]
    return found


def _by_key(
    records: Iterable[HostRecord], key_of: Callable[[Record], Hashable]
) -> dict[Hashable, list[HostRecord]]:
    """For each key that several hosts have records of: the first one of each host, in the order of time."""
    firsts: dict[Hashable, dict[str, HostRecord]] = {}
    for each in records:
        key = key_of(each.record)
        if key is not None:
            firsts.setdefault(key, {}).setdefault(each.host, each)
    return {key: list(of_hosts.values()) for key, of_hosts in firsts.items() if len(of_hosts) > 1}


def _is_known(
    said: Sequence[HostRecord], margin_ns: int | None, state_of: Callable[[Record], Hashable]
) -> bool:
    """Is it known what was there first?"""
    first = said[0].record
    return all(
        state_of(record) == state_of(first)
        or (margin_ns is not None and record.time_ns - first.time_ns > margin_ns)
        for _, record in said[1:]
    )


def _was_made(bindings: Sequence[Binding], moved: Set[FileId]) -> bool:
    """Was the name free, and then a directory, which has kept the name?"""
    made = {each.file for each in bindings if each is not None and each.is_directory}
    others = [each for each in bindings if each is not None and not each.is_directory]
    return None in bindings and not others and len(made) == 1 and made.isdisjoint(moved)


def _near_moves(records: Iterable[HostRecord], moves: Sequence[tuple[str, Moved]]) -> Iterator[Uncovered]:
    by: dict[str, dict[str, int]] = {}  # a path of a directory that has moved -> the hosts that have moved it
    for host, moved in moves:
        for path in filter(None, (moved.path, moved.source, moved.target)):
            by.setdefault(path, {})[host] = 0
    for host, record in records:
        paths = [record.path, *([record.source, record.target] if isinstance(record, Moved) else [])]
        around = (
            other for path in filter(None, paths) for each in and_above(path) for other in by.get(each, ())
        )
        if (other := next((other for other in around if other != host), None)) is not None:
            yield Uncovered(record.path, _DIRECTORY.format(host, other), record.time_ns)


def _at_once(path: Hashable, said: Sequence[HostRecord]) -> Uncovered:
    hosts = " and ".join(sorted({each.host for each in said}))
    return Uncovered(str(path), _AT_ONCE.format(hosts), said[0].record.time_ns)


def _name_of(record: Record) -> Hashable:
    return record.path if isinstance(record, Name) else None


def _binding_of(record: Record) -> Binding:
    assert isinstance(record, Name)
    return record.binding


def _file_of(record: Record) -> Hashable:
    status = _status_of(record)
    return status.file if status is not None and status.is_file else None


def _status_of(record: Record) -> Status | None:
    found = record.binding if isinstance(record, Name) else getattr(record, "status", None)
    return found if isinstance(found, Status) else None


def _state_of(record: Record) -> Hashable:
    """What a change of a file changes."""
    status = _status_of(record)
    return None if status is None else status._replace(file=None, links=0)  # type: ignore[arg-type]

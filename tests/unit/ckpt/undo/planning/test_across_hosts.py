"""Ranks on two hosts change the same files, and their clocks differ: what was there first is known, or the path is named.

All sequences of operations are tried on a small file system, with the real recorders and the real plan.
"""

from __future__ import annotations

import inspect
import itertools
import posixpath
import stat
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from ckpt.undo.planning import across_hosts, plan
from ckpt.undo.planning.plan import Clocks, Log, Plan, make_plan
from ckpt.undo.recorder import Operation, Recorder
from ckpt.undo.records import FileId, Status

MARGIN_NS = 100
OFF_NS = (-45, 0, 45)  # of the second host's clock: within the margin
NEAR_NS, FAR_NS = 10, 400  # between two operations
BEGAN_NS = 1000

OPERATIONS = [
    Operation("append", "/s/x"),
    Operation("rewrite", "/s/x"),
    Operation("rename", "/s/x", "/s/y"),
    Operation("remove", "/s/x"),
    Operation("directory", "/s/d"),
    Operation("remove", "/s/d"),
    Operation("rename", "/s/d", "/s/e"),
    Operation("append", "/s/d/z"),
]
STEPS = [(host, operation) for host in (0, 1) for operation in OPERATIONS]


class Files:
    """A file system in memory. The times of its files are true ones."""

    def __init__(self, *, has_directory: bool) -> None:
        self.names: dict[str, Status] = {}
        self.texts: dict[tuple[FileId, int], str] = {}  # file and time of change -> contents
        self._made = 0
        self.make("/s", stat.S_IFDIR, 1)
        self.make("/s/x", stat.S_IFREG, 2, "0123456789")
        if has_directory:
            self.make("/s/d", stat.S_IFDIR, 3)
            self.make("/s/d/z", stat.S_IFREG, 4, "z")

    def make(self, path: str, kind: int, now_ns: int, text: str = "") -> None:
        self._made += 1
        self.names[path] = Status(FileId(7, self._made, now_ns), kind | 0o700, 1, 0, now_ns, 0, 0)
        self.write(path, text, now_ns)

    def write(self, path: str, text: str, now_ns: int) -> None:
        self.names[path] = self.names[path]._replace(nbytes=len(text), mtime_ns=now_ns)
        self.texts[self.names[path].file, now_ns] = text

    def is_possible(self, operation: Operation) -> bool:
        found = self.names.get(operation.path)
        match operation.kind:
            case "directory":
                return True  # it may fail: os.makedirs(…, exist_ok=True)
            case "append" | "rewrite":
                return posixpath.dirname(operation.path) in self.names
            case "rename":
                return found is not None and operation.target not in self.names
        return found is not None and not any(each.startswith(operation.path + "/") for each in self.names)

    def do(self, operation: Operation, now_ns: int) -> None:
        found = self.names.get(operation.path)
        match operation.kind:
            case "append" | "rewrite":
                if found is None:
                    self.make(operation.path, stat.S_IFREG, now_ns)
                    found = self.names[operation.path]
                before = self.texts[found.file, found.mtime_ns] if operation.kind == "append" else ""
                self.write(operation.path, f"{before}{now_ns}", now_ns)
            case "directory":
                if found is None:
                    self.make(operation.path, stat.S_IFDIR, now_ns)
            case "remove":
                del self.names[operation.path]
            case "rename":
                moved = [each for each in self.names if f"{each}/".startswith(operation.path + "/")]
                for path in moved:
                    self.names[operation.target + path[len(operation.path) :]] = self.names.pop(path)


class Run(NamedTuple):
    """What came of a sequence. `then`, `now`: the names before and after it."""

    then: dict[str, Status]
    now: dict[str, Status]
    plan: Plan
    texts: dict[tuple[FileId, int], str]


def run(
    steps: tuple[tuple[int, Operation], ...],
    *,
    off_ns: int,
    gap_ns: int,
    has_directory: bool,
    make: Any = make_plan,
) -> Run | None:
    """None: an operation is not possible."""
    files = Files(has_directory=has_directory)
    then = dict(files.names)
    recorders = [Recorder(MARGIN_NS), Recorder(MARGIN_NS)]
    records: list[list[Any]] = [[], []]
    now_ns = BEGAN_NS
    for host, recorder in enumerate(recorders):
        recorder.begin(BEGAN_NS + host * off_ns)
    for host, operation in steps:
        now_ns += gap_ns
        if not files.is_possible(operation):
            return None
        seen = {path: files.names.get(path) for path in recorders[host].paths(operation)}
        kept = recorders[host].before(operation, seen, now_ns + host * off_ns)
        records[host] += [each.record for each in kept]
        files.do(operation, now_ns)
    for host, recorder in enumerate(recorders):
        seen = {path: files.names.get(path) for path in recorder.paths()}
        records[host] += [each.record for each in recorder.end(seen, now_ns + host * off_ns)]
    logs = [Log(f"/job/{host}", of_rank, f"h{host}") for host, of_rank in enumerate(records)]
    return Run(then, files.names, make(logs, Clocks(MARGIN_NS, MARGIN_NS)), files.texts)


def wrong(found: Run) -> Iterator[str]:
    """The paths that the plan would not put back, and does not name."""
    named = {each.path for each in found.plan.uncovered}
    now_of = _with_directories_put_back(found)
    for path in found.then.keys() | now_of.keys():
        then, now = found.then.get(path), now_of.get(path)
        above = {path, *_above(path)}
        if named & above or (then == now and path not in found.plan.names):
            continue
        if path in found.plan.names:
            bound = found.plan.names[path]
            if (bound and bound.file) != (then and then.file):
                yield path
        elif (then and then.file) != (now and now.file) and not (then is None and _is_in_new(path, found)):
            yield path
        if then is not None and then.is_file and not _has_contents(found, then):
            yield path


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _is_in_new(path: str, found: Run) -> bool:
    return any(found.plan.names.get(each, ...) is None for each in _above(path))


def _with_directories_put_back(found: Run) -> dict[str, Status]:
    """The names after directories of then have got theirs again, with what is in them."""
    names = dict(found.now)
    for path in found.plan.directories:
        then = found.then.get(path)
        at = next((each for each, its in names.items() if then is not None and its.file == then.file), path)
        if at != path:
            for each in [each for each in names if f"{each}/".startswith(path + "/")]:
                del names[each]  # it stands in the way
            for each in [each for each in names if f"{each}/".startswith(at + "/")]:
                names[path + each[len(at) :]] = names.pop(each)
    return names


def _has_contents(found: Run, then: Status) -> bool:
    now = next((each for each in found.now.values() if each.file == then.file), None)
    file = found.plan.files.get(then.file)
    text = found.texts[then.file, then.mtime_ns]
    if file is None or file.nbytes is None:  # it stays as it is, or a hard link to it comes back
        return now is None or now.mtime_ns == then.mtime_ns
    if file.copy:
        assert file.copied is not None
        return found.texts[then.file, file.copied.status.mtime_ns][: file.nbytes] == text
    return file.nbytes == len(text) and (now is None or found.texts[now.file, now.mtime_ns].startswith(text))


def explore(length: int, make: Any = make_plan) -> Iterator[tuple[Any, ...]]:
    """The sequences after which something is wrong."""
    ways = itertools.product((True, False), OFF_NS, (NEAR_NS, FAR_NS))
    for has_directory, off_ns, gap_ns in ways:
        for steps in itertools.product(STEPS, repeat=length):
            if steps[0][0] == 0 or off_ns:  # else the same with the hosts exchanged
                done = run(steps, off_ns=off_ns, gap_ns=gap_ns, has_directory=has_directory, make=make)
                if done is not None and (paths := list(wrong(done))):
                    yield paths, off_ns, gap_ns, has_directory, steps


def test_two_operations_of_two_hosts_in_all_orders() -> None:
    assert not list(explore(2))


@pytest.mark.nightly
def test_three_operations_of_two_hosts_in_all_orders() -> None:
    assert not list(explore(3))


MUTANTS = {
    "what is changed where another host has moved a directory is named": (
        across_hosts,
        "found.uncovered += _near_moves(records, moves)",
        "pass",
        3,
    ),
    "times that are close say nothing": (
        across_hosts,
        "record.time_ns - first.time_ns > margin_ns",
        "record.time_ns >= first.time_ns",
        2,
    ),
    "a directory that has been made was not there": (
        across_hosts,
        "if _was_made([_binding_of(record) for _, record in said], moved):",
        "if False:",
        0,
    ),
    "a file that was rewritten has not only grown": (across_hosts, "file not in rewritten and ", "", 3),
    "the shortest length was first": (across_hosts, "= min(", "= max(", 2),
    "the shortest length counts": (plan, "file.nbytes = file.tail_nbytes = record.status.nbytes", "pass", 2),
    "a name that was free is free": (plan, "names.update(dict.fromkeys(across.free))", "pass", 2),
}


@pytest.mark.parametrize("rule", MUTANTS)
def test_without_the_rule_something_is_wrong(rule: str) -> None:
    module, old, new, length = MUTANTS[rule]
    make = mutated(module, old, new)
    if length:
        assert next(explore(length, make), None) is not None
        return
    steps = ((0, OPERATIONS[4]), (1, OPERATIONS[4]))
    done = run(steps, off_ns=0, gap_ns=NEAR_NS, has_directory=False, make=make)
    assert done is not None and done.plan.uncovered, "it is named though it is known"


def mutated(module: ModuleType, old: str, new: str) -> Any:
    """`make_plan` with a mutant in it."""
    text = inspect.getsource(module)
    assert text.count(old) == 1, old
    made = ModuleType(module.__name__)
    exec(compile(text.replace(old, new), "mutant", "exec"), made.__dict__)
    if module is plan:
        return made.make_plan
    other = ModuleType(plan.__name__)
    exec(compile(inspect.getsource(plan), "plan", "exec"), other.__dict__)
    other.__dict__["across_hosts"] = made.__dict__["across_hosts"]
    return other.__dict__["make_plan"]


def test_what_is_far_apart_in_time_is_not_named() -> None:
    steps = ((0, OPERATIONS[1]), (1, OPERATIONS[1]))
    near, far = (run(steps, off_ns=45, gap_ns=gap_ns, has_directory=False) for gap_ns in (NEAR_NS, FAR_NS))
    assert near is not None and far is not None
    assert [each.path for each in near.plan.uncovered] == ["/s/x"] and not far.plan.uncovered


def test_where_no_clock_is_known_every_order_is_unknown() -> None:
    steps = ((0, OPERATIONS[1]), (1, OPERATIONS[1]))

    def without_clocks(logs: list[Log], clocks: Clocks) -> Plan:
        return make_plan(logs, Clocks(clocks.tick_ns, None))

    done = run(steps, off_ns=0, gap_ns=FAR_NS, has_directory=False, make=without_clocks)
    assert done is not None and [each.path for each in done.plan.uncovered] == ["/s/x"]


def test_all_ranks_may_make_a_directory_and_append_to_a_file() -> None:
    """As most programs do: nothing of it is named."""
    made = ((0, OPERATIONS[4]), (1, OPERATIONS[4]))
    grown = ((0, OPERATIONS[0]), (1, OPERATIONS[0]), (0, OPERATIONS[0]))
    for steps in (made, grown):
        for off_ns in OFF_NS:
            done = run(steps, off_ns=off_ns, gap_ns=NEAR_NS, has_directory=False)
            assert done is not None and not done.plan.uncovered

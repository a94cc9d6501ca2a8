"""Settings and fixtures of all tests: Hypothesis without deadlines in wall-clock time, tests that need root, failures that
are explained in short, and the figures that a run prints at its end.

Tests run in several processes (pytest-xdist). A process adds its figures to the reports of its tests (`user_properties`), so
a run prints the same with and without workers.

With `--rotate` only one n-th of the cases of a test marked `rotate(n)` runs, another one for every seed (tests/seeds.py),
and only one n-th of the tests of a module marked `turns(n)`, except for tests that are marked `rotate` themselves. Each test
or module, and each version of Python, has a rotation of its own. Of what these marks leave of a folder, one test in five
runs: each module has at least one left, so many modules would take long, too. Of a test without such a mark that has three
or more cases, a fifth of the cases runs; of the checks of the whole source, which lie in tests/ itself, all cases run.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Set
from pathlib import Path

import pytest
from hypothesis import settings

from tests import soak as ledger
from tests.seeds import seed_of_the_commit, share
from tools import rooms

# The machine's speed must not decide whether a property holds. On CI the examples are the same every time.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

SHARE = 5  # one in so many
MANY_CASES = 3
ON_CI = ("CI", "BUILD_NUMBER")  # what pytest takes for it
LONG = 8_000  # characters of a value, as pytest shows a difference
AN_ELEMENT, A_BYTE = 16, 4  # of these: a line of its own; as it is escaped
FIGURE = "ckpt-figure"  # of the properties of a test: a name, a tab, a number
FIGURES = pytest.StashKey[dict[str, int]]()
TESTS = pytest.StashKey[dict[str, dict[str, object]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rotate", action="store_true", help="of cases marked `rotate` only the share of this commit"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in the background with some of these ignored, nohup with another one; so would jobs be.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # Found once, by the process that starts the others: all of them are to have the same.
    os.environ.setdefault("CKPT_SEED", str(seed_of_the_commit()))
    config.stash[FIGURES], config.stash[TESTS] = {}, {}


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The trees of all sources (200 MB) are kept for the tests of one folder."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        rooms.parse.cache_clear()


def pytest_report_header(config: pytest.Config) -> str:
    part = ", a part of the cases" if config.getoption("--rotate") else ""
    return f"seed {seed_of_the_commit()} (again with CKPT_SEED={seed_of_the_commit()}){part}"


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Add to a figure that is printed at the end of the run: figures(name, how_many)."""

    def add(name: str, count: int) -> None:
        request.node.user_properties.append((FIGURE, f"{name}\t{count}"))

    return add


@pytest.fixture
def soaked() -> Callable[..., None]:
    """Writes to the ledger of long sweeps, when CKPT_SOAK_LEDGER is set: soaked(row, count, **figures).

    To be called when all went well: what fails is not written down.
    """
    began = time.monotonic()

    def add(row: str, count: int, **found: int) -> None:
        nonlocal began
        if os.environ.get("CKPT_SOAK_LEDGER"):
            ledger.record(row, ledger.next_number(row), count, time.monotonic() - began, found)
            began = time.monotonic()

    return add


@pytest.hookimpl(wrapper=True)
def pytest_assertrepr_compare(
    op: str, left: object, right: object
) -> Generator[None, list[list[str]], list[list[str]]]:
    """Of long values only the first difference is told, on CI too: pytest compares all there, line by line, for hours."""
    kept: dict[str, str] = {}
    if _is_long(left) or _is_long(right):
        kept = {name: os.environ.pop(name) for name in ON_CI if name in os.environ}
    try:
        return (yield)
    finally:
        os.environ.update(kept)


def _is_long(value: object) -> bool:
    """Would it be shown with more than LONG characters? No more of it than that is looked at."""
    length, todo = 0, [value]
    while todo and length <= LONG:
        each = todo.pop()
        if isinstance(each, str):
            length += len(each)
        elif isinstance(each, bytes | bytearray | memoryview):
            length += A_BYTE * len(each)
        elif isinstance(each, Mapping | Set | list | tuple):
            length += AN_ELEMENT * len(each)
            if length <= LONG:
                todo += [*each, *each.values()] if isinstance(each, Mapping) else each
        elif dataclasses.is_dataclass(each) and not isinstance(each, type):
            todo += [getattr(each, field.name, None) for field in dataclasses.fields(each)]
            length += AN_ELEMENT
    return length > LONG


class Told:
    """Collects what tests report, in the process that starts the others (and so has every report)."""

    def __init__(self, config: pytest.Config) -> None:
        self._figures, self._tests = config.stash[FIGURES], config.stash[TESTS]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests.setdefault(report.nodeid, {"name": report.nodeid, "seconds": 0.0, "skipped": ""})
        test["seconds"] = float(str(test["seconds"])) + report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            test["skipped"] = report.longrepr[2].removeprefix("Skipped: ")
        if report.when == "teardown":  # it has all that its test has told
            for name, value in report.user_properties:
                if name == FIGURE:
                    what, _, count = str(value).rpartition("\t")
                    self._figures[what] = self._figures.get(what, 0) + int(count)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Told(session.config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """For tools/run_tests.py: how long each test took, and why it was skipped."""
    path = os.environ.get("CKPT_TEST_REPORT")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps(list(session.config.stash[TESTS].values())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    kept = config.stash.get(FIGURES, {})
    if kept:
        terminalreporter.section("figures")
        for name, count in sorted(kept.items()):
            terminalreporter.write_line(f"{count:>12,}  {name}")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Some 100,000 objects of all tests: no collection in a test, and no search for referrers, is to go through them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--rotate"):
        _leave_the_share_of_this_commit(config, items)
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)


def _leave_the_share_of_this_commit(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    others: dict[str, list[pytest.Item]] = defaultdict(list)
    marks: dict[str, pytest.Mark] = {}
    for item in items:
        rotate, turns = item.get_closest_marker("rotate"), item.get_closest_marker("turns")
        name = item.nodeid.partition("[" if rotate else "::")[0]
        mark = rotate or turns
        if mark is not None:
            cases[name].append(item)
            marks[name] = mark
        elif item.path.parent != Path(__file__).parent:
            others[item.nodeid.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for name, all_of_them in others.items():
        if len(all_of_them) >= MANY_CASES:
            left_out |= _of_other_commits(all_of_them, SHARE, name)
    for name, all_of_them in cases.items():
        left_out |= _of_other_commits(all_of_them, marks[name].args[0], name)
    folders: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in (item for all_of_them in cases.values() for item in all_of_them if item not in left_out):
        folder, _, _ = item.nodeid.partition("::")[0].rpartition("/")
        if folder:
            folders[folder].append(item)
    for folder, marked in folders.items():
        left_out |= _of_other_commits(marked, SHARE, folder)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _of_other_commits(items: list[pytest.Item], parts: int, name: str) -> set[pytest.Item]:
    """All but the share of this commit. ``name``: of these items; each version of Python has a share of its own."""
    return set(items) - set(share(items, parts, f"{name} on {sys.version_info.minor}"))

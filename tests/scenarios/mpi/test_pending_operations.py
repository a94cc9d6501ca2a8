"""A checkpoint, a kill and a restart with every kind of operation pending, one after the other in one job."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.seeds import share
from tests.system.support import Job, jobs_fixture

pytestmark = [pytest.mark.system, pytest.mark.timeout(600), pytest.mark.xdist_group("pending operations")]

PROGRAM = Path(__file__).with_name("pending_operations.py")


def kinds() -> list[str]:
    """The names of the kinds, read off the program."""
    for node in ast.parse(PROGRAM.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KINDS":
            assert isinstance(node.value, ast.Dict)
            return [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
    raise AssertionError("no KINDS in the program")


def chosen(config: pytest.Config) -> list[str]:
    """The kinds of this run: all, or the share of the commit. One job goes through them."""
    return share(kinds(), 12, "kinds of operations") if config.getoption("--rotate") else kinds()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", chosen(metafunc.config))


def pair(start: Callable[..., Job], sides: str, names: Sequence[str] = ()) -> tuple[Job, Job]:
    """An undisturbed job and one that was killed with every kind pending."""
    quiet = start(PROGRAM, "quiet", sides, *names, ranks=3, name="quiet")
    assert quiet.finish(280) == 0, quiet.report()
    killed = start(PROGRAM, "kill", sides, *names, ranks=3, name="killed", max_restarts=1000)
    assert killed.finish(280) == 0, killed.report()
    return quiet, killed


@pytest.fixture(scope="module")
def jobs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Job, Job]]:
    starting = jobs_fixture(tmp_path_factory.mktemp("pending"))
    yield pair(next(starting), "one", chosen(request.config))
    next(starting, None)


def lines(job: Job, rank: int, kind: str) -> list[str]:
    return [line for line in job.output(rank).splitlines() if line.startswith(f"{kind} | ")]


def test_a_restart_with_it_pending_changes_nothing(jobs: tuple[Job, Job], kind: str) -> None:
    quiet, killed = jobs
    for rank in range(3):
        assert len(lines(quiet, rank, kind)) == 1
        assert lines(killed, rank, kind) == lines(quiet, rank, kind)


def test_there_was_a_kill_and_a_restart_for_every_kind(
    jobs: tuple[Job, Job], request: pytest.FixtureRequest
) -> None:
    _, killed = jobs
    restarts = killed.events("restarted")
    assert len(restarts) == len(chosen(request.config))
    assert len({event["from_epoch"] for event in restarts}) == len(restarts), "each from a line of its own"
    assert not killed.events("failed")


@pytest.mark.soak
def test_both_sides_of_every_kind(start: Callable[..., Job]) -> None:
    quiet, killed = pair(start, "both")
    for rank in range(3):
        assert killed.output(rank) == quiet.output(rank)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)

"""kill -9 of every kind of process, at every named point: no committed line is lost, and the result is the same.

Every point of `tests.system.points.catalogue` is one test; a commit has a sixth of them. Whatever dies, the job goes on by
itself; only when its controller was what died, `ckpt restart` is called, as a user would.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import signal
from pathlib import Path

import pytest

from tests.system.apps import RING
from tests.system.points.catalogue import POINTS, Point
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

RANKS = 3
STEPS, PAUSE_S, EVERY_S = 400, 0.0015, 0.12


def run(directory: Path, point: Point | None) -> str:
    """One job with a death at `point`, to its end; rank 0's output. Raises AssertionError."""
    directory.mkdir()
    app = write_app(directory, RING)
    armed = directory / "armed"
    env = point.environment(armed) if point is not None else {}
    if point is not None and point.stage == "start":
        armed.touch()
    job = Job(
        directory / "job",
        *("-n", RANKS, "--every", EVERY_S, "--keep", 2, "--max-restarts", 50),
        # That the point was reached is no part of the program
        *(
            "--files",
            f"!{armed}*",
            "--",
            app,
            STEPS,
            PAUSE_S,
        ),
        env=env,
    )
    try:
        if point is not None:
            disturb(job, point, armed)
        code = job.finish()
        while code != 0 and point is not None:
            assert code in (-signal.SIGKILL, 137), f"exit code {code}\n{job.report()}"
            restarted = run_ckpt(
                "run", "--job", job.directory, "--resume", "auto", "-n", RANKS, "--", app, STEPS, PAUSE_S,
                env={**os.environ, **env},
            )  # fmt: skip
            code = restarted.returncode
            assert code in (0, -signal.SIGKILL), restarted.stderr + job.report()
        assert code == 0, job.report()
        if point is not None:
            assert armed.with_name("armed.reached").exists(), (
                f"{point.name} was never reached\n{job.report()}"
            )
            check_history(job)
        return job.output(0)
    finally:
        job.close()


def disturb(job: Job, point: Point, armed: Path) -> None:
    """Bring the job to the stage of the point, and there, unless it is one of those at the job's end."""
    if point.stage != "start":
        job.wait_event("committed", 2)
    if point.stage in ("run", "recovery"):
        armed.touch()
    if point.stage == "recovery":
        job.kill_rank(1)
    if point.stage == "restart":
        agent = int(job.events("agent-started")[-1]["pid"])
        job.process.kill()
        job.process.wait()
        os.kill(agent, signal.SIGKILL)
        armed.touch()
    last, reached = len(job.events("committed")) + 3, armed.with_name("armed.reached")
    job.wait_for(
        lambda: reached.exists() or len(job.events("committed")) >= last or job.process.poll() is not None,
        "the point, or three checkpoints more",
    )


def check_history(job: Job) -> None:
    """Nothing that was committed is forgotten: every return to a line is to the newest there was."""
    newest = 0
    for event in job.events():
        if event["event"] == "committed":
            assert event["epoch"] > newest, f"epoch {event['epoch']} after {newest}\n{job.report()}"
            newest = event["epoch"]
        elif event["event"] == "restarting" or (event["event"] == "running" and event.get("from_epoch")):
            assert (event["from_epoch"] or 0) >= newest, f"{event} after epoch {newest}\n{job.report()}"


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the job prints when nobody dies."""
    printed = run(tmp_path_factory.mktemp("points") / "undisturbed", None)
    assert "result" in printed
    return printed


def is_there(point: str) -> bool:
    module, _, function = point.partition(":")
    *path, name = function.split(".")
    try:
        owner = functools.reduce(getattr, path, importlib.import_module(module))
    except (ImportError, AttributeError):
        return False
    return name in vars(owner)


def test_every_point_is_there() -> None:
    """A commit kills at a sixth of them only; one that has moved must not wait for its turn to be noticed."""
    assert not [point.function for point in POINTS if not is_there(point.function)]


def test_every_function_that_a_test_names_is_there() -> None:
    """Points of nightly tests, too: three of them had moved, unnoticed, because nobody had run these tests."""
    tests = Path(__file__).parents[2]
    named = {
        point
        for path in tests.rglob("*.py")
        for point in re.findall(
            r'"((?:ckpt|transport)(?:\.\w+)+:[A-Za-z_][\w.]*)"', path.read_text(encoding="utf-8")
        )
    }
    assert len(named) >= 50
    assert not [point for point in sorted(named) if not is_there(point)]


def test_there_are_points_enough_and_each_has_its_own_name() -> None:
    names = [point.name + point.stage for point in POINTS]
    assert len(names) == len(set(names)) >= 60


@pytest.mark.rotate(60)
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.stage}-{point.name}")
def test_killed_at(point: Point, undisturbed: str, tmp_path: Path) -> None:
    assert run(tmp_path / "killed", point) == undisturbed

"""What no rank has recorded is told once at a checkpoint, and again at a restart, also by another controller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.service.unrecorded import UnrecordedChanges
from ckpt.store import JobDirectory

Found = list[tuple[str, dict[str, Any]]]


class Controller:
    """One controller's part. What is changed here is changed by no rank."""

    def __init__(self, job: JobDirectory, work: Path) -> None:
        self.job, self.work = job, work
        self.said: list[str] = []
        self.unrecorded = UnrecordedChanges(job, str(work), None, self.said.append, self._log)

    def _log(self, event: str, fields: dict[str, Any]) -> None:
        self.job.events.append(event, **fields)

    def logged(self, event: str) -> list[tuple[Any, str]]:
        found = [each for each in self.job.events.read().events if each["event"] == event]
        return [(each.get("epoch"), each["path"].removeprefix(f"{self.work}/")) for each in found]


@pytest.fixture
def controller(tmp_path: Path) -> Callable[[], Controller]:
    work = tmp_path / "work"
    work.mkdir()
    job = JobDirectory.create(str(work / "jobs" / "job"), command=["app.py"], size=1)

    def make() -> Controller:
        made = Controller(job, work)
        made.unrecorded.begin(0)
        return made

    return make


def test_a_change_belongs_to_the_line_before(controller: Callable[[], Controller]) -> None:
    made = controller()
    (made.work / "x").touch()
    made.unrecorded.committed(1)
    (made.work / "y").touch()
    made.unrecorded.committed(2)
    made.unrecorded.committed(3)
    assert made.logged("files-not-undone") == [(0, "x"), (1, "y")]
    assert [line.split(": ")[1:3] for line in made.said] == [
        [str(made.work / name), "made by another program, or by system calls that are not watched"]
        for name in "xy"
    ]


def test_a_rank_that_is_killed_while_it_opens_its_files_again_has_changed_none(
    controller: Callable[[], Controller],
) -> None:
    """They had been put back just before: a later restart told them to be changed by another program, again and again."""
    made = controller()
    for turn in range(5):
        (made.work / "x").write_text(f"put back {turn}")
        made.unrecorded.have_put_back()
        made.unrecorded.begin(1)
        (made.work / "x").open("r+").close()
        made.unrecorded.before_putting_back(1)
    assert not made.logged("files-not-undone") and not made.logged("files-not-put-back")


def test_the_number_of_copied_bytes_is_no_log_of_a_rank(controller: Callable[[], Controller]) -> None:
    """Once a rank had copied a file, the controller could not compare: it took the number beside the ranks' logs for one."""
    made = controller()
    interval = Path(made.job.path) / "undo" / "epoch-00000000-00000"
    interval.mkdir(parents=True)
    (interval / "copied").write_text("123")
    (made.work / "x").touch()
    made.unrecorded.committed(1)
    assert made.logged("files-not-undone") == [(0, "x")]


def test_a_restart_tells_what_has_changed_since_its_line(controller: Callable[[], Controller]) -> None:
    first = controller()
    (first.work / "old").touch()
    first.unrecorded.committed(1)
    (first.work / "told").touch()
    first.unrecorded.committed(2)
    (first.work / "new").touch()
    first.unrecorded.before_putting_back(1)
    assert {path for _, path in first.logged("files-not-put-back")} == {"told", "new"}
    second = controller()
    (second.work / "while-nobody-works").touch()
    second.unrecorded.begin(1)
    second.unrecorded.before_putting_back(1)
    assert len(first.logged("files-not-put-back")) == 4


def test_a_job_that_has_come_to_its_end_prints_nothing(controller: Callable[[], Controller]) -> None:
    for is_well in (True, False):
        made = controller()
        (made.work / f"x-{is_well}").touch()
        made.unrecorded.ended(is_well=is_well)
        assert bool(made.said) is not is_well


def test_the_job_directory_is_left_alone(controller: Callable[[], Controller]) -> None:
    made = controller()
    made.unrecorded.note(0, {"m": "changes", "directory": made.job.path})
    made.unrecorded.note(0, {"m": "changes", "directory": f"{made.job.path}/output"})
    Path(made.job.path, "x").touch()
    (made.work / "__pycache__").mkdir()
    made.unrecorded.committed(1)
    assert made.logged("files-not-undone") == []


def test_where_ranks_change_files_and_start_processes(controller: Callable[[], Controller]) -> None:
    made = controller()
    (made.work / "sub").mkdir()
    made.unrecorded.begin(0)
    made.unrecorded.note(1, {"m": "changes", "directory": f"{made.work}/sub"})
    for place in ("app.py:3 f", "app.py:3 f", "app.py:4 g"):
        made.unrecorded.note(1, {"m": "event", "event": "process-started", "where": place, "command": "gzip"})
    (made.work / "sub" / "x").touch()
    made.unrecorded.committed(1)
    assert made.logged("files-not-undone") == [(0, "sub/x")]
    assert "(app.py:3 f: gzip and 1 more places), or by another program" in made.said[0]


def test_many_changes_are_few_lines(controller: Callable[[], Controller]) -> None:
    made = controller()
    for number in range(150):
        (made.work / f"{number}").touch()
    made.unrecorded.committed(1)
    assert len(made.logged("files-not-undone")) == 101 and made.logged("files-not-undone")[-1] == (0, "")
    assert len(made.said) == 4 and made.said[-1].startswith("147 more ")


def test_a_damaged_log_is_said_and_nothing_else(controller: Callable[[], Controller]) -> None:
    made = controller()
    log = Path(made.job.path, "undo", "epoch-00000000-00000", "rank-00000", "log")
    log.parent.mkdir(parents=True)
    log.write_text('0123 ["name","/x\\q",3]\n')
    (made.work / "x").touch()
    made.unrecorded.committed(1)
    assert len(made.said) == 1 and "could not be found" in made.said[0]

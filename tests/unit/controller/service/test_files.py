"""What the controller says of the program's files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.controller.errors import FilesNotPutBack
from ckpt.controller.service.files import JobFiles
from ckpt.controller.supervision.events import Launch
from ckpt.store import JobDirectory
from ckpt.undo import restart
from ckpt.undo.errors import NotUndone
from ckpt.undo.restart.putting_back import Problem
from ckpt.undo.restart.restoring import Restored


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    return JobDirectory.create(tmp_path / "job", command=["x"], size=1, options={"files": "auto"})


def files_of(job: JobDirectory, said: list[str], logged: list[Any]) -> JobFiles:
    return JobFiles(job, {"files": "auto"}, said.append, lambda *line: logged.append(line))


def prepare_as(monkeypatch: pytest.MonkeyPatch, restored: Restored) -> None:
    """None of the files is code."""
    prepared = SimpleNamespace(
        apply=lambda: restored, give=lambda limit_bytes: restored, keep=lambda: None, give_code=lambda: False
    )
    monkeypatch.setattr(restart.restoring, "prepare", lambda *_, **__: prepared)


def test_the_first_three_files_that_are_not_covered_are_said_for_each_interval(job: JobDirectory) -> None:
    said: list[str] = []
    of_job = files_of(job, said, [])
    for epoch in (1, 2):
        for number in range(9):
            packet = {"event": "files-not-covered", "epoch": epoch, "path": f"/{number}", "reason": "full"}
            of_job.note(0, {"m": "event", **packet})
    assert len(said) == 8
    assert "/2: full" in said[2] and "more" in said[3]
    of_job.note(0, {"m": "event", "event": "output-written"})
    assert len(said) == 8


def test_five_problems_are_said_and_all_are_logged(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    logged: list[Any] = []
    problems = [Problem(f"/{number}", "why") for number in range(7)] + [Problem("/8", "twice", is_final=True)]
    prepare_as(monkeypatch, Restored(problems=problems, intervals=1))
    of_job = files_of(job, said, logged)
    assert of_job.put_back(Launch(1, 3, "died"), 4) == {"files_wait": True, "code_changes": False}
    assert of_job.put_back_now(stays=False) == {
        "files_put_back": True,
        "files_problems": [f"/{number}" for number in range(7)],
        "files_recorded": [],
        "files_wait": True,
    }
    assert not logged and not said, "a rank may still fail to load"
    assert of_job.keep() is None
    assert [name for name, _ in logged] == ["files-put-back", *["files-not-put-back"] * 8]
    assert len(said) == 6 and "3 more" in said[-1]


def test_what_no_rank_can_fail_to_load_is_put_back_for_good(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []
    prepare_as(monkeypatch, Restored(intervals=1))
    of_job = files_of(job, [], logged)
    of_job.put_back(Launch(1, 3, "died"), 4)
    told = of_job.put_back_now(stays=True)
    assert isinstance(told, dict) and not told["files_wait"]
    assert [name for name, _ in logged] == ["files-put-back"]


def test_where_the_log_was_lost_ranks_cut_their_files_themselves(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Restored(problems=[Problem("", "the undo log cannot be written")], intervals=1)
    prepare_as(monkeypatch, lost)
    of_job = files_of(job, [], [])
    of_job.put_back(Launch(1, 3, "died"), 4)
    told = of_job.put_back_now(stays=False)
    assert isinstance(told, dict) and not told["files_put_back"]


def test_ranks_wait_where_nothing_is_recorded_too(tmp_path: Path) -> None:
    """They cut files that they hold open, and replicas undo what they have changed: not before all have loaded."""
    job = JobDirectory.create(tmp_path / "job", command=["x"], size=1, options={"files": "off"})
    of_job = JobFiles(job, {"files": "off"}, lambda text: None, lambda *line: None)
    assert of_job.put_back(Launch(1, 3, "died"), 4) == {"files_wait": True}
    assert of_job.put_back_now(stays=False) == {"files_wait": False}
    assert of_job.put_back(Launch(2, None, "started again"), 4) == {}


def test_a_new_job_has_no_files_to_be_put_back(job: JobDirectory) -> None:
    assert files_of(job, [], []).put_back(Launch(0, None, "started"), 0) == {}
    assert not (Path(job.path) / "undo").exists()


@pytest.mark.parametrize("files", ["auto", "off"])
def test_code_that_ranks_were_given_is_taken_back_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: str
) -> None:
    """Also by a restart that puts no files back: what the program had left is there then."""
    job = JobDirectory.create(tmp_path / "job", command=["x"], size=1, options={"files": "auto"})
    done: list[str] = []
    prepare_as(monkeypatch, Restored())
    monkeypatch.setattr(restart.restoring, "take_back", lambda *_: bool(done.append("back")) or True)
    monkeypatch.setattr(restart.restoring, "give_up", lambda *_: bool(done.append("given up")))
    of_job = JobFiles(job, {"files": files}, lambda text: None, lambda *line: None)
    of_job.put_back(Launch(1, 3, "died"), 4)
    assert done == (["back"] if files == "auto" else ["back", "given up"])
    if files == "auto":
        of_job.put_back_now(stays=False)
        assert done == ["back"] * 2
        of_job.put_back(Launch(2, 3, "died"), 4)  # a rank could not go on
        assert done == ["back"] * 3
        of_job.keep()
        of_job.ended(1)
        assert done == ["back"] * 3, "what was kept stays"


def test_code_that_cannot_be_taken_back_refuses_a_restart_that_puts_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without, it is said, and code stays as it is."""
    job = JobDirectory.create(tmp_path / "job", command=["x"], size=1, options={"files": "auto"})
    said: list[str] = []

    def refused(*_: object) -> bool:
        raise NotUndone("Read-only file system", path="/package")

    prepare_as(monkeypatch, Restored())
    monkeypatch.setattr(restart.restoring, "take_back", refused)
    with pytest.raises(FilesNotPutBack, match="Read-only file system"):
        files_of(job, said, []).put_back(Launch(1, 3, "died"), 4)
    off = JobFiles(job, {"files": "off"}, said.append, lambda *line: None)
    assert off.put_back(Launch(1, 3, "died"), 4) == {"files_wait": True}
    assert said[0].startswith("files of the program may be those of the checkpoint") and "/package" in said[0]

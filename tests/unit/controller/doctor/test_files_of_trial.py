"""What the doctor says of files that a restart does not put back, with the places in the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.doctor.files import FilesOfTrial
from ckpt.store import JobDirectory

Events = dict[str, list[Mapping[str, Any]]]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    monkeypatch.chdir(tmp_path)
    made = JobDirectory.create(tmp_path / "job", command=["x"], size=1, options={"files": "auto"})
    rows = [
        [str(tmp_path / "large"), "app.py:1 main"],
        [str(tmp_path / "large"), "app.py:9 change"],
        [str(tmp_path / "log"), "app.py:2 note"],
        [str(tmp_path / "scratch"), "app.py:3 try_it"],
        ["/dev/shm/block", "app.py:4 share"],
        ["", "app.py:5 <module>", "fopen"],
    ]
    (tmp_path / "job" / "doctor").mkdir()
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "job" / "doctor" / "changed-0").write_text(text + '["half a li')
    return made


def files_of(job: JobDirectory, choice: list[str], **events: list[Mapping[str, Any]]) -> FilesOfTrial:
    named = {name.replace("_", "-"): rows for name, rows in events.items()}
    return FilesOfTrial(job, choice, lambda name: named.get(name, []))


def test_what_is_not_undone_is_told_with_all_places_in_the_program(job: JobDirectory, tmp_path: Path) -> None:
    full = {"path": str(tmp_path / "large"), "reason": "the limit is reached", "rank": 0}
    unseen = {"path": str(tmp_path / "other"), "reason": "made by another program"}
    found = files_of(job, ["auto"], files_not_covered=[full], files_not_undone=[unseen]).not_undone()
    assert [(Path(row["path"]).name, row["where"]) for row in found] == [
        ("large", "app.py:1 main, app.py:9 change"),
        ("other", "app.py:5 <module>"),  # it looks fopen up
        ("block", "app.py:4 share"),
    ]
    started = {"where": "app.py:7 run"}
    found = files_of(job, ["auto"], files_not_undone=[unseen], process_started=[started]).not_undone()
    assert found[0]["where"] == ""  # rather by the process


def test_what_is_wanted_to_stay_is_a_note_and_is_not_compared(job: JobDirectory, tmp_path: Path) -> None:
    """Restored runs had written something else to it: named as a problem, with the advice to look for lost state."""
    kept: list[Mapping[str, Any]] = [{"patterns": [str(tmp_path / "log")]}]
    done = files_of(job, ["!scratch"], files_kept=kept)
    assert done.changed() == {str(tmp_path / "large"), "/dev/shm/block"}
    assert done.notes() == [
        f"{tmp_path}/log stays as it is at a restart (ckpt.keep_file): app.py:2 note",
        f"{tmp_path}/scratch is left out by --files, and is not put back: app.py:3 try_it",
        "app.py:5 <module> looks fopen up (ctypes): what it changes by that is not undone by a restart",
    ]


def test_with_files_off_nothing_is_said(job: JobDirectory) -> None:
    done = files_of(job, ["off"])
    assert not done.notes() and not done.not_undone()

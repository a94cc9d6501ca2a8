"""What the doctor finds around a program: descriptors that no object of the program holds."""

from __future__ import annotations

import os
from pathlib import Path

from ckpt.doctor import surroundings


def test_only_what_is_in_the_directory_of_the_job_is_of_the_job(tmp_path: Path) -> None:
    job, elsewhere = tmp_path / "job", tmp_path / "job-data"
    assert surroundings.is_below(str(job / "log"), str(job))
    assert not surroundings.is_below(str(elsewhere / "log"), str(job))


def test_descriptors_of_the_job_are_none_of_the_programs(tmp_path: Path) -> None:
    log, other = (os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT) for name in ("log", "other"))
    try:
        raw = {
            row["fd"]
            for row in surroundings.raw_descriptors({log: str(tmp_path / "log")}, with_sockets=False)
        }
        assert other in raw and log not in raw
    finally:
        os.close(log)
        os.close(other)


def test_no_code_of_the_program_runs_when_its_objects_are_looked_at() -> None:
    class Deaf:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError("code of the program has run")

    deaf = [Deaf()]
    surroundings.raw_descriptors({}, with_sockets=False)
    assert len(deaf) == 1

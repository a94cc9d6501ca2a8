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
    for name in ("log", "other"):
        os.mkfifo(tmp_path / name)
    log, other = (os.open(tmp_path / name, os.O_RDWR) for name in ("log", "other"))
    try:
        raw = {
            row["fd"]: row["kind"]
            for row in surroundings.raw_descriptors({log: str(tmp_path / "log")}, with_sockets=False)
        }
        assert raw[other] == "pipe" and log not in raw
    finally:
        os.close(log)
        os.close(other)


def test_what_a_restart_opens_again_is_not_reported(tmp_path: Path) -> None:
    """Files, directories and /dev/null were reported, each as a problem, though they come back under their numbers."""
    (tmp_path / "file").touch()
    there = [
        os.open(path, os.O_RDONLY) for path in (tmp_path / "file", tmp_path, "/dev/null", "/dev/urandom")
    ]
    gone = os.open("/dev/null", os.O_PATH)
    try:
        raw = {row["fd"] for row in surroundings.raw_descriptors({}, with_sockets=False)}
        assert not raw.intersection(there) and gone in raw
    finally:
        for fd in (*there, gone):
            os.close(fd)


def test_no_code_of_the_program_runs_when_its_objects_are_looked_at() -> None:
    class Deaf:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError("code of the program has run")

    deaf = [Deaf()]
    surroundings.raw_descriptors({}, with_sockets=False)
    assert len(deaf) == 1

"""What the doctor finds around a program: descriptors that no object of the program holds."""

from __future__ import annotations

import os
from pathlib import Path

from ckpt.doctor import surroundings


def test_the_undo_log_that_was_opened_just_now_is_none_of_the_programs_descriptors(tmp_path: Path) -> None:
    """An examination between the opening of the log and its note called it "descriptor 1001, no file object holds it"."""
    job, elsewhere = tmp_path / "job", tmp_path / "job-data"
    job.mkdir()
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(job)
    flags = os.O_WRONLY | os.O_CREAT
    log, other = os.open(job / "log", flags), os.open(elsewhere / "log", flags)
    try:
        own = surroundings.descriptors_of_job(str(tmp_path / "link"))
        assert own == {log: str(job / "log")}
        raw = {row["fd"] for row in surroundings.raw_descriptors(own, with_sockets=False)}
        assert other in raw and log not in raw
    finally:
        os.close(log)
        os.close(other)

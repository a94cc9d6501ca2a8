"""What is kept of a job's files, when it is damaged, in real jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(2)]

Start = Callable[..., Job]

IN_PLACE = """
    import os, time
    import ckpt
    ckpt.enable()
    def committed():
        with open(os.environ["CKPT_JOB"] + "/events.jsonl") as events:
            return events.read().count('"committed"')
    def write(name, n):
        with open(name, "r+b") as file:
            file.write(b"%d" % n)
    for name in ("state", "last"):
        with open(name, "wb") as file:
            file.write(b"0" * 100)
    for n in (1, 2, 3):
        write("state", n)
        ckpt.checkpoint()
        while committed() < n:
            time.sleep(0.001)
    write("state", 4)
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os._exit(9)
    print("went on from", n, open("state", "rb").read(1))
"""


def test_a_damaged_copy_is_refused_by_name_and_an_older_checkpoint_is_tried(
    start: Start, tmp_path: Path
) -> None:
    """A flipped byte was put back unnoticed. The older checkpoint has a copy of its own."""
    job = start(write_app(tmp_path, IN_PLACE), ranks=1, files="auto", keep=9)
    assert job.finish() == 9, job.report()
    (job.directory / "through").touch()
    assert run_ckpt("verify", job.directory).returncode == 0
    [*_, older, last] = [int(path.name[6:14]) for path in sorted((job.directory / "control").glob("epoch-*"))]
    [newest] = (job.directory / "undo").glob(f"epoch-{last:08d}-*")
    copy = newest / "rank-00000" / "1"
    data = bytearray(copy.read_bytes())
    data[7] ^= 1
    copy.write_bytes(data)

    done = run_ckpt("verify", job.directory)
    assert done.returncode == 3, done.stdout
    assert f"the copy of {tmp_path}/state that was kept for epoch {last} does not match" in done.stdout
    assert f"restart {job.directory}@{older}" in done.stdout
    before = (tmp_path / "state").read_bytes()
    done = run_ckpt("restart", f"{job.directory}@{last}", cwd=tmp_path)
    assert done.returncode == 3
    assert str(copy) in done.stderr and "none was changed" in done.stderr, done.stderr
    assert (tmp_path / "state").read_bytes() == before

    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"cannot go on from epoch {last}, trying epoch {older}" in done.stderr
    assert "went on from 3 b'4'" in (job.directory / "output" / "rank-0.out").read_text()


def test_an_interval_that_is_missing_as_a_whole_is_refused_by_name(start: Start, tmp_path: Path) -> None:
    """It was taken for one without changes. A later checkpoint, and the end of the job, say that it was there."""
    job = start(write_app(tmp_path, IN_PLACE), ranks=1, files="auto", keep=9)
    assert job.finish() == 9, job.report()
    (job.directory / "through").touch()
    epochs = [int(path.name[6:14]) for path in sorted((job.directory / "control").glob("epoch-*"))]
    for epoch in (epochs[-1], epochs[-2]):
        [interval] = (job.directory / "undo").glob(f"epoch-{epoch:08d}-*")
        interval.rename(tmp_path / "away")
        done = run_ckpt("verify", f"{job.directory}@{epoch}")
        assert done.returncode in (3, 12) and "all that was kept in this interval is gone" in done.stdout
        before = (tmp_path / "state").read_bytes()
        done = run_ckpt("restart", f"{job.directory}@{epoch}", cwd=tmp_path)
        assert done.returncode == 3, done.stderr
        assert str(interval) in done.stderr and "none was changed" in done.stderr
        assert (tmp_path / "state").read_bytes() == before
        (tmp_path / "away").rename(interval)
    done = run_ckpt("restart", f"{job.directory}@{epochs[-2]}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


LIMITED = """
    import os, time
    import ckpt
    ckpt.enable()
    def committed():
        return len(os.listdir(os.environ["CKPT_JOB"] + "/control"))
    for name in ("large", "held"):
        with open(name, "wb") as file:
            file.write(b"then" * 1000)
    held = open("held", "r+b")
    for n in (1, 2):
        if n == 2:
            with open("large", "r+b") as file:
                file.write(b"now!")
        ckpt.checkpoint()
        while committed() < n:
            time.sleep(0.001)
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os._exit(9)
"""


def test_what_is_not_covered_stands_in_the_checkpoint_itself(start: Start, tmp_path: Path) -> None:
    """It stood in the event log only."""
    job = start(write_app(tmp_path, LIMITED), ranks=1, files="auto", keep=9, files_limit="100")
    assert job.finish() == 9, job.report()
    (job.directory / "through").touch()
    (job.directory / "events.jsonl").unlink()
    first, last = [int(path.name[6:14]) for path in sorted((job.directory / "control").glob("epoch-*"))]
    said = run_ckpt("inspect", f"{job.directory}@{last}", cwd=tmp_path).stdout
    for epoch, name in ((first, "held"), (first, "large"), (last, "held")):
        assert f"not covered since epoch {epoch}: {tmp_path}/{name}: the limit" in said, said
    assert "not covered until the last checkpoint" in run_ckpt("status", job.directory, cwd=tmp_path).stdout
    done = run_ckpt("restart", f"{job.directory}@{last}", cwd=tmp_path)
    assert f"not put back: {tmp_path}/held" in done.stderr, done.stderr
    assert f"not put back: {tmp_path}/large" not in done.stderr
    done = run_ckpt("restart", f"{job.directory}@{first}", cwd=tmp_path)
    assert f"not put back: {tmp_path}/large" in done.stderr, done.stderr

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

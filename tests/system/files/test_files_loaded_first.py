"""A restart changes no file of the program before every rank has loaded its image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, run_ckpt, write_app
from tests.unit.ckpt.undo.test_sequences import tree_of, without_times

pytestmark = [pytest.mark.system, pytest.mark.turns(3)]

Start = Callable[..., Job]

# All ways to change files, behind the only checkpoint; one file stays open, and one directory is left for another.
CHANGES = """
    import os, sys, time
    import ckpt
    from ckpt import MPI
    sys.path.append(sys.argv[2])
    import lent.module
    ckpt.enable()
    rank = MPI.COMM_WORLD.rank
    directory = f"{sys.argv[1]}/{rank}"
    os.makedirs(directory)
    os.chdir(directory)
    def write(name, text, mode="w"):
        with open(name, mode) as file:
            file.write(text)
    write("replaced", "then")
    write("in-place", "0" * 100)
    write("removed", "then")
    write("appended", "then")
    os.mkdir("old")
    write("old/inside", "then")
    held = open("held", "w")
    held.write("then")
    held.flush()
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    write("replaced.tmp", "now")
    os.replace("replaced.tmp", "replaced")
    write("in-place", "now", "r+")
    write("appended", "now", "a")
    write("made", "now")
    os.remove("removed")
    os.rename("old", "new")
    held.write("now")
    held.flush()
    MPI.COMM_WORLD.Barrier()
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os._exit(9)
    print(lent.module.value)
"""


@pytest.fixture
def ended(start: Start, tmp_path: Path) -> Job:
    """A job of two ranks that has ended behind its only checkpoint. It needs a package that can be taken away."""
    package = tmp_path / "site-packages" / "lent"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "module.py").write_text("value = 7\n")
    app = write_app(tmp_path, CHANGES)
    job = start(app, str(tmp_path / "out"), str(package.parent), ranks=2, files="auto", keep=9)
    assert job.finish() == 9, job.report()
    (job.directory / "through").touch()
    return job


def damaged_image(job: Job) -> Callable[[], None]:
    [pack] = [path for path in (job.directory / "images").rglob("*.pack") if "00001" in path.parent.name]
    good = pack.read_bytes()
    middle = len(good) // 2
    pack.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    return lambda: bool(pack.write_bytes(good)) or None


def missing_module(job: Job) -> Callable[[], None]:
    package, away = job.directory.parent / "site-packages" / "lent", job.directory.parent / "away"
    package.rename(away)
    return lambda: bool(away.rename(package)) and None


@pytest.mark.parametrize("spoil", [damaged_image, missing_module])
def test_an_image_that_cannot_be_loaded_changes_no_file(
    ended: Job, tmp_path: Path, spoil: Callable[[Job], Callable[[], None]]
) -> None:
    """All files were put back before, so the user had neither the state of then nor that of now."""
    mend = spoil(ended)
    before = tree_of(str(tmp_path / "out"))
    for _ in range(2):
        done = run_ckpt("restart", ended.directory, cwd=tmp_path)
        assert done.returncode == 12, done.stderr
        assert tree_of(str(tmp_path / "out")) == before
        assert not ended.events("files-put-back")
    mend()
    (tmp_path / "out" / "0" / "replaced").write_text("mine")  # what the ranks had left is known still
    done = run_ckpt("restart", ended.directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/out/0/replaced: somebody else has changed the file" in done.stderr, done.stderr
    assert len(ended.events("files-put-back")) == 1
    after = tree_of(str(tmp_path / "out"))
    assert {path: each for path, each in without_times(after).items() if path.startswith("1")} == {
        path: each for path, each in without_times(before).items() if path.startswith("1")
    }

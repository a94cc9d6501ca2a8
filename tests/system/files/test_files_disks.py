"""Files are kept and put back on file systems that are full, read-only, or can do little: with errors of the kernel's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ckpt.undo.errors import NotUndone
from tests.system.store import test_store_disks as disks
from tests.system.support import run_ckpt, write_app
from tests.unit.ckpt.undo.test_sequences import check, tree_of
from tests.unit.ckpt.undo.test_watching import watched

pytestmark = pytest.mark.system

small_disk = disks.small_disk
failing = disks.failing

# It fails behind its checkpoint, when the disk of the job directory is full.
FULL = """
    import os, sys, time
    import ckpt
    ckpt.enable()
    job, disk = os.environ["CKPT_JOB"], sys.argv[1]
    with open("large", "wb") as file:
        file.write(b"then" * 100_000)
    ckpt.checkpoint()
    while '"committed"' not in open(f"{job}/events.jsonl").read():
        time.sleep(0.001)
    if not os.path.exists("through"):
        with open(f"{disk}/filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        with open("large", "r+b") as file:
            file.write(b"now!")
        with open("new", "w") as file:
            file.write("new")
        os._exit(9)
    print("went on with", open("large", "rb").read(4), os.path.exists("new"))
"""


@disks.needs_root
def test_the_disk_of_the_job_directory_is_full(small_disk: Path, tmp_path: Path) -> None:
    """The program goes on, and it is said at once which file is not covered; and again when that is not put back."""
    app, job = write_app(tmp_path, FULL), small_disk / "job"
    done = run_ckpt("run", "-n", 1, "--files", "auto", "--job", job, app, small_disk, cwd=tmp_path)
    assert done.returncode == 9, done.stderr
    large = tmp_path / "large"
    assert f"not covered, a restart will not put it back: {large}: No space left on device" in done.stderr
    assert large.read_bytes()[:4] == b"now!"
    (small_disk / "filler").unlink()
    (tmp_path / "through").touch()
    done = run_ckpt("restart", job, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"not put back: {large}" in done.stderr
    output = (job / "output" / "rank-0.out").read_text()
    assert "went on with b'now!' False" in output


@disks.needs_root
def test_the_disk_of_the_files_is_read_only_at_the_restart(small_disk: Path, tmp_path: Path) -> None:
    """The restart is refused with the path, as often as it is tried; then it goes through."""
    with watched(tmp_path, root=small_disk / "work") as work:
        Path("state").write_text("then")
        work.start()
        tree = tree_of(str(work.root))
        Path("state").write_text("now")
        Path("new").write_text("new")
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        for _ in range(2):
            with pytest.raises(NotUndone, match=f"Read-only file system: {work.root}/"):
                work.back_to(0)
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
        assert not work.back_to(0)
        assert tree_of(str(work.root)) == tree


@disks.needs_root
def test_the_disk_of_the_files_is_full_at_the_restart(small_disk: Path, tmp_path: Path) -> None:
    with watched(tmp_path, root=small_disk / "work") as work:
        Path("state").write_bytes(b"then" * 500_000)
        work.start()
        tree = tree_of(str(work.root))
        Path("state").write_text("now")
        work.watch.stop()
        with open("filler", "wb", buffering=0) as file:  # another program
            while True:
                try:
                    file.write(bytes(4096))
                except OSError:
                    break
        with pytest.raises(NotUndone, match=f"No space left on device: {work.root}/state"):
            work.back_to(0)
        Path("filler").unlink()
        assert not work.back_to(0)
        assert tree_of(str(work.root)) == tree


def test_a_file_system_without_hard_links_and_shared_blocks(failing: disks.Disk) -> None:
    """Copies are kept. Names of one file, of which there are none here, could not be known."""
    for seed in range(6):
        check(str(failing.mount), seed)

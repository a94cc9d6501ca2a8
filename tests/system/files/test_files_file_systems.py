"""Files are kept and put back on file systems of the kernel's, and of others, that have a quota, or can do little (FAT).

They are made in a file each (loop devices); a kernel that cannot mount them skips these tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.undo.errors import NotUndone
from tests.system.files.test_files_disks import FULL
from tests.system.store.test_store_disks import needs_root, served
from tests.system.support import run_ckpt, write_app
from tests.unit.ckpt.undo.test_sequences import Tree, check, tree_of
from tests.unit.ckpt.undo.test_watching import watched

pytestmark = [pytest.mark.system, pytest.mark.turns(3)]

MIB = 1 << 20
QUOTA_BYTES = 4 * MIB


def needs_program(name: str, package: str) -> None:
    if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        pytest.skip(f"{name} is not installed (Debian: {package})")


def an_image(tmp_path: Path, nbytes: int) -> Path:
    image = tmp_path / "image"
    with open(image, "wb") as file:
        file.truncate(nbytes)
    return image


def mounts(*command: object) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"another kernel: it does not mount this: {done.stderr.strip()[-200:]}")


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Path]:
    """A directory with a quota, on btrfs: there it holds for root, too."""
    needs_program("mkfs.btrfs", "btrfs-progs")
    image, mount = an_image(tmp_path, 128 * MIB), tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["mkfs.btrfs", "-q", "-M", image], check=True)
    mounts("mount", "-o", "loop", image, mount)
    directory = mount / "limited"
    try:
        for words in (
            ["quota", "enable", mount],
            ["subvolume", "create", directory],
            ["qgroup", "limit", f"{QUOTA_BYTES}", directory],
        ):
            subprocess.run(["btrfs", *words], check=True, stdout=subprocess.DEVNULL)
        directory.chmod(0o700)
        yield directory
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


FILLED_BY_ANOTHER = FULL.replace(
    """with open(f"{disk}/filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
""",
    """for _ in range(4):  # what is synced takes less room than what is not: there is some again
            os.spawnlp(
                os.P_WAIT, "dd", "dd", "if=/dev/zero", f"of={disk}/filler", "bs=4096", "oflag=append",
                "conv=notrunc,fsync", "status=none",
            )
""",
)


@needs_root
@pytest.mark.parametrize(
    ("program", "said"),
    [(FULL, "the undo log could not be written"), (FILLED_BY_ANOTHER, "an undo log could not be made")],
    ids=["there is a log", "no log could be made"],
)
def test_the_quota_of_the_job_directory_is_reached(
    limited: Path, tmp_path: Path, program: str, said: str
) -> None:
    """The program goes on, and it is said at once what is not covered, and that nothing is from there on. There is no room
    for a record of that: what is written anew is written elsewhere on btrfs, whatever had been reserved. A later restart
    knows it all the same."""
    app, job = write_app(tmp_path, program), limited / "job"
    done = run_ckpt("run", "-n", 1, "--files", "auto", "--job", job, app, limited, cwd=tmp_path)
    assert done.returncode == 9, done.stderr
    large = tmp_path / "large"
    if program is FULL:
        assert f"not covered, a restart will not put it back: {large}: Disk quota exceeded" in done.stderr
    assert f"files: the undo log cannot be {said.rpartition(' ')[2]}: Disk quota exceeded" in done.stderr
    assert large.read_bytes()[:4] == b"now!"
    (limited / "filler").unlink()
    (tmp_path / "through").touch()
    done = run_ckpt("restart", job, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert said in done.stderr


@needs_root
def test_the_quota_of_the_files_is_reached_at_the_restart(limited: Path, tmp_path: Path) -> None:
    with watched(tmp_path, root=limited / "work") as work:
        Path("state").write_bytes(b"then" * 500_000)
        work.start()
        tree = tree_of(str(work.root))
        Path("state").write_text("now")
        work.watch.stop()
        with open("filler", "wb", buffering=0) as file, pytest.raises(OSError, match="Disk quota"):
            while True:  # another program
                file.write(os.urandom(65536))
        with pytest.raises(NotUndone, match=f"Disk quota exceeded: {work.root}/state"):
            work.back_to(0)
        Path("filler").unlink()
        assert not work.back_to(0)
        assert tree_of(str(work.root)) == tree


# It fails behind its checkpoint, after a change of a file.
CHANGES = """
    import os, sys
    import ckpt
    ckpt.enable()
    os.chdir(sys.argv[1])
    open("state", "w").write("then")
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        pass
    if os.path.exists(sys.argv[2]):
        print("went on with", open("state").read(), os.path.exists("new"))
        sys.exit()
    open("state", "w").write("now")
    open("new", "w").write("new")
    os._exit(9)
"""


@needs_root
def test_the_disk_is_read_only_when_the_job_is_restarted(limited: Path, tmp_path: Path) -> None:
    """The command names the path; once that is mended, it goes on."""
    app, job, through = write_app(tmp_path, CHANGES), tmp_path / "job", tmp_path / "through"
    done = run_ckpt("run", "-n", 1, "--job", job, app, limited, through, cwd=tmp_path)
    assert done.returncode == 9, done.stderr
    through.touch()
    subprocess.run(["mount", "-o", "remount,ro", limited.parent], check=True)
    done = run_ckpt("restart", job, cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    assert f"Read-only file system: {limited}/" in done.stderr
    subprocess.run(["mount", "-o", "remount,rw", limited.parent], check=True)
    done = run_ckpt("restart", job, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "went on with then False" in (job / "output" / "rank-0.out").read_text()


@needs_root
def test_random_programs_where_blocks_can_be_shared(limited: Path) -> None:
    """Copies of files are shared blocks on btrfs. Without the quota: what has been removed counts for seconds."""
    for seed in range(60):
        check(str(limited.parent), seed)


def test_random_programs_on_a_file_system_with_the_rules_of_fat(tmp_path: Path) -> None:
    with served(tmp_path, "dos_disk.py") as mount:
        for seed in range(4):
            check(str(mount), seed)


@pytest.fixture
def fat(tmp_path: Path) -> Iterator[Path]:
    """FAT itself, through FUSE."""
    needs_program("mkfs.vfat", "dosfstools")
    needs_program("fusefat", "fusefat")
    image, mount = an_image(tmp_path, 8 * MIB), tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["mkfs.vfat", image], check=True, stdout=subprocess.DEVNULL)
    mounts("fusefat", "-o", "rw+", image, mount)
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


@needs_root
def test_files_on_fat(fat: Path, tmp_path: Path) -> None:
    with watched(tmp_path, root=fat / "work") as work:
        for name in ("replaced", "removed", "changed"):
            Path(name).write_text("then " * 10)
        Path("zeros").write_bytes(bytes(1000))  # the copy of it is a hole, which this file system cannot make
        work.start()
        tree: Tree = tree_of(str(work.root))
        Path("temporary").write_text("now")
        os.replace("temporary", "replaced")
        os.remove("removed")
        for name in ("changed", "zeros"):
            with open(name, "r+") as file:
                file.write("NOW")
        Path("new").write_text("x")
        os.mkdir("directory")
        Path("directory/x").write_text("x")
        assert not work.back_to(0)
        assert not work.told
        assert tree_of(str(work.root)) == tree

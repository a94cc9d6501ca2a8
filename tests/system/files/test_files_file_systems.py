"""Files are kept and put back on file systems of the kernel's, and of others, that have a quota, or can do little (FAT).

They are made in a file each (loop devices); a kernel that cannot mount them skips these tests.
"""

from __future__ import annotations

import contextlib
import os
import re
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


@contextlib.contextmanager
def mounted(tmp_path: Path, nbytes: int, package: str, *make: str) -> Iterator[Path]:
    """A file system of its own, which the command ``make`` has made."""
    needs_program(make[0], package)
    image, mount = an_image(tmp_path, nbytes), tmp_path / "mount"
    mount.mkdir()
    subprocess.run([*make, image], check=True)
    mounts("mount", "-o", "loop", image, mount)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Path]:
    """A directory with a quota, on btrfs: there it holds for root, too."""
    with mounted(tmp_path, 128 * MIB, "btrfs-progs", "mkfs.btrfs", "-q", "-M") as mount:
        directory = mount / "limited"
        for words in (
            ["quota", "enable", mount],
            ["subvolume", "create", directory],
            ["qgroup", "limit", f"{QUOTA_BYTES}", directory],
        ):
            subprocess.run(["btrfs", *words], check=True, stdout=subprocess.DEVNULL)
        directory.chmod(0o700)
        yield directory


@pytest.fixture(params=["btrfs", "xfs"])
def sharing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system that can share blocks between files (FICLONE)."""
    if request.param == "btrfs":
        with mounted(tmp_path, 512 * MIB, "btrfs-progs", "mkfs.btrfs", "-q") as mount:
            yield mount
    else:
        with mounted(tmp_path, 512 * MIB, "xfsprogs", "mkfs.xfs", "-q", "-m", "reflink=1") as mount:
            yield mount


# What is synced takes less room than what is not: whoever syncs the disk meanwhile would make room for a line of the log.
FILLED = FULL.replace(
    """            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
""",
    """            for _ in range(4):
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    os.sync()
""",
)
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
    [(FILLED, "the undo log could not be written"), (FILLED_BY_ANOTHER, "an undo log could not be made")],
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
    if program is FILLED:
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


# Large files are changed behind the checkpoint, in all ways that need their contents. Then the program is killed.
LARGE = """
    import mmap, os, signal, sys, time
    import ckpt, numpy
    ckpt.enable()
    os.chdir(sys.argv[1])
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    if os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        sys.exit()
    with open("blocks", "r+b") as file:
        for block in (0, 7, 100, 2047):
            file.seek(block * 4096 + 5)
            file.write(b"changed")
    with open("end", "r+b") as file:
        file.truncate((1 << 22) + 77)
    with open("anew", "wb") as file:
        file.write(b"anew" * 1000)
    values = numpy.memmap("array", dtype="u1", mode="r+")
    values[5::1 << 20] ^= 255
    values.flush()
    with open("map", "r+b") as file:
        mmap.mmap(file.fileno(), 0)[1 << 22:(1 << 22) + 9] = b"in memory"
    os.sync()
    os.kill(os.getpid(), signal.SIGKILL)
"""
LARGE_BYTES = 8 * MIB


def extents_of(path: Path) -> list[tuple[int, ...]]:
    """Where the blocks of a file are: first one in the file, first one on the disk, number. Neighbours are one."""
    said = subprocess.run(
        ["filefrag", "-v", "-b4096", path], capture_output=True, text=True, check=True
    ).stdout
    found: list[tuple[int, ...]] = []
    for first, place, count in re.findall(r"^ *\d+: +(\d+)\.\. *\d+: +(\d+)\.\. *\d+: +(\d+):", said, re.M):
        extent = int(first), int(place), int(count)
        if found and (found[-1][0] + found[-1][2], found[-1][1] + found[-1][2]) == extent[:2]:
            found[-1] = (*found[-1][:2], found[-1][2] + extent[2])
        else:
            found.append(extent)
    return found


@needs_root
def test_large_files_are_kept_and_put_back_without_a_copy_where_blocks_can_be_shared(
    sharing: Path, tmp_path: Path
) -> None:
    """What is kept has the blocks that the file had, and the file has them again after the restart."""
    needs_program("filefrag", "e2fsprogs")
    work, job = sharing / "work", sharing / "job"
    work.mkdir()
    contents = {name: os.urandom(LARGE_BYTES) for name in ("blocks", "end", "anew", "array", "map")}
    for name, content in contents.items():
        (work / name).write_bytes(content)
    os.sync()
    extents = {name: extents_of(work / name) for name in contents}
    app = write_app(tmp_path, LARGE)
    done = run_ckpt(
        "run", "-n", 1, "--max-restarts", 0, "--job", job, "--files-limit", 1, app, work, cwd=tmp_path
    )
    assert "killed by SIGKILL" in done.stderr and "not covered" not in done.stderr, done.stderr
    for name, content in contents.items():
        assert (work / name).read_bytes() != content
    kept = {path.read_bytes(): path for path in (job / "undo").rglob("*") if path.is_file()}
    for name, content in contents.items():
        assert extents_of(kept[content]) == extents[name]
    (job / "through").touch()
    done = run_ckpt("restart", job, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    os.sync()
    for name, content in contents.items():
        assert (work / name).read_bytes() == content
        assert extents_of(work / name) == extents[name]


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

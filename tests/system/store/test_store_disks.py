"""The store on file systems that really fail: full, read-only, limited, and with an error at any call.

The same is shown exhaustively on a simulated disk in `tests/unit/ckpt/store`; here the errors come from the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.store import (
    ControlFile,
    Damaged,
    ImageReader,
    ImageWriter,
    JobDirectory,
    RankEntry,
    StorageFailed,
    StoreError,
    latest_committed,
    prune,
    verify,
    write_control,
)
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
MIB = 1 << 20


def write_image(job: JobDirectory, rank: int, epoch: int, data: object) -> RankEntry:
    with ImageWriter(job, rank=rank, incarnation=0, label=(epoch - 1, epoch)) as writer:
        pickle.Pickler(writer, protocol=5, buffer_callback=writer.buffer).dump(data)
        receipt = writer.finish({})
    return RankEntry(
        rank,
        0,
        (epoch - 1, epoch),
        receipt.manifest_path,
        receipt.digest,
        receipt.bytes_raw,
        receipt.bytes_written,
    )


def commit(job: JobDirectory, epoch: int, data: object) -> None:
    entries = [write_image(job, rank, epoch, data) for rank in range(job.size)]
    write_control(job, ControlFile(epoch, epoch - 1, 0, 1, entries))


def restore(job: JobDirectory, epoch: int, rank: int = 0) -> Any:
    reader = ImageReader(job, epoch=epoch, rank=rank)
    return pickle.load(reader.stream(), buffers=reader.buffers())


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---------------------------------------------------------------------- full, read-only, limited


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 8 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", path], check=False)
    if mounted.returncode:
        pytest.skip("this container may not mount")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@needs_root
@pytest.mark.parametrize("length", [3 * MIB, 7 * MIB], ids=["collected", "streamed"])
def test_a_full_disk(small_disk: Path, length: int) -> None:
    """Said with the file and what to do; what was committed stays; once there is room again it goes on."""
    job = JobDirectory.create(small_disk / "job", command=[], size=1)
    data = os.urandom(length)
    commit(job, 1, data)
    before = open_descriptors()
    for epoch in (2, 3, 4):
        with pytest.raises(StorageFailed, match="No space left") as caught:
            for more in range(5):
                commit(job, epoch + 10 * more, os.urandom(length))
        assert caught.value.errno == errno.ENOSPC and "ckpt prune" in str(caught.value)
    assert open_descriptors() == before
    assert restore(job, 1) == data and verify(job).good
    assert verify(job).orphans == [], "what was given up is gone"
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    commit(job, 99, data)
    assert restore(job, 99) == data


@needs_root
def test_a_disk_that_turns_read_only(small_disk: Path) -> None:
    job = JobDirectory.create(small_disk / "job", command=[], size=1)
    for epoch in (1, 2, 3):
        commit(job, epoch, epoch)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StorageFailed, match="Read-only") as caught:
        commit(job, 4, 4)
    assert "remount" in str(caught.value)
    with pytest.raises(StorageFailed, match="Read-only"):
        prune(job)
    with pytest.raises(StoreError):
        JobDirectory.create(small_disk / "other", command=[], size=1)
    assert job.events.append("something") is False
    assert restore(job, 3) == 3
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    commit(job, 5, 5)
    assert job.events.append("again") and job.events.read().events[-1]["lost"] == 1
    assert prune(job).kept == [3, 5]


@pytest.mark.parametrize("length", [100_000, 9 * MIB], ids=["collected", "streamed"])
def test_a_limit_of_the_file_size(tmp_path: Path, length: int) -> None:
    """`ulimit -f`: the call fails with a name, and no signal kills the image's process."""
    job = JobDirectory.create(tmp_path / "job", command=[], size=1)
    commit(job, 1, "before")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limit[1]))
    try:
        with pytest.raises(StorageFailed, match="File too large") as caught:
            commit(job, 2, os.urandom(length))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "ulimit -f" in str(caught.value)
    assert verify(job).good and verify(job).orphans == []
    commit(job, 3, "after")
    assert restore(job, 3) == "after"


@needs_root
def test_a_job_on_a_disk_that_is_full_for_a_while(small_disk: Path, tmp_path: Path) -> None:
    """Rounds are burnt, with the reason; the program does not notice; with room again the next round commits."""
    app = write_app(
        tmp_path,
        """
        import os, subprocess, sys, ckpt

        ckpt.enable()
        small, disk = {"x": 1}, sys.argv[1]
        data = os.urandom(6 << 20)

        def round_ends(how):
            epoch = ckpt.checkpoint()
            while True:
                for line in open(os.environ["CKPT_JOB"] + "/events.jsonl"):
                    if f'"epoch":{epoch}' in line and ('"committed"' in line or '"round-aborted"' in line):
                        assert f'"{how}"' in line, line
                        return

        first = data
        round_ends("committed")
        data = os.urandom(6 << 20)
        round_ends("round-aborted")
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        round_ends("committed")
        print("sum", sum(first) + sum(data) > 0, flush=True)
        """,
    )
    job = small_disk / "job"
    done = run_ckpt("run", "-n", "1", "--job", job, app, small_disk)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sum True" in done.stdout + (job / "output/rank-0.out").read_text()
    events = [json.loads(line) for line in (job / "events.jsonl").read_text().splitlines()]
    aborted = [event for event in events if event["event"] == "round-aborted"]
    assert len(aborted) == 1 and "No space left" in json.dumps(aborted[0])
    assert verify(JobDirectory.open(job)).good


# ---------------------------------------------------------------------- an error at any call


class Disk:
    """A mounted `failing_disk`."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self._control = mount / ".faults"

    def fail(self, at: int | None, error: int | str = errno.EIO, *, forever: bool = False) -> None:
        """Let call number `at` from now on fail; None: none."""
        self._control.write_text(json.dumps({"at": at, "error": error, "forever": forever}))

    def refuse(self, text: str) -> None:
        """Every read of a file whose path holds this fails from now on, as on a disk with a bad place."""
        self._control.write_text(json.dumps({"at": None, "error": errno.EIO, "path": text}))

    def spoil(self, path: Path) -> None:
        """The same, of this one file, which keeps its bad place when it is renamed."""
        name = "/" + str(path.relative_to(self.mount))
        self._control.write_text(json.dumps({"at": None, "error": errno.EIO, "file": name}))

    @property
    def hit(self) -> str | None:
        """The name of the call that failed."""
        found = json.loads(self._control.read_text())["hit"]
        return None if found is None else str(found)


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Disk]:
    with served(tmp_path, "failing_disk.py") as mount:
        yield Disk(mount)


@contextlib.contextmanager
def served(tmp_path: Path, name: str) -> Iterator[Path]:
    """The mount point of a file system that a program of this directory serves."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse")
    try:
        import mfusepy  # noqa: F401 (only whether it is there, and finds libfuse)
    except (ImportError, OSError) as reason:
        pytest.skip(f"no FUSE for Python: {reason}")
    root, mount = tmp_path / "root", tmp_path / "mount"
    root.mkdir(mode=0o700)
    mount.mkdir()
    program = Path(__file__).with_name(name)
    server = subprocess.Popen(
        [sys.executable, program, root, mount], stderr=subprocess.PIPE, start_new_session=True
    )
    deadline = time.monotonic() + 30.0
    while not os.path.ismount(mount):
        if server.poll() is not None:
            assert server.stderr is not None
            pytest.skip(f"cannot mount: {server.stderr.read().decode()[-200:]}")
        assert time.monotonic() < deadline, "not mounted"
        time.sleep(0.01)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", mount], check=False)
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def rounds_with_a_fault(
    job: JobDirectory, disk: Disk, first_epoch: int, at: int, error: int | str, forever: bool
) -> str | None:
    """Two rounds, a prune and a restore with a fault; the call that it hit.

    What was committed is there afterwards, and a third round works.
    """
    committed: dict[int, bytes] = {}
    before = open_descriptors()
    disk.fail(at, error, forever=forever)
    for epoch in range(first_epoch, first_epoch + 2):
        data = os.urandom(1000) + bytes(epoch)
        try:
            entries = [write_image(job, rank, epoch, data) for rank in range(job.size)]
            write_control(job, ControlFile(epoch, epoch - 1, 0, 1, entries))
        except StorageFailed as failure:
            assert failure.path is not None and failure.path in str(failure)
        except Damaged:
            pass  # read back at the commit, and not what was written
        else:
            committed[epoch] = data
    try:
        prune(job)
    except StorageFailed:
        pass
    try:
        for epoch, data in committed.items():
            assert restore(job, epoch) == data
    except (StorageFailed, Damaged):
        pass
    hit = disk.hit
    disk.fail(None)
    assert open_descriptors() == before, hit
    found = latest_committed(job)
    newest = 0 if found is None else found.epoch
    assert newest >= max(committed, default=0), hit
    for epoch, data in committed.items():
        for rank in range(job.size):
            assert restore(job, epoch, rank) == data, hit
    commit(job, first_epoch + 2, hit)
    assert restore(job, first_epoch + 2) == hit
    prune(job)
    return hit


def every_call(failing: Disk, size: int, error: int | str, forever: bool) -> int:
    """The number of calls that were let fail, one run for each, until a run had none."""
    job = JobDirectory.create(failing.mount / "job", command=[], size=size)
    at = 0
    while rounds_with_a_fault(job, failing, 1 + 3 * at, at, error, forever):
        at += 1
    return at


def named(error: int | str) -> str:
    return error if isinstance(error, str) else errno.errorcode[error]


ONCE_AND_FOR_EVER = [(errno.EIO, False), (errno.ENOSPC, True), ("short", False)]


@pytest.mark.parametrize(
    ("error", "forever"), ONCE_AND_FOR_EVER, ids=["EIO once", "ENOSPC for ever", "short"]
)
def test_every_call_fails_on_a_mounted_disk(failing: Disk, error: int | str, forever: bool) -> None:
    calls = every_call(failing, 1, error, forever)
    print(f"{calls} calls of the kernel failed with {error}, one at a time: no committed line lost")
    assert calls > 50


@pytest.mark.soak
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EDQUOT, "short"])
def test_every_call_fails_with_four_ranks(
    failing: Disk, error: int | str, forever: bool, soaked: Callable[..., None]
) -> None:
    calls = every_call(failing, 4, error, forever)
    print(f"{calls} calls of the kernel failed with {error}, one at a time, 4 ranks: no committed line lost")
    assert calls > 150
    soaked("calls", calls, **{f"{named(error)} {'for ever' if forever else 'once'}, mounted": calls})


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_every_call_of_the_creation_of_a_job_fails(failing: Disk, error: int) -> None:
    """A typed error, or a job that works; a second try in the same place always succeeds."""
    at = 0
    while True:
        place = failing.mount / f"job-{at}"
        failing.fail(at, error)
        try:
            JobDirectory.create(place, command=[], size=2)
        except StoreError:
            pass
        hit = failing.hit
        failing.fail(None)
        try:
            job = JobDirectory.open(place)
        except StoreError:
            job = JobDirectory.create(place, command=[], size=2)
        commit(job, 1, "works")
        assert restore(JobDirectory.open(place), 1, 1) == "works"
        if hit is None:
            break
        at += 1
    assert at > 10


# ---------------------------------------------------------------------- a bad place on the disk

COUNT = """
    for i in range(stub.state.get("i", 0), 20):
        if i == 10:
            stub.hold()
        print("step", i)
        stub.state["i"] = i + 1
        stub.step(0.01)
"""


@pytest.mark.parametrize("what", ["images/rank-00000/epoch-{:08d}", ".pack", "control/epoch-{:08d}"])
def test_a_line_on_a_bad_place_of_the_disk_is_named_and_the_older_one_is_used(
    failing: Disk, start: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """EIO ended the restart with code 1. Where no line can be read, `ckpt run` starts over."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))
    entry = "tests.system.stub_rank:run_rank"
    app = write_app(tmp_path, COUNT)
    job = start(app, ranks=1, name="mount/job", every=0.1, entry=entry)
    job.wait_event("committed", 3)
    job.process.kill()
    job.process.wait()
    agent = job.events("agent-started")[-1]
    os.kill(agent["pid"], signal.SIGKILL)
    newest = job.events("committed")[-1]["epoch"]
    failing.refuse(what.format(newest))
    again = Job(job.directory, "--resume", "auto", "--entry", entry, "-n", 1, "--", app)
    try:
        assert again.finish() == 0, again.report()
    finally:
        again.close()
    assert failing.hit == "read"
    assert again.events("line-unusable")[0]["epoch"] == newest
    assert "Input/output error" in again.events("line-unusable")[0]["reason"]
    if what == ".pack":
        assert again.events("starting-over") and "trying the start of the program" in again.stderr
    else:
        assert 0 < again.events("restarted")[-1]["from_epoch"] < newest
    assert again.output(0).splitlines() == [f"step {i}" for i in range(20)]


def test_an_event_log_on_a_bad_place_of_the_disk_does_not_end_a_restart(
    failing: Disk, start: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIO ended it with code 1: the number of the last incarnation was nowhere else."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))
    entry = "tests.system.stub_rank:run_rank"
    app = write_app(tmp_path, COUNT)
    job = start(app, ranks=1, name="mount/job", every=0.1, entry=entry)
    job.wait_event("committed", 2)
    job.kill_rank(0)
    job.wait_event("restarted")
    job.process.kill()
    job.process.wait()
    assert run_ckpt("stop", job.directory).returncode == 0
    newest = job.events("committed")[-1]["epoch"]
    log = job.directory / "events.jsonl"
    failing.spoil(log)
    status = run_ckpt("status", job.directory)
    assert status.returncode == 3 and f"committed  epoch {newest}" in status.stdout, status
    assert "state      unknown" in status.stdout and "(incarnation 1)" in status.stdout
    assert f"log        read failed (Input/output error): {log}" in status.stdout
    again = Job(job.directory, job.directory, "--entry", entry, verb="restart")
    try:
        assert again.finish() == 0, again.report()
    finally:
        again.close()
    assert failing.hit == "read"
    assert "the job goes on without it" in again.stderr and "Input/output error" in again.stderr
    (told,) = again.events("log-unreadable")
    assert told["kept"] == str(job.directory / "events.unreadable-1.jsonl") and os.path.exists(told["kept"])
    assert [event["incarnation"] for event in again.events("rank-started")] == [2]
    assert again.events("restarted")[-1]["from_epoch"] == newest
    assert again.output(0).splitlines() == [f"step {i}" for i in range(20)]

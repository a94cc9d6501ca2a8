"""Bad input and faults: a clear error, nothing lost, the job goes on where it can."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.store import JobDirectory
from ckpt.store.records import authenticated
from tests.system.apps import RING
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]


@pytest.fixture
def stopped_job(start: Start, tmp_path: Path) -> Job:
    """A job with at least two committed lines, checkpointed and stopped half-way."""
    job = start(write_app(tmp_path, RING), 20000, 0.0005, every=0.2, ranks=2)
    job.wait_event("committed", 3)
    done = run_ckpt("checkpoint", job.directory, "--stop")
    assert done.returncode == 0, done.stderr + job.report()
    assert job.finish() == 75, job.report()
    return job


def newest(directory: Path, pattern: str) -> Path:
    return max(directory.rglob(pattern), key=lambda path: (path.stat().st_mtime_ns, path.name))


# ---------------------------------------------------------------------- damage


@pytest.mark.rotate(3)
@pytest.mark.parametrize("damage", ["truncated", "edited", "garbage"])
@pytest.mark.parametrize("part", ["control/*", "images/*/*.json", "images/*/*.pack"])
def test_damage_is_found_before_anything_is_resumed(stopped_job: Job, part: str, damage: str) -> None:
    victim = newest(stopped_job.directory, part)
    data = bytearray(victim.read_bytes())
    if damage == "truncated":
        del data[len(data) // 2 :]
    elif damage == "edited":
        data[len(data) // 2] ^= 0x01
    else:
        data[:] = b"\x00garbage" * 4
    victim.chmod(0o600)
    victim.write_bytes(data)
    verified = run_ckpt("verify", stopped_job.directory, "--json")
    assert verified.returncode in (3, 12), verified.stdout + verified.stderr
    assert victim.name in verified.stdout + verified.stderr
    # An older line is whole: the damage is recoverable, and the command says from what.
    assert verified.returncode == 3, verified.stdout + verified.stderr


def test_all_lines_damaged_is_unrecoverable(stopped_job: Job) -> None:
    for pack in stopped_job.directory.glob("images/*/*.pack"):
        if pack.is_file():
            pack.chmod(0o600)
            pack.write_bytes(b"")
    assert run_ckpt("verify", stopped_job.directory).returncode == 12
    assert run_ckpt("restart", stopped_job.directory).returncode == 12


def test_no_such_job_or_epoch(stopped_job: Job, tmp_path: Path) -> None:
    assert run_ckpt("restart", tmp_path / "nowhere").returncode == 10
    missing = run_ckpt("restart", f"{stopped_job.directory}@999")
    assert missing.returncode == 10
    assert "999" in missing.stderr


def test_a_job_of_another_version_is_incompatible(stopped_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version has signed it with the job's own key. With the format edited back it does not verify."""
    job, path = JobDirectory.open(stopped_job.directory), stopped_job.directory / "job.json"
    fields = json.loads(path.read_text())
    for name in ("mac", "kind", "format", "job"):
        del fields[name]
    monkeypatch.setattr(authenticated, "FORMAT", 999)
    newer = authenticated.encode(job.key, "job", job.job_id, fields | {"of a later version": [1]})
    monkeypatch.undo()
    path.write_bytes(newer)
    for command in ("restart", "status", "verify"):
        done = run_ckpt(command, stopped_job.directory)
        assert done.returncode == 13, done.stderr
        assert "format 999, this version reads format 1" in done.stderr and "Use the version" in done.stderr
    path.write_bytes(newer.replace(b'"format":999', b'"format":1'))
    done = run_ckpt("restart", stopped_job.directory)
    assert done.returncode == 12 and "job.json" in done.stderr, done.stderr


def test_another_number_of_ranks_is_incompatible(stopped_job: Job, tmp_path: Path) -> None:
    done = run_ckpt(
        "run",
        "--job",
        stopped_job.directory,
        "--resume",
        "auto",
        "-n",
        3,
        "--",
        tmp_path / "app.py",
        20000,
        0.0005,
    )
    assert done.returncode == 13, done.stderr
    assert "2" in done.stderr and "3" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory to another user")
def test_a_job_of_another_user_is_refused(stopped_job: Job) -> None:
    os.chown(stopped_job.directory, 65534, 65534)
    try:
        done = run_ckpt("restart", stopped_job.directory)
        assert done.returncode != 0
        assert "owned" in done.stderr or "owner" in done.stderr or "belongs" in done.stderr, done.stderr
    finally:
        os.chown(stopped_job.directory, 0, 0)


def test_two_controllers_never(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, RING), 20000, 0.0005, every=0.3, ranks=2)
    job.wait_event("committed", 1)
    assert run_ckpt("restart", job.directory).returncode == 11
    assert job.process.poll() is None


# ---------------------------------------------------------------------- the application


def test_a_script_that_does_not_exist(tmp_path: Path) -> None:
    done = run_ckpt("run", "-n", 2, "--job", tmp_path / "job", "--", tmp_path / "missing.py")
    assert done.returncode == 2
    assert "missing.py" in done.stderr


def test_one_rank_raises_and_the_others_are_told(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import sys, time
        import ckpt
        comm = ckpt.enable()
        comm.barrier()
        if comm.rank == 2:
            raise ValueError("the cat is on the table")
        if comm.rank == 1:
            comm.recv(source=3, tag=9)
        while True:
            time.sleep(0.01)
        """,
    )
    job = start(app)
    assert job.finish() == 1, job.report()
    assert "the cat is on the table" in job.stderr
    assert "app.py" in job.stderr and "ckpt/rank/boot.py" not in job.stderr
    assert not job.events("restarting")


def test_the_exit_code_is_the_applications(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path, "import sys, ckpt\ncomm = ckpt.enable()\nsys.exit(7 if comm.rank == 0 else 0)\n"
    )
    assert start(app).finish() == 7


def test_a_rank_that_finishes_early_still_answers_and_checkpoints_go_on(start: Start, tmp_path: Path) -> None:
    """The program goes on until the rank was killed: on a busy machine it had ended before its third checkpoint."""
    killed = tmp_path / "killed"
    app = write_app(
        tmp_path,
        f"""
        import os
        import time
        import ckpt
        comm = ckpt.enable()
        if comm.rank == 0:
            comm.send("late mail that nobody reads", 1)
        while comm.rank != 1 and not os.path.exists({str(killed)!r}):
            comm.send("more", 1)      # rank 1 has gone home
            time.sleep(0.005)
        print("rank", comm.rank, "done")
        """,
    )
    job = start(app, ranks=3, every=0.2)
    job.wait_event("committed", 3)
    job.kill_rank(2)
    killed.touch()
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(3)] == [f"rank {rank} done\n" for rank in range(3)]


def test_a_rank_that_leaves_without_a_word_is_an_error(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path, "import os, ckpt\ncomm = ckpt.enable()\nif comm.rank: os._exit(0)\ncomm.recv()\n"
    )
    job = start(app, ranks=2)
    assert job.finish() not in (0, 75), job.report()
    assert "rank 1" in job.stderr


def test_a_message_to_a_rank_that_does_not_exist(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, "import ckpt\ncomm = ckpt.enable()\ncomm.send(1, 17)\n")
    job = start(app, ranks=2)
    assert job.finish() == 1, job.report()
    assert "17" in job.stderr


# ---------------------------------------------------------------------- images that cannot be taken

SEEN = """
    import os, time
    import ckpt
    comm = ckpt.enable()

    def seen(word):
        with open(os.environ["CKPT_JOB"] + "/events.jsonl") as events:
            return sum(word in line for line in events)

    def until_seen(word, count=1):
        "All ranks stay at work until the events have the word this often."
        while any(comm.allgather(seen(word) < count)):
            time.sleep(0.01)
"""


@pytest.mark.usefixtures("listening")
def test_what_cannot_be_imaged_is_named_and_the_job_goes_on(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        SEEN
        + """
    import os, socket
    class Holder: pass
    def work():
        holder, address = Holder(), ("127.0.0.1", int(os.environ["PORT_OF_THE_TEST"]))
        holder.things = [1, {"peer": socket.create_connection(address)}]
        until_seen("round-aborted")
        holder.things[1]["peer"].close()
        holder.things.clear()
    work()
    until_seen("committed")
    print("done")
        """,
    )
    job = start(app, ranks=2, every=0.3)
    assert job.finish() == 0, job.report()
    aborted = job.events("round-aborted")
    assert aborted, job.report()
    reason = json.dumps([*aborted, *job.events("failed")])
    assert "socket" in reason and "holder" in reason and "peer" in reason, reason
    assert job.events("committed"), "after the socket was gone, checkpoints work again"
    burnt, committed = (
        {event["epoch"] for event in aborted},
        {event["epoch"] for event in job.events("committed")},
    )
    assert not burnt & committed


def test_a_rank_hanging_in_c_delays_only_the_round(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import time
        import ckpt
        comm = ckpt.enable()
        if comm.rank == 1:
            time.sleep(4)                      # one call into C: no place between two instructions
        else:
            for i in range(100):
                comm.send(i, 2 if comm.rank == 0 else 0)
                comm.recv(source=2 if comm.rank == 0 else 0)
            print("not blocked", flush=True)
        for i in range(100):
            comm.barrier()
            time.sleep(0.01)
        print("done")
        """,
    )
    job = start(app, ranks=3, every=0.5)
    job.wait_event("round-started", 1)
    job.wait_for(lambda: "not blocked" in job.output(0), "the others go on")
    status = run_ckpt("status", job.directory, "--json")
    assert status.returncode == 0, status.stderr
    assert "app.py:6" in status.stdout.replace('", "', ":"), status.stdout
    assert job.finish() == 0, job.report()
    assert job.events("committed"), job.report()


def test_a_rank_that_polls_all_the_time_is_imaged_too(start: Start, tmp_path: Path) -> None:
    """Found when a rank in `while not request.test()` never left the library at a check: the job stood still."""
    app = write_app(
        tmp_path,
        """
        import time
        import ckpt
        comm = ckpt.enable()
        if comm.rank == 0:
            request, polls = comm.irecv(source=1), 0
            while not request.test()[0]:
                polls += 1
            print("polled", polls > 0)
        else:
            for i in range(300):
                time.sleep(0.01)
            comm.send("at last", 0)
        comm.barrier()
        """,
    )
    job = start(app, ranks=2, every=0.2)
    job.wait_event("committed", 2)
    job.kill_rank(0)
    job.wait_event("restarted")
    job.wait_event("committed", 4)  # a program that was resumed is outside the library just the same
    assert job.finish() == 0, job.report()
    assert job.output(0) == "polled True\n"


def test_recv_inside_a_consumer_in_c_burns_the_round_and_never_hangs(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import array, time
        import ckpt
        comm = ckpt.enable()
        if comm.rank == 0:
            total = int(sum(array.array("d", (comm.recv(source=1) for _ in range(40)))))
            print("total", total)
        else:
            for i in range(40):
                time.sleep(0.1)
                comm.send(i, 0)
        comm.barrier()
        for i in range(100):
            comm.barrier()
            time.sleep(0.01)
        """,
    )
    job = start(app, ranks=2, every=0.3, timeout=1)
    assert job.finish() == 0, job.report()
    assert "total 780" in job.output(0)
    assert job.events("round-aborted"), job.report()
    assert job.events("committed"), job.report()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_disk_full_burns_the_round_and_the_job_goes_on(start: Start, tmp_path: Path) -> None:
    small = tmp_path / "job"
    small.mkdir()
    small.chmod(0o700)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", small], check=False
    ).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        app = write_app(
            tmp_path,
            SEEN
            + """
    until_seen("committed")
    ballast = os.urandom(4 << 20)
    until_seen("space")
    ballast, commits = b"", seen("committed")
    until_seen("committed", commits + 1)
    print("done", comm.rank)
            """,
        )
        job = start(app, ranks=2, every=0.3)
        assert job.finish() == 0, job.report()
        assert job.output(1) == "done 1\n"
        reasons = json.dumps([*job.events("round-aborted"), *job.events("failed")])
        assert "space" in reasons.lower() or "enospc" in reasons.lower(), reasons
        assert "space" in job.stderr.lower(), "the user is told"
        # not the last one of all: the job's end may burn another round
        burnt = max(
            event["epoch"] for event in job.events("round-aborted") if "space" in event["reason"].lower()
        )
        assert any(event["epoch"] > burnt for event in job.events("committed")), job.report()
    finally:
        job.close()
        subprocess.run(["umount", "-l", small], check=False)


FAILING_FSYNC = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <stdlib.h>
    #include <unistd.h>

    static int fails(void) { const char *flag = getenv("FAIL_FSYNC_WHILE"); return flag && access(flag, F_OK) == 0; }

    int fsync(int fd) {
        if (fails()) { errno = EIO; return -1; }
        return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
    }
    int fdatasync(int fd) {
        if (fails()) { errno = EIO; return -1; }
        return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
    }
"""
"""Stands before libc's own: every sync of every process of the job fails while the named file exists."""


def test_a_failing_fsync_burns_the_round_and_the_job_goes_on(start: Start, tmp_path: Path) -> None:
    source, library, flag = tmp_path / "fsync.c", tmp_path / "fsync.so", tmp_path / "fail"
    source.write_text(FAILING_FSYNC)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    job = start(
        write_app(tmp_path, RING),
        20000,
        0.0005,
        ranks=2,
        every=0.2,
        env={"LD_PRELOAD": str(library), "FAIL_FSYNC_WHILE": str(flag)},
    )
    job.wait_event("committed", 1)
    flag.touch()
    job.wait_event("round-aborted", 2)
    reasons = json.dumps([*job.events("round-aborted"), *job.events("failed")])
    flag.unlink()
    assert "Input/output error" in reasons or "EIO" in reasons, reasons
    burnt = job.events("round-aborted")[-1]["epoch"]
    job.wait_for(
        lambda: any(e["epoch"] > burnt for e in job.events("committed")), "a commit after the disk works"
    )
    assert not {e["epoch"] for e in job.events("round-aborted")} & {
        e["epoch"] for e in job.events("committed")
    }
    assert run_ckpt("verify", job.directory).returncode == 0


# ---------------------------------------------------------------------- signals


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_controller_stops_the_job_cleanly(
    start: Start, tmp_path: Path, sig: signal.Signals
) -> None:
    job = start(write_app(tmp_path, RING), 20000, 0.0005, ranks=2)
    job.wait_for(lambda: "step 500" in job.output(0), "some progress")
    pids = [job.pid(rank) for rank in range(2)]
    job.process.send_signal(sig)
    assert job.finish(15) == 128 + sig, job.report()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_signal_takes_a_last_checkpoint_when_asked(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    whole = start(app, 3000, 0.0005, ranks=2, name="whole")
    job = start(app, 3000, 0.0005, ranks=2, checkpoint_on_signal=True)
    job.wait_for(lambda: "step 500" in job.output(0), "some progress")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish(15) == 75, job.report()
    assert job.events("committed")
    done = run_ckpt("restart", job.directory)
    assert done.returncode == 0, done.stderr + job.report()
    assert whole.finish() == 0
    assert [job.output(r) for r in range(2)] == [whole.output(r) for r in range(2)]


def test_a_job_directory_can_be_moved(stopped_job: Job, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(stopped_job.directory, moved)
    assert run_ckpt("verify", moved).returncode == 0


WAITS = """
    import os, sys, time

    class Key:  # whose hash the load of an image needs
        def __hash__(self):
            while os.path.exists(sys.argv[1]):
                time.sleep(0.05)
            return 3

    table = {Key(): 1}
    for step in range(30):
        time.sleep(0.05)
    print("end")
"""


def test_ranks_that_do_not_come_back_from_a_checkpoint_are_named_with_where_they_are(
    start: Start, tmp_path: Path
) -> None:
    """Nothing was said, however long it took."""
    stays = tmp_path / "stays"
    job = start(write_app(tmp_path, WAITS), stays, every=0.2, timeout=1, ranks=2)
    job.wait_event("committed")
    stays.touch()
    job.kill_rank(1)
    told = job.wait_event("start-slow")
    assert [each["rank"] for each in told["ranks"]] == [0, 1] and told["from_epoch"]
    assert "__hash__" in told["ranks"][0]["where"]
    stays.unlink()
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["end\n"] * 2

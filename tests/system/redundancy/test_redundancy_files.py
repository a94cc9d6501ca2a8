"""Files of programs with replicas: written once, with what the replicas agree on, whoever is killed or wrong; real jobs."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.redundancy.faults import _pids, kill
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(2)]

Start = Callable[..., Job]


@pytest.fixture
def start(start_with_copies: Start) -> Start:
    return start_with_copies


APP = """
    import json, os, shutil, sys, time
    from pathlib import Path
    import numpy as np
    import ckpt

    comm = ckpt.enable()
    out = Path(os.environ["OUT"])
    mine = out / f"rank-{comm.rank}"
    os.makedirs(mine, exist_ok=True)
    log = open(out / "log.txt", "a")
    steps = open(mine / "steps.txt", "w")
    total = 0
    for step in range(int(os.environ["STEPS"])):
        total = (comm.allreduce(step * (comm.rank + 1)) + 3 * total) % 1000003
        print(step, total, file=steps)
        time.sleep(float(os.environ["PAUSE"]))
        if step % 10 == 0:
            print(f"rank {comm.rank}, step {step}: {total}", file=log, flush=True)
            np.save(mine / "u.npy", np.full(2000, float(total)))
            assert np.load(mine / "u.npy")[7] == total
            with open(mine / "state.tmp", "w") as file:
                json.dump({"step": step, "total": total}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(mine / "state.tmp", mine / "state.json")
            assert json.loads((mine / "state.json").read_text())["total"] == total
            (mine / "scratch.bin").write_bytes(bytes(step % 251 for _ in range(20_000)))
    np.savez(mine / "all.npz", a=np.arange(5), b=total)
    shutil.copy(mine / "all.npz", mine / "copy.npz")
    os.remove(mine / "scratch.bin")
    comm.Barrier()
    os.makedirs(mine / "x/y")
    open(mine / "x/y/z", "w").write("1")
    shutil.rmtree(mine / "x")
    print("end", total)
"""


def files(directory: Path) -> dict[str, bytes]:
    """Their contents; lines of the log, which several ranks write, are sorted."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            data = b"".join(sorted(data.splitlines(True))) if path.name == "log.txt" else data
            found[str(path.relative_to(directory))] = data
    return found


Run = Callable[..., Job]


@pytest.fixture
def run(start: Start, tmp_path: Path) -> Run:
    app = write_app(tmp_path, APP)

    def run(steps: int, pause: float = 0.0, env: dict[str, str] | None = None, **options: object) -> Job:
        env = {"OUT": str(tmp_path / "redundant"), "STEPS": str(steps), "PAUSE": str(pause), **(env or {})}
        return start(app, ranks=2, env=env, **options)

    return run


def plain(directory: Path, steps: int) -> tuple[dict[str, bytes], str]:
    """The files and the output of a job without replicas."""
    env = {"OUT": str(directory / "plain"), "STEPS": str(steps), "PAUSE": "0"}
    job = Job(directory / "plain-job", "-n", 2, write_app(directory, APP), env=env)
    try:
        assert job.finish() == 0, job.report()
        return files(directory / "plain"), job.stdout
    finally:
        job.close()


@pytest.mark.nightly
def test_what_is_in_files_is_what_a_job_without_replicas_writes(run: Run, tmp_path: Path) -> None:
    expected, output = plain(tmp_path, 12)
    job = run(12, redundancy=3)
    assert job.finish() == 0, job.report()
    assert files(tmp_path / "redundant") == expected
    assert job.stdout == output
    assert not job.events("replica-differs") and not job.events("replica-lost")


def test_what_a_wrong_leader_means_to_write_is_never_written(start: Start, tmp_path: Path) -> None:
    """It sends nothing: the flipped bit is in the first thing that it writes."""
    app = write_app(
        tmp_path,
        """
        with open("result.txt", "w") as file:
            file.write("right")
        print(open("result.txt").read())
        """,
    )
    flips = {"CKPT_FLIPS": "rank=0,replica=0,message=1"}
    job = start(app, ranks=1, redundancy=3, clones=0, env=flips)
    assert job.finish() == 0, job.report()
    assert (tmp_path / "result.txt").read_text() == "right" and job.stdout == "right\n"
    (differs,) = job.events("replica-differs")
    assert differs["replica"] == 0 and differs["what"] == "changes of files", job.report()


def test_temporary_directories_can_be_used(start: Start, tmp_path: Path) -> None:
    """The first use of `tempfile` writes a file, to see where it can: that was refused."""
    app = write_app(
        tmp_path,
        """
        import os, tempfile
        from pathlib import Path
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "a.txt").write_text("a")
            print((Path(directory) / "a.txt").read_text(), os.listdir(directory))
        print(os.path.exists(directory))
        with tempfile.SpooledTemporaryFile(max_size=100) as file:
            print(file.write(b"abc"))
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    assert job.finish() == 0, job.report()
    assert job.stdout == "a ['a.txt']\nFalse\n3\n"


@pytest.mark.nightly
def test_a_file_that_is_open_at_a_checkpoint_is_gone_on_with_by_any_number_of_replicas(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        comm = ckpt.enable()
        file, log = open("a.txt", "w"), open("log.txt", "a")
        file.write("first, ")
        log.write("one\\n"), log.flush()
        print("open", flush=True)
        while not os.path.exists(os.environ["CKPT_TEST_GO"]):
            time.sleep(0.01)
        file.write("second")
        log.write("two\\n")
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    job.wait_for(lambda: job.output(0), "its output")
    done = run_ckpt("checkpoint", "--stop", job.directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert job.finish() == 75, job.report()
    with open(tmp_path / "log.txt", "a") as log:
        log.write("what a run that was rolled back has written\n")
    for replicas in ("1", "3"):
        again = Job(job.directory, f"{job.directory}@1", "--redundancy", replicas, verb="restart")
        try:
            assert again.finish() == 0, again.report()
            assert (tmp_path / "a.txt").read_text() == "first, second"
            assert (tmp_path / "log.txt").read_text() == "one\ntwo\n"
        finally:
            again.close()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6))
def test_whoever_is_killed_when_the_files_are_the_same(run: Run, tmp_path: Path, seed: int) -> None:
    """Also where two replicas are killed, or all, with and without checkpoints: appended lines are there once."""
    expected, _ = plain(tmp_path, 150)
    chance = random.Random(seed)
    options = {"every": 0.7} if chance.random() < 0.5 else {}
    job = run(150, 0.005, redundancy=chance.choice((2, 3)), **options)
    for _ in range(chance.randint(1, 3)):
        events = len(job.events()) + chance.randint(1, 20)
        until = time.monotonic() + chance.random() * 3
        while len(job.events()) < events and time.monotonic() < until and job.process.poll() is None:
            time.sleep(0.01)
        if pids := _pids(job):
            kill([chance.choice(pids)])
    assert job.finish(600) == 0, job.report()
    assert files(tmp_path / "redundant") == expected, job.report()
    assert not job.events("replica-differs"), job.report()


@pytest.mark.nightly
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_bit_flips_the_files_are_the_same(
    run: Run, tmp_path: Path, replicas: int, seed: int
) -> None:
    expected, _ = plain(tmp_path, 150)
    env = {"CKPT_FLIPS": f"seed={seed},rate=0.003"}
    job = run(150, 0.002, env=env, redundancy=replicas, every=0.7)
    assert job.finish(600) == 0, job.report()
    assert files(tmp_path / "redundant") == expected, job.report()


def test_modes_times_and_pipes_are_changed_once(start: Start, tmp_path: Path) -> None:
    """Each replica did this by itself: the second one found the pipe of the first, and a late one took a time or mode back
    that another rank had set since."""
    app = write_app(
        tmp_path,
        """
        import os, stat
        import ckpt
        comm = ckpt.enable()
        mine, other = f"file-{comm.rank}", f"file-{1 - comm.rank}"
        os.mkfifo(f"pipe-{comm.rank}")
        open(mine, "w").close()
        os.symlink(mine, f"link-{comm.rank}")
        for step in range(20):
            os.utime(mine, (step, step)), os.chmod(mine, 0o600)
            comm.Barrier()
            os.utime(other, (1000 + step, step)), os.chmod(other, 0o640)
            comm.Barrier()
            status = os.stat(mine)
            assert (status.st_atime, stat.S_IMODE(status.st_mode)) == (1000 + step, 0o640), status
            comm.Barrier()
        print("end")
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0, job.report()
    assert not job.events("replica-differs") and job.stdout.split() == ["end", "end"]


def test_a_restart_without_replicas_between_two_with_them_loses_no_line(start: Start, tmp_path: Path) -> None:
    """What the first run had noted was undone by the third: the file was removed, with all that the program had appended."""
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        comm = ckpt.enable()
        with open("log", "a") as log:
            log.write("first\\n")
        print("half", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)
        with open("log", "a") as log:
            log.write("second\\n")
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    job.wait_for(lambda: "half" in job.stdout, "the first line")
    for replicas in (1, 2):
        assert run_ckpt("checkpoint", "--stop", job.directory).returncode == 0
        job.finish()
        job.close()
        job = Job(job.directory, "--redundancy", replicas, job.directory, verb="restart")
        job.wait_event("restarted")
    (tmp_path / "go").touch()
    try:
        assert job.finish() == 0, job.report()
    finally:
        job.close()
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def stop_behind_a_checkpoint(job: Job, directory: Path) -> None:
    """A checkpoint is taken when the program has printed "first", which then waits for a file; it is stopped when it has
    printed "second"."""
    job.wait_for(lambda: "first" in job.stdout, "the first step")
    assert run_ckpt("checkpoint", job.directory).returncode == 0
    (directory / "after-first").touch()
    job.wait_for(lambda: "second" in job.stdout, "the second step")
    assert run_ckpt("stop", job.directory).returncode == 0
    job.finish()
    job.close()


def restart(job: Job, directory: Path, replicas: int) -> Job:
    """The job, restarted behind the checkpoint; it is at its end, with success."""
    (directory / "after-second").touch()
    again = Job(job.directory, "--redundancy", replicas, job.directory, verb="restart")
    try:
        assert again.finish() == 0, again.report()
    finally:
        again.close()
    return again


def test_a_restart_without_replicas_undoes_what_replicas_had_appended_since(
    start: Start, tmp_path: Path
) -> None:
    """Lines that the replicas had written behind the checkpoint were there twice, without a word."""
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        comm = ckpt.enable()
        for line in ("first", "second"):
            with open("log", "a") as log:
                log.write(line + "\\n")
            print(line, flush=True)
            while not os.path.exists("after-" + line):
                time.sleep(0.01)
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    stop_behind_a_checkpoint(job, tmp_path)
    restart(job, tmp_path, replicas=1)
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


@pytest.mark.parametrize("replicas", [2, 1])
def test_a_state_file_that_is_read_changed_and_written_has_its_value_of_the_checkpoint(
    start: Start, tmp_path: Path, replicas: int
) -> None:
    """The program went on from the value that it had written after the checkpoint, without a word."""
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        comm = ckpt.enable()
        with open("state", "w") as state:
            state.write("0")
        for step in ("first", "second"):
            with open("state") as state:
                value = int(state.read())
            with open("state.tmp", "w") as state:
                state.write(str(value + 1))
            if step == "second":
                os.rename("state", "old")
                os.remove("beside")
            else:
                open("beside", "w").close()
            os.replace("state.tmp", "state")
            print(step, flush=True)
            while not os.path.exists("after-" + step):
                time.sleep(0.01)
        print(open("state").read(), sorted(os.listdir(".")))
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    stop_behind_a_checkpoint(job, tmp_path)
    assert (tmp_path / "state").read_text() == "2" and not (tmp_path / "beside").exists()
    again = restart(job, tmp_path, replicas)
    last = again.stdout.splitlines()[-1]
    assert last.startswith("2 ") and "'old'" in last and "beside" not in last
    assert not again.events("files-not-put-back")


@pytest.mark.parametrize("replicas", [2, 1])
def test_a_file_that_cannot_be_put_back_is_in_the_event_log(
    start: Start, tmp_path: Path, replicas: int
) -> None:
    """A restart without replicas said nothing of it."""
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        comm = ckpt.enable()
        for line in ("first", "second"):
            if not os.path.isdir("state"):
                with open("state", "w") as state:
                    state.write(line)
            print(line, flush=True)
            while not os.path.exists("after-" + line):
                time.sleep(0.01)
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    stop_behind_a_checkpoint(job, tmp_path)
    (tmp_path / "state").unlink()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "of-others").touch()
    again = restart(job, tmp_path, replicas)
    assert [event["path"] for event in again.events("files-not-put-back")] == [str(tmp_path / "state")]


@pytest.mark.parametrize("replicas", [2, 1])
def test_a_file_that_is_read_and_written_through_one_object_is_as_it_was(
    start: Start, tmp_path: Path, replicas: int
) -> None:
    """What is in its buffers, too: read ahead, and not written."""
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        comm = ckpt.enable()
        with open("state", "w+") as new:
            new.write("0\\nold line\\n")
        with open("state", "r+") as state, open("table", "w+b") as table:
            for line in ("first", "second"):
                state.seek(0)
                value = int(state.readline())
                state.seek(0)
                state.write(str(value + 1))  # in the buffer, when the image is taken
                table.write(line.encode() * 3)
                table.seek(2)
                table.write(b"--")
                print(line, flush=True)
                while not os.path.exists("after-" + line):
                    time.sleep(0.01)
            state.flush()
            table.seek(0)
            content = table.read()
        print(open("state").read().splitlines(), content, flush=True)
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    stop_behind_a_checkpoint(job, tmp_path)
    again = restart(job, tmp_path, replicas)
    assert again.stdout.splitlines()[-1] == "['2', 'old line'] b'fi--secondsecondsecond'", again.report()
    assert (tmp_path / "state").read_text() == "2\nold line\n"


DESCRIPTORS = """
    import json, os, shutil, sys, tempfile, time
    from pathlib import Path
    import ckpt

    comm = ckpt.enable()
    out = Path(os.environ["OUT"])
    mine = out / f"rank-{comm.rank}"
    os.makedirs(mine, exist_ok=True)
    log = os.open(out / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    table = os.open(mine / "table", os.O_RDWR | os.O_CREAT, 0o644)
    second = os.dup(table)
    scratch = tempfile.TemporaryFile("w+")
    total = 0
    for step in range(int(os.environ["STEPS"])):
        total = (comm.allreduce(step * (comm.rank + 1)) + 3 * total) % 1000003
        time.sleep(float(os.environ["PAUSE"]))
        if step % 10:
            continue
        os.write(log, b"rank %d, step %d: %d\\n" % (comm.rank, step, total))
        with tempfile.NamedTemporaryFile("w", dir=mine, delete=False) as file:
            json.dump({"total": total}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, mine / "state.json")
        with tempfile.NamedTemporaryFile(dir=mine) as file:
            file.write(b"gone")
            file.flush()
            assert Path(file.name).read_bytes() == b"gone"
        number, name = tempfile.mkstemp(dir=mine)
        with os.fdopen(number, "w+") as file:
            file.write(f"{step}")
            file.seek(0)
            assert file.read() == f"{step}"
        os.replace(name, mine / "step")
        (mine / "touched").touch()
        with open(mine / "touched", "a") as file:
            print(total, file=file)
        lock = os.open(mine / "lock", os.O_CREAT | os.O_EXCL)
        try:
            os.open(mine / "lock", os.O_CREAT | os.O_EXCL)
            sys.exit("locked twice")
        except FileExistsError:
            os.close(lock)
        os.unlink(mine / "lock")
        at = 8 * (step // 10 % 7)
        os.pwrite(table, b"%8d" % total, at)
        os.lseek(second, 0, os.SEEK_END)
        os.write(table, b"<%d>" % step)
        assert os.pread(table, 8, at) == b"%8d" % total
        if os.fstat(table).st_size > 100:
            os.ftruncate(second, 60)
        with open(mine / "opened", "a", opener=lambda path, flags: os.open(path, flags, 0o640)) as file:
            print(total, file=file)
        with open(mine / "whole", "w", opener=os.open) as file:
            print(total, file=file)
        shutil.copyfile(mine / "opened", mine / "copied")
        source = os.open(mine / "opened", os.O_RDONLY)
        target = os.open(mine / "sent", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_SYNC)
        os.sendfile(target, source, None, 1 << 20)
        os.copy_file_range(source, target, 100, 0)
        os.fchmod(target, 0o640)
        os.close(source)
        os.close(target)
        with open(mine / "mode", "a") as file:
            print(total, file=file)
            os.fchmod(file.fileno(), 0o604)
        print(total, file=scratch)
    scratch.seek(0)
    (mine / "scratch.txt").write_text(scratch.read())
    os.close(second)
    os.write(table, b"end")
    os.close(table)
    print("end", total)
"""


@pytest.fixture
def run_descriptors(start: Start, tmp_path: Path) -> Callable[..., Job]:
    """A job that writes by descriptors; its `Job` for ``redundancy=1`` is one without replicas."""
    app = write_app(tmp_path, DESCRIPTORS)

    def run(steps: int, pause: float = 0.0, **options: object) -> Job:
        name = "redundant" if options else "plain"
        env = {"OUT": str(tmp_path / name), "STEPS": str(steps), "PAUSE": str(pause)}
        if options:
            return start(app, ranks=2, env=env, **options)
        job = Job(tmp_path / "plain-job", "-n", 2, app, env=env)
        try:
            assert job.finish() == 0, job.report()
        finally:
            job.close()
        return job

    return run


def modes(directory: Path) -> dict[str, int]:
    return {str(each.relative_to(directory)): each.stat().st_mode for each in directory.rglob("*")}


def test_what_is_written_by_descriptors_is_the_same_where_a_replica_is_killed(
    run_descriptors: Callable[..., Job], tmp_path: Path
) -> None:
    """`os.open` for writing, and all that calls it, was refused."""
    expected = run_descriptors(30)
    job = run_descriptors(30, 0.01, redundancy=3)
    job.wait_for(lambda: (tmp_path / "redundant/rank-1/copied").exists(), "the first step")
    os.kill(_pids(job)[0], signal.SIGKILL)
    assert job.finish() == 0, job.report()
    assert files(tmp_path / "redundant") == files(tmp_path / "plain")
    assert modes(tmp_path / "redundant") == modes(tmp_path / "plain")
    assert job.stdout == expected.stdout and not job.events("replica-differs"), job.report()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_by_descriptors_is_the_same_whoever_is_killed(
    run_descriptors: Callable[..., Job], tmp_path: Path, seed: int
) -> None:
    """Replicas are killed, or all processes at once, and the job is restarted from its last checkpoint."""
    run_descriptors(150)
    chance = random.Random(seed)
    job = run_descriptors(150, 0.03, redundancy=3, every=0.7)
    for _ in range(2):
        time.sleep(0.5 + chance.random())
        if pids := _pids(job):
            kill([chance.choice(pids)])
    if seed % 2:
        time.sleep(1 + chance.random())
        kill(_pids(job))
    assert job.finish(600) == 0, job.report()
    assert files(tmp_path / "redundant") == files(tmp_path / "plain"), job.report()
    assert not job.events("replica-differs"), job.report()


@pytest.mark.parametrize("replicas", [2, 1])
def test_a_descriptor_comes_back_with_its_position(start: Start, tmp_path: Path, replicas: int) -> None:
    """Also where the program goes on without replicas, and with the number of a descriptor that `dup` has given."""
    app = write_app(
        tmp_path,
        """
        import os, tempfile, time
        import ckpt
        comm = ckpt.enable()
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        table = os.open("table", os.O_RDWR | os.O_CREAT)
        again = os.dup(table)
        named = tempfile.NamedTemporaryFile("w+", dir=".")
        closed = os.open("closed", os.O_WRONLY | os.O_CREAT)
        os.close(closed)
        for line in ("first", "second"):
            os.write(log, line.encode() + b"\\n")
            os.write(table, line.encode())
            named.write(line + ",")
            print(line, flush=True)
            while not os.path.exists("after-" + line):
                time.sleep(0.01)
        os.lseek(again, 2, os.SEEK_SET)
        os.write(table, b"--")
        named.seek(0)
        print(named.read(), os.path.basename(named.name) in os.listdir("."), flush=True)
        named.close()
        try:
            os.write(closed, b"x")
        except OSError as failure:
            print(failure.errno, flush=True)
        """,
    )
    job = start(app, ranks=1, redundancy=2)
    stop_behind_a_checkpoint(job, tmp_path)
    again = restart(job, tmp_path, replicas)
    assert (tmp_path / "log").read_text() == "first\nsecond\n"
    assert (tmp_path / "table").read_text() == "fi--tsecond"
    assert again.stdout.splitlines()[-2:] == ["first,second, True", "9"], again.report()
    assert not [each for each in os.listdir(tmp_path) if each.startswith("tmp")]

"""`ckpt run --files auto`: after a restart the program's files are those of an undisturbed run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, run_ckpt, write_app
from tests.unit.ckpt.undo.test_sequences import tree_of, without_times

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]

Start = Callable[..., Job]

# Rank 0 kills itself behind further changes than its checkpoint has, once for each step that is named.
WRITERS = """
    import os, signal, sys
    import ckpt
    from ckpt import MPI
    ckpt.enable()
    kills = [int(word) for word in sys.argv[2:]]
    directory = f"{sys.argv[1]}/{MPI.COMM_WORLD.rank}"
    os.makedirs(directory)
    os.chdir(directory)

    def is_first(n):  # what is in the job directory is not put back
        mark = f"{os.environ['CKPT_JOB']}/killed-{n}"
        return not os.path.exists(mark) and os.close(os.open(mark, os.O_CREAT)) is None

    def replaced(n):
        with open("state.tmp", "w") as file:
            file.write(f"{n}\\n" * 5)
        os.replace("state.tmp", "state")

    def appended(n):
        with open("log", "a") as file:
            file.write(f"line {n}\\n")

    def in_place(n):
        with open("counter", "r+b") as file:
            file.write(b"%08d" % n)

    def moved(n):
        os.mkdir(f"dir-{n}")
        with open(f"dir-{n}/x", "w") as file:
            file.write(str(n))
        if n > 2:
            os.rename(f"dir-{n - 1}", f"kept-{n - 1}")
            os.remove(f"kept-{n - 1}/x")

    held = open("held", "a")
    with open("counter", "wb") as file:
        file.write(b"0" * 8)
    for n in range(1, 11):
        for change in (replaced, appended, in_place, moved):
            change(n)
        held.write(f"held {n}\\n")
        held.flush()
        MPI.COMM_WORLD.Barrier()
        if MPI.COMM_WORLD.rank == 0 and n in kills and is_first(n):
            os.kill(os.getpid(), signal.SIGKILL)
        if n in (2, 5, 8):
            ckpt.checkpoint()
"""


def test_after_three_kills_the_files_are_those_of_an_undisturbed_run(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, WRITERS)
    trees = []
    for name, kills in (("undisturbed", ()), ("killed", (1, 4, 10))):
        job = start(app, str(tmp_path / f"out-{name}"), *kills, ranks=2, name=name, files="auto")
        assert job.finish() == 0, job.report()
        assert len(job.events("restarting")) == len(kills)
        assert not job.events("files-not-put-back"), job.report()
        assert len(job.events("files-put-back")) == len(kills)
        trees.append(without_times(tree_of(str(tmp_path / f"out-{name}"))))
    assert trees[0] == trees[1]


ENDED = """
    import os, time
    import ckpt
    ckpt.enable()
    def committed():
        with open(os.environ["CKPT_JOB"] + "/events.jsonl") as events:
            return events.read().count('"committed"')
    def write(n):
        for name in ("state", "other/state"):
            with open(f"{name}.tmp", "w") as file:
                file.write(str(n))
            os.replace(f"{name}.tmp", name)
    os.makedirs("other", exist_ok=True)
    for n in (1, 2, 3):
        write(n)
        ckpt.checkpoint()
        while committed() < n:
            time.sleep(0.001)
    write(4)
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os._exit(9)
    print(open("state").read(), open("other/state").read())
"""


@pytest.fixture
def failed(start: Start, tmp_path: Path) -> Path:
    """A job that has failed behind its third checkpoint. From there on, it would end."""
    job = start(write_app(tmp_path, ENDED), ranks=1, files="auto", keep=9)
    assert job.finish() == 9, job.report()
    assert len(job.events("committed")) == 3, job.report()
    (job.directory / "through").touch()
    assert (tmp_path / "state").read_text() == "4"
    return job.directory


def epochs(job: Path) -> list[int]:
    return [int(path.name[6:14]) for path in sorted((job / "control").glob("epoch-*.json"))]


def test_a_restart_puts_back_the_files_of_any_epoch(failed: Path) -> None:
    first, second, third = epochs(failed)
    done = run_ckpt("restart", f"{failed}@{second}", cwd=failed.parent)
    assert done.returncode == 0, done.stderr
    assert "files-put-back" in (failed / "events.jsonl").read_text()
    done = run_ckpt("restart", f"{failed}@{third}", cwd=failed.parent)
    assert done.returncode == 13
    assert f"epoch {third} have been put back to epoch {second}" in done.stderr, done.stderr
    assert "--files off" in done.stderr
    done = run_ckpt("restart", f"{failed}@{first}", cwd=failed.parent)
    assert done.returncode == 0, done.stderr


def test_inspect_says_what_is_kept_of_files(failed: Path) -> None:
    first, *_, last = epochs(failed)
    for epoch, count in ((first, 3), (last, 1)):
        done = run_ckpt("inspect", "--json", f"{failed}@{epoch}")
        intervals = json.loads(done.stdout)["files"]["intervals"]
        assert len(intervals) == count
        assert intervals[-1]["epoch"] == last and intervals[-1]["links"] == 2
    done = run_ckpt("inspect", f"{failed}@{last}")
    assert f"changed since epoch {last}, incarnation 0: " in done.stdout
    assert " 2 links, 0 copies (0 B), 0 not covered" in done.stdout, done.stdout
    [interval] = json.loads(run_ckpt("inspect", "--json", f"{failed}@{last}").stdout)["files"]["intervals"]
    rows = {each["path"]: each for each in interval["kept"]}
    for name in ("state", "other/state"):
        kept = rows[str(failed.parent / name)]
        assert (kept["kept"], kept["bytes"]) == ("hard link", 1) and Path(kept["where"]).read_text() == "3"
        assert f"{kept['path']}: hard link, 1 B in {kept['where']}" in done.stdout, done.stdout
        assert rows[str(failed.parent / f"{name}.tmp")]["kept"] == "there was none"


def test_a_damaged_log_ends_the_restart_with_its_name(failed: Path) -> None:
    [log] = (failed / "undo").glob(f"epoch-{epochs(failed)[-1]:08d}-*/rank-00000/log")
    good = log.read_bytes()
    log.write_bytes(good.replace(b"state", b"stale"))
    done = run_ckpt("restart", failed, cwd=failed.parent)
    assert done.returncode == 3, done.stderr
    assert str(log) in done.stderr and "--files off" in done.stderr
    assert (failed.parent / "state").read_text() == "4"
    log.write_bytes(good)
    assert run_ckpt("restart", failed, cwd=failed.parent).returncode == 0


@pytest.mark.parametrize("noted_by", ["controller", "image"])
def test_a_log_without_its_last_lines_ends_the_restart_with_its_name(failed: Path, noted_by: str) -> None:
    first, second, third = epochs(failed)
    if noted_by == "image":
        (failed / "undo" / "logs").unlink()  # as if the controller had been killed
    number, line = (third, third) if noted_by == "controller" else (second, first)
    [log] = (failed / "undo").glob(f"epoch-{number:08d}-*/rank-00000/log")
    good = log.read_bytes()
    log.write_bytes(b"".join(good.splitlines(keepends=True)[:-1]))
    done = run_ckpt("restart", f"{failed}@{line}", cwd=failed.parent)
    assert done.returncode == 3, done.stderr
    assert str(log) in done.stderr and "lines are missing at its end" in done.stderr
    assert (failed.parent / "state").read_text() == "4"
    log.write_bytes(good)
    assert run_ckpt("restart", f"{failed}@{line}", cwd=failed.parent).returncode == 0


def test_what_the_file_system_refuses_can_be_tried_again(failed: Path) -> None:
    other, away = failed.parent / "other", failed.parent / "away"
    other.rename(away)
    done = run_ckpt("restart", failed, cwd=failed.parent)
    assert done.returncode == 1, done.stderr
    assert str(other / "state") in done.stderr and "--files off" in done.stderr
    away.rename(other)
    assert run_ckpt("restart", failed, cwd=failed.parent).returncode == 0


def test_what_the_user_has_changed_since_the_job_ended_is_left_and_named(failed: Path) -> None:
    (failed.parent / "state").write_text("mine")
    done = run_ckpt("restart", failed, cwd=failed.parent)
    assert done.returncode == 0, done.stderr
    assert f"not put back: {failed.parent / 'state'}: somebody else has changed the file" in done.stderr, (
        done.stderr
    )
    assert str(failed.parent / "other") not in done.stderr


def test_a_restart_without_files_goes_on_with_them_as_they_are(failed: Path) -> None:
    (failed.parent / "state").write_text("mine")
    done = run_ckpt("restart", "--files", "off", failed, cwd=failed.parent)
    assert done.returncode == 0, done.stderr
    assert "files are not put back (--files off, or --redundancy)" in done.stderr
    assert not list((failed / "undo").glob("epoch-*"))


def test_files_are_not_put_back_below_another_directory(failed: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    done = run_ckpt("restart", "--chdir", moved, failed, cwd=failed.parent)
    assert done.returncode == 13, done.stderr
    assert str(moved / "other") in done.stderr and "--files off" in done.stderr
    assert (failed.parent / "state").read_text() == "4"


def test_files_are_put_back_in_a_directory_that_has_moved(failed: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("state", "other"):
        (failed.parent / name).rename(moved / name)
    done = run_ckpt("restart", "--chdir", moved, failed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("4 4\n")
    assert "files-not-put-back" not in (failed / "events.jsonl").read_text()


def test_files_before_the_oldest_checkpoint_are_no_longer_kept(failed: Path) -> None:
    done = run_ckpt("prune", "--keep-last", 2, failed)
    assert done.returncode == 0, done.stderr
    kept = sorted((failed / "undo").glob("epoch-*"))
    assert [int(path.name[6:14]) for path in kept] == epochs(failed)
    assert not list((failed / "undo").glob("done-*"))


# A data set of HDF5 can be made only once, and Python sees nothing of the file.
IN_C = """
    import os, signal, sys
    import h5py
    import ckpt
    from ckpt import MPI
    ckpt.enable()
    for n in range(1, 7):
        with h5py.File(f"results-{MPI.COMM_WORLD.rank}.h5", "a") as file:
            file[f"step-{n}"] = [n]
        MPI.COMM_WORLD.Barrier()
        mark = f"{os.environ['CKPT_JOB']}/killed-{n}"
        if MPI.COMM_WORLD.rank == 0 and n in (1, 4, 6) and not os.path.exists(mark):
            os.close(os.open(mark, os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)
        if n in (2, 5):
            ckpt.checkpoint()
    with h5py.File(f"results-{MPI.COMM_WORLD.rank}.h5", "r") as file:
        print(sorted(file), [int(file[name][0]) for name in sorted(file)])
"""


def test_what_a_library_in_c_writes_is_put_back(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    job = start(write_app(tmp_path, IN_C), ranks=2, files="auto")
    assert job.finish() == 0, job.report()
    assert len(job.events("files-put-back")) == 3
    for event in ("files-not-put-back", "files-not-covered", "files-not-undone"):
        assert not job.events(event), job.report()
    names = [f"step-{n}" for n in range(1, 7)]
    assert [job.output(rank) for rank in range(2)] == [f"{names} {list(range(1, 7))}\n"] * 2


CHILD = """
    import os, signal, subprocess, time
    import ckpt
    ckpt.enable()
    def commit(n):
        ckpt.checkpoint()
        while True:
            with open(os.environ["CKPT_JOB"] + "/events.jsonl") as events:
                if events.read().count('"committed"') >= n:
                    return
            time.sleep(0.001)
    def own(n):
        for name in ("own", "sub/own"):
            with open(name + ".tmp", "w") as file:
                file.write(str(n))
            os.replace(name + ".tmp", name)
    os.mkdir("sub")
    own(1)
    commit(1)
    own(2)
    subprocess.run(["sh", "-c", "echo x > first; touch gone; rm gone"], check=True)
    commit(2)
    own(3)
    subprocess.run(["sh", "-c", "echo x >> sub/second; chmod 600 own; cat own sub/own > own-2"], check=True)
    mark = os.environ["CKPT_JOB"] + "/killed"
    if not os.path.exists(mark):
        os.close(os.open(mark, os.O_CREAT))
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_child_process_writes_is_told_at_the_next_checkpoint_and_at_a_restart(
    start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, CHILD), ranks=1, files="auto")
    assert job.finish() == 0, job.report()
    [told] = job.events("files-not-undone", path=str(tmp_path / "first"))
    assert told["epoch"] == epochs(job.directory)[0], job.report()
    assert told["reason"].startswith("made by a process that the program has started (app.py:"), told
    assert f"not undone by a restart: {tmp_path / 'first'}: made by a process" in job.stderr
    names = {os.path.relpath(event["path"], tmp_path) for event in job.events("files-not-put-back")}
    assert names == {"sub/second", "own-2"}, job.report()
    assert {os.path.relpath(event["path"], tmp_path) for event in job.events("files-not-undone")} == {
        "first",
        *names,
    }


def test_a_restart_with_other_patterns_puts_back_what_was_recorded(failed: Path) -> None:
    other = failed.parent / "other"
    done = run_ckpt("restart", "--files", "other", "--files", "!*.tmp", failed, cwd=failed.parent)
    assert done.returncode == 0, done.stderr
    assert (
        "files: from here on other !*.tmp; what was recorded until now (auto) stays recorded" in done.stderr
    )
    assert done.stdout == "4 4\n"
    [chosen] = [
        json.loads(line)
        for line in (failed / "events.jsonl").read_text().splitlines()
        if '"files-chosen"' in line
    ]
    assert chosen["files"] == ["other", "!*.tmp"]
    newest = sorted((failed / "undo").glob("epoch-*/rank-*/log"))[-1].read_text()
    assert str(other / "state") in newest
    assert f'"{failed.parent / "state"}"' not in newest and ".tmp" not in newest


RECORDED = """
    import os, time
    import ckpt
    ckpt.enable()
    open("small", "w").close()
    with open("large", "wb") as file:
        file.write(b"x" * 5000)
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    for name in ("small", "large"):
        with open(name, "r+b") as file:
            file.write(b"y")
    open(os.environ["CKPT_JOB"] + "/written", "x").close()
    while not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        time.sleep(0.001)
"""


def test_status_says_what_is_kept_of_files(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RECORDED)
    job = start(app, ranks=1, files="!*.log", files_limit="4K")
    job.wait_for((job.directory / "written").exists, "both files are written")
    files = json.loads(run_ckpt("status", "--json", job.directory).stdout)["files"]
    assert files == {
        "files": ["!*.log"], "limit_bytes": 4096, "copied_bytes": 0, "records": 2, "not_covered": 1,
        "not_covered_of_line": 0,
    }  # fmt: skip
    assert "!*.log; copies 0 B of 4.1 KB; 2 changes" in run_ckpt("status", job.directory).stdout
    (job.directory / "through").touch()
    assert job.finish() == 0, job.report()
    assert [event["path"] for event in job.events("files-not-covered")] == [str(tmp_path / "large")]
    files = json.loads(run_ckpt("status", "--json", job.directory).stdout)["files"]
    assert (files["records"], files["not_covered"]) == (None, 1)


NO_MOMENT = """
    import os, signal, sys, threading, time
    import ckpt
    from ckpt.image import dumping
    ckpt.enable()
    os.chdir(sys.argv[1])

    class Tries:  # so many times does a checkpoint look for a moment to fork
        count = 0
        def __index__(self):
            Tries.count += 1
            return 0 if Tries.count < 4 else 20

    def committed():
        with open(os.environ["CKPT_JOB"] + "/events.jsonl") as events:
            return events.read().count('"committed"')

    def write(n):
        held.write(f"{n}\\n")
        held.flush()
        with open("state", "w") as file:
            file.write(str(n))

    done = threading.Event()
    threading.Thread(target=done.wait).start()
    held = open("held", "w")
    write(0)
    dumping._FORK_TRIES = Tries()
    ckpt.checkpoint(wait=False)
    n, more = 0, 5
    while more:
        n += 1
        write(n)
        time.sleep(0.001)
        more -= committed() > 0
    killed = os.environ["CKPT_JOB"] + "/killed"  # what is in the job directory is not put back
    if not os.path.exists(killed):
        os.close(os.open(killed, os.O_CREAT))
        os.kill(os.getpid(), signal.SIGKILL)
    done.set()
    print(open("held").read() == "".join(f"{i}\\n" for i in range(n + 1)), open("state").read() == str(n), Tries.count)
"""


def test_a_checkpoint_that_finds_no_moment_to_fork_is_tried_again(start: Start, tmp_path: Path) -> None:
    """The undo log had been cut already at the first try, and the next one found it there."""
    (tmp_path / "out").mkdir()
    app = write_app(tmp_path, NO_MOMENT)
    job = start(app, str(tmp_path / "out"), ranks=1, files="auto")
    assert job.finish() == 0, job.report()
    assert len(job.events("restarting")) == 1, job.report()
    assert not job.events("files-not-covered"), job.report()
    assert not job.events("files-not-put-back"), job.report()
    assert job.output(0).split()[:2] == ["True", "True"], job.report()


APPENDS = """
    import os, sys, time
    import ckpt
    ckpt.enable()
    with open("log", "a") as log:
        print("line", file=log)
    for _ in range(int(sys.argv[1])):
        ckpt.checkpoint()
    while not os.path.exists("go"):
        time.sleep(0.01)
"""


def with_damaged_images(job: Job) -> None:
    for pack in (job.directory / "images").rglob("*.pack"):
        pack.write_bytes(b"damaged")


def test_a_program_whose_only_checkpoint_is_of_no_use_starts_over_with_its_files(
    start: Start, tmp_path: Path
) -> None:
    """The job ended with code 12, since what the files were at the start had gone with the first checkpoint."""
    job = start(write_app(tmp_path, APPENDS), 1, ranks=1)
    job.wait_event("committed")
    with_damaged_images(job)
    job.kill_rank(0)
    job.wait_event("committed", 2)
    assert (tmp_path / "log").read_text() == "line\n"
    (tmp_path / "go").touch()
    assert job.finish() == 0, job.report()
    assert "trying the start of the program" in job.stderr


def test_a_program_does_not_start_over_on_its_own_changed_files(start: Start, tmp_path: Path) -> None:
    """It ended with exit code 0 and each line was in the log twice, where the checkpoints were damaged."""
    app = write_app(tmp_path, APPENDS)
    job = start(app, 3, ranks=1, keep=2)
    job.wait_event("committed", 3)
    with_damaged_images(job)
    job.kill_rank(0)
    assert job.finish() == 12, job.report()
    said = " ".join(job.stderr.split())
    assert re.search("it had changed files before epoch [12],", said), said
    assert "`ckpt run --resume auto --files off`" in said
    assert "can be used instead" not in said, "each one is named when it is tried"
    assert (tmp_path / "log").read_text() == "line\n"
    (tmp_path / "go").touch()
    anyhow = run_ckpt(
        *("run", "--resume", "auto", "--files", "off", "--job", job.directory, "--", app, 3), cwd=tmp_path
    )
    assert anyhow.returncode == 0, anyhow.stderr
    assert (tmp_path / "log").read_text() == "line\n" * 2

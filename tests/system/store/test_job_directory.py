"""Job directories that are made twice at once, copied, moved, seen from elsewhere: real controllers, agents and files;
the ranks are stubs (`stub_rank`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.launch import procinfo
from ckpt.store import JobDirectory
from ckpt.store.job.branch import new_branch
from ckpt.store.job.location import this_location
from ckpt.transport.records import replace
from tests.system.counting import COUNT, ENTRY
from tests.system.support import PATIENCE_S, Job, ckpt_command, environment, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8), pytest.mark.usefixtures("find_the_stub")]

Start = Callable[..., Job]

ROOT = Path(__file__).resolve().parents[3]
COUNTED = [f"rank 0 step {i}" for i in range(20)] + ["rank 0 done"]


@pytest.fixture
def held(start: Start, tmp_path: Path) -> Job:
    """A job of one rank that has committed something and waits half-way until `go` or `finish`."""
    job = start(write_app(tmp_path, COUNT), 20, ranks=1, every=0.1, entry=ENTRY)
    job.wait_event("committed", 2)
    return job


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """restarted(directory, …): `ckpt restart` in the background."""
    jobs: list[Job] = []

    def begin(where: Path | str, *arguments: object) -> Job:
        directory = Path(str(where).partition("@")[0])
        jobs.append(Job(directory, where, "--entry", ENTRY, *arguments, verb="restart"))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


def killed(job: Job, *, ranks: bool) -> None:
    """The controller is killed; with `ranks`, all of the job."""
    job.process.kill()
    job.process.wait()
    if ranks:
        agent = job.events("agent-started")[-1]
        os.kill(agent["pid"], signal.SIGKILL)
        while procinfo.is_alive(agent["pid"], agent["start_ticks"]) or alive(job):
            pass


def alive(job: Job) -> bool:
    started = job.events("rank-started")[-1]
    return procinfo.is_alive(started["pid"], started["start_ticks"])


# ---------------------------------------------------------------------- two at once


def test_of_two_runs_with_resume_auto_at_once_one_is_the_job(tmp_path: Path) -> None:
    app = write_app(tmp_path, COUNT)
    directory = tmp_path / "job"
    command = ckpt_command(
        "run", "--resume", "auto", "--every", 0.05, "--job", directory, "--entry", ENTRY, "--", app, 20
    )
    env = {**environment(), "CKPT_TEST_GO": str(tmp_path / "go")}
    both = [
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        for _ in range(2)
    ]
    loser = next_to_end(both)
    assert loser.returncode == 11 and b"another controller holds it" in loser.stderr.read()  # type: ignore[union-attr]
    (tmp_path / "go").touch()
    winner = next(process for process in both if process is not loser)
    printed, _ = winner.communicate(timeout=PATIENCE_S)
    assert winner.returncode == 0 and printed.decode().splitlines() == COUNTED
    log = (directory / "events.jsonl").read_text()
    assert log.count('"committed"') and log.count('"controller"') == 1


def next_to_end(processes: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    while True:
        for process in processes:
            if process.poll() is not None:
                return process


# ---------------------------------------------------------------------- copies


def test_a_copy_that_is_restarted_leaves_the_original_alone(
    held: Job, tmp_path: Path, restarted: Callable[..., Job]
) -> None:
    subprocess.run(["cp", "-a", held.directory, tmp_path / "copy"], check=True)
    status = run_ckpt("status", tmp_path / "copy")
    assert f"a copy of {held.directory}" in status.stdout and status.returncode == 0
    stop = run_ckpt("stop", tmp_path / "copy")
    assert stop.returncode == 10 and "nothing runs in it" in stop.stderr
    copy = restarted(tmp_path / "copy")
    copy.wait_event("restarted")
    assert not copy.events("fenced") and alive(held) and alive(copy)
    assert run_ckpt("checkpoint", held.directory).returncode == 0, "its sockets are its own, too"
    assert copy.finish() == 0, copy.report()
    assert held.finish() == 0, held.report()
    assert held.output(0).splitlines() == COUNTED == copy.output(0).splitlines()


def test_a_copy_leaves_ranks_without_a_controller_alone(
    held: Job, tmp_path: Path, restarted: Callable[..., Job]
) -> None:
    killed(held, ranks=False)
    subprocess.run(["cp", "-a", held.directory, tmp_path / "copy"], check=True)
    copy = restarted(tmp_path / "copy")
    copy.wait_event("restarted")
    assert alive(held)
    again = restarted(held.directory)
    again.wait_event("fenced")
    again.wait_event("restarted")
    assert alive(copy)
    assert (copy.finish(), again.finish()) == (0, 0)


def test_a_directory_that_was_renamed_is_the_same(
    held: Job, tmp_path: Path, restarted: Callable[..., Job]
) -> None:
    killed(held, ranks=False)
    old = held.events("rank-started")[-1]
    os.rename(held.directory, tmp_path / "moved")
    moved = restarted(tmp_path / "moved")
    moved.wait_event("fenced")
    assert not procinfo.is_alive(old["pid"], old["start_ticks"])
    assert moved.finish() == 0, moved.report()


# ---------------------------------------------------------------------- who asks from where


def test_another_temporary_directory_changes_nothing(held: Job, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    env = {**environment(), "TMPDIR": str(tmp_path / "other")}
    status = json.loads(run_ckpt("status", "--json", held.directory, env=env).stdout)
    assert status["state"] == "running" and status["live"]["ranks"]
    stop = run_ckpt("stop", held.directory, env=env)
    assert stop.returncode == 0 and "stopped" in stop.stdout
    assert held.process.wait(PATIENCE_S) == 143


def test_ranks_without_a_controller_are_seen_from_everywhere(held: Job, tmp_path: Path) -> None:
    killed(held, ranks=False)
    (tmp_path / "other").mkdir()
    env = {**environment(), "TMPDIR": str(tmp_path / "other")}
    assert "without controller" in run_ckpt("status", held.directory, env=env).stdout


def on_another_host(job: Job) -> None:
    """The job's record says what it would say if the job had run elsewhere."""
    directory = JobDirectory.open(job.directory)
    with directory.lock() as lock:
        location = lock.found.location
        assert location is not None and location.host == os.uname().nodename
        lock.claim(replace(location, host="far-away", machine="0" * 32, boot="another", pid=4711))


def test_a_job_of_another_host_is_refused_by_name_until_that_host_is_said_to_be_dead(
    held: Job, restarted: Callable[..., Job]
) -> None:
    killed(held, ranks=True)
    on_another_host(held)
    for verb, code in (("restart", 11), ("checkpoint", 10), ("stop", 10)):
        refused = run_ckpt(verb, held.directory)
        assert refused.returncode == code, refused.stderr
        assert "host far-away" in refused.stderr and "--fenced far-away" in refused.stderr
    status = run_ckpt("status", held.directory)
    assert status.returncode == 10 and "host far-away" in status.stdout
    wrong = run_ckpt("restart", "--fenced", "near-by", held.directory)
    assert wrong.returncode == 11
    job = restarted(held.directory, "--fenced", "far-away")
    assert job.finish() == 0, job.report()
    assert "far-away" in job.events("fenced")[-1]["reason"]
    assert job.events("controller")[-1]["host"] == os.uname().nodename
    assert held.output(0).splitlines() == COUNTED


def test_a_job_that_has_come_to_an_end_is_nowhere(held: Job) -> None:
    """So it can be gone on with from any host without a word."""
    assert JobDirectory.open(held.directory).record().location == here_of(held)
    assert run_ckpt("stop", "--checkpoint", held.directory).returncode == 0
    assert held.process.wait(PATIENCE_S) == 75
    assert JobDirectory.open(held.directory).record().location is None


def here_of(job: Job) -> Any:
    location = JobDirectory.open(job.directory).record().location
    assert location is not None
    return replace(this_location(str(job.directory), location.runtime), pid=job.process.pid)


def test_a_lost_runtime_directory_does_not_hide_the_ranks(held: Job, restarted: Callable[..., Job]) -> None:
    killed(held, ranks=False)
    sockets = held.runtime_directory()
    assert sockets is not None
    shutil.rmtree(sockets)
    old = held.events("rank-started")[-1]
    job = restarted(held.directory)
    job.wait_event("fenced")
    assert not procinfo.is_alive(old["pid"], old["start_ticks"])
    assert job.finish() == 0, job.report()


# ---------------------------------------------------------------------- which line it goes on from


def three_lines(job: Job) -> int:
    """All is killed after three commits; the newest epoch."""
    job.wait_event("committed", 3)
    killed(job, ranks=True)
    return int(job.events("committed")[-1]["epoch"])


def test_a_restart_after_a_restart_from_an_older_line_goes_on_with_that_branch(
    held: Job, restarted: Callable[..., Job]
) -> None:
    newest = three_lines(held)
    old = newest - 1
    branch = restarted(f"{held.directory}@{old}", "--every", 3600)
    branch.wait_event("restarted", from_epoch=old)
    killed(branch, ranks=True)
    again = restarted(held.directory)
    assert again.finish() == 0, again.report()
    assert [event["from_epoch"] for event in again.events("restarted")] == [old, old]
    assert newest not in again.events("controller")[-1]["lines"]
    assert again.output(0).splitlines() == COUNTED


def test_who_names_a_line_that_was_left_behind_gets_it(held: Job, restarted: Callable[..., Job]) -> None:
    newest = three_lines(held)
    with JobDirectory.open(held.directory).lock() as lock:
        lock.set_branch(new_branch(newest - 1, newest, {}, range(1, newest + 1)))
    listed = json.loads(run_ckpt("ls", "--json", held.directory).stdout)["lines"]
    assert [line["epoch"] for line in listed if line["left_behind"]] == [newest]
    back = restarted(f"{held.directory}@{newest}", "--every", 3600)
    back.wait_event("restarted", from_epoch=newest)
    killed(back, ranks=True)
    again = restarted(held.directory)
    assert again.finish() == 0, again.report()
    assert again.events("restarted")[-1]["from_epoch"] == newest


@pytest.mark.parametrize("what", ["control/*.json", "images/rank-*/*.pack"])
def test_where_no_line_can_be_read_restart_refuses_and_run_starts_over_and_says_so(
    held: Job, what: str
) -> None:
    newest = three_lines(held)
    for path in held.directory.glob(what):
        path.write_bytes(b"damaged")
    held.go()
    refused = run_ckpt("restart", held.directory, "--entry", ENTRY)
    assert refused.returncode == 12 and f"{newest:08d}" in refused.stderr
    app = held.directory.parent / "app.py"
    done = run_ckpt("run", "--resume", "auto", "--job", held.directory, "--entry", ENTRY, "--", app, 20)
    assert done.returncode == 0, done.stderr
    assert "trying the start of the program" in done.stderr and f"epoch {newest}" in done.stderr
    assert held.events("starting-over") and newest in {e["epoch"] for e in held.events("line-unusable")}
    assert held.output(0).splitlines() == COUNTED


@pytest.mark.parametrize(
    "what", ["images/rank-00000/epoch-{:08d}*.json", "images/rank-00000/epoch-{:08d}*.pack"]
)
def test_a_line_that_the_system_refuses_to_read_is_named_and_the_older_one_is_used(
    held: Job, restarted: Callable[..., Job], what: str
) -> None:
    """An error of the disk (here: of a link to itself) ended the restart with code 1."""
    newest = three_lines(held)
    (path,) = held.directory.glob(what.format(newest))
    path.unlink()
    path.symlink_to(path.name)
    job = restarted(held.directory)
    assert job.finish() == 0, job.report()
    unusable = job.events("line-unusable")
    assert [event["epoch"] for event in unusable] == [newest] and f"epoch {newest}, trying" in job.stderr
    assert job.events("restarted")[-1]["from_epoch"] < newest
    assert job.output(0).splitlines() == COUNTED


# ---------------------------------------------------------------------- what is asked of it


def test_ls_prints_the_fields_that_are_documented_and_inspect_a_manifest_of_any_size(held: Job) -> None:
    newest = three_lines(held)
    text = (ROOT / "docs" / "command-line.md").read_text()
    table = text[text.index("## ckpt ls") : text.index("## ckpt verify")]
    documented = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.M))))
    (control,) = held.directory.glob(f"control/epoch-{newest:08d}.json")
    control.write_bytes(b"damaged")
    printed = json.loads(run_ckpt("ls", "--json", held.directory).stdout)["lines"]
    assert set().union(*printed) == documented - {"verified"}  # only with replicas
    assert {line["good"] for line in printed} == {True, False}
    older = [line["epoch"] for line in printed if line["good"]][-1]
    (manifest,) = held.directory.glob(f"images/rank-00000/epoch-{older:08d}*.json")
    os.truncate(manifest, (1 << 30) + 1)
    seen = run_ckpt("inspect", f"{held.directory}@{older}")
    assert seen.returncode == 3 and "more than any" in seen.stdout and "Traceback" not in seen.stderr


def test_a_fifo_in_place_of_a_ranks_output_is_refused_by_name(
    held: Job, restarted: Callable[..., Job]
) -> None:
    """The rank would wait in it for a reader, and the job for the rank."""
    assert run_ckpt("checkpoint", "--stop", held.directory).returncode == 0
    held.process.wait(PATIENCE_S)
    output = held.directory / "output" / "rank-0.out"
    output.unlink()
    os.mkfifo(output)
    again = restarted(held.directory)
    assert again.process.wait(PATIENCE_S) == 13, again.report()
    assert f"not a regular file: {output}" in again.stderr


@pytest.mark.parametrize("verb", ["status", "ls", "inspect", "verify"])
def test_a_reader_that_has_seen_enough_ends_a_verb_quietly(held: Job, verb: str) -> None:
    come, tell = os.pipe()
    os.close(come)
    done = subprocess.run(
        ckpt_command(verb, held.directory),
        stdin=subprocess.DEVNULL,
        stdout=tell,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(tell)
    assert done.returncode == 141 and done.stderr == b""


def test_a_long_event_log_is_begun_anew_and_nothing_that_restart_needs_is_lost(
    held: Job, restarted: Callable[..., Job]
) -> None:
    """It grew by 1.5 KB a commit without bound, and was read whole by every `status` and `restart`."""
    newest = three_lines(held)
    log = held.directory / "events.jsonl"
    with log.open("a") as file:
        file.writelines(json.dumps({"event": "noise", "text": "x" * 1000}) + "\n" for _ in range(5000))
    job = restarted(held.directory)
    job.wait_for(lambda: log.stat().st_size < 1 << 20, "a new log")
    job.wait_event("committed", 5)
    killed(job, ranks=True)
    assert (held.directory / "events.1.jsonl").stat().st_size > 5_000_000
    commits = job.events("committed")
    status = json.loads(run_ckpt("status", "--json", held.directory).stdout)
    assert status["commits"] == len(commits) and status["committed"] == commits[-1]["epoch"] > newest
    again = restarted(held.directory)
    assert again.finish() == 0, again.report()
    started = [event["epoch"] for event in again.events("round-started")]
    assert started == sorted(set(started)), "numbers are not used twice"
    incarnations = [event["incarnation"] for event in again.events("rank-started")]
    assert incarnations == [0, 1, 2]
    assert again.output(0).splitlines() == COUNTED


# ---------------------------------------------------------------------- the event log


def unreadable(log: Path) -> None:
    """As on a damaged disk: every attempt is refused."""
    log.unlink()
    log.symlink_to(log.name)


STRAY = """
    import subprocess
    if not stub.state:
        print("stray", subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
"""
LOSSES: dict[str, Callable[[Path], object]] = {
    "cannot be read": unreadable,
    "is gone": Path.unlink,
    "holds other bytes": lambda log: log.write_bytes(b"\0" * 4096),
}


@pytest.mark.rotate(3)
@pytest.mark.parametrize("loss", LOSSES)
def test_no_number_is_used_twice_whatever_becomes_of_the_event_log(
    held: Job, restarted: Callable[..., Job], loss: str
) -> None:
    """A log that was gone let the incarnations begin at 0 again, and a restarted rank refused its own image."""
    held.kill_rank(0)
    held.wait_event("restarted")
    held.wait_event("committed", len(held.events("committed")) + 1)
    held.kill_rank(0)
    held.wait_event("restarted", 2)
    killed(held, ranks=True)
    LOSSES[loss](held.directory / "events.jsonl")
    told = json.loads(run_ckpt("status", "--json", held.directory).stdout)
    assert told["committed"] and told["commits"]  # it said that nothing was
    job = restarted(held.directory)
    assert job.finish() == 0, job.report()
    assert [event["incarnation"] for event in job.events("rank-started")] == [3]
    assert job.output(0).splitlines() == COUNTED
    assert ("goes on without it" in job.stderr) == (loss == "cannot be read")
    assert job.events("log-unreadable") or loss != "cannot be read"


def test_a_job_whose_output_was_removed_goes_on(held: Job, restarted: Callable[..., Job]) -> None:
    """Its agent ended with a traceback, ten times, and the restart with code 14."""
    killed(held, ranks=True)
    shutil.rmtree(held.directory / "output")
    job = restarted(held.directory)
    assert job.finish() == 0, job.report()
    assert not job.events("rank-died")


def test_images_that_were_removed_with_their_directory_are_named(held: Job) -> None:
    """ "list failed: nothing that was committed before is affected" was all that was said, with code 1."""
    killed(held, ranks=True)
    shutil.rmtree(held.directory / "images" / "rank-00000")
    done = run_ckpt("restart", held.directory)
    assert done.returncode == 12 and "the manifest of rank 0 is missing" in done.stderr, done
    assert (held.directory / "images" / "rank-00000").is_dir()  # a new start may write there


def test_verbs_say_that_the_event_log_cannot_be_read_and_the_running_job_does_not_care(held: Job) -> None:
    """`status` ended with code 1 and said nothing of a job that ran; `inspect` and `stop` likewise."""
    log = held.directory / "events.jsonl"
    unreadable(log)
    status = run_ckpt("status", "--json", held.directory)
    told = json.loads(status.stdout)
    assert status.returncode == 3 and told["state"] == "running" and str(log) in told["log"]
    assert told["committed"] and told["incarnation"] == 0
    assert run_ckpt("ls", held.directory).returncode == 0
    assert run_ckpt("verify", held.directory).returncode == 0
    taken = run_ckpt("checkpoint", held.directory)
    assert taken.returncode == 0 and "committed" in taken.stdout, taken
    seen = run_ckpt("inspect", held.directory)
    assert seen.returncode == 0 and f"{log}" in seen.stderr and "Traceback" not in seen.stderr
    held.process.kill()
    held.process.wait()
    stopped = run_ckpt("stop", held.directory)
    assert stopped.returncode == 0, stopped.stderr
    assert run_ckpt("prune", "--keep-last", 2, held.directory).returncode == 0
    again = run_ckpt("stop", held.directory)
    assert again.returncode == 10 and "nothing of it is left" in again.stderr
    (held.directory / "generation.json").write_bytes(b"damaged")
    refused = run_ckpt("restart", held.directory, "--entry", ENTRY)
    assert refused.returncode == 12, refused
    assert "neither the event log nor generation.json" in refused.stderr and "Traceback" not in refused.stderr


def test_what_ranks_had_started_is_found_without_the_event_log(
    start: Start, tmp_path: Path, restarted: Callable[..., Job]
) -> None:
    """By the mark in the job's record: only the log had it."""
    job = start(write_app(tmp_path, STRAY + COUNT), 20, ranks=1, every=0.1, entry=ENTRY)
    job.wait_event("committed", 2)
    pid = int(job.output(0).split()[1])
    ticks = procinfo.start_ticks(pid)
    killed(job, ranks=True)
    assert procinfo.is_alive(pid, ticks), "only its agent could have ended it"
    unreadable(job.directory / "events.jsonl")
    again = restarted(job.directory)
    again.wait_event("fenced")
    assert not procinfo.is_alive(pid, ticks)
    assert again.finish() == 0, again.report()

"""What stays at a restart, and what happens outside only when a checkpoint is committed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import PATIENCE_S, Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(3)]

Start = Callable[..., Job]

# A rank kills itself once at each place that the command line names.
KILLED_ONCE = """
    import os, signal, sys

    def die_once(place):
        mark = f"{os.environ['CKPT_JOB']}/killed-{place}"
        if place in sys.argv[2:] and not os.path.exists(mark):
            os.close(os.open(mark, os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)
"""

TELLS = """
    import sys, time
    import ckpt
    from tools import die_once
    comm = ckpt.enable()
    outside, told = sys.argv[1], []
    ckpt.keep_file(outside)

    def tell(n, key):
        told.append(n)
        die_once(f"before-{n}-{comm.rank}")
        with open(outside, "a") as file:
            file.write(f"{key}\\n")
        die_once(f"after-{n}-{comm.rank}")

    for n in range(1, 7):
        ckpt.when_committed(tell, n)
        die_once(f"uncommitted-{n}-{comm.rank}")
        ckpt.checkpoint()
        while n % 2 and told[-1:] != [n]:  # between two instructions; else in the barrier
            time.sleep(0.001)
        comm.barrier()
    ckpt.when_committed(tell, 7)  # when the program has ended
"""


def told(path: Path) -> dict[str, int]:
    """How often each key is there, without the number of the job."""
    return Counter(line.partition("-")[2] for line in path.read_text().splitlines())


def test_what_waits_for_a_commit_happens_once_for_each_key(start: Start, tmp_path: Path) -> None:
    write_app(tmp_path, KILLED_ONCE, "tools.py")
    app = write_app(tmp_path, TELLS)
    kills = ("uncommitted-3-0", "before-4-1", "after-5-0", "after-7-0")
    undisturbed, killed = tmp_path / "undisturbed.txt", tmp_path / "killed.txt"
    for path, places in ((undisturbed, ()), (killed, kills)):
        job = start(app, path, *places, ranks=2, name=path.stem, files="auto")
        assert job.finish() == 0, job.report()
        assert len(job.events("restarting")) == len(places)
    assert set(told(undisturbed).values()) == {1}
    assert len(told(undisturbed)) == 2 * 7
    assert told(killed).keys() == told(undisturbed).keys()
    assert told(killed)["0-3"] == told(killed)["1-4"] == 1, "killed before it happened"
    assert told(killed)["0-5"] == 2, "killed afterwards: the same key again"


KEEPS = """
    import os, sys
    import ckpt
    from tools import die_once
    ckpt.enable()
    os.chdir(sys.argv[1])
    os.mkdir("people")
    ckpt.keep_file("log")
    ckpt.keep_file("people")
    ckpt.keep_file("table*")

    def write(text):
        for file in held:
            file.write(text)
            file.flush()
        with open("people/mail", "a") as mail, open("ours", "a") as ours:
            mail.write(text)
            ours.write(text)

    with open("table", "w") as file:
        file.write("-" * 9)
    held = [open("log", "a"), open("other", "a"), open("table", "r+")]
    write("one ")
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        pass
    write("two ")
    with open("people/new", "x") as file:
        file.write("is made once")
    os.replace("people/new", "people/there")
    die_once("now")
    print(sorted(os.listdir("people")))
"""


@pytest.mark.parametrize("files", ["auto", "off"])
def test_files_to_be_kept_stay_as_they_are_at_a_restart(start: Start, tmp_path: Path, files: str) -> None:
    write_app(tmp_path, KILLED_ONCE, "tools.py")
    out = tmp_path / "out"
    out.mkdir()
    job = start(write_app(tmp_path, KEEPS), out, "now", ranks=1, files=files)
    assert job.finish() == 0, job.report()
    assert (out / "log").read_text() == (out / "people" / "mail").read_text() == "one two two "
    assert (out / "other").read_text() == "one two "
    assert (out / "ours").read_text() == ("one two " if files == "auto" else "one two two ")
    assert (out / "table").read_text() == "one two -", "the position is the program's, and nothing was cut"
    assert job.output(0) == "['mail', 'there']\n"
    assert not job.events("files-not-put-back") and not job.events("files-not-covered"), job.report()


RAISES = """
    import os, sys, time
    import ckpt
    ckpt.enable()

    def send(*, key):
        mark = f"{os.environ['CKPT_JOB']}/tried"
        if not os.path.exists(mark):
            os.close(os.open(mark, os.O_CREAT))
            raise ConnectionError("no route to the receiver")
        print("sent", key.partition("-")[2], flush=True)
        sent.append(key)

    sent = []
    ckpt.when_committed(send)
    ckpt.checkpoint()
    while not sent:
        time.sleep(0.001)
"""


def test_an_exception_of_such_a_call_is_the_programs_and_a_restart_calls_again(
    start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, RAISES), ranks=1)
    assert job.finish() == 1, job.report()
    assert "ConnectionError: no route to the receiver" in job.stderr
    assert "send" in job.stderr and "called by ckpt.when_committed with key" in job.stderr
    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "sent 0-1\n"), done.stderr


UNSAVED = """
    import socket, sys
    import ckpt
    comm = ckpt.enable()

    def tell(what, *, key):
        with open(sys.argv[1], "a") as file:
            file.write(f"{key.partition('-')[2]}\\n")

    if comm.rank == 1:
        listener = socket.create_server(("127.0.0.1", 0))
        ckpt.when_committed(tell, socket.create_connection(listener.getsockname()))
"""


def test_where_there_is_no_last_checkpoint_calls_are_made_when_all_ranks_have_finished(
    start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "out.txt"
    job = start(write_app(tmp_path, UNSAVED), out, ranks=2)
    assert job.finish() == 0, job.report()
    [aborted] = job.events("round-aborted")
    assert "socket" in aborted["reason"], aborted
    assert out.read_text() == "1-1\n"


ALONE = """
    import json, os, signal, sys, time
    import ckpt
    comm = ckpt.enable()
    told = []

    def tell(*, key):
        told.append(key)
        with open(sys.argv[1], "a") as file:
            file.write(f"{key}\\n")

    def controller():
        with open(os.environ["CKPT_JOB"] + "/events.jsonl") as events:
            return next(line["pid"] for line in map(json.loads, events) if line["event"] == "controller")

    ckpt.when_committed(tell)
    ckpt.checkpoint()
    while not told:
        time.sleep(0.001)
    comm.barrier()
    if comm.rank == 0:
        os.kill(controller(), signal.SIGKILL)
    ckpt.when_committed(tell)
"""


def test_ranks_without_a_controller_make_the_calls_at_their_end(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    job = start(write_app(tmp_path, ALONE), out, ranks=2)
    assert job.process.wait() == -signal.SIGKILL
    deadline = time.monotonic() + PATIENCE_S
    while not job.events("job-finished") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert job.events("job-finished")[0]["by"] == "agent", job.report()
    assert told(out) == {"0-1": 1, "0-2": 1, "1-1": 1, "1-2": 1}

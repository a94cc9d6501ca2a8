"""`ckpt inspect` on real jobs; and that neither it nor `ckpt verify` ever unpickles."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

MESSAGES = """
    import os, time
    import ckpt

    comm = ckpt.enable()
    table = list(range(50_000))

    def until_committed():
        while not [n for n in os.listdir(os.environ["CKPT_JOB"] + "/control") if n.startswith("epoch-")]:
            time.sleep(0.002)

    def exchange(scratch):
        if comm.rank == 0:
            for i in range(5):
                comm.send(b"x" * 1000, dest=1, tag=7)
            comm.send("all sent", dest=1, tag=1)
            reply = comm.irecv(source=1, tag=99)
            comm.recv(source=1, tag=2)
            ckpt.checkpoint()
            until_committed()
            return reply.wait()
        comm.recv(source=0, tag=1)
        comm.send("all there", dest=0, tag=2)
        until_committed()
        for i in range(5):
            comm.recv(source=0, tag=7)
        comm.send("bye", dest=0, tag=99)

    exchange(["y" * 5000])
"""


@pytest.fixture
def job(start: Start, tmp_path: Path) -> Job:
    """Two ranks; rank 1 has five messages that its program has not received at the checkpoint."""
    job = start(write_app(tmp_path, MESSAGES), ranks=2)
    assert job.finish() == 0, job.report()
    return job


def inspected(job: Job, *arguments: object) -> dict[str, Any]:
    done = run_ckpt("inspect", job.directory, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_inspect_tells_stack_sizes_messages_versions_and_blocks(job: Job) -> None:
    found = inspected(job)
    sender, receiver = found["ranks"]
    assert found["ok"] and found["size"] == 2 and len(found["ranks"]) == 2

    functions = [(Path(frame["file"]).name, frame["function"]) for frame in sender["stack"]]
    assert ("app.py", "<module>") in functions and ("app.py", "exchange") in functions
    [line] = [frame["line"] for frame in sender["stack"] if frame["function"] == "exchange"]
    app = (job.directory.parent / "app.py").read_text().splitlines()
    assert app[line - 1].strip() == "ckpt.checkpoint()"

    modules = {row["name"]: row for row in sender["variables"]["modules"]}
    assert modules["__main__"]["largest"][0]["name"] == "table"
    [frame] = [row for row in sender["variables"]["frames"] if row["largest"][0]["name"] == "scratch"]
    assert sender["stack"][frame["frame"]]["function"] == "exchange"
    assert frame["largest"][0]["bytes"] > 5000

    link = sender["messages"]["peers"]["1"]
    assert (
        link["tx"] == 6
        and link["tx"] - link["base"] == link["unacked"] == sender["messages"]["unacked"]["messages"]
    )
    [waits] = sender["messages"]["receives"]["first"]
    assert (waits["source"], waits["tag"]) == (1, 99)
    here = receiver["messages"]
    assert here["peers"]["0"]["rx"] == 6
    [waiting] = here["pending"]["largest"]
    assert (waiting["from"], waiting["tag"], waiting["messages"]) == (0, 7, 5) and waiting["bytes"] > 5000

    assert sender["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert sender["blocks"]["new"] >= 1 and sender["bytes"]["written"] > 0
    assert sender["timings_ns"]["pickle_ns"] > 0 and sender["logged_ns"]["pause_ns"] > 0


def test_inspect_is_readable(job: Job) -> None:
    overview = run_ckpt("inspect", job.directory).stdout
    assert re.search(r"^0 .*app\.py:\d+ exchange \(in the library\)$", overview, re.MULTILINE), overview
    assert re.search(r"^1 .* 5 .*app\.py:\d+ ", overview, re.MULTILINE), overview
    assert "-r RANK" in overview
    one = run_ckpt("inspect", f"{job.directory}@1", "-r", 0).stdout
    for words in (
        "rank 0, incarnation 0",
        "app.py:",
        "list of 50000",
        "peer",
        "a message from rank 1, tag 99",
    ):
        assert words in one, one


def test_what_is_not_there_has_its_exit_code(job: Job, tmp_path: Path) -> None:
    for arguments in ((tmp_path / "nowhere",), (f"{job.directory}@77",), (job.directory, "-r", 2)):
        done = run_ckpt("inspect", *arguments, "--json")
        assert done.returncode == 10, done.stderr
        assert json.loads(done.stdout)["ok"] is False


def test_a_manifest_that_does_not_verify_is_said_and_not_shown(job: Job) -> None:
    [path] = (job.directory / "images" / "rank-00001").glob("*.json")
    path.write_bytes(path.read_bytes().replace(b"exchange", b"evchange"))
    done = run_ckpt("inspect", job.directory)
    assert done.returncode == 12
    assert "DAMAGED: manifest does not verify" in done.stdout
    assert "evchange" not in done.stdout
    alone = run_ckpt("inspect", job.directory, "-r", 1)
    assert alone.returncode == 12 and alone.stdout == "" and "does not verify" in alone.stderr


POISONED = """
    import os, pickle, _pickle, runpy, sys

    def poisoned(*args, **options):
        os.write(2, b"UNPICKLED")
        os._exit(99)

    class Poison:
        def __new__(cls, *args, **options):
            poisoned()

    sys.addaudithook(lambda event, args: poisoned() if event == "pickle.find_class" else None)
    for module in (pickle, _pickle):
        module.load = module.loads = poisoned
        module.Unpickler = Poison
    pickle._Unpickler = Poison
    pickle._load = pickle._loads = poisoned
    runpy.run_module("ckpt", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("verb", [("verify",), ("inspect",), ("inspect", "-r", "1"), ("ls",)], ids=" ".join)
def test_verify_and_inspect_never_unpickle(job: Job, tmp_path: Path, verb: tuple[str, ...]) -> None:
    script = write_app(tmp_path, POISONED, "poisoned.py")
    command = [sys.executable, str(script), *verb, str(job.directory), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "UNPICKLED" not in done.stderr, done.stderr
    assert json.loads(done.stdout)["ok"]


def test_the_poison_works(job: Job, tmp_path: Path) -> None:
    """The same poison stops what does unpickle: reading the image as a restart does."""
    text = (
        POISONED.replace('runpy.run_module("ckpt", run_name="__main__", alter_sys=True)', "").rstrip()
        + f"""
    from ckpt import image
    from ckpt.store import ImageReader, JobDirectory
    image.load(ImageReader(JobDirectory.open({str(job.directory)!r}), epoch=1, rank=0), live={{}})
"""
    )
    script = write_app(tmp_path, text, "poisoned.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 99 and "UNPICKLED" in done.stderr, done.stderr

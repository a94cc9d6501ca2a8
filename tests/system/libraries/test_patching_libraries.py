"""freezegun, pyfakefs and gevent, which replace what the library itself uses, wherever they find it: in all loaded modules.

The first two are restored half-way. Greenlets are refused by name, and run as they would alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_ready_science import needs
from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

FROZEN = """
    import datetime, os, time
    from freezegun import freeze_time
    import ckpt

    def die(times):
        if int(os.environ["CKPT_RESTARTS"]) < times:
            os.kill(os.getpid(), 9)

    comm = ckpt.enable()
    with freeze_time("2020-01-01 12:00:00") as frozen:
        for step in range(1, 21):
            comm.allreduce(step)
            frozen.tick(1)
            if step % 8 == 0:
                ckpt.checkpoint()
                ckpt.checkpoint()  # by now the first one is committed
                die(step // 8)
        print(datetime.datetime.now(), datetime.date.today(), time.time(), time.localtime().tm_year)
    print(datetime.date.today().year > 2020, time.time() > 1577880020)
"""


def killed_twice(start: Start, directory: Path, text: str) -> Job:
    """The program, killed by itself each time after an image."""
    job = start(write_app(directory, text), ranks=1, every=100)
    assert job.finish() == 0, job.report()
    assert len([event for event in job.events("restarting") if event["from_epoch"]]) == 2, job.report()
    return job


@needs("freezegun")
def test_a_loop_in_a_frozen_clock_is_restored_with_its_clock(tmp_path: Path, start: Start) -> None:
    job = killed_twice(start, tmp_path, FROZEN)
    assert job.output(0) == "2020-01-01 12:00:20 2020-01-01 1577880020.0 2020\nTrue True\n"


JSON_OF_ANOTHER = """
    import json, os
    import ckpt

    def die(times):
        if int(os.environ["CKPT_RESTARTS"]) < times:
            os.kill(os.getpid(), 9)

    genuine = json.dumps
    json.dumps = lambda obj, **options: b"fast " + genuine(obj).encode()
    json.loads = lambda text, **options: "read"
    comm = ckpt.enable()
    for step in range(1, 21):
        comm.allreduce(step)
        if step % 8 == 0:
            ckpt.checkpoint()
            ckpt.checkpoint()
            die(step // 8)
    print(json.dumps([step]), json.loads("1"))
"""


def test_functions_that_a_program_puts_into_json_are_not_those_of_the_rank(
    tmp_path: Path, start: Start
) -> None:
    """What the rank told the controller was written with them: no checkpoint, and no end of the job."""
    job = killed_twice(start, tmp_path, JSON_OF_ANOTHER)
    assert job.output(0) == "b'fast [20]' read\n"
    assert not job.events("malformed-packet"), job.report()


FAKED = """
    import os, pathlib
    from pyfakefs.fake_filesystem_unittest import Patcher
    import ckpt

    def die(times):
        if int(os.environ["CKPT_RESTARTS"]) < times:
            os.kill(os.getpid(), 9)

    comm, total = ckpt.enable(), 0
    with Patcher() as patcher:
        patcher.fs.create_dir("/data")
        kept, log = open("/data/kept", "w"), pathlib.Path("/data/log")
        kept.write("begun ")
        for step in range(1, 21):
            total += comm.allreduce(step)
            with open("/data/log", "a") as file:
                file.write("line\\n")
            if step % 8 == 0:
                ckpt.checkpoint()
                ckpt.checkpoint()  # by now the first one is committed
                die(step // 8)
        kept.write("and ended")
        kept.close()
        print(log.read_text().count("line"), open("/data/kept").read(), sorted(os.listdir("/data")))
    print(total, os.path.exists(__file__), os.path.exists("/data"), type(os))
"""


@needs("pyfakefs")
def test_a_file_system_in_memory_is_restored_and_left_with_its_patcher(tmp_path: Path, start: Start) -> None:
    job = killed_twice(start, tmp_path, FAKED)
    assert job.output(0) == "20 begun and ended ['kept', 'log']\n210 True False <class 'module'>\n"
    assert not job.events("packages-left-out"), job.report()


PATCHED_BY_GEVENT = """
    from gevent import monkey
    monkey.patch_all()
    import time, gevent
    import ckpt

    comm, ticks = ckpt.enable(), 0
    def work():
        global ticks
        while True:
            gevent.sleep(0.001)
            ticks += 1
    running = gevent.spawn(work)
    total = 0
    for i in range(100):
        total += comm.allreduce(i)
        if i in (20, 60):  # the second waits for the end of the first
            ckpt.checkpoint()
        time.sleep(0.002)
    running.kill()
    print(total, ticks > 0)
"""

SUSPENDED = """
    import gevent, time
    import ckpt

    comm = ckpt.enable()
    def work():
        gevent.sleep(1000)
    gevent.spawn(work)  # which only C has
    gevent.sleep(0)
    total = 0
    for i in range(100):
        total += comm.allreduce(i)
        if i in (20, 60):  # the second waits for the end of the first
            ckpt.checkpoint()
        time.sleep(0.002)
    print(total, True)
"""


@needs("gevent")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PATCHED_BY_GEVENT, "it has patched the standard library, and its loop and its greenlets live in C"),
        (
            SUSPENDED,
            "threads, asyncio or generators in its place (salabim: yieldless=False) (a greenlet (work))",
        ),
    ],
    ids=["patch_all", "greenlet"],
)
def test_what_cannot_be_saved_is_refused_by_name_and_runs_on(
    tmp_path: Path, start: Start, text: str, words: str
) -> None:
    job = start(write_app(tmp_path, text), ranks=2, every=100)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == [f"{2 * sum(range(100))} True\n"] * 2
    failed = job.events("failed")
    assert failed and not job.events("committed"), job.report()
    assert all(words in f"{event['reason']} ({event['where']})" for event in failed), job.report()
    assert "Traceback" not in job.stderr and "Exception ignored" not in job.stderr
    assert not any("Exception" in path.read_text() for path in job.directory.glob("output/*.err"))


@needs("gevent")
def test_what_is_left_of_gevent_when_its_greenlets_have_ended_is_made_anew(
    tmp_path: Path, start: Start
) -> None:
    text = """
        import gevent, os
        import ckpt

        comm = ckpt.enable()
        def work(k):
            gevent.sleep(0.001)
            return k * k
        def together():
            return sum(each.get() for each in [gevent.spawn(work, k) for k in range(5)])
        print(together())
        while not comm.allreduce(int(os.environ["CKPT_RESTARTS"]), max):
            pass
        print(together())
    """
    job = start(write_app(tmp_path, text), ranks=2, every=0.2)
    job.wait_event("committed")
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["30\n30\n"] * 2

"""Threads of the application: part of the image, refused by name where C code runs in them, or declared harmless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

STARTED_BEFORE = """
    import threading, time
    import ckpt
    from tools import die_once

    ticker = threading.Thread(target=time.sleep, args=(3600,), name="ticker-7", daemon=True)
    ticker.start()
"""


def test_a_thread_that_threading_has_not_started_is_refused_when_ckpt_is_enabled(
    start: Start, tmp_path: Path
) -> None:
    app = app_of(
        tmp_path,
        """
        import _thread, time
        import ckpt
        begun = _thread.allocate_lock()
        begun.acquire()
        def background():
            begun.release()
            time.sleep(3600)
        _thread.start_new_thread(background, ())
        begun.acquire()
        ckpt.enable()
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 1, job.report()
    assert (
        "ThreadsRunning" in job.stderr and "'background'" in job.stderr and "harmless_threads" in job.stderr
    )


def test_a_thread_runs_after_a_restart_too(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import threading
        import ckpt
        from tools import die_once
        ckpt.enable()
        go, log = threading.Event(), []
        def work(n):
            go.wait()
            log.append((n, threading.current_thread().name, threading.get_ident() == threads[n].ident))
        threads = [threading.Thread(target=work, args=(n,), name=f"worker {n}") for n in range(3)]
        for thread in threads:
            thread.start()
        ckpt.checkpoint()
        die_once()
        print([thread.is_alive() for thread in threads], threading.active_count())
        go.set()
        for thread in threads:
            thread.join()
        print(sorted(log), [thread.is_alive() for thread in threads])
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    rows = [(n, f"worker {n}", True) for n in range(3)]
    assert job.output(0) == f"[True, True, True] 4\n{rows} [False, False, False]\n"


def test_what_a_package_keeps_for_each_thread_and_each_task_is_there_after_a_restart(
    start: Start, tmp_path: Path
) -> None:
    """anyio does: a worker thread ended with an AttributeError, and a cancel scope with a RuntimeError, after a restart. A
    package with a suspended function in a task is at work: what it holds for it may be no mere setting."""
    library = tmp_path / "site-packages" / "kept"
    library.mkdir(parents=True)
    write_app(
        library,
        """
        import threading, weakref
        own, states = threading.local(), weakref.WeakKeyDictionary()
        async def scope(task, future):
            states[task] = iter("abc")
            await future
            return "".join(states[task])
        """,
        "__init__.py",
    )
    app = app_of(
        tmp_path,
        """
        import asyncio, sys, threading
        import ckpt
        from tools import die_once
        sys.path.insert(0, __file__.rpartition("/")[0] + "/site-packages")
        import kept
        ckpt.enable()
        go, log = threading.Event(), []
        def run(name):
            kept.own.name = name
            go.wait()
            log.append(kept.own.name)
        threads = [threading.Thread(target=run, args=(name,)) for name in "xy"]
        for thread in threads:
            thread.start()
        async def work(future):
            return await kept.scope(asyncio.current_task(), future)
        async def main():
            future = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(work(future))
            await asyncio.sleep(0)
            ckpt.checkpoint()
            die_once()
            future.set_result(None)
            print(await task)
        asyncio.run(main())
        go.set()
        for thread in threads:
            thread.join()
        print(sorted(log), ckpt.restarts())
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "abc\n['x', 'y'] 1\n"


def test_a_program_that_waits_until_one_thread_is_left_or_joins_all_sees_its_own_threads_only(
    start: Start, tmp_path: Path
) -> None:
    """The port's helper was among them: both loops waited for ever."""
    app = app_of(
        tmp_path,
        """
        import threading, time
        from threading import active_count, enumerate as all_threads
        from tools import die_once
        def work():
            total = 0
            for number in range(300_000):
                total += number
        for turn in range(3):
            started = [threading.Thread(target=work) for _ in range(3)]
            for thread in started:
                thread.start()
            while active_count() > 1:
                time.sleep(0.01)
            assert all_threads() == [threading.main_thread()]
            threading.Thread(target=work).start()
            for thread in threading.enumerate():
                if thread is not threading.main_thread():
                    thread.join()
            if turn == 1:
                die_once()
        print(threading.active_count(), threading.enumerate() == [threading.current_thread()])
        """,
    )
    job = start(app, ranks=1, every=0.1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "1 True\n"
    assert job.events("restarted"), job.report()


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("raise SystemExit(3)", 3), ("raise KeyError('gone')", 1)]
)
def test_threads_go_on_after_the_main_thread_has_ended(
    start: Start, tmp_path: Path, end: str, code: int
) -> None:
    app = app_of(
        tmp_path,
        f"""
        import os, threading
        from tools import die_once
        def work():
            value = 0
            while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
                value += 1
            die_once()
            print("went on", value > 0, flush=True)
        threading.Thread(target=work).start()
        print("main ends", flush=True)
        {end}
        """,
    )
    job = start(app, ranks=1, every=0.2)
    assert job.finish() == code, job.report()
    assert job.events("restarting") and job.output(0) == "main ends\nwent on True\n"
    assert ("KeyError: 'gone'" in (job.directory / "output" / "rank-0.err").read_text()) == (code == 1)


def test_two_ranks_with_threads_that_compute_while_messages_go_round(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import threading
        import ckpt
        from tools import die_once
        comm = ckpt.enable()
        totals, stop = [0, 0], threading.Event()
        def count(n):
            while not stop.is_set():
                totals[n] += 1
        threads = [threading.Thread(target=count, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        total = 0
        for step in range(200):
            total = comm.allreduce(comm.rank * step + total % 7)
            if step == 100:
                ckpt.checkpoint()
                die_once()
        stop.set()
        for thread in threads:
            thread.join()
        print(total, min(totals) > 0)
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert job.events("restarting") and job.output(0) == job.output(1)


@pytest.mark.parametrize("how", ["pattern", "object", "option"])
def test_a_harmless_thread_is_gone_after_a_restart(start: Start, tmp_path: Path, how: str) -> None:
    enable = {
        "pattern": 'ckpt.enable(harmless_threads=["ticker-*"])',
        "object": "ckpt.enable(harmless_threads=[ticker])",
        "option": "ckpt.enable()",
    }[how]
    app = app_of(
        tmp_path,
        STARTED_BEFORE
        + f"""
    {enable}
    again = []
    ckpt.on_restart(lambda epoch: again.append(ticker.is_alive()))
    ckpt.checkpoint()
    die_once()
    ticker.join()
    print(again, ticker.name, ticker.is_alive(), threading.active_count() <= 2, ticker in threading.enumerate())
    """,
    )
    options = {"harmless_threads": "ticker-*"} if how == "option" else {}
    job = start(app, ranks=1, **options)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[False] ticker-7 False True False\n"


def test_a_thread_inside_of_c_code_is_named_until_it_comes_out(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import os, threading, time
        import ckpt
        from tools import die_once
        ckpt.enable()
        reading, writing = os.pipe()
        def load():
            with os.fdopen(reading, "rb", buffering=0) as file:
                file.read(1)
            del file
        worker = threading.Thread(target=load, name="loader")
        worker.start()
        ckpt.checkpoint(wait=False)
        while '"refused"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
            time.sleep(0.01)
        os.write(writing, b".")
        worker.join()
        os.close(writing)
        while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
            time.sleep(0.001)
        die_once()
        print(worker.is_alive(), ckpt.restarts())
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert "thread 'loader'" in job.events("refused")[0]["reason"]
    assert "read() is running" in job.events("refused")[0]["reason"]
    assert job.output(0) == "False 1\n"


def test_threads_not_started_and_timers_come_back_as_they_were(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import threading
        import ckpt
        from tools import die_once
        out = []
        class Named(threading.Thread):
            def __init__(self): super().__init__(name="named"); self.extra = [1]
            def run(self): out.append(self.extra)
        ended, fresh = Named(), Named()
        ended.start(); ended.join()
        ckpt.enable()
        ckpt.checkpoint()
        die_once()
        fresh.start(); fresh.join()
        print(out, ended.is_alive(), fresh.is_alive(), type(ended).__name__, ended.extra)
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[[1], [1]] False False Named [1]\n"


POOL_WITHOUT_WORKERS = """
    import threading
    from ckpt import MPI

    done = threading.Event()

    def manage():  # what a pool of mpi4py.futures does in a world of one rank
        try:
            MPI.COMM_SELF.Accept("somewhere")
        except NotImplementedError:
            print("the program's own way out", flush=True)
        MPI.COMM_SELF.Spawn("python")
        done.set()

    threading.Thread(target=manage, name="pool").start()
    done.wait()
"""


def test_spawn_that_raises_in_a_thread_ends_the_job_instead_of_leaving_the_main_thread_waiting(
    tmp_path: Path,
) -> None:
    done = run_ckpt("run", "-n", 1, "--job", tmp_path / "job", write_app(tmp_path, POOL_WITHOUT_WORKERS))
    assert done.returncode == 1, done.stderr
    assert "the program's own way out" in done.stdout
    assert "thread 'pool' cannot go on: Intracomm.Spawn" in done.stderr and "ckpt run -n N" in done.stderr


def test_a_thread_of_start_new_thread_is_refused_by_name_until_it_ends(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import _thread, os, threading, time
        import ckpt
        from tools import die_once
        ckpt.enable()
        go, ended = _thread.allocate_lock(), _thread.allocate_lock()
        go.acquire(), ended.acquire()
        def background():
            go.acquire()
            ended.release()
        _thread.start_new_thread(background, ())
        ckpt.checkpoint(wait=False)
        while '"refused"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
            time.sleep(0.01)
        go.release()
        ended.acquire()
        ckpt.checkpoint()  # the round that was refused so far: it must not end within die_once
        die_once()
        print(ended.locked(), ckpt.restarts())
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert "thread 'background' was not started by threading" in job.events("refused")[0]["reason"]
    assert job.output(0) == "True 1\n"


def test_threads_that_look_for_messages_while_the_main_thread_waits_are_part_of_an_image(
    start: Start, tmp_path: Path
) -> None:
    """Such a thread is nearly always found where it waits for the library, in which the main thread is: no checkpoint."""
    app = app_of(
        tmp_path,
        """
        import threading, time
        import ckpt
        from tools import die_once
        comm = ckpt.enable()
        requests, probed, log = comm.Dup(), comm.Dup(), []
        def test():
            request = requests.irecv(source=0)
            while not (answer := request.test())[0]:
                time.sleep(0.001)
            log.append(answer[1])
        def probe():
            while not probed.iprobe(source=0):
                time.sleep(0.001)
            log.append(probed.recv(source=0))
        threads = [threading.Thread(target=each) for each in (test, probe)]
        for thread in threads:
            thread.start()
        while ckpt.checkpoint() is None:
            pass
        die_once()
        requests.send("tested", 0)
        probed.send("probed", 0)
        for thread in threads:
            thread.join()
        print(sorted(log))
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert len(job.events("restarted")) == 1, job.report()
    assert job.output(0) == "['probed', 'tested']\n"

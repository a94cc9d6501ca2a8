"""Programs with pools of processes, killed again and again: what they print is the same, byte for byte, as without ckpt and
without kills.

Images are taken at whatever moment comes: tasks wait, run, are on their way to a worker or back. ``POOL_KILLS`` sets the
number of kills.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job, same_after_kills, write_app

pytestmark = [pytest.mark.system]

Start = Callable[..., Job]

PROGRAMS = [
    pytest.param(
        path,
        marks=pytest.mark.skipif(path.stem == "parallel" and not find_spec("joblib"), reason="no joblib"),
    )
    for path in sorted((Path(__file__).parents[1] / "programs" / "pools").glob("*.py"))
]
KILLS = int(os.environ.get("POOL_KILLS", "2"))
MANY_KILLS = 40
TURNS = 5
"""200 restores of each program."""


@pytest.mark.rotate(4)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_with_a_pool_prints_the_same_after_kills(start: Start, program: Path) -> None:
    same_after_kills(start, program, KILLS, more_loops=2)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("turn", range(TURNS))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_with_a_pool_prints_the_same_after_many_kills(
    start: Start, program: Path, turn: int
) -> None:
    same_after_kills(start, program, MANY_KILLS, more_loops=2, every=0.05)


OPEN = """
    import multiprocessing, os, sys, time
    from concurrent.futures import ProcessPoolExecutor

    log, go, kind = sys.argv[1:]

    def task(n):
        with open(log, "a") as file:
            file.write(f"{n} {os.getpid()}\\n")
        while n == 3 and not os.path.exists(go):
            time.sleep(0.01)
        return n * n

    if kind == "executor":
        pool = ProcessPoolExecutor(2)
        submit = pool.submit
    else:
        pool = multiprocessing.Pool(2)
        submit = lambda function, *args: pool.apply_async(function, args)
    open_tasks = [submit(task, n) for n in range(4)]
    get = lambda answer: answer.result() if kind == "executor" else answer.get()
    print([get(answer) for answer in open_tasks[:3]], flush=True)
    print(get(open_tasks[3]), get(submit(task, 4)))
"""


@pytest.mark.rotate(2)
@pytest.mark.parametrize("kind", ["executor", "pool"])
def test_a_task_that_runs_does_not_delay_an_image_and_only_it_is_done_again(
    start: Start, tmp_path: Path, kind: str
) -> None:
    log, go = tmp_path / "log", tmp_path / "may-end"
    app = write_app(tmp_path, OPEN)
    job = start(app, log, go, kind, ranks=1, every=0.1)
    job.wait_for(lambda: "[0, 1, 4]" in job.output(0), "three answers")
    job.wait_event("committed", len(job.events("committed")) + 2)
    job.kill_rank(0)
    job.wait_event("restarted")
    rows = job.wait_for(
        lambda: (found := [line.split() for line in log.read_text().splitlines()])[4:] and found, "task 3"
    )
    dead = {int(pid) for _, pid in rows[:4]}
    assert not [pid for pid in dead if Path(f"/proc/{pid}").exists()], "workers of the killed program live on"
    assert int(rows[4][1]) not in dead
    go.touch()
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[0, 1, 4]\n9 16\n"
    times = Counter(int(line.split()[0]) for line in log.read_text().splitlines())
    assert times == {0: 1, 1: 1, 2: 1, 3: 2, 4: 1}


COUNTED = """
    import multiprocessing, os, sys, time

    go, end = sys.argv[1:]

    def begin(value):
        global total
        total = value

    def task(n):
        with total:
            total.value += 1
        while n == 3 and not os.path.exists(go):
            time.sleep(0.01)
        return n

    total = multiprocessing.Value("i", 0)
    with multiprocessing.Pool(2, begin, (total,)) as pool:
        open_tasks = [pool.apply_async(task, (n,)) for n in range(4)]
        print([answer.get() for answer in open_tasks[:3]], flush=True)
        print(open_tasks[3].get(), flush=True)
        while not os.path.exists(end):
            time.sleep(0.01)
        pool.apply(task, (5,))
    print(total.value)
"""


@pytest.mark.rotate(2)
def test_what_tasks_count_in_shared_memory_is_counted_once(start: Start, tmp_path: Path) -> None:
    """A task that is done again would count a second time: no image is taken while tasks are at work, and it says so."""
    go, end = tmp_path / "may-go-on", tmp_path / "may-end"
    job = start(write_app(tmp_path, COUNTED), go, end, ranks=1, every=0.1, timeout=1)
    job.wait_for(
        lambda: any("child processes are at work" in each["reason"] for each in job.events("round-aborted")),
        "a round that was given up",
    )
    go.touch()
    job.wait_for(lambda: "3\n" in job.output(0), "the last answer")
    job.wait_event("committed", len(job.events("committed")) + 2)
    job.kill_rank(0)
    job.wait_event("restarted")
    end.touch()
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[0, 1, 2]\n3\n5\n"


DROPPED = """
    import os, sys, time
    from concurrent.futures import ProcessPoolExecutor

    def task(go):
        while not os.path.exists(go):
            time.sleep(0.01)
        return "answer"

    answer = ProcessPoolExecutor(1).submit(task, sys.argv[1])
    print(answer.result())
"""


@pytest.mark.rotate(8)
def test_an_executor_that_was_dropped_is_refused_by_name(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, DROPPED), tmp_path / "may-end", ranks=1, every=0.1)
    aborted = job.wait_event("round-aborted")
    assert "keep the executor in a variable" in aborted["reason"], job.report()
    (tmp_path / "may-end").touch()
    assert job.finish() == 0, job.report()
    assert job.output(0) == "answer\n"


LOCKED = """
    import multiprocessing, tempfile, threading
    from concurrent.futures import ProcessPoolExecutor, thread
    import ckpt
    from tools import die_once

    ckpt.enable()
    lock = threading.Lock()

    def task(n):
        with lock, tempfile._once_lock:
            return n * n

    ended = multiprocessing.Pool(1)
    ended.terminate()
    process = multiprocessing.Process(target=task, args=(1,))
    process.start()
    process.join()
    executor, idle, pool = ProcessPoolExecutor(1), ProcessPoolExecutor(1), multiprocessing.Pool(1)
    print(executor.submit(task, 2).result(), pool.apply(task, (3,)))
    with lock, tempfile._once_lock, thread._global_shutdown_lock:
        ckpt.checkpoint()
        die_once()
    ended.join()
    process.join()
    print(process.exitcode, [each.submit(task, 4).result() for each in (executor, idle)], pool.apply(task, (5,)))
"""


@pytest.mark.rotate(8)
def test_a_worker_holds_no_lock_of_the_program_and_what_has_ended_can_be_joined(
    start: Start, tmp_path: Path
) -> None:
    """A worker that was started while the program held a lock would have waited for it for ever. So would the restart:
    the last of these locks, which `ThreadPoolExecutor.submit` holds, is taken before each fork."""
    job = start(app_of(tmp_path, LOCKED), ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "4 9\n0 [16, 16] 25\n"
    assert job.events("restarted")


SERVED = """
    import multiprocessing
    import ckpt
    from tools import die_once

    def main():
        ckpt.enable()
        context = multiprocessing.get_context("forkserver")
        with context.Pool(1) as pool:
            print(pool.apply(abs, (-3,)))
            ckpt.checkpoint()
            die_once()
            print(pool.apply(abs, (-4,)))
        ckpt.checkpoint()
        process = context.Process(target=abs, args=(1,))
        process.start()
        process.join()
        print(process.exitcode)

    if __name__ == "__main__":
        main()
"""


@pytest.mark.rotate(8)
def test_workers_are_forked_by_another_server_after_a_restart(start: Start, tmp_path: Path) -> None:
    """The former server was asked whether it lives, as a child that the new process does not have."""
    job = start(app_of(tmp_path, SERVED), ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "3\n4\n0\n"
    assert job.events("restarted") and not job.events("line-unusable"), job.report()


LOKY = """
    import os, time
    from joblib.externals.loky import ProcessPoolExecutor

    with ProcessPoolExecutor(1) as pool:
        print(pool.submit(sum, range(10)).result(), flush=True)
        while '"failed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
            time.sleep(0.01)
"""


@pytest.mark.rotate(8)
def test_a_pool_of_loky_that_joblib_has_not_made_is_refused_by_name(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    job = start(write_app(tmp_path, LOKY), ranks=1, every=0.1)
    assert job.wait_event("failed")["reason"].startswith("a pool of loky that the program holds"), (
        job.report()
    )


MANAGED = """
    import multiprocessing, os, signal, time
    import ckpt
    from multiprocessing.managers import BaseManager

    class Counter:
        def __init__(self):
            self.number = 0
        def add(self, more):
            self.number += more
            return self.number

    class Own(BaseManager):
        pass

    Own.register("Counter", Counter)

    def work(n, squares, lock):
        with lock:
            squares[n] = n * n

    def heard(event):
        return event in open(os.environ["CKPT_JOB"] + "/events.jsonl").read()

    def main():
        manager = multiprocessing.Manager()
        squares, lock, queue = manager.dict(), manager.Lock(), manager.Queue()
        squares["inner"] = inner = manager.list([1])
        without_manager = squares["inner"]
        processes = [multiprocessing.Process(target=work, args=(n, squares, lock)) for n in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        ckpt.checkpoint()
        while not heard('"failed"'):
            time.sleep(0.01)
        print(squares[1], list(without_manager), flush=True)
        manager.shutdown()
        with Own() as own:
            counter = own.Counter()
            print(counter.add(3), flush=True)
        ckpt.checkpoint()
        if not ckpt.restarts():
            while not heard('"committed"'):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        for gone in (squares, lock, queue, without_manager, counter):
            try:
                gone.add(1) if gone is counter else str(gone._callmethod("__len__"))
            except (OSError, EOFError):
                print(type(gone).__name__)
        with multiprocessing.Manager() as another:
            print(another.list([5])[0])

    if __name__ == "__main__":
        main()
"""


@pytest.mark.rotate(8)
def test_a_manager_that_runs_is_refused_by_name_and_what_it_leaves_is_no_obstacle(
    start: Start, tmp_path: Path
) -> None:
    """A proxy connected to its manager where it was loaded: each restart failed, and all progress was lost."""
    job = start(write_app(tmp_path, MANAGED), ranks=1)
    reason = job.wait_event("failed")["reason"]
    assert "a manager of multiprocessing (SyncManager)" in reason and "shut down" in reason, job.report()
    assert job.finish() == 0, job.report()
    gone = ["DictProxy", "AcquirerProxy", "AutoProxy[Queue]", "ListProxy", "AutoProxy[Counter]"]
    assert job.output(0).splitlines() == ["1 [1]", "3", *gone, "5"]
    assert [event["from_epoch"] for event in job.events("restarting")] != [None], job.report()
    assert not job.events("line-unusable"), job.report()

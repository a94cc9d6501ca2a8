"""What `multiprocessing` offers, used by threads of one program: locks, queues, processes that have not begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]


def test_a_lock_that_another_thread_holds_is_held_after_a_restart(start: Start, tmp_path: Path) -> None:
    """It was free: two threads were inside, and the first one's release raised ValueError."""
    app = app_of(
        tmp_path,
        """
        import multiprocessing, threading, time
        import ckpt
        from tools import die_once
        ckpt.enable()
        lock, places = multiprocessing.Lock(), multiprocessing.BoundedSemaphore(2)
        go, log = threading.Event(), []
        def hold():
            with lock, places:
                go.wait()
                log.append("held")
        def wait():
            with lock:
                log.append("waited")
            with places:
                log.append("placed")
        threads = [threading.Thread(target=hold)]
        threads[0].start()
        while lock._semlock._get_value():
            time.sleep(0.01)
        threads.append(threading.Thread(target=wait))
        threads[1].start()
        time.sleep(0.1)
        ckpt.checkpoint()
        die_once()
        print(lock.acquire(block=False), places.acquire(block=False), places.acquire(block=False))
        places.release()
        time.sleep(0.2)
        log.append("go")
        go.set()
        for thread in threads:
            thread.join()
        print(log, lock.acquire(block=False))
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "False True False\n['go', 'held', 'waited', 'placed'] True\n"


def test_queues_between_threads_and_a_process_that_begins_after_a_restart(
    start: Start, tmp_path: Path
) -> None:
    app = app_of(
        tmp_path,
        """
        import multiprocessing, threading, time
        import ckpt
        from tools import die_once
        ckpt.enable()
        tasks, results = multiprocessing.Queue(), multiprocessing.JoinableQueue(2)
        def work():
            while (number := tasks.get()) is not None:
                results.put(number * number)
        def answer():
            results.put("from a child")
        child = multiprocessing.Process(target=answer)
        thread = threading.Thread(target=work)
        thread.start()
        for number in range(4):
            tasks.put(number)
        time.sleep(0.2)  # two results are there, and the thread waits for room
        ckpt.checkpoint()
        die_once()
        print(child.is_alive(), [results.get() for _ in range(4)])
        tasks.put(None)
        thread.join()
        child.start()
        print(results.get(), child.join(), child.exitcode)
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "False [0, 1, 4, 9]\nfrom a child None 0\n"


def test_queues_without_child_processes_come_back_with_what_is_in_them(start: Start, tmp_path: Path) -> None:
    """Refused: luigi makes such a queue for each of its workers, and has no child with one of them."""
    app = app_of(
        tmp_path,
        """
        import multiprocessing
        import ckpt
        from tools import die_once
        ckpt.enable()
        tasks, bounded, simple = multiprocessing.Queue(), multiprocessing.JoinableQueue(3), multiprocessing.SimpleQueue()
        for item in ("one", "two", b"three" * 1000):
            tasks.put(item)
        print(tasks.get())
        bounded.put(1)
        bounded.put(2)
        simple.put([3])
        ckpt.checkpoint()
        die_once()
        print(tasks.get(), len(tasks.get()), simple.get(), bounded.get(), bounded.full(), bounded._sem.get_value())
        bounded.task_done()
        bounded.get()
        bounded.task_done()
        bounded.join()
        for queue in (tasks, bounded):
            queue.put("at the end")
            queue.close()
            queue.join_thread()
            print(queue._thread.is_alive())
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "one\ntwo 5000 [3] 1 False 2\nFalse\nFalse\n"

"""The pool: bounded, in the face of errors as well."""

from __future__ import annotations

import _thread
import errno
import os
from collections.abc import Callable

import pytest

from ckpt.store.disk.pool import Pool, default_threads


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_every_task_is_done_once(threads: int) -> None:
    done: list[int] = []
    pool: Pool[int] = Pool(lambda: done.append, threads)
    for number in range(200):
        pool.submit(number)
    pool.join()
    pool.close()
    assert sorted(done) == list(range(200))


def test_no_more_than_the_limit_is_under_way() -> None:
    gate = _thread.allocate_lock()
    gate.acquire()
    started: list[int] = []

    def work(task: int) -> None:
        started.append(task)
        with gate:
            pass

    pool: Pool[int] = Pool(lambda: work, 2)
    for number in range(pool.limit):
        pool.submit(number)
    assert pool.limit == 4 and len(started) <= 2
    gate.release()
    pool.submit(99)
    pool.close()
    assert 99 in started


@pytest.mark.parametrize("threads", [0, 2])
def test_the_first_error_is_raised_and_the_threads_end(threads: int) -> None:
    def work(task: int) -> None:
        if task == 3:
            raise KeyError(task)

    pool: Pool[int] = Pool(lambda: work, threads)
    with pytest.raises(KeyError):
        for number in range(100):
            pool.submit(number)
        pool.join()
    pool.close()


def test_a_thread_that_cannot_start_its_work_says_so() -> None:
    def make() -> Callable[[int], None]:
        raise MemoryError("no memory for a compressor")

    pool: Pool[int] = Pool(make, 2)
    with pytest.raises(MemoryError):
        for number in range(10):
            pool.submit(number)
        pool.join()
    pool.close()


def test_without_threads_the_caller_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    done: list[int] = []
    pool: Pool[int] = Pool(lambda: done.append, 4)
    pool.submit(1)
    assert done == [1]
    pool.join()
    pool.close()


def test_a_sensible_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= default_threads() <= 8

    def refuse(pid: int) -> set[int]:
        raise PermissionError(errno.EPERM, "not in this sandbox")

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    for cores, threads in ((1, 2), (3, 6), (64, 8), (None, 2)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert default_threads() == threads

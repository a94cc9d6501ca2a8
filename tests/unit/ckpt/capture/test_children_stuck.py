"""A forked child that waits for a thread that it does not have is told from one that works, or waits for something else."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ckpt.capture.children import StuckWriters

SECOND_NS = 10**9


@contextmanager
def child(work: Callable[[], object]) -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait_until_it_waits(pid: int) -> None:
    for _ in range(5000):
        with open(f"/proc/{pid}/stat") as status, open(f"/proc/{pid}/wchan") as place:
            state, where = status.read().rpartition(")")[2].split()[0], place.read()
        if state == "S" and ("futex" in where or "nanosleep" in where):
            return
        time.sleep(0.001)
    pytest.skip("this kernel does not say what a process waits for")


@pytest.fixture
def held() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def test_a_child_that_waits_for_a_lock_is_stuck_after_five_seconds(held: threading.Lock) -> None:
    with child(held.acquire) as pid:
        wait_until_it_waits(pid)
        writers = StuckWriters()
        found = [writers.found([pid], second * SECOND_NS) for second in range(1, 8)]
    assert found == [[], [], [], [], [], [pid], [pid]]


def test_one_that_computes_or_sleeps_is_not(held: threading.Lock) -> None:
    def busy() -> None:
        while True:
            pass

    with child(busy) as one, child(lambda: time.sleep(100)) as other:
        wait_until_it_waits(other)
        writers = StuckWriters()
        assert not [
            found for second in range(1, 20) if (found := writers.found([one, other], second * SECOND_NS))
        ]


def test_it_looks_once_a_second(held: threading.Lock) -> None:
    with child(held.acquire) as pid:
        wait_until_it_waits(pid)
        writers = StuckWriters()
        writers.found([pid], SECOND_NS)
        assert writers.found([pid], SECOND_NS + 1) == []
        assert writers.found([], 20 * SECOND_NS) == []

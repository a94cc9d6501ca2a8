"""A few worker threads for one image, which also work in a forked child.

The image child is made by fork(2) without CPython's at-fork hooks, so locks of `threading` may be held by threads that no
longer exist. Therefore the pool uses only primitives that it creates itself: threads and locks of `_thread`, and
the `SimpleQueue` in C. `threading` does not list these threads; they end with `close`.

Bounded: `submit` waits while `limit` tasks are under way, so at most that many blocks are in memory.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from ckpt.compat.accelerators import SimpleQueue

__all__ = ["Pool", "default_threads"]

Task = TypeVar("Task")

_TASKS_PER_THREAD: Final = 2
_THREADS_PER_CORE: Final = 2  # while one waits for the disk, the other has work for the processor
_MOST_THREADS: Final = 8


def default_threads() -> int:
    """Return two threads for each core that this process may use, at most 8 (each thread keeps blocks in memory)."""
    try:
        cores = len(os.sched_getaffinity(0))
    except OSError:  # some sandboxes refuse the call
        cores = os.cpu_count() or 1
    return min(_MOST_THREADS, _THREADS_PER_CORE * cores)


class Pool(Generic[Task]):
    """Calls a function for every submitted task; each thread has a function of its own.

    Args:
        make_work: called once in each thread; it returns the function that is called with each task.
        threads: their number; fewer are used when the system gives no more. With 0 threads, `submit` itself calls the
            function.
    """

    def __init__(self, make_work: Callable[[], Callable[[Task], None]], threads: int) -> None:
        self._make_work = make_work
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._under_way = 0
        self._error: BaseException | None = None
        self._inline: Callable[[Task], None] | None = None
        self._running = 0
        for _ in range(threads):
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:
                break  # the system gives no more threads: those that run do the work
            self._running += 1
        if not self._running:
            self._inline = make_work()
        self.limit = self._running * _TASKS_PER_THREAD

    def _run(self) -> None:
        try:
            work = self._make_work()
        except BaseException as error:
            # The error is the result of every task that this thread takes: the image fails with it instead of hanging.
            reason = error
            while self._tasks.get() is not None:
                self._done.put(reason)
            self._done.put(None)
            return
        while (task := self._tasks.get()) is not None:
            try:
                work(task)
            except BaseException as error:
                self._done.put(error)
            else:
                self._done.put(None)
            del task
        self._done.put(None)

    def submit(self, task: Task) -> None:
        """Give a task to the threads; wait while `limit` tasks are under way. Raises the first error of an earlier task."""
        if self._inline is not None:
            self._inline(task)
            return
        while self._under_way >= self.limit:
            self._collect()
        self._raise()
        self._tasks.put(task)
        self._under_way += 1

    def join(self) -> None:
        """Wait until all tasks are done; raises the first error of any."""
        while self._under_way:
            self._collect()
        self._raise()

    def close(self) -> None:
        """Wait for the tasks under way and end the threads; raises nothing. The pool cannot be used again."""
        while self._under_way:
            self._collect()
        for _ in range(self._running):
            self._tasks.put(None)
        for _ in range(self._running):
            self._done.get()
        self._running = 0

    def _collect(self) -> None:
        error = self._done.get()
        self._under_way -= 1
        if self._error is None:
            self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

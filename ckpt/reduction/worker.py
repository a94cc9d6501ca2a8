"""A thread that combines arrays and copies results where they lie in the host's memory. (driver)

It is no part of images: what it works on is memory that others may change after the image was taken, and addresses mean
nothing after a restart. The state of the reduction has the task and its inputs; after a restart they are given to a new
thread. It runs no code of the program: operations of MPI on arrays only.

One call of numpy for each, since that gives the interpreter's lock back once: in pieces, each of them would wait 5 ms for a
program that computes in Python. The processor reads the other's memory and adds at the same time.

Not here: what is to be done (service.py), memory (copies.py).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import ckpt


class Worker:
    """The thread, which begins with the first job. In an image it is a new one, without jobs."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None

    def __reduce__(self) -> Any:
        return Worker, ()

    def give(self, job: Callable[[], None]) -> None:
        """Have a function called in the thread. It must not raise."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, daemon=True, name="ckpt.reduction arrays")
            ckpt.harmless_threads(self.thread)
            self.thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        """Let it end when its jobs are done."""
        if self.thread is not None:
            self._jobs.put(None)
            self.thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

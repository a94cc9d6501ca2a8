"""An agent without a controller looks into the job's journal, in a thread of its own: a disk may hold it up. (driver)

What it finds is judged by `verdict.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ckpt.controller.adoption.verdict import Verdict, judge
from ckpt.store import JobDirectory, StoreError
from ckpt.store.job.journal_files import look_behind

__all__ = ["Watching"]


class Watching:
    """The looks of the agent of one host, one at a time."""

    def __init__(self, job: JobDirectory, host: str, index: int, clock: Callable[[], int]) -> None:
        self._job, self._host, self._index, self._clock = job, host, index, clock
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None
        self._found: Verdict | None = None

    def fileno(self) -> int:
        """Readable when `take` would return something."""
        return self._fd

    def begin(self, number: int, generation: int) -> None:
        """Look behind record `number`, unless a look is under way."""
        if self._thread is None:
            words = (number, generation, self._clock())
            self._thread = threading.Thread(target=self._look, args=words, name="ckpt-journal", daemon=True)
            self._thread.start()

    def _look(self, number: int, generation: int, began_ns: int) -> None:
        try:
            job = self._job
            seen = look_behind(job.path, job.key, job.job_id, job.fs, number)
            self._found = judge(
                seen.records, host=self._host, index=self._index, generation=generation, began_ns=began_ns
            )
        except StoreError:
            self._found = None  # it cannot be known now: the ranks have what they have
        os.eventfd_write(self._fd, 1)

    def take(self) -> Verdict | None:
        """What the look that has just ended has found; None: none has ended, or nothing can be known."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return None
        found, self._found, self._thread = self._found, None, None
        return found

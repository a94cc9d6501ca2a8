"""A forked child reads something first, and the program stands still meanwhile.

The two tell each other by a page of memory that they share: a pipe would be one of the descriptors that an image notes.
Whoever is late cannot do harm: the child asks whether it is in time *after* it has read, and the program says that it goes
on *before* it does.
"""

from __future__ import annotations

import os
import time

__all__ = ["LIMIT_S", "Turn"]

LIMIT_S = 2.0
"""So long the program waits at most."""
_SLEEP_S = 0.0002
_HAS_READ, _GOES_ON = 0, 1


class Turn:
    """Made before the fork. The child calls `is_in_time` and `end`, the program `wait`."""

    def __init__(self) -> None:
        import mmap

        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    def is_in_time(self) -> bool:
        return not self._page[_GOES_ON]

    def end(self) -> None:
        """The child has read."""
        self._page[_HAS_READ] = 1
        self._page.close()

    def wait(self, pid: int) -> None:
        """Until the child has read or has died, or the time is up. Then the program may go on."""
        deadline = time.monotonic() + LIMIT_S
        while not self._page[_HAS_READ] and time.monotonic() < deadline and not _has_ended(pid):
            time.sleep(_SLEEP_S)
        self._page[_GOES_ON] = 1
        self._page.close()


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True

"""Standard output and error of a rank whose script runs again: what was printed before the checkpoint is not printed twice.

While the rank replays, both go to memory; when its state is restored they are the rank's files again, cut back to the
length they had. If the replay fails, what it has printed is shown after all.
"""

from __future__ import annotations

import os
import sys

__all__ = ["ReplayedOutput"]

_FDS = (1, 2)


class ReplayedOutput:
    """Takes descriptors 1 and 2 away at once; ``lengths``: of their files at the checkpoint."""

    def __init__(self, lengths: dict[int, int]) -> None:
        self._kept: dict[int, int] = {}
        _flush()
        for fd in _FDS:
            if fd in lengths and os.fstat(fd).st_size > lengths[fd]:
                os.ftruncate(fd, lengths[fd])
            self._kept[fd] = os.dup(fd)
            memory = os.memfd_create("replayed")
            os.dup2(memory, fd)
            os.close(memory)

    def give_back(self, *, show: bool) -> None:
        """Put the files back; ``show``: with what was printed meanwhile. Idempotent."""
        _flush()
        kept, self._kept = self._kept, {}
        for fd, file in kept.items():
            printed = os.pread(fd, os.fstat(fd).st_size, 0) if show else b""
            os.dup2(file, fd)
            os.close(file)
            if printed:
                os.write(fd, printed)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()

"""Standard output and error of a rank that replays: text printed before the checkpoint is not printed a second time.

At the start of a replay the rank's files are cut back to the length they had at the checkpoint, and descriptors 1 and 2
refer to memory. When the state is restored, the descriptors refer to the files again, and the text in memory is dropped. If
the replay fails, the text in memory is appended to the files.
"""

from __future__ import annotations

import os
import sys

__all__ = ["ReplayedOutput"]

_FDS = (1, 2)


class ReplayedOutput:
    """The output of one replay. The constructor redirects descriptors 1 and 2.

    ``lengths``: the lengths in bytes of their files at the checkpoint, by descriptor.
    """

    def __init__(self, lengths: dict[int, int]) -> None:
        self._saved_fds: dict[int, int] = {}
        _flush()
        for fd in _FDS:
            if fd in lengths and os.fstat(fd).st_size > lengths[fd]:
                os.ftruncate(fd, lengths[fd])
            self._saved_fds[fd] = os.dup(fd)
            memory = os.memfd_create("replayed")
            os.dup2(memory, fd)
            os.close(memory)

    def give_back(self, *, show: bool) -> None:
        """Put the files back. ``show``: append the text that was printed during the replay. Further calls do nothing."""
        _flush()
        kept, self._saved_fds = self._saved_fds, {}
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

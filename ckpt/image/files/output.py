"""★ The files that a rank's standard output and error go to: what a full disk does not take is held back, not lost.

These files are in the job directory, so the program is not to blame when there is no room. :class:`Output` is the lowest
layer of ``sys.stdout`` and ``sys.stderr``::

    writing ──no space, or the quota is used up──▶ holding back ──all is written──▶ writing
                                                       │
                                                       └── more than HELD_BYTES: who writes waits

- It is tried again with every write, in waits, and by the helper thread's tick, under the runtime's lock, so that no image
  is taken meanwhile: order is kept, nothing is written twice.
- Each time it begins and ends is told to the controller, which says it: once, not for each line.
- What is held back is part of an image, like what is in the buffers above (:mod:`ckpt.image.files.standard_output`).
- At the end of the rank it is waited for (``PATIENCE_S``); then the exit code is Python's for what cannot be flushed.

Other errors are the program's, as ever. Not here: what others write to the same descriptors (``os.write``, child processes).
"""

from __future__ import annotations

import _thread
import errno
import io
import os
import time
from collections.abc import Callable
from typing import Any

__all__ = ["HELD_BYTES", "PATIENCE_S", "Output"]

HELD_BYTES = 1 << 20
PATIENCE_S = 60.0
_RETRY_S = 0.05
_FOR_A_MOMENT = (errno.ENOSPC, errno.EDQUOT)

_write_some = io.FileIO.write
_sleep, _monotonic, _getpid, _write = time.sleep, time.monotonic, os.getpid, os.write


class Output(io.FileIO):
    """``on_held``: called with "held back" and "written", the stream's name and a reason or number of bytes."""

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, "w", closefd=False)
        self.name = name
        self.held = bytearray()
        self.on_held: Callable[[str, str, str], object] | None = None
        self._was_held = 0
        self._lock = _thread.allocate_lock()
        self._pid = _getpid()

    def write(self, data: Any, /) -> int:
        """All of it, always: an unbuffered text stream does not ask how much was taken."""
        done = 0
        if not self.held:
            try:
                done = _write_some(self, data)
            except OSError as failure:
                if failure.errno not in _FOR_A_MOMENT or _getpid() != self._pid:
                    raise
            if done == len(data):
                return done
        view = memoryview(data).cast("B")
        if self.held and _getpid() != self._pid:  # a child of the program: this is its parent's to write
            self.held.clear()
        if done < len(view):
            self._hold(bytes(view[done:]))
        return len(view)

    def _hold(self, data: bytes) -> None:
        with self._lock:
            self.held += data
        self.retry()
        while len(self.held) > HELD_BYTES:
            _sleep(_RETRY_S)
            self.retry()

    def retry(self) -> None:
        """Write what is held back, as far as there is room. From any thread."""
        if not self.held or not self._lock.acquire(False):
            return
        reason = ""  # not the exception itself: it would keep the callers' frames
        try:
            while self.held:
                done = _write(self.fileno(), self.held)
                self._was_held += done
                del self.held[:done]
        except OSError as failure:
            reason = failure.strerror or str(failure)
        finally:
            self._lock.release()
        self._tell(reason)

    def take(self) -> bytes:
        """What is held back, which is the caller's from here on."""
        with self._lock:
            held = bytes(self.held)
            self.held.clear()
        return held

    def _tell(self, reason: str) -> None:
        on_held = self.on_held
        if not reason:
            was_held, self._was_held, self._is_told = self._was_held, 0, False
            if on_held is not None:
                on_held("written", self.name, str(was_held))
        elif not self._is_told:
            self._is_told = True
            if on_held is not None:
                on_held("held back", self.name, reason)

    _is_told = False

    def settle(self, patience_s: float = PATIENCE_S) -> bool:
        """Wait until nothing is held back; False: there is no room for it."""
        deadline = _monotonic() + patience_s
        self.retry()
        while self.held and _monotonic() < deadline:
            _sleep(_RETRY_S)
            self.retry()
        return not self.held

    def close(self) -> None:
        if not self.closed and self.held and _getpid() == self._pid and not self.settle():
            raise OSError(errno.ENOSPC, f"{len(self.held)} bytes of {self.name} are not written")
        super().close()

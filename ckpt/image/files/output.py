"""The files of a rank's standard output and error: output for which a full disk has no room is held in memory, not lost.
(driver)

These files are in the job directory, so a full disk is no fault of the program. :class:`Output` is the lowest layer of
``sys.stdout`` and ``sys.stderr``::

    writing ──no space, or the quota is used up──▶ holding back ──all is written──▶ writing
                                                       │
                                                       └── more than MOST_HELD_BYTES: the writing thread waits

- Held output is written as soon as there is room. This is tried at each write, while the program waits, and at each tick of
  the helper thread. A tick holds the runtime's lock for it, so that no image is taken meanwhile: the order is kept, and
  nothing is written twice.
- The controller is told when holding back begins and when it ends, and reports it once, not for each line.
- Held output is part of an image, like the bytes in the buffers above (:mod:`ckpt.image.files.standard_output`).
- At its end the rank waits ``PATIENCE_S`` seconds for room; after that the exit code is the one that Python uses when
  standard output cannot be flushed.

Errors other than ENOSPC and EDQUOT are raised to the program as usual. Not here: output that bypasses ``sys.stdout`` and
``sys.stderr`` (``os.write``, child processes).
"""

from __future__ import annotations

import _thread
import errno
import io
import os
import time
from collections.abc import Callable
from typing import Any

__all__ = ["MOST_HELD_BYTES", "PATIENCE_S", "Output"]

MOST_HELD_BYTES = 1 << 20
PATIENCE_S = 60.0
_RETRY_S = 0.05
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_write_some = io.FileIO.write
_sleep, _monotonic, _getpid, _write = time.sleep, time.monotonic, os.getpid, os.write


class Output(io.FileIO):
    """The raw layer of one stream. ``held_back``: the bytes that are held back. ``on_held_back``: called with
    ("held back", the stream's name, the reason), and with ("written", the stream's name, the number of bytes as text).
    """

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, "w", closefd=False)
        self.name = name
        self.held_back = bytearray()
        self.on_held_back: Callable[[str, str, str], object] | None = None
        self._written_bytes = 0
        self._lock = _thread.allocate_lock()
        self._pid = _getpid()

    def write(self, data: Any, /) -> int:
        """Write or hold back all of ``data``; never a part, because an unbuffered text stream ignores the number of bytes
        written. Waits while more than MOST_HELD_BYTES are held back. Raises OSError, except for ENOSPC and EDQUOT.
        """
        done = 0
        if not self.held_back:
            try:
                done = _write_some(self, data)
            except OSError as failure:
                if failure.errno not in _NO_SPACE or _getpid() != self._pid:
                    raise
            if done == len(data):
                return done
        view = memoryview(data).cast("B")
        # A child process of the program: the parent writes these bytes
        if self.held_back and _getpid() != self._pid:
            self.held_back.clear()
        if done < len(view):
            self._hold(bytes(view[done:]))
        return len(view)

    def _hold(self, data: bytes) -> None:
        with self._lock:
            self.held_back += data
        self.retry()
        while len(self.held_back) > MOST_HELD_BYTES:
            _sleep(_RETRY_S)
            self.retry()

    def retry(self) -> None:
        """Write the held bytes, as far as there is room. May be called from any thread."""
        if not self.held_back or not self._lock.acquire(False):
            return
        reason = ""  # a text, because the exception itself would keep the callers' frames alive
        try:
            while self.held_back:
                done = _write(self.fileno(), self.held_back)
                self._written_bytes += done
                del self.held_back[:done]
        except OSError as failure:
            reason = failure.strerror or str(failure)
        finally:
            self._lock.release()
        self._report(reason)

    def take(self) -> bytes:
        """Return the held bytes and hold them no longer: from here on the caller is responsible for them."""
        with self._lock:
            data = bytes(self.held_back)
            self.held_back.clear()
        return data

    def _report(self, reason: str) -> None:
        on_held_back = self.on_held_back
        if not reason:
            written_bytes, self._written_bytes, self._is_reported = self._written_bytes, 0, False
            if on_held_back is not None:
                on_held_back("written", self.name, str(written_bytes))
        elif not self._is_reported:
            self._is_reported = True
            if on_held_back is not None:
                on_held_back("held back", self.name, reason)

    _is_reported = False

    def wait_until_written(self, patience_s: float = PATIENCE_S) -> bool:
        """Wait until nothing is held back, at most ``patience_s`` seconds; False: there is still no room."""
        deadline = _monotonic() + patience_s
        self.retry()
        while self.held_back and _monotonic() < deadline:
            _sleep(_RETRY_S)
            self.retry()
        return not self.held_back

    def close(self) -> None:
        if not self.closed and self.held_back and _getpid() == self._pid and not self.wait_until_written():
            raise OSError(errno.ENOSPC, f"{len(self.held_back)} bytes of {self.name} are not written")
        super().close()

"""★ The files of a rank's standard output and error: output for which a full disk has no room is held in memory, not lost.

These files are in the job directory, so a full disk is no fault of the program. :class:`Output` is the lowest layer of
``sys.stdout`` and ``sys.stderr``::

    writing ──no space, or the quota is used up──▶ holding back ──all is written──▶ writing
                                                       │
                                                       └── more than HELD_BYTES: the writing thread waits

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

__all__ = ["HELD_BYTES", "PATIENCE_S", "Output"]

HELD_BYTES = 1 << 20
PATIENCE_S = 60.0
_RETRY_S = 0.05
_FOR_A_MOMENT = (errno.ENOSPC, errno.EDQUOT)

_write_some = io.FileIO.write
_sleep, _monotonic, _getpid, _write = time.sleep, time.monotonic, os.getpid, os.write


class Output(io.FileIO):
    """The raw layer of one stream. ``held``: the bytes that are held back. ``on_held``: called with
    ("held back", the stream's name, the reason), and with ("written", the stream's name, the number of bytes as text).
    """

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, "w", closefd=False)
        self.name = name
        self.held = bytearray()
        self.on_held: Callable[[str, str, str], object] | None = None
        self._was_held = 0
        self._lock = _thread.allocate_lock()
        self._pid = _getpid()

    def write(self, data: Any, /) -> int:
        """Write or hold back all of ``data``; never a part, because an unbuffered text stream ignores the number of bytes
        written. Waits while more than HELD_BYTES are held back. Raises OSError, except for ENOSPC and EDQUOT.
        """
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
        if (
            self.held and _getpid() != self._pid
        ):  # a child process of the program: the parent writes these bytes
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
        """Write the held bytes, as far as there is room. May be called from any thread."""
        if not self.held or not self._lock.acquire(False):
            return
        reason = ""  # a text, because the exception itself would keep the callers' frames alive
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
        """Return the held bytes and hold them no longer: from here on the caller is responsible for them."""
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

    def wait_until_written(self, patience_s: float = PATIENCE_S) -> bool:
        """Wait until nothing is held back, at most ``patience_s`` seconds; False: there is still no room."""
        deadline = _monotonic() + patience_s
        self.retry()
        while self.held and _monotonic() < deadline:
            _sleep(_RETRY_S)
            self.retry()
        return not self.held

    def close(self) -> None:
        if not self.closed and self.held and _getpid() == self._pid and not self.wait_until_written():
            raise OSError(errno.ENOSPC, f"{len(self.held)} bytes of {self.name} are not written")
        super().close()

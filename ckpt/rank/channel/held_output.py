"""Output that a full disk has refused: tried again later, and the controller is told. (driver)

Not here: how output is written and held back (:mod:`ckpt.image.files.output`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ckpt.image.files.output import Output
from ckpt.rank.channel import reports
from ckpt.rank.channel.control import ControlChannel

__all__ = ["HeldOutput"]


class HeldOutput:
    """The output streams of one rank. ``lock``: the runtime's."""

    def __init__(self, lock: threading.Lock, control: ControlChannel) -> None:
        self._lock = lock
        self._control = control
        self._outputs: Sequence[Output] = ()

    def watch(self, outputs: Sequence[Output]) -> None:
        """Watch these streams from now on."""
        self._outputs = outputs
        for output in outputs:
            output.on_held_back = self._on_held_back

    def _on_held_back(self, change: str, stream: str, detail: str) -> None:
        self._control.send(reports.about_output(change, stream, detail))

    def tick(self) -> None:
        """The housekeeping of the port's helper thread."""
        if any(output.held_back for output in self._outputs) and self._lock.acquire(blocking=False):
            try:
                self.write()
            finally:
                self._lock.release()

    def write(self) -> None:
        """Try again to write what is held back. Under the lock."""
        for output in self._outputs:
            if output.held_back:
                output.retry()

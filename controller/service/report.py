"""The controller's output while it runs: the ranks' output, the controller's messages, and events as JSON lines.

Without `--json`: the output of the ranks on standard output and error as they wrote it (with the rank as prefix when
asked), and messages of the controller on standard error after ``ckpt:``. With `--json`: only JSON objects on standard
output, one per line: every line of the event log, ``{"event": "output", "rank", "stream", "text"}`` and
``{"event": "message", "text"}``.
"""

from __future__ import annotations

import shlex
import time
from typing import Any

from ckpt.controller.service.passthrough import Outlet, with_prefix
from ckpt.controller.supervision.messages import encode_line
from ckpt.store.job.eventlog import iso_time


def how_to_go_on(path: str, usable: int | None) -> str:
    """What to do with a job that has been stopped. `usable`: the newest checkpoint that a restart takes by itself."""
    if usable is None:
        return "there is no checkpoint to go on from; `ckpt run --resume auto` starts from the beginning"
    return f"`ckpt restart {shlex.quote(path)}` goes on from checkpoint {usable}"


class Reporter:
    """Writes the controller's output. `size`: the number of ranks, for the width of the prefix."""

    def __init__(self, *, size: int, json: bool = False, prefix: bool = False) -> None:
        self._json = json
        self._prefix = prefix
        self._width = len(str(max(0, size - 1)))
        self._out = Outlet(1)
        self._err = Outlet(2)

    def output(self, rank: int, stream: str, data: bytes) -> None:
        """Print whole lines of a rank. `stream`: "out" or "err"."""
        if self._json:
            self._line(
                {"event": "output", "rank": rank, "stream": stream, "text": data.decode(errors="replace")}
            )
            return
        outlet = self._out if stream == "out" else self._err
        outlet.put(with_prefix(rank, data, width=self._width) if self._prefix else data)

    def say(self, text: str) -> None:
        if self._json:
            self._line({"event": "message", "text": text})
        else:
            self._err.put(b"".join(b"ckpt: " + line.encode() + b"\n" for line in text.splitlines()))

    def event(self, name: str, fields: dict[str, Any]) -> None:
        """Print a line of the event log, if `--json` is on."""
        if self._json:
            self._line({"t": iso_time(time.time_ns()), "event": name, **fields})

    def _line(self, fields: dict[str, Any]) -> None:
        self._out.put(encode_line(fields))

    @property
    def is_full(self) -> bool:
        """The reader of the controller's output is slow: the caller should not produce more for now."""
        return self._out.is_full or self._err.is_full

    @property
    def is_unread(self) -> bool:
        """Has the reader of standard output closed it before all was written?"""
        return self._out.broken

    def flush(self) -> None:
        self._out.flush()
        self._err.flush()

    def finish(self) -> str | None:
        """Wait until all text is written. Returns why standard output could not be written, or None."""
        self._out.finish()
        failure = self._out.failure
        problem = f"standard output: {failure.strerror}" if failure is not None else None
        if problem is not None and not self._json:
            self.say(f"{problem}; the ranks' own files in output/ of the job directory are whole")
        self._err.finish()
        return problem

"""★ What the controller shows while it runs: the ranks' output, its own messages, and events as JSON lines.

Without `--json`: output of the ranks on standard output and error as they wrote it (prefixed by rank when
asked), messages of the controller on standard error behind ``ckpt:``. With `--json`: one JSON object a line
on standard output, nothing else: every line of the event log, and ``{"event": "output", "rank", "stream",
"text"}``, ``{"event": "message", "text"}``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ckpt.controller.service.passthrough import Outlet, with_prefix
from ckpt.controller.supervision.messages import encode_line


class Reporter:
    """`size`: number of ranks, for the width of the prefix."""

    def __init__(self, *, size: int, json: bool = False, prefix: bool = False) -> None:
        self._json = json
        self._prefix = prefix
        self._width = len(str(max(0, size - 1)))
        self._out = Outlet(1)
        self._err = Outlet(2)

    def output(self, rank: int, stream: str, data: bytes) -> None:
        """Whole lines of a rank."""
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
        """A line that goes into the event log, too."""
        if self._json:
            self._line({"t": datetime.now(UTC).isoformat(), "event": name, **fields})

    def _line(self, fields: dict[str, Any]) -> None:
        self._out.put(encode_line(fields))

    @property
    def is_full(self) -> bool:
        """The reader of our output is slow: do not produce more for now."""
        return self._out.is_full or self._err.is_full

    def flush(self) -> None:
        self._out.flush()
        self._err.flush()

    def finish(self) -> str | None:
        """Wait until everything is written; why it could not be."""
        self._out.finish()
        failure = self._out.failure
        problem = f"standard output: {failure.strerror}" if failure is not None else None
        if problem is not None and not self._json:
            self.say(f"{problem}; the ranks' own files in output/ of the job directory are whole")
        self._err.finish()
        return problem

"""What a replica tells the controller of its messages, for `ReplicaLayer`. (driver)

    _report         marks, at most every REPORT_NS; that it lives
    captured        what had been sent until an image was taken; _answer_line: the same in the other replicas
    _tell_details   messages one by one: it is asked where planes began to differ
    _tell_last      the same without being asked, since its program has failed: nobody can ask it any more

Not here: the comparison (vote.py, origin.py, :mod:`ckpt.controller.replicas`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ckpt.layer import Below
from ckpt.redundancy.digest import Streams, parts
from ckpt.redundancy.lines import LineQuestion

__all__ = ["Telling"]

MARKS_OF_A_LINE = 500
"""Marks of one packet about a line: it goes through one datagram, names of streams included."""

ALIVE_NS = 500_000_000
"""A replica that has nothing to report says so that often."""


class Telling:
    """Base class of `ReplicaLayer`. The lock is held."""

    below: Below
    streams: Streams
    _is_compared: bool
    _sent: int
    _told_ns = 0
    _line = LineQuestion(0)

    def captured(self, epoch: int, written: int) -> None:
        """Tell the digests over what has been sent until now, when an image is taken, and the length of the output."""
        marks = {stream: [mark] for stream, mark in self.streams.last_marks().items()}
        pieces = list(parts(marks, MARKS_OF_A_LINE))
        for number, part in enumerate(pieces, 1):
            place = {"line": epoch, "part": number, "parts": len(pieces)}
            self.below.report({**place, "marks": part, "written": written})

    def _tell_details(self, packet: Mapping[str, Any]) -> None:
        counts = self.streams.counts()
        if "ranges" in packet:
            ranges = {name: (int(first), int(last)) for name, (first, last) in packet["ranges"].items()}
        else:
            after = packet.get("after", {})
            ranges = {name: (int(after.get(name, 0)) + 1, count) for name, count in counts.items()}
        self.below.report(
            {"details": self.streams.details(ranges), "counts": counts, "question": packet.get("question")}
        )

    def _tell_last(self) -> None:
        self.below.report({"details": self.streams.last_details(), "counts": self.streams.counts()})

    def _ask_line(self, packet: Mapping[str, Any]) -> None:
        if packet["line"] != self._line.epoch:
            self._line = LineQuestion(packet["line"])
        self._line.add(packet)
        self._answer_line()

    def _report(self, *, all_of_it: bool) -> None:
        if not self._is_compared:
            return
        marks = self.streams.report(all_of_it=all_of_it)
        now_ns = time.monotonic_ns()
        if not marks and now_ns - self._told_ns < ALIVE_NS:
            return
        self._told_ns = now_ns
        for part in parts(marks):
            self.below.report({"marks": part, "sent": self._sent})

    def _answer_line(self) -> None:
        """Tell the digests for a line, once this process has come so far. What it does not remember is the digest ""."""
        line = self._line
        if not line.is_open:
            return
        here = self.streams.counts()
        if any(here.get(stream, 0) < count for stream, count in line.counts.items()):
            return
        line.is_open = False
        marks = {
            stream: [(count, self.streams.digest_at(stream, count))] for stream, count in line.counts.items()
        }
        pieces = list(parts(marks, MARKS_OF_A_LINE))
        for number, part in enumerate(pieces, 1):
            self.below.report({"line": line.epoch, "marks": part, "part": number, "parts": len(pieces)})

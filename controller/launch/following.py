"""The agent of a host follows the output files of its ranks, and sends what is written to the controller. (driver)

Sent are whole lines; a line that is not finished for a while is sent as it is. A file that has become shorter is sent again
from a little before its end on: the controller compares what it has printed in blocks of `BLOCK_BYTES`.

What was sent and has not been printed yet is bounded (`WINDOW_BYTES`): a controller whose terminal stands still does not
have to keep what ranks print meanwhile.

Not here: what becomes of the text (`ckpt.controller.service.passthrough`).
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterable
from typing import Any

from ckpt.store.disk.privacy import open_regular

__all__ = ["BLOCK_BYTES", "STREAMS", "WINDOW_BYTES", "Following", "text_of"]

BLOCK_BYTES = 1024
STREAMS = ("out", "err")
WINDOW_BYTES = 1 << 20
POLL_BUSY_NS = 10_000_000
POLL_IDLE_NS = 100_000_000
_READ_BYTES = 1 << 16
_PATIENCE = 8  # looks without new text after which an unfinished line is sent


def text_of(event: dict[str, Any]) -> bytes:
    """The text of an event "output"."""
    return binascii.a2b_base64(event["text"])


class _File:
    """One file. `position`: up to there it was sent."""

    def __init__(self, path: str, position: int) -> None:
        self.path, self.position = path, position
        self.fd = -1
        self.quiet = 0
        self.seen = position

    def read(self) -> tuple[int, bytes, int | None] | None:
        """What is to be sent now, where it begins, and to which length the file was cut, if it was. None: nothing. Raises
        OSError."""
        if self.fd < 0:
            try:
                self.fd = open_regular(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return None
        size = os.fstat(self.fd).st_size
        cut = None
        if size < self.position:
            cut = size
            self.position = max(0, size - BLOCK_BYTES)
        elif size == self.position:
            return None
        text = os.pread(self.fd, _READ_BYTES, self.position)
        self.quiet = 0 if size != self.seen else self.quiet + 1
        self.seen = size
        if len(text) < _READ_BYTES and self.quiet < _PATIENCE:
            text = text[: text.rfind(b"\n") + 1]
        if not text and cut is None:
            return None
        at, self.position = self.position, self.position + len(text)
        return at, text, cut

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Following:
    """The files of the ranks on one host. `directory`: of the output files."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._files: dict[tuple[int, str], _File] = {}
        self._room = WINDOW_BYTES
        self._looks = 0  # in a row that have found nothing

    def __bool__(self) -> bool:
        """Is there anything to be followed?"""
        return bool(self._files)

    def begin(self, ranks: Iterable[tuple[int, list[int]]]) -> None:
        """These ranks are about to be started, and those before have ended. For each, how far its files are printed."""
        self.stop()
        self._room = WINDOW_BYTES
        for rank, printed in ranks:
            for stream, at in zip(STREAMS, printed, strict=True):
                path = os.path.join(self._directory, f"rank-{rank}.{stream}")
                self._files[rank, stream] = _File(path, at)

    def another_controller(self) -> None:
        """What was sent has been taken by the one before, or is lost; then this one reads it in the files."""
        self._room = WINDOW_BYTES

    def printed(self, count: int) -> None:
        """The controller has printed so many bytes."""
        self._room = min(self._room + count, WINDOW_BYTES)

    def interval_ns(self) -> int:
        """The time until the next `look` is due: short while output comes, longer otherwise."""
        return min(POLL_IDLE_NS, POLL_BUSY_NS * (1 + self._looks // 4))

    def look(self, ranks: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """Events with what has been written since. `ranks`: of these only; None: of all."""
        wanted = None if ranks is None else set(ranks)
        events: list[dict[str, Any]] = []
        for (rank, stream), file in self._files.items():
            if self._room <= 0:
                break
            if wanted is not None and rank not in wanted:
                continue
            try:
                found = file.read()
            except OSError:
                continue  # the controller reads it at the end
            if found is not None:
                at, text, cut = found
                self._room -= len(text)
                coded = binascii.b2a_base64(text, newline=False).decode()
                where = {"rank": rank, "stream": stream, "at": at, "cut": cut}
                events.append({"e": "output", **where, "text": coded})
        self._looks = 0 if events else self._looks + 1
        return events

    def stop(self) -> None:
        """The ranks have ended."""
        for file in self._files.values():
            file.close()
        self._files.clear()

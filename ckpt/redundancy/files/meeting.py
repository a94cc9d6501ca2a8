"""A replica comes to a change of files: the change is compared with that of the others, and replicas that do not come are
reported. (driver)

The digest over all changes is a stream like the messages are (``files``), so the controller's vote names the replica that
means another change.

A replica that has gone another way may never come to the change of the others, nor do anything that can be compared. So a
replica that has waited for it LATE_NS, and half as long as the program has computed since the change before, tells the
controller (``late``: the replicas that are missing).

Not here: what follows from that (:mod:`ckpt.controller.replicas.inquiries`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from ckpt.errors import NotReplicable
from ckpt.layer import Below

__all__ = ["Meeting"]

LATE_NS = 60_000_000_000


class _Stream(Protocol):
    state: bytes

    def add(self, dst: int, data: bytes, payload: bytes | None, now_ns: int) -> None: ...


class _Choices(Protocol):
    def together(self, digest: str, look: Callable[[], Any]) -> Any: ...

    def missing(self) -> set[int]: ...

    def writes_late(self, now_ns: int, least_ns: int) -> set[int]: ...

    def tick(self, now_ns: int, *, has_ended: bool) -> None: ...


class Meeting:
    """Changes of one replica of `rank`. `stream`: counts them; `writes`: those to parallel files."""

    def __init__(
        self, below: Below, stream: Callable[[], _Stream], writes: Callable[[], _Stream], rank: int
    ) -> None:
        self._below, self._stream, self._writes, self._rank = below, stream, writes, rank
        self.choices: _Choices | None = None
        self.has_ended = False
        self._came_ns = time.monotonic_ns()
        self._until_ns: int | None = None

    def meet(self, content: bytes, look: Callable[[], Any]) -> Any:
        """What came of `look` at the leader, when all replicas are here with the same `content`; empty: only with the same
        place. Takes the lock. Raises NotReplicable when the program has ended."""
        if self.has_ended:
            raise NotReplicable(
                "under --redundancy no file is changed after the program's end: close or flush it before"
            )
        choices = self.choices
        if choices is None:
            return look()
        with self._below.lock:
            now_ns = time.monotonic_ns()
            self._until_ns = now_ns + max(LATE_NS, (now_ns - self._came_ns) // 2)
            self._came_ns = now_ns
            digest = ""
            if content:
                stream = self._stream()
                stream.add(self._rank, content, None, now_ns)
                digest = stream.state.hex()[:32]
            try:
                return choices.together(digest, look)
            finally:
                self._until_ns = None

    def digest_of(self, source: int, data: bytes) -> str:
        """That of all writes to parallel files that ranks have asked for until now, with this one of `source`."""
        stream = self._writes()
        stream.add(source, data, None, time.monotonic_ns())
        return stream.state.hex()[:32]

    def tick(self, now_ns: int) -> None:
        """Called often, with the lock held."""
        if self.choices is None:
            return
        self.choices.tick(now_ns, has_ended=self.has_ended)
        if late := self.choices.writes_late(now_ns, LATE_NS):
            self._below.report({"late": sorted(late)})
        if self._until_ns is None or now_ns < self._until_ns:
            return
        self._until_ns = now_ns + LATE_NS
        missing = self.choices.missing()
        if missing:
            self._below.report({"late": sorted(missing)})

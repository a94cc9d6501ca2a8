"""Frames that the wire refused because a peer's queue is full or its connection is not up yet. (driver)

These frames are kept in order and offered again after a wait, which doubles while the wire takes none. Meanwhile the port
asks the endpoint for no frames to those peers, so at most one burst per peer is kept here. To send a built frame later is
correct, like a slow network: the acknowledgement and the epoch in it were read together when the frame was built.
"""

from __future__ import annotations

from collections.abc import Callable

from ckpt.transport.wires.wire import Frame

FIRST_WAIT_NS = 500_000
FIRST_WAIT_OF_RINGS_NS = 20_000
"""A ring has room as soon as its reader has taken a frame, and to look for that costs no system call."""
LONGEST_WAIT_NS = 20_000_000
NEVER_NS = 1 << 62


class RefusedFrames:
    """Refused frames by target rank. `retry_at_ns`: the time at which to call `retry` next. `first_wait_ns`: how long to
    wait after a refusal, at first. `taken_ns`: when the wire has last taken one."""

    def __init__(self, send: Callable[[int, Frame], bool]) -> None:
        self.by_rank: dict[int, list[Frame]] = {}
        self.retry_at_ns = NEVER_NS
        self.refused = 0
        """How often a peer's first frame was refused; frames that queue behind it are not counted."""
        self.first_wait_ns = FIRST_WAIT_NS
        self.taken_ns = 0
        self._send = send
        self._wait_ns = FIRST_WAIT_NS

    def add(self, rank: int, parts: Frame, now_ns: int) -> None:
        """Keep a frame that the wire has just refused, or that comes after a kept frame for the same rank."""
        if not self.by_rank:
            self.retry_at_ns = now_ns + self._wait_ns
        if rank not in self.by_rank:
            self.refused += 1
        self.by_rank.setdefault(rank, []).append(parts)

    def forget(self, rank: int) -> None:
        """Drop the frames for `rank`, which has another address now or is dead; the next retry comes soon."""
        self.by_rank.pop(rank, None)
        self._wait_ns = self.first_wait_ns
        if not self.by_rank:
            self.retry_at_ns = NEVER_NS

    def retry(self, now_ns: int) -> None:
        """Offer the wire all kept frames again, in order; does nothing before `retry_at_ns`."""
        if now_ns < self.retry_at_ns:
            return
        taken = False
        for rank in list(self.by_rank):
            frames = self.by_rank[rank]
            sent = 0
            while sent < len(frames) and self._send(rank, frames[sent]):
                sent += 1
            if sent:
                taken, self.taken_ns = True, now_ns
            if sent == len(frames):
                del self.by_rank[rank]
            else:
                del frames[:sent]
        self._wait_ns = self.first_wait_ns if taken else min(2 * self._wait_ns, LONGEST_WAIT_NS)
        self.retry_at_ns = now_ns + self._wait_ns if self.by_rank else NEVER_NS

"""Frames the wire refused because a peer's queue is full or its connection is not up yet. (driver)

They are kept in order and offered again after a wait that doubles while nothing is taken; the endpoint is
told to leave those peers alone meanwhile, so what piles up here is bounded by one burst per peer. Keeping a
built frame for later is like a slow network: its ack and epoch were read together when it was built.
"""

from __future__ import annotations

from collections.abc import Callable

from ckpt.transport.wires.wire import Frame

FIRST_WAIT_NS = 500_000
LONGEST_WAIT_NS = 20_000_000
NEVER_NS = 1 << 62


class RefusedFrames:
    """Refused frames by rank. `retry_at_ns` is when to call `retry` next."""

    def __init__(self, send: Callable[[int, Frame], bool]) -> None:
        self.by_rank: dict[int, list[Frame]] = {}
        self.retry_at_ns = NEVER_NS
        self.refused = 0
        """How often the wire refused a frame."""
        self._send = send
        self._wait_ns = FIRST_WAIT_NS

    def add(self, rank: int, parts: Frame, now_ns: int) -> None:
        """The wire has just refused this frame, or an earlier one for the same rank waits."""
        if not self.by_rank:
            self.retry_at_ns = now_ns + self._wait_ns
        if rank not in self.by_rank:
            self.refused += 1
        self.by_rank.setdefault(rank, []).append(parts)

    def forget(self, rank: int) -> None:
        """The rank has moved.

        What was meant for its former address is void, and its new one is worth a quick try.
        """
        self.by_rank.pop(rank, None)
        self._wait_ns = FIRST_WAIT_NS
        if not self.by_rank:
            self.retry_at_ns = NEVER_NS

    def retry(self, now_ns: int) -> None:
        """Offer the wire everything again, in order, when it is time to."""
        if now_ns < self.retry_at_ns:
            return
        taken = False
        for rank in list(self.by_rank):
            frames = self.by_rank[rank]
            sent = 0
            while sent < len(frames) and self._send(rank, frames[sent]):
                sent += 1
            taken = taken or sent > 0
            if sent == len(frames):
                del self.by_rank[rank]
            else:
                del frames[:sent]
        self._wait_ns = FIRST_WAIT_NS if taken else min(2 * self._wait_ns, LONGEST_WAIT_NS)
        self.retry_at_ns = now_ns + self._wait_ns if self.by_rank else NEVER_NS

"""Decides whether an image that cannot be taken holds the program up (a stall). Pure.

A message that another rank sent after its image is *held* until this rank has taken its own image. While this rank cannot
be captured, that is a stall if its program needs a held message. Nobody can know whether the program needs a held message
or another one, so a time limit decides (:class:`HeldFrames`):

- the program *waits* at a place where it cannot be captured: it most probably waits for a held message
  (`LONGEST_WAIT_NS`);
- the program calls the library again and again (for example `iprobe` in a loop): the limit is longer (`LONGEST_CALLS_NS`);
- the program computes: it does not need the held messages yet, and there is no limit.

The same limits hold while ranks are only asked, if the program of a rank A waits for the round (:class:`AwaitedRound`). If
this rank cannot be captured because its program waits for A's next message, the round would never begin. In this case a
wait counts only as long as no message is received.

Not here: how a rank gives up its image (:mod:`ckpt.capture.imager`).
"""

from __future__ import annotations

__all__ = ["AwaitedRound", "HeldFrames"]

LONGEST_WAIT_NS = 200_000_000
LONGEST_CALLS_NS = 1_000_000_000
_ONE_WAIT_NS = 100_000_000
"""During one wait, looks follow each other at shorter intervals than this (`ckpt.transport.driver.port.Port.wait`)."""


class HeldFrames:
    """Measures for how long held frames have kept one rank's program waiting. All times are on one monotonic clock."""

    def __init__(self) -> None:
        self._since_ns = 0  # since when frames are held; 0: no frame is held
        self._entries = 0

    def look(self, now_ns: int, *, held: int, entries: int) -> int:
        """For how long frames have been held, in ns; 0: none are.

        ``held``: the number of held frames now; ``entries``: how often the program has called the library so far.
        """
        if not held:
            self._since_ns = 0
            return 0
        if not self._since_ns:
            self._since_ns, self._entries = now_ns, entries
        return now_ns - self._since_ns

    def is_stall(self, held_ns: int, *, entries: int, waits: bool) -> bool:
        """Has the program been held up for too long? ``held_ns``: from :meth:`look`; ``waits``: the program waits now."""
        return held_ns > LONGEST_WAIT_NS if waits else held_ns > LONGEST_CALLS_NS and entries != self._entries


class AwaitedRound:
    """Measures for how long one rank has been asked, and could not be captured, while a program waits for the round.

    All times are on one monotonic clock.
    """

    def __init__(self) -> None:
        self._since_ns = 0
        self._entries = 0
        self._waits_since_ns = 0
        self._looked_ns = 0
        self._received = 0

    def is_stall(self, now_ns: int, *, entries: int, received: int, waits: bool) -> bool:
        """Has the program waited for the round for too long?

        ``entries``: how often this rank's program has called the library so far; ``received``: how many messages this rank
        has received so far; ``waits``: this rank's program waits now.
        """
        if not self._since_ns:
            self._since_ns, self._entries = now_ns, entries
        if waits:
            if received != self._received or now_ns - self._looked_ns > _ONE_WAIT_NS:
                self._waits_since_ns = now_ns
            self._looked_ns, self._received = now_ns, received
            if now_ns - self._waits_since_ns > LONGEST_WAIT_NS:
                return True
        return now_ns - self._since_ns > LONGEST_CALLS_NS and entries != self._entries

"""Does an image that cannot be taken hold the program up? Pure.

Messages that were sent after another rank's image wait for this rank's own. While this one cannot be captured, that is a
stall if the program wants them, and nobody can know: they may be others. So it is a matter of patience:

- the program *waits*, in a place that cannot be captured: for what is held, most probably (`LONGEST_WAIT_NS`);
- it calls the library again and again (`iprobe` in a loop, say): longer (`LONGEST_CALLS_NS`);
- it computes: it does not want them yet.

The same while ranks are only asked, where the program of a rank waits for the round, and with it perhaps for who cannot be
captured: who waits for that rank's next message keeps the round from ever beginning. There a wait counts only as long as
nothing is received.

Not here: what is done about it (:mod:`ckpt.capture.imager`).
"""

from __future__ import annotations

__all__ = ["Awaited", "HeldUp"]

LONGEST_WAIT_NS = 200_000_000
LONGEST_CALLS_NS = 1_000_000_000
_ONE_WAIT_NS = 100_000_000
"""Looks of one wait follow each other faster than that (`ckpt.transport.driver.port.Port.wait`)."""


class HeldUp:
    """Of one rank. All times on one monotonic clock."""

    def __init__(self) -> None:
        self._since_ns = 0  # since then frames are held; 0: none are
        self._entries = 0

    def look(self, now_ns: int, *, held: int, entries: int) -> int:
        """So many frames are held, and the program has called the library so often. How long that has been, in ns."""
        if not held:
            self._since_ns = 0
            return 0
        if not self._since_ns:
            self._since_ns, self._entries = now_ns, entries
        return now_ns - self._since_ns

    def is_stall(self, held_ns: int, *, entries: int, waits: bool) -> bool:
        """Has the program been held up for too long? ``waits``: it does, now."""
        return held_ns > LONGEST_WAIT_NS if waits else held_ns > LONGEST_CALLS_NS and entries != self._entries


class Awaited:
    """Of one rank that is asked, in vain so far, while a program waits for the round. All times on one monotonic clock."""

    def __init__(self) -> None:
        self._since_ns = 0
        self._entries = 0
        self._waits_since_ns = 0
        self._looked_ns = 0
        self._received = 0

    def is_stall(self, now_ns: int, *, entries: int, received: int, waits: bool) -> bool:
        """Has that lasted too long? ``received``: so many messages have been; ``waits``: the program does, now."""
        if not self._since_ns:
            self._since_ns, self._entries = now_ns, entries
        if waits:
            if received != self._received or now_ns - self._looked_ns > _ONE_WAIT_NS:
                self._waits_since_ns = now_ns
            self._looked_ns, self._received = now_ns, received
            if now_ns - self._waits_since_ns > LONGEST_WAIT_NS:
                return True
        return now_ns - self._since_ns > LONGEST_CALLS_NS and entries != self._entries

"""Decides whether an image that cannot be taken holds the program up (a stall). Pure.

The program may need something that cannot come before this rank has been captured:

- a message that another rank has sent after its own image: it is *held* until this rank has taken its image;
- while this rank is only asked, a message of a rank whose program waits for the round, which cannot begin because of this
  rank.

Nobody can know whether the program needs that or something else, so a time limit decides:

- the program *waits* at a place where it cannot be captured: it most probably waits for that (`LONGEST_WAIT_NS`). Where
  received messages show that the program goes on, a wait counts only as long as none is received;
- the program calls the library again and again (for example `iprobe` in a loop): the limit is longer (`LONGEST_CALLS_NS`);
- the program computes: it does not need that yet, and there is no limit.

Not here: what happens then (:mod:`ckpt.capture.search`, :mod:`ckpt.capture.imager`).
"""

from __future__ import annotations

__all__ = ["Stall"]

LONGEST_WAIT_NS = 200_000_000
LONGEST_CALLS_NS = 1_000_000_000
_ONE_WAIT_NS = 100_000_000
"""During one wait, looks follow each other at shorter intervals than this (`ckpt.transport.driver.port.Port.wait`)."""


class Stall:
    """Measures for how long one rank's program has been kept from what it may need. All times are on one monotonic clock."""

    def __init__(self) -> None:
        self._since_ns = 0  # since when something is withheld; 0: nothing is
        self._entries = 0
        self._waits_since_ns = 0
        self._looked_ns = 0
        self._received = 0

    def look(self, now_ns: int, *, is_withheld: bool, entries: int, waits: bool, received: int = 0) -> int:
        """For how long the program has been held up, in ns, if that is too long; else 0.

        ``is_withheld``: something that the program may need cannot come. ``entries``: how often the program has called the
        library so far; ``waits``: it waits now. ``received``: how many messages it has received so far, if these show that
        it goes on.
        """
        if not is_withheld:
            self._since_ns = self._looked_ns = 0
            return 0
        if not self._since_ns:
            self._since_ns, self._entries = now_ns, entries
        held_ns = now_ns - self._since_ns
        if waits:
            if not self._looked_ns or received != self._received or now_ns - self._looked_ns > _ONE_WAIT_NS:
                self._waits_since_ns = now_ns
            self._looked_ns, self._received = now_ns, received
            if now_ns - self._waits_since_ns > LONGEST_WAIT_NS:
                return held_ns
        return held_ns if held_ns > LONGEST_CALLS_NS and entries != self._entries else 0

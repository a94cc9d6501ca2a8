"""One search for a place where the program can be captured: for how long, why not here, and when it is given up. Pure.

A search begins when a rank is asked, or when an image is wanted. It ends with the image, the answer or :meth:`Search.stall`.
While it lasts, the rank looks again and again, at longer and longer intervals, and tells the controller each second why the
program cannot be captured.

Not here: the looks themselves (:mod:`ckpt.capture.places`), the time limits (:mod:`ckpt.capture.stalls`), the states of a
rank (:mod:`ckpt.capture.imager`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpt.capture.stalls import Stall
from ckpt.transport.records import NamedTuple

__all__ = ["LOCK_WAIT_S", "TICK_NS", "LibraryUse", "Search"]

_REPORT_AFTER_NS = 100_000_000
_REPORT_EVERY_NS = 1_000_000_000
TICK_NS = 5_000_000
_TICK_LONGEST_NS = 20_000_000
_RETRY_NS = 2_000_000
_RETRY_LONGEST_NS = 20_000_000
LOCK_WAIT_S = 0.02
"""So long a look at a check waits for the lock of the library, once a tick. A thread of the program that has it needs the
interpreter's lock (GIL) to go on, for which it competes with others that compute; without a wait such a program met the
lock taken at check after check. The thread that waits does not have it: no function of the library is on its stack."""
_NO_LOOK = "the program has not come to a place between two instructions"
_IN_C_NS = 200_000_000
"""A rank that is asked answers after this time, even if the interpreter has reached no place between two instructions."""


class LibraryUse(NamedTuple):
    """What the program does with the library.

    ``entries``: how often it has called the library so far; ``received``: how many messages it has received so far;
    ``waits``: it waits inside the library now.
    """

    entries: int
    received: int
    waits: bool


class Search:
    """The searches of one rank, one after the other. All times are on one monotonic clock."""

    def __init__(self) -> None:
        self.refusals = 0
        self.refused_longest_ns = 0
        self.begin(0)

    def begin(self, now_ns: int) -> None:
        self.since_ns = now_ns
        self.reason = _NO_LOOK
        """Why the last look of this search found that the program cannot be captured. That of an earlier one would be said
        of a place where the program has long been gone from."""
        self.is_refused = False
        """The last look found that the program cannot be captured there."""
        self._reported_ns = 0
        self._held_frames, self._awaited_round = Stall(), Stall()

    def note_refusal(self, failure: Exception, now_ns: int) -> None:
        """A look has found that the program cannot be captured."""
        self.refusals += 1
        self.is_refused = True
        where = getattr(failure, "where", "")
        self.reason = f"{getattr(failure, 'reason', failure)}{f' ({where})' if where else ''}"
        self.refused_longest_ns = max(self.refused_longest_ns, now_ns - self.since_ns)

    def retry_ns(self, now_ns: int) -> int:
        """How long a library call may wait, in ns, before it looks again."""
        return min(max(_RETRY_NS, (now_ns - self.since_ns) // 8), _RETRY_LONGEST_NS)

    def tick_ns(self, now_ns: int) -> int:
        """How long the port's helper thread may wait, in ns, before it has the program looked at again."""
        return min(max(TICK_NS, (now_ns - self.since_ns) // 8), _TICK_LONGEST_NS)

    def is_report_due(self, now_ns: int) -> bool:
        """Is the controller to be told now that the search goes on? ``True``: not again for a second."""
        is_due = now_ns - self.since_ns > _REPORT_AFTER_NS and now_ns - self._reported_ns > _REPORT_EVERY_NS
        if is_due:
            self._reported_ns = now_ns
        return is_due

    def is_in_long_c_call(self, now_ns: int) -> bool:
        """No look was refused, and the interpreter has made no check for `_IN_C_NS`: a long call in C.

        A rank that is asked answers then, since a question holds nobody up, and the next long call may follow this one at
        once.
        """
        return not self.is_refused and now_ns - self.since_ns > _IN_C_NS

    def stall(
        self, now_ns: int, library_use: LibraryUse, *, held_frames: int, waiting: Sequence[int], rank: int
    ) -> tuple[str, int] | None:
        """Why the search is to be given up, since it holds a program up, and for how long it has, in ns; ``None``: go on.

        ``held_frames``: how many frames wait for the image of this rank, if one is wanted. ``waiting``: the ranks whose
        programs wait for the round, if this rank (``rank``) is only asked.
        """
        entries, received, waits = library_use
        held_ns = self._held_frames.look(
            now_ns, is_withheld=self.is_refused and held_frames > 0, entries=entries, waits=waits
        )
        if held_ns:
            verb = "waits" if waits else "asks"
            return f"it {verb} for what was sent after another rank's image, where {self.reason}", held_ns
        is_withheld = self.is_refused and len(waiting) > 0
        if not self._awaited_round.look(
            now_ns, is_withheld=is_withheld, entries=entries, waits=waits, received=received
        ):
            return None
        if all(waiting_rank == rank for waiting_rank in waiting):
            return self.own_wait_reason(), 0
        return (
            "it waits for what may be sent after another rank's image, which the program there waits for, where "
            f"{self.reason}",
            0,
        )

    def own_wait_reason(self) -> str:
        """The reason where this rank's own program waits for the image."""
        return f"the program waits for its checkpoint where {self.reason}"

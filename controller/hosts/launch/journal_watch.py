"""Is this the job's controller still? Looked up in the journal all the time, by a thread of its own. (driver)

    ──first look──▶ watched ──a look finds another controller──▶ lost: this one ends (`check`)
                     │    ▲
                     └────┘ a look that finds none: leases may be renewed for a while from its beginning on (`Tenure`)

A disk that does not answer delays looks, and not the controller's own loop: so the looks have a thread of their own. What
agents have to know before they go on without a controller is recorded here, too: that ranks of some hosts may not go on.

Not here: how long a look counts (:mod:`ckpt.controller.hosts.tenure`), whose ranks may not go on (`Fleet`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ckpt.controller.hosts.clock import now_ns
from ckpt.controller.hosts.tenure import Tenure, patience_ns
from ckpt.store import LockLost, StoreError
from ckpt.store.job.journal_files import Journal

__all__ = ["JournalWatch"]

_LOOKS = 5
"""So many looks into the journal in the time of one lease."""


class JournalWatch:
    """The watch of one controller. Call `start` once; `end` from any thread."""

    def __init__(self, journal: Journal, lease_ns: int, on_lost: Callable[[], None]) -> None:
        """Take the first look. `on_lost`: called in any thread when another controller was found. Raises LockLost,
        StorageFailed."""
        began_ns = now_ns()
        journal.check()
        self._journal = journal
        self._lease_ns = lease_ns
        self._on_lost = on_lost
        self._lost: LockLost | None = None
        self._tenure = Tenure(patience_ns(lease_ns), began_ns)
        self._is_to_end = threading.Event()

    @property
    def number(self) -> int:
        """The number of the last record that is known: what is written from now on stands behind it."""
        return self._journal.position.number

    def start(self) -> None:
        threading.Thread(target=self._look_on, name="ckpt-journal", daemon=True).start()

    def end(self) -> None:
        """No more looks. Idempotent."""
        self._is_to_end.set()

    def _look_on(self) -> None:
        while not self._is_to_end.wait(self._lease_ns / _LOOKS / 1e9):
            began_ns = now_ns()
            try:
                self._journal.check()
            except LockLost as lost:
                self._lose(lost)
                return
            except StoreError:
                continue  # it cannot be known now
            self._tenure.looked(began_ns)

    def _lose(self, lost: LockLost) -> None:
        self._lost = lost
        self._on_lost()

    def may_answer(self) -> bool:
        """May a renewal of a lease be answered now?"""
        return self._tenure.may_answer(now_ns())

    def check(self) -> None:
        """Raise LockLost if another controller was found."""
        if self._lost is not None:
            raise self._lost

    def is_superseded(self) -> bool:
        """Has another controller taken the job over? Looks once more; False: not known."""
        if self._lost is None:
            try:
                self._journal.check()
            except LockLost as lost:
                self._lost = lost
            except StoreError:
                return False
        return self._lost is not None

    def record_restart(self, incarnation: int, hosts: Sequence[str]) -> bool:
        """Write down that ranks of these hosts may not go on. False: another controller was found. Raises StoreError: the
        disk refuses."""
        try:
            self._journal.record_restart(incarnation, hosts)
        except LockLost as lost:
            self._lose(lost)
            return False
        return True

"""How long a controller may renew leases without having seen in the journal that it still is the job's controller. Pure.

A controller on another host that takes the job over cannot know whether the one before it lives: it may be cut off from the
new one, and not from its agents. So a controller looks into the journal all the time, and a renewal is answered only if the
last look that has found no takeover *began* less than the patience ago. The other side of it: when a takeover has been
written for as long as the patience, a lease, the time that agents have to reach the new controller, and a margin for clocks
and kills, no rank of the former controller runs any more, whatever has become of that controller, unless the new one has
answered the rank's agent.

    look that finds no takeover ──▶ tenure until its beginning + patience      look that finds one ──▶ this controller ends

The patience is longer than a lease: a disk may hold the controller up for a while without costing the job its hosts. All
clocks go on while a machine is suspended.

Not here: the look itself (`ckpt.store.job.journal_files`), leases (`lease.py`).
"""

from __future__ import annotations

from ckpt.controller.hosts.lease import look_ns, margin_ns

__all__ = ["Tenure", "patience_ns", "wait_ns"]

_PATIENCE_LEASES = 4


def patience_ns(lease_ns: int) -> int:
    """So long a look counts."""
    return _PATIENCE_LEASES * lease_ns


def wait_ns(lease_ns: int, patience: int) -> int:
    """So long after its takeover is written a new controller waits for the hosts of the one before. `patience`: of that
    one; 0: it is known to be dead."""
    longest = lease_ns + look_ns(lease_ns) + patience
    return longest + margin_ns(longest)


class Tenure:
    """All times are of the controller's clock."""

    def __init__(self, patience: int, began_ns: int) -> None:
        """`began_ns`: when the first look began, which has found no takeover."""
        self.patience_ns = patience
        self._looked_ns = began_ns

    def looked(self, began_ns: int) -> None:
        """A look that began at this time has found no takeover."""
        self._looked_ns = max(began_ns, self._looked_ns)

    def may_answer(self, now_ns: int) -> bool:
        """May a renewal be answered now?"""
        return now_ns < self._looked_ns + self.patience_ns

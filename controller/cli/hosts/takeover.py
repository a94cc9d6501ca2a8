"""The ranks of a controller that is lost: until when its hosts may run them, and whether they are gone on with. They are
only if hosts, lease and what ranks are told are as they were.

Not here: the journal, and what the hosts are asked (:mod:`ckpt.controller.hosts`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.controller.cli.hosts.options import are_several, read_options

if TYPE_CHECKING:
    from ckpt.controller.adoption.roster import Adopted
    from ckpt.controller.hosts.launch.launcher import HostsLauncher
    from ckpt.controller.launch.local import LocalLauncher
    from ckpt.controller.supervision.history import History
    from ckpt.store import JobDirectory, LockHandle

__all__ = ["adopt_or_wait", "end_by_themselves", "leases_s"]

_LEASE_BY_DEFAULT_S = 15.0


def end_by_themselves(lock: LockHandle, history: History) -> bool:
    """Do all ranks of the controller before this one end by themselves, wherever it is and whether or not it lives, because
    it renews leases only while it is the job's controller? `history`: of the whole log."""
    engine = history.engine or {}
    return engine.get("generation") == lock.found.generation and "tenure_s" in engine and history.lease_s > 0


def _wait_for_leases(job: JobDirectory, lock: LockHandle, wait_s: float, say: Callable[[str], None]) -> None:
    """Wait until no host can have a lease from the controller before this one (`leases_s`). Call it before this host is
    recorded as the job's: if this process dies meanwhile, the next one has to wait for the same controller."""
    if wait_s:
        say(
            f"waiting {wait_s:.1f} s: by then the hosts of the controller before this one have ended their ranks"
        )
        job.events.append("waiting-for-leases", s=wait_s, generation=lock.generation)
        time.sleep(wait_s)


def leases_s(job: JobDirectory, history: History, *, is_known: bool, may_live: bool) -> float:
    """How long hosts may have a lease from the controller before this one, which did not end in good order, from now on;
    0: it had none.

    `is_known`: the event log could be read; else the lease is the one that the job was started with. `may_live`: that
    controller is on another host, and may still renew leases."""
    from ckpt.controller.hosts.tenure import wait_ns

    lease_s, tenure_s = history.lease_s, 0.0
    if not is_known and job.options.get("hosts"):
        lease_s = max(lease_s, float(job.options.get("lease", _LEASE_BY_DEFAULT_S)))
    if history.engine is not None and (may_live or history.engine.get("unclaimed")):
        tenure_s = float(history.engine.get("tenure_s", 0.0))
    return wait_ns(round(lease_s * 1e9), round(tenure_s * 1e9)) / 1e9 if lease_s else 0.0


def adopt_or_wait(
    job: JobDirectory,
    lock: LockHandle,
    history: History,
    arguments: argparse.Namespace,
    defaults: Mapping[str, Any],
    wait_s: float,
    launch: Callable[[], LocalLauncher | HostsLauncher] | None,
    say: Callable[[str], None],
) -> tuple[HostsLauncher, Adopted] | None:
    """The launcher with the ranks that run; None: none of the controller before this one runs any more.

    `wait_s`: so long its hosts may have leases; 0: it had none. `launch`: makes the launcher; None: the user has asked for a
    line, or the newest one cannot be read, so that the ranks are not gone on with."""
    if not wait_s:
        return None
    if launch is None or not _is_possible(job, lock, history, arguments, defaults):
        _wait_for_leases(job, lock, wait_s, say)
        return None
    assert lock.journal is not None
    say(f"asking the hosts of the controller before this one for their ranks, for {wait_s:.1f} s at most")
    job.events.append("waiting-for-leases", s=wait_s, generation=lock.generation, adopts=True)
    from ckpt.controller.hosts.launch.launcher import HostsLauncher

    made = launch()
    assert isinstance(made, HostsLauncher)
    is_adopted = False
    try:
        found = made.adopt(
            job,
            lock.journal,
            generation=lock.generation,
            incarnation=history.incarnation,
            limit_s=wait_s,
            failed=history.failed if made.fleet.tolerant else None,
        )
        is_adopted = not isinstance(found, str)
    finally:
        if not is_adopted:
            made.close()
    if isinstance(found, str):
        job.events.append("not-adopted", reason=found)
        say(f"the ranks that ran are not gone on with: {found}")
        return None
    return made, found


def _is_possible(
    job: JobDirectory,
    lock: LockHandle,
    history: History,
    arguments: argparse.Namespace,
    defaults: Mapping[str, Any],
) -> bool:
    """Are hosts, lease and what ranks are told as they were for the controller before this one?"""
    if lock.journal is None or not are_several(arguments, job) or arguments.chdir is not None:
        return False
    from ckpt.controller.hosts import hostlist

    nodes, options = read_options(arguments, job, defaults)
    engine = history.engine or {}
    return (
        end_by_themselves(lock, history)
        and engine.get("hosts") == hostlist.text_of(nodes)
        and options["lease"] == history.lease_s
        and engine.get("tolerant") is (options["on_failure"] == "continue")
        and history.outcome is None
    )

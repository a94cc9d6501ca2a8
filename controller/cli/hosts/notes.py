"""What is said of a job's hosts, and of the allocation that it is in: to the user, and to the event log for `ckpt status`.

Not here: what is done with them (:mod:`ckpt.controller.hosts`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.transport.records import replace

if TYPE_CHECKING:
    from ckpt.controller.hosts.launch.launcher import HostsLauncher
    from ckpt.controller.launch.local import LocalLauncher
    from ckpt.controller.supervision.history import History
    from ckpt.store import JobDirectory, LockHandle

__all__ = ["alone", "announce", "describe", "no_kill_note", "requeue_note"]

_SCONTROL_LIMIT_S = 20.0


def announce(
    arguments: argparse.Namespace,
    job: JobDirectory,
    lock: LockHandle,
    launcher: LocalLauncher | HostsLauncher,
    history: History,
    say: Callable[[str], None],
) -> None:
    """Let the launcher watch the journal. Say, and write down for `ckpt status`, on which hosts of which engine the job is,
    and how it goes on when it is stopped (`--goes-on`). `history`: up to this controller. Raises LockLost, StorageFailed."""
    fields: dict[str, Any] = {}
    if (fleet := getattr(launcher, "fleet", None)) is not None:
        from ckpt.controller.hosts import hostlist, tenure

        hosts = hostlist.text_of([host.node for host in fleet.hosts.values()])
        fields |= {"engine": launcher.engine.name, "hosts": hosts, "tolerant": fleet.tolerant}  # type: ignore[union-attr]
        fields["lease_s"] = fleet.lease_ns / 1e9
        kinds = launcher.processors()  # type: ignore[union-attr]
        fields["processors"] = sorted(kinds)
        before = (history.engine or {}).get("processors") or sorted(kinds)
        if len(kinds) > 1 or before != sorted(kinds):
            say(_processors_note(kinds, before))
        if launcher.engine.name == "slurm":  # type: ignore[union-attr]
            for note in no_kill_note():
                say(note)
        assert lock.record.location is not None
        lock.claim(replace(lock.record.location, contact=launcher.contact()))  # type: ignore[union-attr]
        if lock.journal is not None:
            launcher.keep_watch(lock.journal)  # type: ignore[union-attr]
            fields |= {"generation": lock.generation, "tenure_s": tenure.patience_ns(fleet.lease_ns) / 1e9}
    number = os.environ.get("SLURM_JOB_ID")
    if number is not None:
        fields |= {"slurm_job": number, "requeued": int(os.environ.get("SLURM_RESTART_COUNT") or 0)}
    if arguments.goes_on is not None:
        fields["goes_on"] = arguments.goes_on
    if fields:
        job.events.append("engine", **fields)
        if number is not None or arguments.goes_on is not None:
            say(describe(fields))


def _processors_note(kinds: Mapping[str, list[str]], before: list[str]) -> str:
    """`kinds`: models of processors and their hosts; `before`: the models that the job has had until now."""
    now = "; ".join(f"{model}: {', '.join(names)}" for model, names in sorted(kinds.items()))
    past = "" if before == sorted(kinds) else f" (until now: {', '.join(before)})"
    return f"processors of another kind, with which last digits of numbers may differ: {now}{past}"


def alone(lease_s: float) -> str:
    """What may be on the hosts of a job whose controller is lost."""
    from ckpt.controller.hosts.lease import alone_ns

    most_s = alone_ns(0, round(lease_s * 1e9)) / 1e9
    return f"its hosts go on with the ranks for {most_s:.0f} s at most, and `ckpt restart` with these"


def describe(fields: Mapping[str, Any]) -> str:
    """The event `engine` in words."""
    parts = []
    if "slurm_job" in fields:
        again = f", queued again {fields['requeued']} times" if fields.get("requeued") else ""
        parts.append(f"Slurm job {fields['slurm_job']}{again}")
    if "hosts" in fields:
        parts.append(f"{fields['hosts']} ({fields['engine']})")
    if "goes_on" in fields:
        parts.append(f"if stopped before its end: {fields['goes_on']}")
    return "; ".join(parts)


def requeue_note() -> list[str]:
    """In an allocation: may its job be queued again?"""
    number = os.environ.get("SLURM_JOB_ID")
    if number is None:
        return []
    from ckpt.controller.hosts.engine import CommandFailed, ask

    try:
        shown = ask(["scontrol", "show", "job", number], _SCONTROL_LIMIT_S)
    except CommandFailed as error:
        return [f"whether Slurm job {number} may be queued again is not known: {error}"]
    may = "may" if "Requeue=1" in shown else "may not"
    return [f"Slurm job {number} {may} be queued again"]


def no_kill_note() -> list[str]:
    """In an allocation: does it live on when it loses a node?"""
    number = os.environ.get("SLURM_JOB_ID")
    if number is None:
        return []
    from ckpt.controller.hosts import slurm
    from ckpt.controller.hosts.engine import CommandFailed, ask

    try:
        script = ask(["scontrol", "write", "batch_script", number, "-"], _SCONTROL_LIMIT_S)
    except CommandFailed:
        return []  # an allocation of salloc has no script, and it cannot be known
    if slurm.survives_a_node(script, os.environ):
        return []
    return [
        f"the script of Slurm job {number} does not say `#SBATCH --no-kill`: without it, Slurm ends the whole job when it "
        "loses a node, and no spare helps"
    ]

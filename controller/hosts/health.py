"""What the facts of all hosts mean for a job on them: problems, and what is worth knowing. Pure.

A problem keeps a job from running, or from being safe; a note does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ckpt.transport.records import dataclass, field

__all__ = ["Health", "judge"]

_CLOCK_S = 2.0
_OPEN_FILES = 1024
_SHM_BYTES = 64 << 20
_SHOWN = 5

Facts = Mapping[str, Any]


@dataclass
class Health:
    """Texts for people; each names its host."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(hosts: Mapping[str, Facts], *, marker: str, seen: Mapping[str, bool], here: Facts) -> Health:
    """`hosts`: facts of `examine.py` by host, with `offset_s`: its clock less the controller's, and `offset_error_s`.

    `marker`: what the controller has written; `seen`: whether it found what the host wrote; `here`: facts of the controller.
    """
    found = Health()
    for host, facts in hosts.items():
        if facts["fork"]:
            found.problems.append(f"host {host}: a process cannot fork: {facts['fork']}")
        if facts["marker"] != marker or not seen.get(host):
            why = (
                facts["marker"]
                if facts["marker"].startswith("error")
                else "what was written here is not there"
            )
            found.problems.append(f"host {host}: it does not see the same directory: {facts['wrote'] or why}")
        _versions(found, host, facts, here)
        _limits(found, host, facts)
    _creation(found, hosts)
    _locks(found, hosts)
    _processors(found, hosts)
    return found


def _versions(found: Health, host: str, facts: Facts, here: Facts) -> None:
    if facts["ckpt"] != here["ckpt"]:
        found.problems.append(f"host {host}: ckpt {facts['ckpt']}, here {here['ckpt']}: install the same")
    if facts["python"].split(".")[:2] != here["python"].split(".")[:2]:
        found.problems.append(f"host {host}: Python {facts['python']}, here {here['python']}: use the same")
    elif facts["python"] != here["python"]:
        found.notes.append(f"host {host}: Python {facts['python']}, here {here['python']}")
    theirs, ours = facts["packages"], here["packages"]
    other = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
    if other:
        shown = ", ".join(
            f"{name} {theirs.get(name, 'missing')} (here {ours.get(name, 'missing')})"
            for name in other[:_SHOWN]
        )
        more = f" and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
        found.problems.append(f"host {host}: other packages: {shown}{more}")


def _limits(found: Health, host: str, facts: Facts) -> None:
    if abs(facts["offset_s"]) > _CLOCK_S + facts["offset_error_s"]:
        found.notes.append(
            f"host {host}: its clock is {facts['offset_s']:+.1f} s off (leases do not mind; times in files and logs do)"
        )
    if 0 <= facts["open_files"][1] < _OPEN_FILES:
        found.problems.append(
            f"host {host}: at most {facts['open_files'][1]} open files: raise it (ulimit -Hn)"
        )
    if facts["shm_bytes"] < _SHM_BYTES:
        found.notes.append(
            f"host {host}: /dev/shm has {facts['shm_bytes'] >> 20} MiB: ranks may have to use sockets"
        )


def _creation(found: Health, hosts: Mapping[str, Facts]) -> None:
    for host, facts in hosts.items():
        if isinstance(facts["won"], str):
            found.problems.append(
                f"host {host}: no hard links in the job directory ({facts['won']}): no restart elsewhere without --fenced"
            )
    winners = [host for host, facts in hosts.items() if facts["won"] is True]
    if hosts and len(winners) != 1 and not any(isinstance(facts["won"], str) for facts in hosts.values()):
        who = ", ".join(winners) or "no host"
        found.problems.append(
            f"a file that all hosts create at once was created by {who}: exactly one must succeed"
        )


def _locks(found: Health, hosts: Mapping[str, Facts]) -> None:
    free = sorted(host for host, facts in hosts.items() if facts["lock"] != "held")
    if free:
        found.notes.append(
            f"file locks do not reach {', '.join(free)}: a second `ckpt run` there is noticed by the journal only"
        )


def _processors(found: Health, hosts: Mapping[str, Facts]) -> None:
    kinds = Counter(facts["cpu"] for facts in hosts.values())
    if len(kinds) > 1:
        names = "; ".join(
            f"{cpu}: {', '.join(host for host, facts in hosts.items() if facts['cpu'] == cpu)}"
            for cpu in kinds
        )
        found.notes.append(f"several kinds of processors, whose last digits may differ: {names}")

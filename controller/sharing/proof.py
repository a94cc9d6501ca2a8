"""Decides which file systems all hosts share, from what each of them sees.

The controller makes a file with a random name in a directory, and each agent looks for it. No host can know the name from
before, nor remember that it is absent; a file system that was copied does not have it. Where it is found, at the same path,
and what is mounted there looks the same, it is one file system, and what is below that has the same path on all hosts.

Pure. Not here: the file and the looks (:mod:`ckpt.controller.sharing.facts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt.transport.records import NamedTuple
from ckpt.undo.records import CLOCK_LIMIT_NS

__all__ = ["SharedFiles", "clock_off_ns", "prove"]

Seen = tuple[str, int]
"""Where something is mounted, and its number (:mod:`ckpt.undo.shared`; 0: not known)."""


class SharedFiles(NamedTuple):
    """``numbers``: where each shared file system is mounted, and its number. ``refused``: directories on others, and why.
    ``boots``: of the hosts that are there. ``unknown_clocks``: what is not known of their clocks; "": enough is known.
    """

    numbers: dict[str, int]
    refused: dict[str, str]
    boots: frozenset[str]
    unknown_clocks: str = ""


def prove(own: Mapping[str, Seen], answers: Mapping[str, Mapping[str, Any] | None]) -> SharedFiles:
    """``own``: by directory, what the controller sees there. ``answers``: by host, what its agent has said (``look_for`` in
    :mod:`ckpt.controller.sharing.facts`), and ``off_ns``, how far its clock may be off; None: it has not answered.
    """
    numbers: dict[str, int] = {}
    refused: dict[str, str] = {}
    for directory, (mount, number) in own.items():
        reasons = [
            why for host, said in answers.items() if (why := _unlike(directory, (mount, number), host, said))
        ]
        if not number:
            reasons.insert(0, f"it is not known what is mounted at {mount} where the controller is")
        if reasons:
            refused[directory] = reasons[0]
        else:
            numbers[mount] = number
    boots = frozenset(str(said["boot"]) for said in answers.values() if said is not None)
    off = {host: said["off_ns"] for host, said in answers.items() if said is not None}
    apart = [
        f"the clock of host {host} may be {ns / 1e9:.1f} s off"
        for host, ns in off.items()
        if ns > CLOCK_LIMIT_NS
    ]
    return SharedFiles(numbers, refused, boots, "; ".join(apart))


def _unlike(directory: str, seen: Seen, host: str, said: Mapping[str, Any] | None) -> str:
    """Why this host does not see the same; "": it does."""
    if said is None:
        return f"host {host} did not say what it sees there"
    there = said["found"].get(directory)
    if there is None or not there["is_seen"]:
        return f"host {host} does not see the same directory there"
    if (there["mount"], there["number"]) != seen:
        return f"on host {host}, {there['mount']} is mounted there, and looks different"
    return ""


def clock_off_ns(answered_ns: int, asked_ns: int, came_ns: int) -> int:
    """How far a host's clock may be off, at most, that has answered with its time between these two of ours."""
    return max(abs(answered_ns - asked_ns), abs(came_ns - answered_ns))

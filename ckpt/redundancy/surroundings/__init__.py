"""The surroundings of a program that several processes compute: what would differ between them is made the same, or
refused. (driver)

    clocks          the leader's value of a clock; UUIDs made of clocks
    randomness      numbers without a seed follow from the job's secret
    processes       the leader's pid; signals that the program sends to itself
    refusals        what replicas cannot do alike raises NotReplicable

Made once, by the leader, when all have come to it: changes of files (:mod:`ckpt.redundancy.files`).

Not here: the hash seed, which is the job's; the host name, which is the same since all processes are on one host.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.redundancy.files import objects
from ckpt.redundancy.memory import arrays, pickles
from ckpt.redundancy.surroundings import clocks, processes, randomness, refusals
from ckpt.redundancy.surroundings.clocks import ASKED, Ask
from ckpt.redundancy.surroundings.randomness import RANDOM, Randomness

__all__ = ["Randomness", "begin", "go_on", "install", "state"]

_open_before: set[tuple[int, str]] = set()


def install(ask: Ask, secret: bytes, rank: int, began: Mapping[str, float]) -> None:
    """Give the program of this process surroundings that are the same in all replicas of `rank`.

    `ask(look)`: the leader's value of `look()`; what is imported before the program begins looks itself.
    `secret`: what all replicas know, and nobody else; at least 32 bytes, of which the last 64 count.
    `began`: what clocks tell where nobody has asked yet and nobody may ask."""
    tempfile.gettempdir()  # its first call writes a file, to see if it can; those of the program do not
    _open_before.update(refusals.open_for_writing())
    clocks.install(ask, began)
    processes.install()
    randomness.install(secret, rank)


def begin() -> None:
    """The program is about to begin, or to go on: from now on what replicas cannot do alike is refused. Raises NotReplicable
    where it holds something already that they could not share."""
    for fd, path in refusals.open_for_writing() - _open_before:
        raise NotReplicable(
            f"the program has a file open for writing (descriptor {fd}: {path}): each replica would write it. Go on without "
            "replicas (--redundancy 1)"
        )
    arrays.zero_new_arrays()
    pickles.adjust()
    refusals.begin()
    atexit.register(objects.flush_all)


def state() -> dict[str, Any]:
    """For an image: what a copy of this process has to know, to get what this one would."""
    return {
        "last": dict(ASKED.last),
        "pid": list(processes.known),
        "random": RANDOM.state(),
    }


def go_on(state: Mapping[str, Any]) -> None:
    """This process is a copy of one that had this `state`."""
    ASKED.last.update(state["last"])
    processes.known[:] = state["pid"]
    RANDOM.go_on(state["random"])

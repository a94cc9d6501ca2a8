"""Redundant ranks: several processes compute each rank, and what they compute is compared.

    ckpt run -n 4 --redundancy 3 app.py        every rank is computed by three processes; the program is not changed

    same(comm, obj)    which ranks of `comm` have another object than most: for programs that have copies already
    result(obj)        the result of this rank: compared at the end of the program, under ``--redundancy``
    status()           what this process is: rank, replica, and messages so far

    layer                          what a replica does with messages. Start reading here
    telling                        what it tells the controller
    comparison/                    the same where a message waits for the comparison
    agreement/                     answers that depend on time: made by one replica, followed by the others
    digest, chain, vote, lines,
    origin                         what replicas send, compared: who is odd, since when, and where it began; pure
    membership, ahead, model       who computes what; how far one may run ahead; the model of the speedup; pure
    surroundings/, files/,
    memory/                        clocks and random numbers made the same; files changed once; memory compared
    inject                         bit flips, for tests

Guarantees, refusals and limits: docs/redundancy.md. The idea of clusters of three processes for each rank, of which the odd
one is marked by comparing what is sent and the final result, is that of scalable triple modular redundancy (Wang, Yang,
Zhou: Journal of Software 23(4), 2012). Here nothing waits for the comparison (:mod:`ckpt.redundancy.layer`),
unless that is asked for (:mod:`ckpt.redundancy.comparison`).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from ckpt.redundancy.memory.content import digest_of

__all__ = ["result", "same", "status"]


def same(comm: Any, obj: Any) -> list[int]:
    """The ranks of `comm` whose `obj` differs from that of most ranks; empty: all are the same. Collective.

    Compared are digests of values (:mod:`ckpt.redundancy.memory.content`): class, type of numbers, shape and content of
    arrays of numpy, tensors of torch, and what has a buffer, whatever their strides and devices; else the pickle. So NaN
    payloads and −0.0 differ from other NaN and 0.0, dictionaries of another order too, and sets of equal content may: give
    something sorted. Costs one allgather of 16 bytes a rank. Where no digest has more ranks than every other one, all
    ranks are returned: it cannot be told who is right.

    Raises TypeError at all ranks alike, where one has what has no pickle; ValueError: `comm` has two groups of ranks."""
    if comm.Is_inter():
        raise ValueError(
            "same() compares the ranks of one group, and this is an intercommunicator: give it Merge() of that"
        )
    failed: Exception | None = None
    try:
        mine: bytes | str = digest_of(obj)
    except Exception as error:
        # replicas have other addresses, and must send the same
        text = re.sub("0x[0-9a-fA-F]+", "0x…", f"{error}")
        mine, failed = f"{type(error).__name__}: {text:.300}", error
    digests = comm.allgather(mine)
    for rank, found in enumerate(digests):
        if isinstance(found, str):
            raise TypeError(
                f"the object of rank {rank} cannot be compared: it has no pickle ({found})"
            ) from failed
    (most, count), *others = Counter(digests).most_common()
    if others and others[0][1] == count:
        return list(range(len(digests)))
    return [rank for rank, found in enumerate(digests) if found != most]


def result(obj: Any) -> Any:
    """This is a result of this rank; returns `obj`. Replicas must agree on it, as on a message. Without ``--redundancy``
    nothing happens. Results of one rank are compared in the order of the calls, by the digests of `same`."""
    from ckpt.redundancy.layer import current

    layer = current()
    if layer is not None:
        layer.result(digest_of(obj))
    return obj


class OwnNumber(int):
    """A number that is another one in each replica: it is not compared. What is computed from it is."""


def status() -> dict[str, int] | None:
    """What this process is: ``rank``, ``replica``, ``replicas``, ``messages`` (that the program has sent so far). None:
    it is no replica. The answer differs between replicas: a program must not compute with it."""
    from ckpt.redundancy.layer import current

    layer = current()
    if layer is None:
        return None
    return {
        "rank": layer.rank,
        "replica": OwnNumber(layer.replica),
        "replicas": layer.replicas,
        "messages": layer.streams.point.count,
    }

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

import pickle
from collections import Counter
from hashlib import blake2b
from typing import Any

__all__ = ["result", "same", "status"]


def same(comm: Any, obj: Any) -> list[int]:
    """The ranks of `comm` whose `obj` differs from that of most ranks; empty: all are the same. Collective.

    Compared are digests: of the memory of what has a buffer that is contiguous (numpy arrays, bytes), with its type and
    shape, else of the pickle. So NaN payloads and −0.0 differ from other NaN and 0.0, and sets of equal content may differ:
    give something sorted. Costs one allgather of 16 bytes a rank. Where no digest has more ranks than every other one, all
    ranks are returned: it cannot be told who is right.
    """
    digests = comm.allgather(_digest(obj))
    (most, count), *others = Counter(digests).most_common()
    if others and others[0][1] == count:
        return list(range(len(digests)))
    return [rank for rank, digest in enumerate(digests) if digest != most]


def result(obj: Any) -> Any:
    """This is a result of this rank; returns `obj`. Replicas must agree on it, as on a message. Without ``--redundancy``
    nothing happens. Results of one rank are compared in the order of the calls; what is compared is the pickle."""
    from ckpt.redundancy.layer import current

    layer = current()
    if layer is not None:
        layer.result(pickle.dumps(obj, 5))
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


def _digest(obj: Any) -> bytes:
    digest = blake2b(digest_size=16)
    try:
        view = memoryview(obj)
        flat = view.cast("B") if view.c_contiguous else None
    except TypeError:
        flat = None
    if flat is None:
        digest.update(pickle.dumps(obj, 5))
    else:
        digest.update(f"{type(obj).__qualname__} {view.format} {view.shape} ".encode())
        digest.update(flat)
    return digest.digest()

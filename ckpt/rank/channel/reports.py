"""Packets that a rank sends to its controller, as values. Pure.

The packets about images are in :mod:`ckpt.capture`. The controller checks all packets by
``ckpt.controller.supervision.messages``.

Not here: when packets are sent (:mod:`ckpt.rank.runtime`), the channel (:mod:`ckpt.rank.channel.control`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ckpt.capture.imager import Imager
from ckpt.transport.protocol.events import Event, LinkDown, LinkUp, PeerHeard, PeerRestarted, PeerSilent
from ckpt.transport.records import asdict

__all__ = ["about_output", "about_peer", "event", "hello", "links", "load", "status"]

_PAUSES_KEPT = 64


def event(name: str, **fields: object) -> dict[str, Any]:
    """A packet with an entry for the job's event log."""
    return {"m": "event", "event": name, **fields}


def hello(rank: int, incarnation: int, address: str) -> dict[str, Any]:
    """The first packet of a rank, which can be reached at ``address``."""
    return {"m": "hello", "rank": rank, "incarnation": incarnation, "pid": os.getpid(), "address": address}


def about_peer(seen: Event, now_ns: int) -> dict[str, Any] | None:
    """The packet about an event of the transport that concerns another rank; ``None``: the controller need not know it.
    ``now_ns``: of the port's clock."""
    match seen:
        case LinkDown():
            tcp = None if seen.tcp is None else asdict(seen.tcp)
            silent_ns = now_ns - seen.since_ns
            fields = {"kind": seen.kind, "errno": seen.errno, "silent_ns": silent_ns, "tcp": tcp}
            return event("link-down", peer=seen.rank, **fields, accepts=seen.accepts)
        case LinkUp():
            return event("link-up", peer=seen.rank)
        case PeerSilent():
            return event("peer-silent", peer=seen.rank, silent_ns=seen.silent_ns)
        case PeerHeard():
            return event("peer-heard", peer=seen.rank)
        case PeerRestarted():
            return event("peer-restarted", peer=seen.rank, incarnation=seen.incarnation)
    return None


def links(epoch: int, counts: Mapping[int, Sequence[int]]) -> dict[str, Any]:
    """What the kernel has counted of the connections to other hosts by the commit of ``epoch``: by rank, round trip in ns,
    segments sent again, segments sent."""
    return {"m": "links", "epoch": epoch, "peers": {str(peer): list(each) for peer, each in counts.items()}}


def about_output(change: str, stream: str, detail: str) -> dict[str, Any]:
    """A full disk has refused output (``change``: "held back", ``detail``: the reason), or it has been written (its
    size)."""
    if change == "held back":
        return event("output-held-back", stream=stream.strip("<>"), reason=detail)
    return event("output-written", stream=stream.strip("<>"), bytes=detail)


def status(imager: Imager, counters: dict[str, int], files: dict[str, int] | None) -> dict[str, Any]:
    """The answer to ``status``. ``counters``: of the port; ``files``: of the undo log, if there is one."""
    return {
        "m": "status",
        "epoch": imager.epoch,
        "wanted": imager.wanted,
        "where": imager.where(),
        "mode": imager.taker.choice.mode,
        "mode_reason": imager.taker.choice.reason,
        "refused": imager.search.refusals,
        "refused_longest_ns": imager.search.refused_longest_ns,
        "pauses_ns": list(imager.taker.pauses_ns[-_PAUSES_KEPT:]),
        "counters": counters,
        "files": files,
    }


def load(epoch: int, lost: Iterable[Mapping[str, object]], not_put_back: object) -> list[dict[str, Any]]:
    """What the image of `epoch` did not have, or could not put back."""
    packets = [event("package-starts-anew", epoch=epoch, **row) for row in lost]
    if not_put_back:
        packets.append(event("not-put-back", epoch=epoch, what=not_put_back))
    return packets

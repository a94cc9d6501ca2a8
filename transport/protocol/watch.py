"""Decides whether a link between hosts that is late is down. Pure.

A peer that computes, is stopped or is being imaged does not answer, and its link is late; but the kernel of its host
acknowledges what was sent. So the kernel's word on the connection decides, and a peer is never taken for dead as long as
its kernel answers.

    well ──LinkLate──▶ looking ──not answered for give_up_ns──▶ probing ──error──▶ down (LinkDown)
      ▲                   │ ▲                                     │                  ▲  │
      └──answered─────────┘ └────────── a connection is made ─────┴──for the third time─┘  │
      └──────────────────────────────────────────────────────────────answered──────────────┘  (LinkUp)

looking   the state of the connection (`TcpState`) is read now and then. What was sent and is not acknowledged is sent
          again by the kernel; while it does that, or while there is no connection, the link is not answered.
probing   one raw connect to the port of the peer, for its error number; the driver bounds its time.
down      reported once. Read more rarely, until the connection answers. Also where a connection can be made, three times in
          a row, and nothing that was sent is acknowledged all the time: small packets arrive and large ones do not (a way
          that takes smaller ones than its ends believe), or a filter stops what belongs to a connection.

Nothing runs while no link is late: no heartbeat. Errors and kinds are those of Sakai and Ishikawa, "MPI communication
library with cluster monitoring", section 3.2. Not here: sockets and clocks (`ckpt.transport.driver.linkwatcher`).
"""

from __future__ import annotations

import errno
from typing import Literal

from ckpt.transport.protocol.events import DownKind, Event, LinkDown, LinkUp
from ckpt.transport.records import dataclass

__all__ = ["GIVE_UP_NS", "LinkWatch", "TcpState", "kind_of"]

GIVE_UP_NS = 2_000_000_000
"""A connection on which nothing was acknowledged for so long is given up."""
_LOOKS, _LOOKS_DOWN = 10, 2
"""So often a connection is looked at in that time."""

_MOST_CONNECTS = 3
"""With so many connections that could be made the link is down all the same, if nothing was acknowledged meanwhile."""

_LEAST_ANSWERS = 2
"""So often in a row such a link has to look well to be up: a new connection does, until it has carried something large."""

Step = Literal["looking", "probing", "down"]


@dataclass(frozen=True, slots=True)
class TcpState:
    """What the kernel says of a connection (TCP_INFO). `silent_ns`: since the last acknowledgement came."""

    retransmits: int
    """Of what is sent again now."""
    probes: int
    """Unanswered, of a window that is closed."""
    silent_ns: int
    rtt_ns: int = 0
    retransmits_in_all: int = 0

    @property
    def answers(self) -> bool:
        """Nothing waits for an answer that the kernel had to ask for again."""
        return not self.retransmits and not self.probes


@dataclass(slots=True)
class _Doubt:
    began_ns: int
    since_ns: int
    due_ns: int
    step: Step = "looking"
    tcp: TcpState | None = None
    connects: int = 0
    """Connections that were made while nothing was acknowledged on this one."""
    answers: int = 0
    """Looks in a row at which it answered."""


class LinkWatch:
    """The links of one rank. All times are of the owner's clock."""

    def __init__(self, give_up_ns: int = GIVE_UP_NS) -> None:
        self.give_up_ns = give_up_ns
        self.look_ns, self.look_down_ns = give_up_ns // _LOOKS, give_up_ns // _LOOKS_DOWN
        self._doubts: dict[int, _Doubt] = {}

    def late(self, rank: int, silent_ns: int, now_ns: int) -> None:
        """The link to `rank` is late (LinkLate)."""
        if rank not in self._doubts:
            self._doubts[rank] = _Doubt(now_ns - silent_ns, now_ns - silent_ns, now_ns)

    def forget(self, rank: int) -> None:
        """`rank` has another address from now on, or is gone for good."""
        self._doubts.pop(rank, None)

    def due(self, now_ns: int) -> list[int]:
        """The ranks whose connections are to be looked at now: call `looked` for each."""
        return [
            rank for rank, doubt in self._doubts.items() if doubt.step != "probing" and doubt.due_ns <= now_ns
        ]

    def deadline_ns(self) -> int | None:
        """When `due` is to be asked next; None: no link is late, or only probes are under way."""
        times = [doubt.due_ns for doubt in self._doubts.values() if doubt.step != "probing"]
        return min(times, default=None)

    def looked(self, rank: int, tcp: TcpState | None, now_ns: int) -> bool | Event:
        """The state of the connection to `rank`; None: there is none. True: probe it now, and call `probed`; an event
        (LinkUp) is to be reported."""
        doubt = self._doubts[rank]
        if tcp is not None and tcp.answers:
            doubt.answers += 1
            if doubt.step == "down" and doubt.connects and doubt.answers < _LEAST_ANSWERS:
                doubt.due_ns = now_ns + self.look_down_ns
                return False
            del self._doubts[rank]
            return LinkUp(rank) if doubt.step == "down" else False
        doubt.answers = 0
        if doubt.step == "down":
            doubt.due_ns = now_ns + self.look_down_ns
            return False
        if tcp is None:
            doubt.connects = 0  # one that has nothing to carry it is no proof
        else:
            doubt.tcp = tcp
            doubt.since_ns = max(doubt.since_ns, now_ns - tcp.silent_ns)
        given_up_ns = doubt.since_ns + self.give_up_ns
        if now_ns >= given_up_ns:
            doubt.step = "probing"
            return True
        doubt.due_ns = min(now_ns + self.look_ns, given_up_ns)
        return False

    def probed(self, rank: int, number: int | None, now_ns: int, *, has_route: bool = True) -> Event | None:
        """The raw connect to `rank` has ended with this error; None: a connection was made. `has_route`: the own host
        knows a way to the peer."""
        doubt = self._doubts[rank]
        if number is None:
            doubt.connects += 1
            if doubt.connects >= _MOST_CONNECTS and doubt.tcp is not None:
                since_ns = doubt.began_ns
                doubt.step, doubt.due_ns = "down", now_ns + self.look_down_ns
                return LinkDown(rank, "silent", errno.ETIMEDOUT, since_ns, doubt.tcp, accepts=True)
            doubt.step, doubt.since_ns, doubt.due_ns = "looking", now_ns, now_ns + self.look_ns
            return None
        doubt.step, doubt.due_ns, doubt.connects = "down", now_ns + self.look_down_ns, 0
        return LinkDown(rank, kind_of(number, has_route=has_route), number, doubt.since_ns, doubt.tcp)


_KINDS: dict[int, DownKind] = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.ECONNABORTED: "reset",
    errno.ETIMEDOUT: "silent",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EHOSTDOWN: "unreachable",
}


def kind_of(number: int, *, has_route: bool = True) -> DownKind:
    """The kind of a lost link. Every other error is one of the own host (ENETDOWN, EADDRNOTAVAIL, EACCES, EPERM, …)."""
    kind = _KINDS.get(number, "local")
    return "local" if kind == "unreachable" and not has_route else kind

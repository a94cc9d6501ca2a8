"""Events: what an endpoint reports to its owner, besides messages.

Events are values; the owner takes them with `Endpoint.events()`. The protocol stays correct if the owner ignores an
event. After ImageDue it does not go on, though: the frames that wait for the image are held until `advance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ckpt.transport.records import dataclass

if TYPE_CHECKING:
    from ckpt.transport.protocol.watch import TcpState

DownKind = Literal["refused", "reset", "unreachable", "silent", "local"]
"""Why a link is down: the peer's host refuses connections; it resets them; nobody knows a way; nothing is answered; the own
device is down, or the own host has no route."""


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class ImageDue(Event):
    """Traffic stamped with a higher epoch has come: take the image, then call `advance(epoch)`.

    Reported once for each higher epoch. Stamps on traffic spread the command to take an image when the controller's
    command is slow or lost. `source`: the rank whose frame had the stamp.
    """

    epoch: int
    source: int


@dataclass(frozen=True, slots=True)
class Zombie(Event):
    """A frame of a peer names a later incarnation of this rank: this process was replaced and has to stop.

    From then on the endpoint neither sends nor processes frames.
    """

    incarnation: int
    source: int


@dataclass(frozen=True, slots=True)
class PeerRestarted(Event):
    """A frame of a later incarnation of `rank` was dropped. The owner asks the controller, then calls `set_peer`."""

    rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class PeerSilent(Event):
    """No frame came from `rank` for `silent_ns` although it owes an answer. Reported once, until a frame comes again."""

    rank: int
    silent_ns: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class LinkStalled(Event):
    """The retransmission timer of the link to `rank` passed `timeouts` times in a row without an acknowledgement; or as many
    messages in a row came from `rank` that it had been told to have arrived.

    The peer may be slow, or the connection may never deliver anything any more: a wire that has connections should open
    a new one (`Wire.renew`). Reported at every sixth time in a row (`link.STALLED_TIMEOUTS`).
    """

    rank: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class PeerHeard(Event):
    """A frame came from `rank`, which had been reported as silent (PeerSilent)."""

    rank: int


@dataclass(frozen=True, slots=True)
class LinkLate(Event):
    """The second or a later timeout, or probe, in a row passed on the link to `rank`: nothing came for `silent_ns`.

    The peer may compute, be stopped or write its image: a wire between hosts looks at its connection (`watch.py`).
    """

    rank: int
    silent_ns: int


@dataclass(frozen=True, slots=True)
class LinkDown(Event):
    """Another host cannot be reached: nothing that was sent to `rank` since `since_ns` was acknowledged by the kernel
    there, and a new connection fails with `errno`. Reported once, until LinkUp. `tcp`: what the kernel says of the
    connection, if there is one. `accepts`: new connections can be made, but this one carries nothing.
    """

    rank: int
    kind: DownKind
    errno: int
    since_ns: int
    tcp: TcpState | None = None
    accepts: bool = False


@dataclass(frozen=True, slots=True)
class LinkUp(Event):
    """The connection to `rank`, which had been reported as down (LinkDown), carries again."""

    rank: int

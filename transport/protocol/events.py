"""What an endpoint has to tell its owner, besides messages.

Events are values, taken with `Endpoint.events()`. None of them needs an answer for the protocol to stay
correct; ImageDue needs one for it to go on, since the frames that wait for the image are held until
`advance`.
"""

from __future__ import annotations

from ckpt.transport.records import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class ImageDue(Event):
    """Traffic stamped with a higher epoch has come: take the image, then call `advance(epoch)`.

    Told once for each higher epoch. The stamp on traffic is how the command spreads when the controller's is
    slow.
    """

    epoch: int
    source: int


@dataclass(frozen=True, slots=True)
class Zombie(Event):
    """A peer addresses a later incarnation of this rank: this process was replaced and has to stop.

    From then on the endpoint neither sends nor takes anything.
    """

    incarnation: int
    source: int


@dataclass(frozen=True, slots=True)
class PeerRestarted(Event):
    """A frame of a later incarnation of `rank` was dropped: ask who that is, then `set_peer`."""

    rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class PeerSilent(Event):
    """Nothing was heard from `rank` for `silent_ns` although an answer is due. Told once, until it speaks
    again."""

    rank: int
    silent_ns: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class LinkStalled(Event):
    """What `rank` was sent has been sent again `timeouts` times in a row and never acked.

    The peer may be slow; or the connection may be one that will never deliver anything any more, so a wire that can
    should begin it anew. Told again whenever that many timeouts more have passed.
    """

    rank: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class PeerHeard(Event):
    """A rank that PeerSilent named speaks again."""

    rank: int

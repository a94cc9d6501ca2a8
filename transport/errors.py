"""Exceptions of the transport.

    TransportError
    ├── ConfigError          a limit or an identity is out of range (also a ValueError)
    ├── UsageError           the caller broke the order of calls (also a RuntimeError)
    │   └── EpochError       the new epoch is not above the present one
    ├── UnknownRank          a rank outside 0 … size-1 (also an IndexError)
    ├── StateMismatch        a saved port state that does not fit the configuration (also a ValueError)
    ├── FrameError           bytes that are not a frame of this protocol; the endpoint counts and drops them
    └── WireError            the wire below the endpoint (drivers only; the pure modules never raise these)
        ├── AddressError     an address that cannot be used: malformed, too long, no such directory (also a
                             ValueError)
        ├── AddressInUse     another socket is bound to that address already (also an OSError)
        ├── TooManyConnections   the limit of open files, or of ZeroMQ's sockets, leaves no room for one more connection
        │                    (also an OSError)
        ├── WireClosed       the wire was used after close, or in a forked child
        └── FaultPlanError   a fault plan that cannot be parsed (also a ValueError)

A bad frame from the wire never raises out of an endpoint: the endpoint counts the frame and drops it. A mistake of the
program raises at once, in the call that makes it.
"""

from __future__ import annotations


class TransportError(Exception):
    """Base of everything the transport raises."""


class ConfigError(TransportError, ValueError):
    """A limit or an identity in `EndpointConfig` is out of range."""


class UsageError(TransportError, RuntimeError):
    """A call that the endpoint's present state does not allow."""


class EpochError(UsageError):
    """The new epoch is not above the present one. Epochs only grow: the number of an aborted round is never used again."""


class UnknownRank(TransportError, IndexError):
    """A rank outside 0 … size-1."""


class StateMismatch(TransportError, ValueError):
    """A saved port state of another job, rank or size, of a later epoch or incarnation, or with messages missing."""


class FrameError(TransportError, ValueError):
    """Bytes that are not a frame of this protocol (truncated, corrupted, wrong version)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WireError(TransportError):
    """Base of the errors that a wire raises for mistakes of its owner; a bad network never raises."""


class AddressError(WireError, ValueError):
    """An address that cannot be used: malformed, too long, no such directory."""


class AddressInUse(WireError, OSError):
    """Another socket is bound to that address already."""


class TooManyConnections(WireError, OSError):
    """The limit of open files, or of ZeroMQ's sockets, leaves no room for a connection to one more peer."""


class WireClosed(WireError):
    """The wire was used after `close`, or in a forked child of the process that opened it."""


class FaultPlanError(WireError, ValueError):
    """A fault plan (`faultinject.FaultPlan`) that cannot be parsed."""

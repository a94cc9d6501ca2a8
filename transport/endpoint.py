"""All links of one rank (being filled in: the signatures are final)."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from transport.events import Event
from transport.state import PortState

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """Who this endpoint is, and its limits. Bytes and nanoseconds. Immutable and hashable."""

    job: int
    rank: int
    size: int
    incarnation: int = 0
    epoch: int = 0
    credit_bytes: int = 16 << 20
    """Charge (length + message_overhead_bytes each) a link may hold that the application has not consumed."""
    initial_credit_bytes: int = 1 << 20
    """What a sender presumes before the peer's first ack."""
    hungry_credit_bytes: int = 1 << 20
    message_overhead_bytes: int = 64
    coalesce_bytes: int = 64 << 10
    """Largest body of a frame of messages; a longer message travels in fragments (header part + payload part)."""
    fragment_bytes: int = 512 << 10
    burst_bytes: int = 4 << 20
    """At most about this much is returned for one link by one transmit; what is left makes `flush_due` stay true."""
    pipeline_bytes: int = 16 << 20
    held_bytes: int = 32 << 20
    held_frames: int = 4096
    max_message_bytes: int = 1 << 40
    checksum_payload: bool = False
    """Also guard payload parts of fragments by crc32 (about 1 GB/s). Heads and message frames always are."""
    ack_delay_ns: int = 10_000_000
    rto_initial_ns: int = 300_000_000
    rto_min_ns: int = 100_000_000
    rto_max_ns: int = 5_000_000_000
    probe_ns: int = 50_000_000
    probe_max_ns: int = 1_000_000_000
    silent_ns: int = 10_000_000_000


class Endpoint:
    """All links of one rank. Not thread-safe: the owner's lock guards it."""

    flush_due: bool
    """Something should go out at once: an idle link has a message, a frame is full, an ack is due. Cleared by transmit."""

    def __init__(
        self,
        config: EndpointConfig,
        state: PortState | None = None,
        *,
        allocate: Callable[[int], bytearray] = bytearray,
    ) -> None:
        """`allocate(n)` gives the buffer for a reassembled large message (a driver may reuse memory)."""
        raise NotImplementedError

    def set_peer(self, rank: int, incarnation: int, now_ns: int) -> None:
        """The peer's (new) incarnation is known and reachable. Nothing is transmitted to a peer before this."""

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        """Enqueue; returns the sequence."""
        raise NotImplementedError

    def receive(self, parts: Sequence[Buffer], now_ns: int) -> None:
        """Take one wire frame. Prefer `bytes` for parts[0]; parts[1] may be any buffer."""

    def transmit(self, now_ns: int, blocked: Container[int] = ()) -> list[tuple[int, tuple[Buffer, ...]]]:
        """Frames to put on the wire now. Ranks in `blocked` (their wire is congested) are left alone."""
        raise NotImplementedError

    def tick(self, now_ns: int) -> None:
        """Timers; follow by transmit. Cheap when nothing is due."""

    def deadline_ns(self) -> int | None:
        """When tick is next needed (may be early, never late); None: never."""
        raise NotImplementedError

    def delivered(self) -> list[tuple[int, list[Buffer]]]:
        """Take the in-order messages per source since the last call."""
        raise NotImplementedError

    def events(self) -> list[Event]:
        """Take the events."""
        raise NotImplementedError

    def base(self, dst: int) -> int:
        """Lowest unacked sequence."""
        raise NotImplementedError

    def tx(self, dst: int) -> int:
        """Messages enqueued."""
        raise NotImplementedError

    def rx(self, src: int) -> int:
        """Messages delivered."""
        raise NotImplementedError

    def backlog_bytes(self, dst: int) -> int:
        """Bytes pending and unacked."""
        raise NotImplementedError

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        """The application took messages out of its mailbox: their credit goes back."""

    def hungry(self, yes: bool, now_ns: int) -> None:
        """The receiver is blocked and nothing in its mailbox matches (or no longer is)."""

    def freeze(self) -> None:
        """Stop; frames that come are held and answered by a negative ack."""

    def thaw(self, now_ns: int) -> None:
        """Go on."""

    def advance(self, epoch: int, now_ns: int) -> None:
        """The image of `epoch` is captured (after `snapshot`): stamp frames with it, process held frames."""

    def snapshot(self) -> PortState:
        """The port's state by reference."""
        raise NotImplementedError

    def counters(self) -> dict[str, int]:
        """Totals of this endpoint."""
        raise NotImplementedError

    def peer_counters(self) -> dict[int, dict[str, int]]:
        """The same by peer."""
        raise NotImplementedError

    def idle(self) -> bool:
        """Nothing pending or unacked on any link."""
        raise NotImplementedError

    def clone(self) -> Endpoint:
        """An independent copy."""
        raise NotImplementedError

    def key(self) -> tuple[object, ...]:
        """Hashable protocol state, without timers, estimates and counters."""
        raise NotImplementedError

"""Who an endpoint is, and its limits: every number that shapes the transport stands here, with its unit."""

from __future__ import annotations

from ckpt.transport.errors import ConfigError
from ckpt.transport.records import dataclass, names


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
    initial_credit_bytes: int = 4 << 20
    """What a sender presumes before the peer's first ack."""
    hungry_credit_bytes: int = 1 << 20
    """Least credit that a hungry receiver grants."""
    message_overhead_bytes: int = 48
    """Charge of a message beside its length: bounds memory for very small ones."""
    coalesce_bytes: int = 128 << 10
    """Charge at which a batch of small messages is full."""
    large_bytes: int = 64 << 10
    """A message longer than this travels in fragments (head + payload part), uncopied by the sender."""
    fragment_bytes: int = 1 << 20
    burst_bytes: int = 4 << 20
    """At most about this much is returned for one link by one transmit; `flush_due` stays true while there is
    more."""
    pipeline_bytes: int = 16 << 20
    """Fragments in flight per link."""
    held_bytes: int = 32 << 20
    held_frames: int = 4096
    max_message_bytes: int = 1 << 40
    checksum_payload: bool = False
    """Also guard payload parts of fragments by crc32 (about 1 to 2.5 GB/s). Heads and message frames always
    are."""
    ack_delay_ns: int = 10_000_000
    rto_initial_ns: int = 300_000_000
    rto_min_ns: int = 100_000_000
    rto_max_ns: int = 5_000_000_000
    probe_ns: int = 50_000_000
    probe_max_ns: int = 1_000_000_000
    silent_ns: int = 10_000_000_000
    """A peer that owes an answer and says nothing for so long is reported (PeerSilent)."""

    def __post_init__(self) -> None:
        if not 0 <= self.job < 1 << 64:
            raise ConfigError(f"job {self.job}: not a 64-bit number")
        if not 0 < self.size < 1 << 32 or not 0 <= self.rank < self.size:
            raise ConfigError(f"rank {self.rank} of {self.size}")
        if not 0 <= self.incarnation < 1 << 32 or not 0 <= self.epoch < 1 << 63:
            raise ConfigError(f"incarnation {self.incarnation}, epoch {self.epoch}")
        for name in names(self)[5:]:
            value = getattr(self, name)
            if value < (name not in {"checksum_payload", "message_overhead_bytes", "ack_delay_ns"}):
                raise ConfigError(f"{name} {value}: too small")
        if self.large_bytes + self.coalesce_bytes >= 1 << 31 or self.fragment_bytes >= 1 << 31:
            raise ConfigError("large_bytes, coalesce_bytes and fragment_bytes are limited to 1 GiB")
        if self.rto_min_ns > self.rto_max_ns:
            raise ConfigError("rto_min_ns above rto_max_ns")

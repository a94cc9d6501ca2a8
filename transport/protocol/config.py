"""The identity and the limits of an endpoint: every number that shapes the transport stands here, with its unit. Pure."""

from __future__ import annotations

from ckpt.transport.errors import ConfigError
from ckpt.transport.integers import END_OF_NUMBERS
from ckpt.transport.records import dataclass, names


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """Identity (job, rank, size, incarnation, epoch) and limits, in bytes and nanoseconds. Immutable and hashable.

    Raises ConfigError for a value out of its range. Flow control counts in *charge*: the charge of a message is its length
    plus `message_overhead_bytes`.
    """

    job: int
    rank: int
    size: int
    incarnation: int = 0
    epoch: int = 0
    credit_bytes: int = 16 << 20
    """Largest charge of the messages on one link that the application has not consumed."""
    initial_credit_bytes: int = 4 << 20
    """Credit that a sender assumes before the peer's first acknowledgement."""
    hungry_credit_bytes: int = 1 << 20
    """Least credit that a hungry receiver (`Endpoint.hungry`) grants."""
    message_overhead_bytes: int = 48
    """Charge of a message beside its length: it bounds the memory for many very small messages."""
    coalesce_bytes: int = 96 << 10
    """Charge at which a batch of small messages is full."""
    large_bytes: int = 64 << 10
    """A message longer than this travels in fragments (head + payload part), and the sender does not copy it."""
    fragment_bytes: int = 1 << 20
    burst_bytes: int = 4 << 20
    """One `transmit` returns at most about this much for one link; `flush_due` stays true while there is
    more."""
    pipeline_bytes: int = 16 << 20
    """Largest charge in flight per link before no further fragment is cut."""
    held_bytes: int = 32 << 20
    held_frames: int = 4096
    max_message_bytes: int = 1 << 40
    reserved: int = 0
    """So many of the highest numbers are of processes that may be started later: there is a link to one only when the port
    has been told of it."""
    checksum_payload: bool = False
    """Guard the payload parts of fragments by crc32 too (about 1 to 2.5 GB/s). Heads and MESSAGES frames always have
    a crc32."""
    ack_delay_ns: int = 10_000_000
    rto_initial_ns: int = 300_000_000
    rto_min_ns: int = 100_000_000
    rto_max_ns: int = 5_000_000_000
    probe_ns: int = 50_000_000
    probe_max_ns: int = 1_000_000_000
    silent_ns: int = 10_000_000_000
    """A peer that owes an answer and sends nothing for so long is reported (PeerSilent)."""

    def __post_init__(self) -> None:
        if not 0 <= self.job < 1 << 64:
            raise ConfigError(f"job {self.job}: not a 64-bit number")
        if not 0 < self.size < 1 << 32 or not 0 <= self.rank < self.size:
            raise ConfigError(f"rank {self.rank} of {self.size}")
        if not 0 <= self.incarnation < 1 << 32 or not 0 <= self.epoch < END_OF_NUMBERS:
            raise ConfigError(f"incarnation {self.incarnation}, epoch {self.epoch}")
        for name in names(self)[5:]:
            value = getattr(self, name)
            if value < (
                name not in {"checksum_payload", "message_overhead_bytes", "ack_delay_ns", "reserved"}
            ):
                raise ConfigError(f"{name} {value}: too small")
            if value >= END_OF_NUMBERS:
                raise ConfigError(f"{name} {value}: too large")
        if self.large_bytes + self.coalesce_bytes >= 1 << 31 or self.fragment_bytes >= 1 << 31:
            raise ConfigError("large_bytes, coalesce_bytes together, and fragment_bytes, must be below 2 GiB")
        if self.rto_min_ns > self.rto_max_ns:
            raise ConfigError("rto_min_ns above rto_max_ns")

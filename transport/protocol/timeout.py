"""Round-trip estimate and retransmission timeout, by RFC 6298, in integer nanoseconds.

Samples come from frames that were sent exactly once (Karn's algorithm). Each expiry doubles the timeout up to the
maximum; an acknowledgement of a new message ends the backoff. The RFC's clock granularity G is 1 ms here: the timers of a
busy process are no finer.
"""

from __future__ import annotations

from ckpt.transport.integers import integers

GRANULARITY_NS = 1_000_000


@integers("_initial_ns", "_max_ns", "_min_ns", "_var_ns", "backoff", "srtt_ns")
class Timeout:
    """Round-trip estimator of one link (RFC 6298)."""

    __slots__ = ("_initial_ns", "_max_ns", "_min_ns", "_var_ns", "backoff", "srtt_ns")

    def __init__(self, initial_ns: int, min_ns: int, max_ns: int) -> None:
        self._initial_ns = initial_ns
        self._min_ns = min_ns
        self._max_ns = max_ns
        self._var_ns = 0
        self.srtt_ns = 0
        """Smoothed round-trip time; 0: none measured yet."""
        self.backoff = 0
        """Expiries in a row."""

    def sample(self, rtt_ns: int) -> None:
        """Take a measured round trip into the estimate."""
        if rtt_ns < 1:
            rtt_ns = 1
        if not self.srtt_ns:
            self.srtt_ns = rtt_ns
            self._var_ns = rtt_ns >> 1
            return
        self._var_ns += (abs(self.srtt_ns - rtt_ns) - self._var_ns) >> 2
        self.srtt_ns += (rtt_ns - self.srtt_ns) >> 3  # stays above 0, since both are

    def rto_ns(self) -> int:
        """The timeout to set a timer to now: RTO of RFC 6298 with backoff, within minimum and maximum."""
        if self.srtt_ns:
            rto = self.srtt_ns + max(GRANULARITY_NS, 4 * self._var_ns)
            rto = max(rto, self._min_ns)
        else:
            rto = self._initial_ns
        return min(rto << min(self.backoff, 32), self._max_ns)

    def reorder_ns(self) -> int:
        """A frame counts as lost when a later one was acknowledged and this time (9/8 round trips) has passed since it
        was sent."""
        srtt = self.srtt_ns or self._initial_ns
        return max(srtt + (srtt >> 3), GRANULARITY_NS)

    def expired(self) -> None:
        """Take note that the timeout passed without an acknowledgement."""
        self.backoff += 1

    def progress(self) -> None:
        """Take note that a new message was acknowledged: the backoff ends."""
        self.backoff = 0

    def copy(self) -> Timeout:
        """An independent copy."""
        new = Timeout(self._initial_ns, self._min_ns, self._max_ns)
        new._var_ns, new.srtt_ns, new.backoff = self._var_ns, self.srtt_ns, self.backoff
        return new

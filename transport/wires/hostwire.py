"""A wire with two addresses: a near one for processes of its own host, and a far one (tcp) for all others. (driver)

The address names the host, the far address and the near one. A host is here what shares Unix sockets and memory: one boot of
one kernel, and one network namespace. All other methods are those of the inner wire, which this wire offers unchanged.

A `LinkCare` looks after the far links. It does its work where this wire is asked for its deadline: before each sleep.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from ckpt.transport.errors import AddressError
from ckpt.transport.wires.wire import Frame, Wire

__all__ = ["HostWire", "LinkCare", "this_host"]


class LinkCare(Protocol):
    """Finds out which far links are down."""

    def forget(self, rank: int, address: str | None) -> None:
        """`rank` has this far address from now on; None: it is near."""
        ...

    def attend(self) -> int | None:
        """Do what is due; returns when to come again, or None."""
        ...

    def close(self) -> None: ...


def this_host() -> str:
    """An identity of this host, without spaces."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot}.{os.stat('/proc/self/ns/net').st_ino}"


class HostWire:
    """A wire with a near and a far address. `inner`: the wire, whose address is the near one; `far`: the tcp address at
    which it is reached too."""

    def __init__(self, inner: Wire, far: str, care: LinkCare | None = None) -> None:
        self._inner = inner
        self._host = this_host()
        self._far = far
        self._care = care
        self.far_ranks: set[int] = set()
        self.send: Callable[[int, Frame], bool] = inner.send
        self.receive: Callable[[], Frame | None] = inner.receive
        self.renew: Callable[[int], None] = inner.renew
        self.fileno: Callable[[], int] = inner.fileno
        self.deadline_ns: Callable[[], int | None] = inner.deadline_ns if care is None else self._deadline_ns
        self.spin: Callable[[int], None] = inner.spin
        self.counters: Callable[[], dict[str, int]] = inner.counters
        self.close: Callable[[], None] = inner.close if care is None else self._close

    @property
    def address(self) -> str:
        """Host, far address and near address, separated by spaces."""
        return f"{self._host} {self._far} {self._inner.address}"

    def connect(self, rank: int, address: str) -> None:
        """As the inner wire, by the near address if the peer is on this host. Raises AddressError."""
        parts = address.split(" ", 2)
        if len(parts) != 3:
            raise AddressError(f"{address!r} is no address of a rank on several hosts")
        host, far, near = parts
        is_near = host == self._host
        (self.far_ranks.discard if is_near else self.far_ranks.add)(rank)
        if self._care is not None:
            self._care.forget(rank, None if is_near else far)
        self._inner.connect(rank, near if is_near else far)

    def _deadline_ns(self) -> int | None:
        assert self._care is not None
        due_ns, below_ns = self._care.attend(), self._inner.deadline_ns()
        if due_ns is None or below_ns is None:
            return below_ns if due_ns is None else due_ns
        return min(due_ns, below_ns)

    def _close(self) -> None:
        assert self._care is not None
        self._care.close()
        self._inner.close()

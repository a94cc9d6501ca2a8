"""A wire in memory, and a clock that moves only when told.

Ports in one thread, without sockets or sleeping.
"""

from __future__ import annotations

import os
from collections import deque

from ckpt.transport.wires.wire import Frame


class Clock:
    """Nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def advance_ms(self, milliseconds: float) -> None:
        """Let time pass."""
        self.now_ns += int(milliseconds * 1e6)


class MemoryNetwork:
    """Boxes of frames by address."""

    def __init__(self) -> None:
        self.boxes: dict[str, deque[Frame]] = {}


class MemoryWire:
    """One rank's wire in a MemoryNetwork. `capacity` frames fit into a peer's box, then `send` says False."""

    def __init__(self, network: MemoryNetwork, address: str, capacity: int = 1000) -> None:
        self.address = address
        self._network = network
        self._capacity = capacity
        self._peers: dict[int, str] = {}
        self._read_fd, self._write_fd = os.pipe()
        self.sent: list[tuple[int, Frame]] = []
        self.renewed: list[int] = []
        network.boxes[address] = deque()

    def connect(self, rank: int, address: str) -> None:
        self._peers[rank] = address

    def renew(self, rank: int) -> None:
        self.renewed.append(rank)

    def send(self, rank: int, parts: Frame) -> bool:
        box = self._network.boxes[self._peers[rank]]
        if len(box) >= self._capacity:
            return False
        self.sent.append((rank, parts))
        box.append(parts)
        return True

    def receive(self) -> Frame | None:
        box = self._network.boxes[self.address]
        return box.popleft() if box else None

    def spin(self, end_ns: int) -> None:
        os.sched_yield()

    def fileno(self) -> int:
        return self._read_fd

    def deadline_ns(self) -> int | None:
        return None

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)

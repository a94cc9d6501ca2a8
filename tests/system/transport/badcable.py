"""A cable between two network namespaces that mistreats packets: real TCP stacks, real sockets, a bad wire in between.

Each namespace ends in a TAP device; a process reads frames from one and writes them to the other, as drawn from a seed:

    loss, dup         the packet vanishes, or comes twice
    reorder           it is held back for up to 3 ms while later ones pass
    delay_ms          every packet is held back by that much, and up to a tenth more
    corrupt           a bit of the TCP payload is flipped and the checksum put right: no TCP stack can notice
    reset             the segment becomes an RST
    partitions        seconds [begin, end) since the first TCP segment in which nothing passes

Frames are of 9000 bytes, so that a slow middle man keeps up. What does not belong here: ports, ranks, assertions.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ADDRESSES = ("10.78.0.1", "10.78.0.2")
MTU = 9000
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000
_ETHERNET, _IP, _TCP_FLAGS, _RST_ACK = 14, 20, 13, 0x14


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities of 0 … 1 per packet; see the module."""

    loss: float = 0.0
    dup: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    reset: float = 0.0
    delay_ms: float = 0.0
    corrupt_at: Sequence[int] = ()
    """Numbers of segments with a payload, counted from 1, that are damaged in any case."""
    partitions: Sequence[tuple[float, float]] = ()


class BadCable:
    """Two namespaces and the cable. `lay`, `enter` (in a rank), `remove`."""

    def __init__(self, faults: Faults, seed: int, report: Path) -> None:
        self.faults = faults
        self.seed = seed
        self._report = report
        tag = uuid.uuid4().hex[:6]
        self.names = (f"bad-{tag}-0", f"bad-{tag}-1")
        self._taps = (f"t{tag}0", f"t{tag}1")
        self._child = 0

    def lay(self) -> None:
        """Create everything and start the middle man. Raises OSError or CalledProcessError where that is not allowed."""
        fds = [_open_tap(tap) for tap in self._taps]
        for name, tap, address in zip(self.names, self._taps, ADDRESSES, strict=True):
            _ip("netns", "add", name)
            _ip("link", "set", tap, "netns", name)
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", tap)
            _ip("-n", name, "link", "set", tap, "mtu", str(MTU), "up")
            _ip("-n", name, "link", "set", "lo", "up")
        self._child = os.fork()
        if self._child == 0:
            try:
                _MiddleMan(fds, self.faults, self.seed, self._report).run()
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)

    def enter(self, rank: int) -> None:
        """Move the calling process into the namespace of `rank`."""
        with open(f"/run/netns/{self.names[rank]}", "rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def remove(self) -> Counter[str]:
        """End everything; what was done to packets, by fault, and how many passed."""
        if self._child:
            os.kill(self._child, signal.SIGTERM)
            os.waitpid(self._child, 0)
            self._child = 0
        for name in self.names:
            subprocess.run(("ip", "netns", "del", name), capture_output=True, timeout=20, check=False)
        counts: Counter[str] = Counter()
        if self._report.exists():
            for line in self._report.read_text().splitlines():
                name, _, count = line.partition(" ")
                counts[name] = int(count)
        return counts


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True, capture_output=True, timeout=20)


def _open_tap(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return fd


class _MiddleMan:
    def __init__(self, fds: Sequence[int], faults: Faults, seed: int, report: Path) -> None:
        self._other = {fds[0]: fds[1], fds[1]: fds[0]}
        self._faults = faults
        self._random = random.Random(seed)
        self._held: list[tuple[float, int, int, bytes]] = []
        self._serial = self._segments = 0
        self._began = 0.0
        self._counts: Counter[str] = Counter()
        self._report = report

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        poller = select.poll()
        for fd in self._other:
            poller.register(fd, select.POLLIN)
        while True:
            wait_s = 1.0 if not self._held else max(0.0, self._held[0][0] - time.monotonic())
            for fd, _ in poller.poll(wait_s * 1000):
                self._drain(fd)
            now = time.monotonic()
            while self._held and self._held[0][0] <= now:
                _, _, fd, frame = heapq.heappop(self._held)
                self._write(fd, frame)

    def _stop(self, *_: object) -> None:
        self._report.write_text("".join(f"{name} {count}\n" for name, count in self._counts.items()))
        os._exit(0)

    def _drain(self, fd: int) -> None:
        for _ in range(64):
            try:
                frame = os.read(fd, 65536)
            except BlockingIOError:
                return
            now = time.monotonic()
            if not self._began and _payload_of_tcp(frame) is not None:
                self._began = now
            if self._began and any(
                begin <= now - self._began < end for begin, end in self._faults.partitions
            ):
                self._counts["partitioned"] += 1
                continue
            self._judge(self._other[fd], frame, now)

    def _judge(self, fd: int, frame: bytes, now: float) -> None:
        faults, chance, counts = self._faults, self._random.random, self._counts
        lost, doubled, overtaken, damaged, reset, late = (chance() for _ in range(6))
        if lost < faults.loss:
            counts["lost"] += 1
            return
        data_at = _payload_of_tcp(frame)
        if data_at is not None and len(frame) > data_at:
            self._segments += 1
            damaged *= self._segments not in faults.corrupt_at  # 0: below any probability but 0
        if data_at is not None and len(frame) > data_at and (damaged < faults.corrupt or not damaged):
            counts["corrupted"] += 1
            frame = _flip(frame, self._random.randrange(8 * data_at, 8 * len(frame)))
        elif data_at is not None and reset < faults.reset:
            counts["reset"] += 1
            frame = _make_reset(frame, data_at)
        delay_s = faults.delay_ms * (1 + 0.1 * late) / 1000
        if overtaken < faults.reorder:
            counts["reordered"] += 1
            delay_s += 0.003 * late
        if doubled < faults.dup:
            counts["doubled"] += 1
            self._hold(now + delay_s + 0.001, fd, frame)
        counts["passed"] += 1
        if delay_s:
            self._hold(now + delay_s, fd, frame)
        else:
            self._write(fd, frame)

    def _hold(self, due: float, fd: int, frame: bytes) -> None:
        self._serial += 1
        heapq.heappush(self._held, (due, self._serial, fd, frame))

    def _write(self, fd: int, frame: bytes) -> None:
        try:
            os.write(fd, frame)
        except OSError:
            self._counts["overrun"] += 1  # the other end's queue is full, or its namespace is going


def _payload_of_tcp(frame: bytes) -> int | None:
    """Where the payload of a TCP/IPv4 frame begins, None for other frames."""
    if len(frame) < _ETHERNET + _IP + 20 or frame[12:14] != b"\x08\x00" or frame[_ETHERNET + 9] != 6:
        return None
    header = _ETHERNET + 4 * (frame[_ETHERNET] & 15)
    return header + 4 * (frame[header + 12] >> 4)


def _flip(frame: bytes, bit: int) -> bytes:
    damaged = bytearray(frame)
    damaged[bit // 8] ^= 1 << bit % 8
    return _with_checksum(damaged)


def _make_reset(frame: bytes, data_at: int) -> bytes:
    """The same segment as an RST without payload."""
    segment = bytearray(frame[:data_at])
    header = _ETHERNET + 4 * (frame[_ETHERNET] & 15)
    segment[header + _TCP_FLAGS] = _RST_ACK
    segment[_ETHERNET + 2 : _ETHERNET + 4] = (data_at - _ETHERNET).to_bytes(2, "big")
    segment[_ETHERNET + 10 : _ETHERNET + 12] = b"\0\0"
    segment[_ETHERNET + 10 : _ETHERNET + 12] = _sum16(bytes(segment[_ETHERNET:header])).to_bytes(2, "big")
    return _with_checksum(segment)


def _with_checksum(frame: bytearray) -> bytes:
    """The frame with the TCP checksum that fits it (RFC 9293, 3.1)."""
    header = _ETHERNET + 4 * (frame[_ETHERNET] & 15)
    frame[header + 16 : header + 18] = b"\0\0"
    segment = bytes(frame[header:])
    pseudo = bytes(frame[_ETHERNET + 12 : _ETHERNET + 20]) + b"\0\x06" + len(segment).to_bytes(2, "big")
    frame[header + 16 : header + 18] = _sum16(pseudo + segment).to_bytes(2, "big")
    return bytes(frame)


def _sum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

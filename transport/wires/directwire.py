"""A wire that lets the receiver read large payloads from the sender's memory, between processes of one host. (driver)

`DirectWire` stands on any wire, the *inner wire*. A frame of two parts whose payload is large leaves as its head and a
*pointer*: the sender's rank, the address of the payload in its memory, and a checksum of these. The receiver's wire
returns the head, and a payload that is still to be read (`ckpt.transport.protocol.frames.Remote`): the endpoint reads it
(`ckpt.transport.wires.crossmemory`) when it knows where it belongs, if possible into memory of the program. That is one
copy in all; it costs the sender nothing, and the payload does not pass through the encryption of the inner wire.

Why that is safe. A payload stays unchanged until its message is acknowledged (the wire's contract), and is acknowledged
only after it was read. A frame that comes later than that is a duplicate, and the endpoint drops it by its head. When a
sender dies, its next incarnation sends its unacknowledged messages again; its old pointers name a process that is gone, or
one with another badge, and count as lost frames.

Which peers read directly. A wire's address carries the badge of its process. `connect` tries to read the peer's badge: if
that is allowed in one direction between two processes of one user, it is allowed in the other too. If it fails, or the
inner address is not `ipc:`, all frames to that peer go through the inner wire. If the receiver is not allowed to read
after all, it drops the frame and sends a *refusal*; from then on that sender uses the inner wire for this peer, and its
retransmission brings the dropped message. The owner hears of both (`on_direct`): a payload that is read may be longer than
one that the inner wire carries.

    pointer   (head, pointer, b"")     three parts: no other frame has three
    refusal   (b"", refusal, b"")

What does not belong here: retransmission, the content of a head, how memory is read.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Final
from zlib import crc32

from ckpt.transport.errors import AddressError
from ckpt.transport.protocol.frames import Remote
from ckpt.transport.protocol.state import Buffer
from ckpt.transport.wires import crossmemory
from ckpt.transport.wires.wire import Frame, Wire

DIRECT_FROM_BYTES: Final = 32 << 10
"""Below this size the copy through the kernel costs less than the call of process_vm_readv."""
SHARED_FROM_BYTES: Final = 256 << 10
"""From here on a payload is copied by both processes, where its sender waits for that (`express_remote.c`)."""
DIRECT_PIECE_BYTES: Final = 256 << 20
"""The largest payload of one frame to a peer that reads it: the port's lock is held while it is read (some 25 ms)."""
_SEPARATOR: Final = "#memory="
_POINTER: Final = struct.Struct(f"<IBIQQ{crossmemory.PACKED_BADGE_BYTES}s")
_READ, _REFUSED = 1, 2


class DirectWire:
    """Any wire, with large payloads read from the sender's memory. See the module's description."""

    on_direct: Callable[[int, bool], None] | None = None
    """Called when a rank is connected, and when that changes: will it read large payloads?"""
    copy_shared: Callable[[int, bytes, bytes, int, memoryview], bool] | None = None
    """As `ckpt.transport.rings.ringwire.RingWire.copy_shared`, where there are rings."""

    def __init__(
        self,
        inner: Wire,
        rank: int,
        *,
        from_bytes: int = DIRECT_FROM_BYTES,
        limit_bytes: int = DIRECT_PIECE_BYTES,
    ) -> None:
        """`rank`: the rank that owns this wire. `from_bytes`: a shorter payload is not read directly. `limit_bytes`: a
        pointer to a larger payload is refused."""
        self._inner = inner
        self._rank = rank
        self._from_bytes = from_bytes
        self._limit_bytes = limit_bytes
        self._available = crossmemory.available()
        self._direct: set[int] = set()
        self._connected: set[int] = set()
        self._badges: dict[int, bytes] = {}
        self._reader = crossmemory.Reader()
        self._badge = crossmemory.Badge()
        self._counts = dict.fromkeys(("direct_sent", "direct_read", "direct_failed", "direct_refused"), 0)
        if self._available:
            crossmemory.consent()
        self._inner_send = inner.send
        self._inner_receive = inner.receive

    @property
    def address(self) -> str:
        """The inner wire's address and this process's badge."""
        if not self._available:
            return self._inner.address
        return f"{self._inner.address}{_SEPARATOR}{self._badge.packed.hex()}"

    def connect(self, rank: int, address: str) -> None:
        """As the inner wire; direct if the address is `ipc:` and its badge can be read. Raises AddressError."""
        address, _, text = address.partition(_SEPARATOR)
        self._direct.discard(rank)
        self._inner.connect(rank, address)
        self._connected.add(rank)
        self._badges.pop(rank, None)
        if text and self._available and address.startswith("ipc:"):
            try:
                badge = bytes.fromhex(text)
                self._reader.read(badge, 0, bytearray())
                self._direct.add(rank)
                self._badges[rank] = badge
            except (ValueError, struct.error):
                raise AddressError(f"{text!r} is no badge of a process") from None
            except OSError:
                pass  # another host's process ids, another user, no permission: the inner wire carries all
        self._tell(rank)

    @property
    def readers(self) -> tuple[set[int], bytes, int, int]:
        """The ranks that read from this process's memory, as they change; its badge, packed; and the least and the greatest
        length of a payload that is read: for `ckpt.transport.driver.port.Port.use_rings`."""
        return self._direct, self._badge.packed, self._from_bytes, self._limit_bytes

    def reads_directly(self, rank: int) -> bool:
        """Will `rank` read large payloads from this process's memory?"""
        return rank in self._direct

    def renew(self, rank: int) -> None:
        """As the inner wire."""
        self._inner.renew(rank)

    def send(self, rank: int, parts: Frame) -> bool:
        """As the inner wire."""
        if len(parts) == 2 and rank in self._direct and len(parts[1]) >= self._from_bytes:
            payload = parts[1]
            pointer = self._pack(_READ, crossmemory.address_of(payload), len(payload))
            if not self._inner_send(rank, (parts[0], pointer, b"")):
                return False
            self._counts["direct_sent"] += 1
            return True
        return self._inner_send(rank, parts)

    def receive(self) -> Frame | None:
        """As the inner wire; the payload of a pointer is to be read, and a refusal switches its sender to the inner wire."""
        while True:
            frame = self._inner_receive()
            if frame is None or len(frame) < 3:
                return frame
            frame = self._open_pointer(frame)
            if frame is not None:
                return frame

    def spin(self, end_ns: int) -> None:
        """As the inner wire."""
        self._inner.spin(end_ns)

    def fileno(self) -> int:
        """The inner wire's descriptor."""
        return self._inner.fileno()

    def deadline_ns(self) -> int | None:
        """As the inner wire."""
        return self._inner.deadline_ns()

    def counters(self) -> dict[str, int]:
        """The inner wire's counters, and `direct_`: frames sent, read, failed (dropped here), refused (by receivers)."""
        return self._inner.counters() | self._counts

    def close(self) -> None:
        """Close the inner wire."""
        self._inner.close()

    def _pack(self, message_type: int, address: int, nbytes: int) -> bytes:
        fields = _POINTER.pack(0, message_type, self._rank, address, nbytes, self._badge.packed)[4:]
        return crc32(fields).to_bytes(4, "little") + fields

    def _tell(self, rank: int) -> None:
        if self.on_direct is not None:
            self.on_direct(rank, rank in self._direct)

    def _open_pointer(self, frame: Frame) -> Frame | None:
        """Return the frame that a pointer stands for; None for a refusal, and for a frame that is dropped."""
        pointer = bytes(frame[1])
        if len(frame) != 3 or len(pointer) != _POINTER.size or crc32(pointer[4:]) != _checksum(pointer):
            self._counts["direct_failed"] += 1
            return None
        _, message_type, source, address, nbytes, badge = _POINTER.unpack(pointer)
        if message_type == _REFUSED:
            self._direct.discard(source)
            self._counts["direct_refused"] += 1
            if source in self._connected:
                self._tell(source)
            return None
        if message_type != _READ or nbytes > self._limit_bytes or not self._available:
            self._refuse(source)
            return None
        payload: Buffer = _Payload(self, source, badge, address, nbytes)  # type: ignore[assignment]
        return frame[0], payload

    def read(self, source: int, badge: bytes, address: int, into: memoryview) -> bool:
        """Read a payload of rank `source`. False: it is refused, or cannot be read."""
        try:
            if not self._is_shared(source, badge, address, into):
                self._reader.read(badge, address, into)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
                self._refuse(source)
            else:
                self._counts["direct_failed"] += 1
            return False
        self._counts["direct_read"] += 1
        return True

    def _is_shared(self, source: int, badge: bytes, address: int, into: memoryview) -> bool:
        """Is it copied by both processes? Only if the pointer is of the process whose ring this one reads."""
        share = self.copy_shared
        if share is None or len(into) < SHARED_FROM_BYTES or self._badges.get(source) != badge:
            return False
        return share(source, self._badge.packed, badge, address, into)

    def _refuse(self, source: int) -> None:
        """Tell the sender to use the inner wire. A refusal lost to congestion does no harm: the next pointer is refused."""
        self._counts["direct_failed"] += 1
        if source in self._connected:
            self._inner_send(source, (b"", self._pack(_REFUSED, 0, 0), b""))


class _Payload(Remote):
    """What a pointer points to."""

    __slots__ = ("_address", "_badge", "_source", "_wire")

    def __init__(self, wire: DirectWire, source: int, badge: bytes, address: int, nbytes: int) -> None:
        super().__init__(nbytes)
        self._wire, self._source, self._badge, self._address = wire, source, badge, address

    def read(self, into: memoryview) -> bool:
        return self._wire.read(self._source, self._badge, self._address, into)


def _checksum(pointer: bytes) -> int:
    return int.from_bytes(pointer[:4], "little")

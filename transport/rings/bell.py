"""The bell of a process: a datagram socket by which others of the same job and host wake it, and hand rings over. (driver)

The socket lies in the job's private directory, beside the socket of the inner wire, and has that one's name and `.ring`. An
empty datagram wakes its owner. A datagram with a descriptor offers a ring:

    offer   magic, version, rank of the sender, capacity, MAC (BLAKE2b with the job's key over these and both sockets'
            names), and the memory file of the ring as a descriptor, which has no name and whose size is sealed

The area of a board (`ckpt.transport.boards`) is offered in the same way: another magic, and the number of the board's group
in place of the capacity.

The name of a socket has the incarnation of its rank in it, and the kernel tells the name of the sender's: so an offer names
one process, and is for one process.

Not here: what is done with an offer (`ringwire.py`), the ring itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections.abc import Iterator
from typing import Final

from ckpt.compat.accelerators import blake2b
from ckpt.transport.errors import AddressError
from ckpt.transport.records import dataclass
from ckpt.transport.rings import ring
from ckpt.transport.wires import owned
from ckpt.transport.wires.addresses import clear_stale_socket, path_of

_SUFFIX: Final = ".ring"
_OFFER: Final = struct.Struct("<8sIIQ")
_MAGIC: Final = b"ckptring"
_BOARD: Final = b"ckptbord"
_MAC_BYTES: Final = 16
_FD: Final = struct.Struct("i")
_MOST_FDS: Final = 4
_PACKET_BYTES: Final = 256
_PACKETS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Offer:
    """What a datagram that does not only wake has brought. `rank` -1: it is no offer of this job for this process."""

    sender: str
    rank: int
    capacity: int
    """Of a ring; of a board: the number of its group."""
    is_board: bool
    fds: tuple[int, ...]
    """Belong to whoever took the offer."""


def bell_of(address: str) -> str:
    """The name of the bell of the process whose inner wire listens at `address` (ipc). Raises AddressError."""
    path = path_of(address)
    if path is None:
        raise AddressError(f"{address} may be on another host, which shares no memory")
    whole = path_of(f"ipc://{path}{_SUFFIX}")
    assert whole is not None
    return whole


class Bell:
    """The bell of this process, and an epoll set (`fd`) of it and of the inner wire's descriptor."""

    def __init__(self, address: str, inner_fd: int, key: bytes) -> None:
        """`address`: of the inner wire. `key`: of the job. Raises OSError, AddressError, WireError: there is none."""
        self._key = blake2b(key, digest_size=32, person=b"transport-ring").digest()
        self.path = bell_of(address)
        clear_stale_socket(self.path)
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        try:
            self._socket.bind(self.path)
            self._epoll = select.epoll()
        except OSError:
            self._socket.close()
            raise
        self.fd = self._epoll.fileno()
        self._epoll.register(self._socket.fileno(), select.EPOLLIN)
        self._epoll.register(inner_fd, select.EPOLLIN)
        owned.note(self.fd)
        owned.note_directory(os.path.dirname(self.path))

    def wake(self, path: str) -> None:
        """Wake the process with the bell `path`. A full queue wakes it as well; a process without its socket is gone."""
        with contextlib.suppress(OSError):
            self._socket.sendto(b"", socket.MSG_DONTWAIT, path)

    def offer(self, rank: int, capacity: int, fd: int, path: str, *, is_board: bool = False) -> None:
        """Offer a ring, or an area of a board, as `rank`, to the process with the bell `path`.

        `capacity`: see `Offer`. Raises OSError: it was not sent."""
        body = _OFFER.pack(_BOARD if is_board else _MAGIC, ring.VERSION, rank, capacity)
        packet = body + self._mac(body, self.path, path)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _FD.pack(fd))
        self._socket.sendmsg([packet], [rights], socket.MSG_DONTWAIT, path)

    def offers(self) -> Iterator[Offer]:
        """Read what has come; yield what does not only wake. The caller closes the descriptors."""
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        room = socket.CMSG_LEN(_MOST_FDS * _FD.size)
        for _ in range(_PACKETS_AT_ONCE):
            try:
                packet, rights, _, sender = self._socket.recvmsg(_PACKET_BYTES, room, flags)
            except BlockingIOError:
                return
            # Where no descriptor is free, the kernel leaves it out: the offer is refused, and its sender gives it up.
            fds = tuple(fd for *_, data in rights for (fd,) in _FD.iter_unpack(data[: len(data) // 4 * 4]))
            if packet or fds:
                yield self._opened(packet, fds, sender if isinstance(sender, str) else "")

    def close(self) -> None:
        """Close the socket and remove its name."""
        owned.forget(self.fd)
        self._epoll.close()
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _opened(self, packet: bytes, fds: tuple[int, ...], sender: str) -> Offer:
        body = packet[: _OFFER.size]
        if len(packet) == _OFFER.size + _MAC_BYTES and packet[_OFFER.size :] == self._mac(
            body, sender, self.path
        ):
            magic, version, rank, capacity = _OFFER.unpack(body)
            if magic in (_MAGIC, _BOARD) and version == ring.VERSION and len(fds) == 1:
                return Offer(sender, rank, capacity, magic == _BOARD, fds)
        return Offer(sender, -1, 0, False, fds)

    def _mac(self, body: bytes, sender: str, receiver: str) -> bytes:
        names = os.fsencode(sender) + b"\0" + os.fsencode(receiver)
        return blake2b(body + names, key=self._key, digest_size=_MAC_BYTES).digest()

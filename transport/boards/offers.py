"""Memory that a process offers the others of this host to read, until it takes the offer back. (driver)

    offer     which memory, and a *token*: random bytes of the process and the number of the offer, and where they lie
    read      one system call (`process_vm_readv(2)`) reads the memory first and the token after it. If the token is another
              one, the offer was taken back, or the process is another one with the same id: what was read counts for nothing
    end       the token changes; only then may the memory change

So a process that takes its offer back need not wait for those that are reading: they find out. What is read while the offer
stands is what was there when the offer was made. An offer is known to its process only: it is not in images, and a process
that is restarted has none of its old offers, so nobody can read them.

Not here: how others hear of an offer, and how they say that they have read it (`ckpt.mpi.slots.direct`).
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import struct
from collections.abc import Sequence

from ckpt.transport.wires import crossmemory

_HEAD = struct.Struct("<QQ16sQ")
"""Process id, address of the token; the token: random bytes, number."""
_PART = struct.Struct("<QQ")
"""Address and length of a part."""
_TOKEN_BYTES = 24
_PIECE_BYTES = 1 << 30
"""The kernel reads less than 2 GiB in one call."""


class Offers:
    """The offers of one process, by number. Any thread may call."""

    def __init__(self) -> None:
        self.is_refused = not crossmemory.available()
        """Memory of others cannot be read here."""
        self._random = os.urandom(16)
        self._numbers = itertools.count(int.from_bytes(os.urandom(7), "little") + 1)
        self._tokens: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def make(self, parts: Sequence[memoryview]) -> tuple[int, bytes]:
        """Offer these parts (of single bytes, in one piece), which the caller keeps. Returns the number of the offer, and
        what others need."""
        number = next(self._numbers)
        packed = self._random + number.to_bytes(8, "little")
        token = self._tokens[number] = ctypes.create_string_buffer(packed, _TOKEN_BYTES)
        head = _HEAD.pack(os.getpid(), ctypes.addressof(token), self._random, number)
        return number, head + b"".join(
            _PART.pack(crossmemory.address_of(part) if part.nbytes else 0, part.nbytes) for part in parts
        )

    def end(self, number: int) -> None:
        """Take an offer back. No effect if this process has not made it, or has taken it back."""
        token = self._tokens.pop(number, None)
        if token is not None:
            token.raw = bytes(_TOKEN_BYTES)

    def read(self, offer: bytes, part: int, into: memoryview, first: int | None = None) -> bool:
        """Fill `into` (writable, of single bytes) from a part of another process's offer: from byte `first` on, or with all
        of it (None). False: nothing that counts was read: there is no such part, or of another length, the offer was taken
        back, or the memory cannot be read."""
        at = _HEAD.size + part * _PART.size
        if len(offer) < at + _PART.size:
            return False
        pid, token_at, random, number = _HEAD.unpack_from(offer)
        address, nbytes = _PART.unpack_from(offer, at)
        if nbytes - (first or 0) < into.nbytes or (first is None and nbytes != into.nbytes):
            return False
        address, nbytes = address + (first or 0), into.nbytes
        seen = ctypes.create_string_buffer(_TOKEN_BYTES)
        seen_at, local_at = ctypes.addressof(seen), crossmemory.address_of(into) if nbytes else 0
        for at in range(0, nbytes, _PIECE_BYTES):
            length = min(_PIECE_BYTES, nbytes - at)
            pairs = ((local_at + at, address + at, length), (seen_at, token_at, _TOKEN_BYTES))
            try:
                done = crossmemory.read_pairs(pid, pairs)
            except OSError as error:
                self.is_refused |= error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS)
                return False
            if done != length + _TOKEN_BYTES or seen.raw != random + number.to_bytes(8, "little"):
                return False
        return True


__all__ = ["Offers"]

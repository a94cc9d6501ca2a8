"""A file at the rank that writes it: what the messages of the others do, and its own writes.

Every message is handled completely when it arrives, under the engine's lock (ckpt/mpi/engine/windows.py), also while the
program computes. So the file at the moment of an image of this rank has what the messages have brought that the image says
have been received, and nothing else. Reads and writes are atomic with respect to each other.

The descriptor for writing stays at the end of the file: of a file that is open so at an image only its length is kept,
until it is written before that end (ckpt/rank/files.py).

Not here: the other side (state.py), what all do together (collective.py).
"""

from __future__ import annotations

import os
from typing import Any

from ckpt.mpi.base.errors import ERR_INTERN, ERR_PROC_FAILED, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.io import disk, modes, wire
from ckpt.mpi.io.view import Ranges
from ckpt.mpi.members.state import pack_error


class Writer:
    """`path`: as the program gave it. `reading`, `writing`: descriptors; -1: none. `shared`: the shared pointer."""

    __slots__ = ("path", "reading", "shared", "writing")

    def __init__(self, path: str, reading: int, writing: int) -> None:
        self.path = path
        self.reading = reading
        self.writing = writing
        self.shared = 0

    # -- the file; OSError becomes an error of MPI ---------------------------------------------------

    def write(self, ranges: Ranges, data: Buffer) -> None:
        """Write data to pieces of the file. MpiException: what the operating system has refused."""
        try:
            disk.write(self.writing, ranges, data)
            os.lseek(self.writing, 0, os.SEEK_END)
        except OSError as error:
            raise self.failure(error) from None

    def read(self, ranges: Ranges) -> bytearray:
        """The pieces of the file, up to its end. MpiException: what the operating system has refused."""
        data = bytearray(sum(nbytes for _, nbytes in ranges))
        try:
            done = disk.read(self.reading, ranges, data)
        except OSError as error:
            raise self.failure(error) from None
        del data[done:]
        return data

    def size(self) -> int:
        """The size of the file in bytes."""
        try:
            return os.fstat(self.writing if self.reading < 0 else self.reading).st_size
        except OSError as error:
            raise self.failure(error) from None

    def resize(self, nbytes: int) -> None:
        try:
            os.ftruncate(self.writing, nbytes)
            os.lseek(self.writing, 0, os.SEEK_END)
        except OSError as error:
            raise self.failure(error) from None

    def preallocate(self, nbytes: int) -> None:
        """Have the file system set space apart, so that the file has at least this size."""
        try:
            if nbytes:
                os.posix_fallocate(self.writing, 0, nbytes)
            os.lseek(self.writing, 0, os.SEEK_END)
        except OSError as error:
            raise self.failure(error) from None

    def sync(self) -> None:
        try:
            if self.writing >= 0:
                os.fsync(self.writing)
        except OSError as error:
            raise self.failure(error) from None

    def advance(self, count: int) -> int:
        """Move the shared pointer on. Returns where it was."""
        before = self.shared
        self.shared += count
        return before

    def failure(self, error: OSError) -> MpiException:
        return MpiException(*modes.failure_of(error, self.path))

    # -- messages ----------------------------------------------------------------------------------

    def on_message(self, state: Any, member: int, action: int, token: int, data: Buffer) -> None:
        """Handle a message of a member. Never raises: the member gets the error."""
        try:
            if state.freed:
                raise MpiException(ERR_PROC_FAILED, "the file was closed, because a member has failed")
            answer, body, payload = self._handle(action, data)
        except Exception as error:
            answer, body, payload = wire.FAILED, pack_error(error, state.rank), None
        state.post(member, answer, token, body, payload)

    def _handle(self, action: int, data: Buffer) -> tuple[int, bytes, Buffer | None]:
        """(action, body, data) of the answer."""
        if action == wire.WRITE:
            ranges, at = wire.unpack_ranges(data)
            self.write(ranges, memoryview(data)[at:])
            return wire.DONE, b"", None
        if action == wire.READ:
            return wire.DATA, b"", self.read(wire.unpack_ranges(data)[0])
        if action == wire.ADVANCE:
            return wire.NUMBER, wire.pack_number(self.advance(wire.unpack_number(data))), None
        if action == wire.SIZE:
            return wire.NUMBER, wire.pack_number(self.size()), None
        raise MpiException(ERR_INTERN, f"message of unknown kind {action} for a file")

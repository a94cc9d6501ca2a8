"""A file at the rank that writes it: what the messages of the others do, and its own writes.

Every message is handled completely when it arrives, under the engine's lock (ckpt/mpi/engine/windows.py), also while the
program computes. So the file at the moment of an image of this rank has what the messages have brought that the image says
have been received, and nothing else. Reads and writes are atomic with respect to each other.

The descriptor for writing stays at the end of the file: of a file that is open so at an image only its length is kept,
until it is written before that end (ckpt/rank/files.py). Where several processes are this rank, there is none
(`ReplicaWriter`).

Not here: the other side (state.py), what all do together (collective.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base.errors import ERR_INTERN, ERR_PROC_FAILED, MpiException
from ckpt.mpi.base.layer import Disk
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.io import disk, modes, wire
from ckpt.mpi.io.view import Ranges
from ckpt.mpi.members.state import pack_error

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine


class Writer:
    """`path`: as the program gave it. `reading`, `writing`: descriptors; -1: none. `shared`: the shared pointer.

    Methods raise MpiException: what the operating system has refused."""

    __slots__ = ("path", "reading", "shared", "writing")

    def __init__(self, path: str, reading: int, writing: int) -> None:
        self.path = path
        self.reading = reading
        self.writing = writing
        self.shared = 0

    # -- the file ------------------------------------------------------------------------------------

    def write(self, ranges: Ranges, data: Buffer) -> None:
        """Write data to pieces of the file."""
        with self._translated():
            disk.write(self.writing, ranges, data)
            os.lseek(self.writing, 0, os.SEEK_END)

    def read(self, ranges: Ranges) -> bytearray:
        """The pieces of the file, up to its end."""
        data = bytearray(sum(nbytes for _, nbytes in ranges))
        with self._translated(), disk.opened(self.reading, self.path, self._of_replicas()) as fd:
            done = disk.read(fd, ranges, data)
        del data[done:]
        return data

    def size(self) -> int:
        """The size of the file in bytes."""
        with self._translated():
            return os.fstat(self.writing if self.reading < 0 else self.reading).st_size

    def resize(self, nbytes: int) -> None:
        with self._translated():
            os.ftruncate(self.writing, nbytes)
            os.lseek(self.writing, 0, os.SEEK_END)

    def preallocate(self, nbytes: int) -> None:
        """Have the file system set space apart, so that the file has at least this size."""
        with self._translated():
            if nbytes:
                os.posix_fallocate(self.writing, 0, nbytes)
            os.lseek(self.writing, 0, os.SEEK_END)

    def sync(self) -> None:
        with self._translated():
            if self.writing >= 0:
                os.fsync(self.writing)

    def remove(self) -> None:
        """Delete the file, by the name that it has now: the working directory may be another one, after a restart, too."""
        fd = self.reading if self.writing < 0 else self.writing
        with self._translated(), contextlib.suppress(FileNotFoundError):
            os.remove(os.readlink(f"/proc/self/fd/{fd}"))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """What the operating system refuses becomes an error of MPI."""
        try:
            yield
        except OSError as error:
            raise self.failure(error) from None

    def _of_replicas(self) -> Disk | None:
        return None

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


class ReplicaWriter(Writer):
    """The same where several processes are the rank that writes: each change is made once (`ckpt.mpi.base.layer.Disk`), and
    no descriptor is kept. `path` is absolute. A process that goes on alone opens the file for itself."""

    __slots__ = ("engine",)

    def __init__(self, engine: Engine, path: str) -> None:
        super().__init__(path, disk.BY_PATH, disk.NONE)
        self.engine = engine

    def write(self, ranges: Ranges, data: Buffer) -> None:
        if not self._is_made(lambda of_replicas: of_replicas.write(self.path, ranges, data)):
            super().write(ranges, data)

    def size(self) -> int:
        with self._translated():
            return os.stat(self.path).st_size

    def resize(self, nbytes: int) -> None:
        if not self._is_made(lambda of_replicas: of_replicas.resize(self.path, nbytes)):
            super().resize(nbytes)

    def preallocate(self, nbytes: int) -> None:
        if not self._is_made(lambda of_replicas: of_replicas.allocate(self.path, nbytes)):
            super().preallocate(nbytes)

    def sync(self) -> None:
        of_replicas = self._of_replicas()
        if of_replicas is None:
            return super().sync()
        with self._translated():
            return of_replicas.sync(self.path)

    def remove(self) -> None:
        of_replicas = self._of_replicas()
        with self._translated(), contextlib.suppress(FileNotFoundError):
            if of_replicas is None:
                os.remove(self.path)
            else:
                of_replicas.remove(self.path)

    def _of_replicas(self) -> Disk | None:
        found: Disk | None = self.engine.windows.disk
        return found

    def _is_made(self, change: Callable[[Disk], None]) -> bool:
        """Make the change as one of several processes. False: there are none but this one, which has a descriptor for it."""
        of_replicas = self._of_replicas()
        with self._translated():
            if of_replicas is not None:
                change(of_replicas)
            elif self.writing < 0:
                self.writing = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        return of_replicas is not None

"""A file at every rank that has it open, which all its handles share: what is under way, and the messages between the ranks.

Messages are handled at once, also while the program computes. Rank 0 of the group does all writing (writer.py).

Who reads? In a job of one host each rank by itself: what others have written, and this rank has been told of by a message,
is in the file. With several hosts, and in atomic mode, rank 0 reads, too: a network file system shows a host what others
have written some time later.

Not here: the program's calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import ERR_IO, ERR_REVOKED, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.datatypes import BYTE
from ckpt.mpi.io import disk, modes, wire
from ckpt.mpi.io.operations import Access, fail, read_here, represent
from ckpt.mpi.io.view import Ranges, View
from ckpt.mpi.io.writer import Writer
from ckpt.mpi.members.state import MemberState, pack_error, unpack_error

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine

WRITER = 0
"""The rank in the group that writes."""


class FileState(MemberState):
    """`reading`: this rank's descriptor, or one of those of disk.py. `writer`: at rank WRITER. `types`: etype and filetype
    of the view, for Get_view. `swaps`: the representation of the view has another byte order. `split`: the split collective
    under way, and its kind."""

    __slots__ = (
        "amode",
        "atomic",
        "datarep",
        "path",
        "position",
        "reading",
        "split",
        "types",
        "view",
        "writer",
    )
    _kind = "file"

    def __init__(
        self, engine: Engine, private: Any, path: str, amode: int, handle: Callable[..., Any]
    ) -> None:
        super().__init__(engine, private, handle)
        self.path = path
        self.amode = amode
        self.writer: Writer | None = None
        self.reading = -1
        self.position = 0
        self.types: tuple[Any, Any] = (BYTE._info, BYTE._info)
        self.datarep = "native"
        self.view = View(0, BYTE.layout, BYTE.layout, writes=True)
        self.atomic = False
        self.split: tuple[str, Any] | None = None

    @property
    def swaps(self) -> bool:
        return self.datarep == "external32"

    @property
    def writes_alone(self) -> bool:
        """Does this rank write, and is this process alone this rank? Else the rank that writes is asked by messages, also by
        itself: all its processes handle these in one order."""
        return self.writer is not None and self.engine.windows.disk is None

    # -- accesses ----------------------------------------------------------------------------------

    def begin(self, kind: str, ranges: Ranges, spec: BufferSpec) -> Access:
        """Begin to "read" these pieces of the file into a buffer, or to "write" them. Without the engine's lock, which is
        not held while the disk works for this rank, so that the rank goes on to answer others."""
        if kind == "read":
            operation = Access(self, spec, spec.datatype if self.swaps else None)
            reads_here = self.writes_alone or (self.engine.one_host and not self.atomic)
            if reads_here and self.reading != disk.NONE:
                self._read_here(operation, ranges)
            else:
                with self.engine.lock:
                    self._ask_for(operation, ranges)
            return operation
        operation = Access(self, nbytes=spec.nbytes)
        data = memoryview(represent(spec.read(), spec.datatype if self.swaps else None))
        if self.writes_alone:
            assert self.writer is not None
            self._write_here(operation, self.writer, ranges, data)
        else:
            with self.engine.lock:
                self._send(operation, ranges, data)
        return operation

    def _read_here(self, operation: Access, ranges: Ranges) -> None:
        try:
            with disk.opened(self.reading, self.path, self.engine.windows.disk) as fd:
                read_here(operation, fd, ranges)
        except OSError as error:
            fail(operation, MpiException(*modes.failure_of(error, self.path)))

    def _write_here(self, operation: Access, writer: Writer, ranges: Ranges, data: memoryview) -> None:
        at = 0
        try:
            for portion, nbytes in wire.chunks(ranges, is_atomic=self.atomic):
                with self.engine.lock:
                    writer.write(portion, data[at : at + nbytes])
                at += nbytes
            operation.finish()
        except MpiException as error:
            fail(operation, error)

    def _ask_for(self, operation: Access, ranges: Ranges) -> None:
        if self._ends(operation, not ranges):
            return
        for token, portion, _, _ in self._portions(operation, ranges):
            self.post(WRITER, wire.READ, token, wire.pack_ranges(portion))

    def _send(self, operation: Access, ranges: Ranges, data: memoryview) -> None:
        if self._ends(operation, not ranges):
            return
        for token, portion, at, nbytes in self._portions(operation, ranges):
            self.post(WRITER, wire.WRITE, token, wire.pack_ranges(portion), data[at : at + nbytes])

    def _portions(self, operation: Access, ranges: Ranges) -> list[tuple[int, Ranges, int, int]]:
        """The messages of an access: token, pieces, index of the data's first byte, bytes. All answers are expected before
        one is asked for: this rank may answer itself at once."""
        found, at = [], 0
        for portion, nbytes in wire.chunks(ranges, is_atomic=self.atomic):
            found.append((self._expect(operation, at, nbytes), portion, at, nbytes))
            at += nbytes
        return found

    def ask(self, action: int, body: bytes = b"") -> Access:
        """Begin to ask the rank that writes for a number. The engine's lock is held."""
        operation = Access(self)
        if not self._ends(operation, False):
            self.post(WRITER, action, self._expect(operation, 0, 0), body)
        return operation

    def _ends(self, operation: Access, is_empty: bool) -> bool:
        """End the operation here if there is nothing to do, or nobody who does it."""
        failure = self.failure(WRITER)
        if failure is not None:
            fail(operation, failure)
        elif is_empty:
            operation.finish()
        return operation.done

    def _expect(self, operation: Access, at: int, nbytes: int) -> int:
        """The token of a message that the operation waits for."""
        token = self.expect(operation)
        operation.unanswered[token] = (at, nbytes)
        return token

    # -- messages; the engine's lock is held ---------------------------------------------------------

    def _leave(self) -> None:
        self.freed = True
        if self.engine.failed_ranks.known:
            self.engine.windows.add(self)  # members that got further than this rank are told
        else:
            self.engine.windows.remove(self)

    def _handle(self, member: int, action: int, token: int, data: Buffer) -> None:
        if action <= wire.SIZE:
            if self.writer is not None:
                self.writer.on_message(self, member, action, token, data)
            return
        operation = self.answered(token)
        if operation is None:
            return
        self._answered(operation, action, token, data)
        operation.unanswered.pop(token, None)
        if not operation.unanswered and not operation.done:
            operation.finish()

    def change(self, data: Buffer) -> bytes:
        """See `Windows.change`: a WRITE is done."""
        assert self.writer is not None
        ranges, at = wire.unpack_ranges(data)
        try:
            self.writer.write(ranges, memoryview(data)[at:])
        except Exception as error:
            return pack_error(error, self.rank)
        return b""

    def changed(self, src: int, data: Buffer, failure: bytes) -> None:
        """See `Windows.changed`."""
        _, member, _, _, token = envelope.unpack(data)
        self.post(member, wire.FAILED if failure else wire.DONE, token, failure)

    def _answered(self, operation: Access, action: int, token: int, data: Buffer) -> None:
        try:
            if action == wire.FAILED:
                operation.error = operation.error or unpack_error(data)
            elif action == wire.DATA:
                operation.take(token, data, envelope.SIZE)
            elif action == wire.NUMBER:
                operation.number = wire.unpack_number(data)
        except Exception as error:  # the program has shrunk its buffer: it is told when it waits
            operation.error = MpiException(ERR_IO, f"what was read cannot be stored: {error}")

    def _end_all(self, error: MpiException) -> None:
        for token in list(self.pending):
            operation = self.answered(token)
            if not operation.done:
                fail(operation, error)

    def open_memory(self) -> list[Any]:
        """None: what a file does with the program's memory, it does in calls."""
        return []

    def lost(self, ranks: Sequence[int]) -> None:
        """World ranks have failed: if one of them is the one that writes, what waits for it ends."""
        if self.group[WRITER] in ranks:
            self._end_all(self.engine.failed_ranks.failure(self.group[WRITER]))

    def revoke(self) -> None:
        """The communicator of the file is revoked: what waits for others ends."""
        self.revoked = True
        self._end_all(MpiException(ERR_REVOKED, "the communicator of the file is revoked"))

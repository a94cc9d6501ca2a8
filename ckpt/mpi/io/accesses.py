"""Reads and writes of `File` with an offset, or with this rank's own pointer.

An access of a collective call is that of the same call without `all`: the standard asks for no synchronization, and rank 0
writes for all in either case. Nonblocking calls that read a file on this host have done so when they return.

The pointer goes on by what was written, or by the etypes that were read; of a request that is not done when the call
returns, by what was asked for.

Not here: the shared pointer (shared.py)."""

from __future__ import annotations

from typing import Any

from ckpt.mpi.base.constants import NUMBERS
from ckpt.mpi.base.errors import ERR_ARG, ERR_IO, MpiException
from ckpt.mpi.base.integers import COUNT, argument
from ckpt.mpi.datatypes.buffers import BufferSpec, simple
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.io import modes, wire
from ckpt.mpi.io.handle import FileHandle
from ckpt.mpi.io.operations import Access
from ckpt.mpi.io.state import FileState
from ckpt.mpi.requests.request import Request

SEEK_SET = NUMBERS["SEEK_SET"]
SEEK_CUR = NUMBERS["SEEK_CUR"]


class Accesses(FileHandle):
    """Base class of File with these methods.

    buf: a buffer as of the other calls. offset: in etypes of the view. Errors: MpiException with ERR_FILE, ERR_ARG (a
    negative offset), ERR_READ_ONLY, ERR_ACCESS (open for writing only), ERR_UNSUPPORTED_OPERATION (MODE_SEQUENTIAL),
    ERR_IO (no whole number of etypes; the disk), ERR_NO_SPACE, ERR_QUOTA; PeerFailed when rank 0 of the file has failed;
    TypeError, ValueError, KeyError or BufferError for a bad buffer."""

    __slots__ = ()

    # -- with an offset ----------------------------------------------------------------------------

    def Read_at(self, offset: int, buf: Any, status: Status | None = None) -> None:
        _wait(self._begin_at("read", offset, buf), status)

    def Read_at_all(self, offset: int, buf: Any, status: Status | None = None) -> None:
        _wait(self._begin_at("read", offset, buf), status)

    def Write_at(self, offset: int, buf: Any, status: Status | None = None) -> None:
        _wait(self._begin_at("write", offset, buf), status)

    def Write_at_all(self, offset: int, buf: Any, status: Status | None = None) -> None:
        _wait(self._begin_at("write", offset, buf), status)

    def Iread_at(self, offset: int, buf: Any) -> Request:
        return _request(self._begin_at("read", offset, buf))

    def Iread_at_all(self, offset: int, buf: Any) -> Request:
        return _request(self._begin_at("read", offset, buf))

    def Iwrite_at(self, offset: int, buf: Any) -> Request:
        return _request(self._begin_at("write", offset, buf))

    def Iwrite_at_all(self, offset: int, buf: Any) -> Request:
        return _request(self._begin_at("write", offset, buf))

    # -- with the rank's own pointer ---------------------------------------------------------------

    def Read(self, buf: Any, status: Status | None = None) -> None:
        _wait_and_correct(self._begin_at_pointer("read", buf), status)

    def Read_all(self, buf: Any, status: Status | None = None) -> None:
        _wait_and_correct(self._begin_at_pointer("read", buf), status)

    def Write(self, buf: Any, status: Status | None = None) -> None:
        _wait_and_correct(self._begin_at_pointer("write", buf), status)

    def Write_all(self, buf: Any, status: Status | None = None) -> None:
        _wait_and_correct(self._begin_at_pointer("write", buf), status)

    def Iread(self, buf: Any) -> Request:
        return _request(self._begin_at_pointer("read", buf))

    def Iread_all(self, buf: Any) -> Request:
        return _request(self._begin_at_pointer("read", buf))

    def Iwrite(self, buf: Any) -> Request:
        return _request(self._begin_at_pointer("write", buf))

    def Iwrite_all(self, buf: Any) -> Request:
        return _request(self._begin_at_pointer("write", buf))

    def Seek(self, offset: int, whence: int = SEEK_SET) -> None:
        """Set this rank's pointer, in etypes. MpiException (ERR_ARG): to before the beginning of the view."""
        number, kind = argument(offset, COUNT), modes.whence_of(argument(whence))
        state = self._alive()
        modes.check_not_sequential(state.amode)
        if kind == SEEK_CUR:
            number += state.position
        elif kind != SEEK_SET:
            number += state.view.end(size_of(state))
        if number < 0:
            raise MpiException(ERR_ARG, f"position {number} is before the beginning of the view")
        state.position = number

    def Get_position(self) -> int:
        """This rank's pointer, in etypes."""
        state = self._alive()
        modes.check_not_sequential(state.amode)
        return state.position

    def Get_byte_offset(self, offset: int) -> int:
        """The byte of the file at which this offset of the view is."""
        return self._alive().view.byte_offset(argument(offset, COUNT))

    # -- split collectives -------------------------------------------------------------------------

    def Read_at_all_begin(self, offset: int, buf: Any) -> None:
        self._split_begin("Read_at_all", lambda: self._begin_at("read", offset, buf))

    def Read_at_all_end(self, buf: Any, status: Status | None = None) -> None:
        self._split_end("Read_at_all", status)

    def Write_at_all_begin(self, offset: int, buf: Any) -> None:
        self._split_begin("Write_at_all", lambda: self._begin_at("write", offset, buf))

    def Write_at_all_end(self, buf: Any, status: Status | None = None) -> None:
        self._split_end("Write_at_all", status)

    def Read_all_begin(self, buf: Any) -> None:
        self._split_begin("Read_all", lambda: self._begin_at_pointer("read", buf))

    def Read_all_end(self, buf: Any, status: Status | None = None) -> None:
        self._split_end("Read_all", status)

    def Write_all_begin(self, buf: Any) -> None:
        self._split_begin("Write_all", lambda: self._begin_at_pointer("write", buf))

    def Write_all_end(self, buf: Any, status: Status | None = None) -> None:
        self._split_end("Write_all", status)

    # -- shared by all -----------------------------------------------------------------------------

    def _begin_at(self, kind: str, offset: int, buf: Any) -> Access:
        position, state = argument(offset, COUNT), self._alive()
        modes.check_not_sequential(state.amode)
        return begin(state, kind, position, buffer_of(state, kind, buf))

    def _begin_at_pointer(self, kind: str, buf: Any) -> Access:
        """Begin an access with the pointer. That goes on at once, as several threads may do this, by what is asked for; less
        once it is known that less was accessed."""
        state = self._alive()
        modes.check_not_sequential(state.amode)
        spec = buffer_of(state, kind, buf)
        with state.engine.lock:
            ranges = state.view.ranges(state.position, spec.nbytes)
            advanced = _whole(state, spec.nbytes)
            state.position += advanced
            asked = state.token
        operation = state.begin(kind, ranges, spec)
        operation.advanced = advanced
        if operation.done and state.token == asked:  # else it is a matter of time that it is done
            _correct(operation)
        return operation

    def _split_begin(self, kind: str, start: Any) -> None:
        state = self._alive()
        if state.split is not None:
            raise MpiException(ERR_IO, f"{state.split[0]}_begin has not had its end")
        state.split = kind, start()

    def _split_end(self, kind: str, status: Status | None) -> None:
        state = self._alive()
        if state.split is None or state.split[0] != kind:
            raise MpiException(ERR_IO, f"{kind}_end without {kind}_begin")
        operation, state.split = state.split[1], None
        _wait(operation, status)


def buffer_of(state: FileState, kind: str, buf: Any) -> BufferSpec:
    """The buffer of an access. MpiException: the file is not open for that."""
    if kind == "read":
        modes.check_reading(state.amode)
    else:
        modes.check_writing(state.amode)
    return simple(buf, writable=kind == "read")


def begin(state: FileState, kind: str, position: int, spec: BufferSpec) -> Access:
    """Begin an access at a position of the view."""
    return state.begin(kind, state.view.ranges(position, spec.nbytes), spec)


def _whole(state: FileState, nbytes: int) -> int:
    """The number of etypes of which there are bytes."""
    return -(-nbytes // state.view.etype_bytes)


def size_of(state: FileState) -> int:
    """The size of the file in bytes, of which the rank that writes is asked."""
    if state.writes_alone:
        assert state.writer is not None
        return state.writer.size()
    with state.engine.lock:
        asked = state.ask(wire.SIZE)
    _wait(asked, None)
    return asked.number


def _wait(operation: Access, status: Status | None) -> None:
    if not operation.done:
        state = operation.shared
        with state.engine.lock:
            try:
                state.engine.wait(operation)
            except (
                BaseException
            ):  # of a signal handler: nothing comes into the buffer of the program any more
                operation.abandon()
                raise
    operation.complete(status)


def _wait_and_correct(operation: Access, status: Status | None) -> None:
    """Wait for an access with the pointer, and set that back by what was not accessed."""
    try:
        _wait(operation, status)
    finally:
        if operation.done:
            _correct(operation)


def _correct(operation: Access) -> None:
    """Set the pointer back by what the access has left."""
    state = operation.shared
    accessed = 0 if operation.error is not None else _whole(state, operation.nbytes)
    state.position -= operation.advanced - accessed
    operation.advanced = accessed


def _request(operation: Access) -> Request:
    return Request._make(operation.shared.engine, operation)

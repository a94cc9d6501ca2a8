"""Reads and writes of `File` with the pointer that all ranks share, in any order, or in the order of the ranks.

The pointer is a number in the memory of the rank that writes. An access draws its place from there, then it is one with an
offset. Views have to be the same at all ranks, as the standard has it."""

from __future__ import annotations

from typing import Any

from ckpt.mpi.base.constants import NUMBERS
from ckpt.mpi.base.errors import ERR_ARG, ERR_IO, MpiException
from ckpt.mpi.base.integers import COUNT, argument
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.io import modes, wire
from ckpt.mpi.io.accesses import Accesses, _request, _wait, begin, buffer_of
from ckpt.mpi.io.collective import together
from ckpt.mpi.io.operations import Access
from ckpt.mpi.io.state import WRITER, FileState
from ckpt.mpi.io.writer import Writer
from ckpt.mpi.requests.request import Request

SEEK_SET = NUMBERS["SEEK_SET"]
SEEK_CUR = NUMBERS["SEEK_CUR"]


class SharedPointer(Accesses):
    """Base class of File with these methods. Errors: as those of Accesses."""

    __slots__ = ()

    def Read_shared(self, buf: Any, status: Status | None = None) -> None:
        _wait(self._begin_shared("read", buf), status)

    def Write_shared(self, buf: Any, status: Status | None = None) -> None:
        _wait(self._begin_shared("write", buf), status)

    def Iread_shared(self, buf: Any) -> Request:
        return _request(self._begin_shared("read", buf))

    def Iwrite_shared(self, buf: Any) -> Request:
        return _request(self._begin_shared("write", buf))

    def Read_ordered(self, buf: Any, status: Status | None = None) -> None:
        _wait(self._begin_ordered("read", buf), status)

    def Write_ordered(self, buf: Any, status: Status | None = None) -> None:
        _wait(self._begin_ordered("write", buf), status)

    def Read_ordered_begin(self, buf: Any) -> None:
        self._split_ordered("Read_ordered", "read", buf)

    def Read_ordered_end(self, buf: Any, status: Status | None = None) -> None:
        self._split_end("Read_ordered", status)

    def Write_ordered_begin(self, buf: Any) -> None:
        self._split_ordered("Write_ordered", "write", buf)

    def Write_ordered_end(self, buf: Any, status: Status | None = None) -> None:
        self._split_end("Write_ordered", status)

    def Seek_shared(self, offset: int, whence: int = SEEK_SET) -> None:
        """Set the shared pointer, in etypes; all ranks have to say the same. Collective.

        MpiException: ERR_ARG (to before the beginning of the view), ERR_NOT_SAME."""
        place = argument(offset, COUNT), modes.whence_of(argument(whence))
        state = self._alive()
        together(state.private, place, _seek, state, what="offset and whence of Seek_shared")

    def Get_position_shared(self) -> int:
        """The shared pointer, in etypes."""
        return _draw(self._alive(), 0)

    def _begin_shared(self, kind: str, buf: Any) -> Access:
        state = self._alive()
        spec = buffer_of(state, kind, buf)
        return begin(state, kind, _draw(state, _etypes(state, spec)), spec)

    def _split_ordered(self, kind: str, access: str, buf: Any) -> None:
        state = self._alive()
        if state.split is not None:
            raise MpiException(ERR_IO, f"{state.split[0]}_begin has not had its end")
        state.split = kind, self._begin_ordered(access, buf)

    def _begin_ordered(self, kind: str, buf: Any) -> Access:
        """Begin an access at the place that the counts of the lower ranks leave. Collective.

        A rank with an error counts as one that accesses nothing; the others go on."""
        state = self._alive()
        error: Exception | None = None
        count = 0
        try:
            spec = buffer_of(state, kind, buf)
            count = _etypes(state, spec)
        except Exception as problem:
            error = problem.with_traceback(None)
        places = state.private.gather(count, WRITER)
        if places is not None:
            assert state.writer is not None
            places = _in_order(places, state.writer)
        place = state.private.scatter(places, WRITER)
        if error is not None:
            raise error
        return begin(state, kind, place, spec)


def _etypes(state: FileState, spec: BufferSpec) -> int:
    """The number of etypes of a buffer. MpiException (ERR_IO): it is no whole number."""
    count, rest = divmod(spec.nbytes, state.view.etype_bytes)
    if rest:
        raise MpiException(
            ERR_IO, f"{spec.nbytes} bytes are no whole number of etypes of {state.view.etype_bytes} bytes"
        )
    return count


def _draw(state: FileState, count: int) -> int:
    """Move the shared pointer on. Returns where it was."""
    with state.engine.lock:
        if state.writes_alone:
            assert state.writer is not None
            return state.writer.advance(count)
        asked = state.ask(wire.ADVANCE, wire.pack_number(count))
    _wait(asked, None)
    return asked.number


def _in_order(counts: list[int], writer: Writer) -> list[int]:
    return [writer.advance(count) for count in counts]


def _seek(place: tuple[int, int], state: FileState) -> None:
    number, whence = place
    writer = state.writer
    assert writer is not None
    if whence == SEEK_CUR:
        number += writer.shared
    elif whence != SEEK_SET:
        number += state.view.end(writer.size())
    if number < 0:
        raise MpiException(ERR_ARG, f"position {number} is before the beginning of the view")
    writer.shared = number

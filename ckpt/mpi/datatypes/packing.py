"""Packing of buffers into bytes and back: Pack, Unpack, and the portable representation external32 (big endian).

All positions and sizes are in bytes. Packed elements follow each other without gaps. A packed result that has no room, or
packed bytes that end too early, raise MpiException (ERR_TRUNCATE)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckpt.mpi.base.errors import ERR_ARG, ERR_TRUNCATE, MpiException
from ckpt.mpi.base.integers import COUNT, argument

if TYPE_CHECKING:
    from ckpt.mpi.datatypes.datatype_info import DatatypeInfo


class Packing:
    """Base class of Datatype with the packing methods."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _valid(self) -> DatatypeInfo: ...

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any) -> int:
        """Pack the elements of `inbuf` into `outbuf` at `position`. Returns the position after them."""
        return self._pack(inbuf, outbuf, position, swap=False)

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any) -> int:
        """Unpack elements from `inbuf` at `position` until `outbuf` is full. Returns the position after them."""
        return self._unpack(inbuf, position, outbuf, swap=False)

    def Pack_size(self, count: int, comm: Any) -> int:
        """The number of bytes that `count` packed elements need."""
        return self._valid().layout.size * argument(count, COUNT)

    def Pack_external(self, datarep: str, inbuf: Any, outbuf: Any, position: int) -> int:
        _check(datarep)
        return self._pack(inbuf, outbuf, position, swap=True)

    def Unpack_external(self, datarep: str, inbuf: Any, position: int, outbuf: Any) -> int:
        _check(datarep)
        return self._unpack(inbuf, position, outbuf, swap=True)

    def Pack_external_size(self, datarep: str, count: int) -> int:
        _check(datarep)
        return self._valid().layout.size * argument(count, COUNT)

    def _elements(self, buf: Any, *, writable: bool) -> Any:
        """The spec of the elements of this datatype that fit into the buffer."""
        from ckpt.mpi.datatypes.buffers import BufferSpec, as_bytes

        obj, offset, room = as_bytes(buf, writable=writable)
        layout = self._valid().layout
        count = room // layout.extent if layout.extent > 0 else 0
        return BufferSpec(obj, count, self, offset)  # type: ignore[arg-type]

    def _pack(self, inbuf: Any, outbuf: Any, position: int, *, swap: bool) -> int:
        from ckpt.mpi.datatypes.buffers import as_bytes, raw

        position = argument(position, COUNT)
        data = self._elements(inbuf, writable=False).read()
        if swap:
            data = self._swap(bytes(data))
        obj, offset, room = as_bytes(outbuf, writable=True)
        if position < 0 or position + len(data) > room:
            raise MpiException(ERR_TRUNCATE, f"{len(data)} bytes at {position} of {room}")
        if len(data):
            raw(obj)[offset + position : offset + position + len(data)] = data
        return position + len(data)

    def _unpack(self, inbuf: Any, position: int, outbuf: Any, *, swap: bool) -> int:
        from ckpt.mpi.datatypes.buffers import as_bytes, raw

        position = argument(position, COUNT)
        into = self._elements(outbuf, writable=True)
        obj, offset, room = as_bytes(inbuf, writable=False)
        if position < 0 or position + into.nbytes > room:
            raise MpiException(ERR_TRUNCATE, f"{into.nbytes} bytes at {position} of {room}")
        if into.nbytes:
            data = bytes(raw(obj)[offset + position : offset + position + into.nbytes])
            into.write(self._swap(data) if swap else data)
        return position + int(into.nbytes)

    def _swap(self, data: bytes) -> bytes:
        """The packed bytes with the byte order of each basic element reversed; its own inverse."""
        out = bytearray(data)
        at = 0
        basics = self._valid().layout.basics
        while at < len(out) and basics:
            for each, many in basics:
                for _ in range(many):
                    out[at : at + each] = out[at : at + each][::-1]
                    at += each
        return bytes(out)


def _check(datarep: str) -> None:
    if datarep != "external32":
        raise MpiException(ERR_ARG, f"data representation {datarep!r}")

"""`MPI.Status`: source, tag, size, error and cancellation of a completed or probed message."""

from __future__ import annotations

from typing import Any, Self

from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG, UNDEFINED
from ckpt.mpi.base.errors import SUCCESS
from ckpt.mpi.base.handle import expect
from ckpt.mpi.base.integers import COUNT, argument
from ckpt.mpi.datatypes.datatypes import BYTE, Datatype


class Status:
    """The status of one message. `count` is its size in bytes."""

    __slots__ = ("__weakref__", "_cancelled", "_error", "_nbytes", "_source", "_tag")

    _source: int
    _tag: int
    _nbytes: int
    _error: int
    _cancelled: bool

    def __new__(cls, status: Status | None = None) -> Self:
        expect(cls, status, Status)
        self = super().__new__(cls)
        self._source = ANY_SOURCE if status is None else status._source
        self._tag = ANY_TAG if status is None else status._tag
        self._nbytes = 0 if status is None else status._nbytes
        self._error = SUCCESS if status is None else status._error
        self._cancelled = False if status is None else status._cancelled
        return self

    def __reduce__(self) -> Any:
        return type(self), (), self.__getstate__()

    def __getstate__(self) -> dict[str, int]:
        return {
            "source": self._source,
            "tag": self._tag,
            "error": self._error,
            "count": self._nbytes,
            "cancelled": self._cancelled,
        }

    def __setstate__(self, state: dict[str, int]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def _fill(
        self, source: int, tag: int, nbytes: int, *, error: int = SUCCESS, cancelled: bool = False
    ) -> None:
        self._source = source
        self._tag = tag
        self._nbytes = nbytes
        self._error = error
        self._cancelled = cancelled

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Status):
            return NotImplemented
        return (
            self._source == other._source
            and self._tag == other._tag
            and self._nbytes == other._nbytes
            and self._error == other._error
            and self._cancelled == other._cancelled
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Status source={self._source} tag={self._tag} bytes={self._nbytes} error={self._error}>"

    def Get_source(self) -> int:
        return self._source

    def Set_source(self, source: int) -> None:
        self._source = argument(source)

    def Get_tag(self) -> int:
        return self._tag

    def Set_tag(self, tag: int) -> None:
        self._tag = argument(tag)

    def Get_error(self) -> int:
        return self._error

    def Set_error(self, error: int) -> None:
        self._error = argument(error)

    def Get_count(self, datatype: Datatype = BYTE) -> int:
        """Number of whole elements of `datatype` in the message; UNDEFINED if its size is not a multiple of theirs."""
        size = datatype.size
        if size == 0:
            return 0 if self._nbytes == 0 else UNDEFINED
        count, rest = divmod(self._nbytes, size)
        return UNDEFINED if rest else count

    def Get_elements(self, datatype: Datatype) -> int:
        """Number of basic elements of `datatype` in the message; UNDEFINED if the message ends inside of one."""
        return datatype.elements_in(self._nbytes)

    def Set_elements(self, datatype: Datatype, count: int) -> None:
        self._nbytes = datatype.layout.nbytes_of(argument(count, COUNT))

    def Is_cancelled(self) -> bool:
        return self._cancelled

    def Set_cancelled(self, flag: bool) -> None:
        self._cancelled = bool(flag)

    def tomemory(self) -> Any:
        raise NotImplementedError(
            "Status.tomemory: there is no C structure behind a status; use Get_source, Get_tag and Get_count"
        )

    def py2f(self) -> list[int]:
        """The status as F_STATUS_SIZE integers for Fortran, with the indices F_SOURCE, F_TAG and F_ERROR."""
        return [
            self._nbytes & 0x7FFFFFFF,
            self._nbytes >> 31,
            self._source,
            self._tag,
            self._error,
            int(self._cancelled),
            0,
            0,
        ]

    @classmethod
    def f2py(cls, arg: list[int]) -> Any:
        status = cls()
        low, high, source, tag, error, cancelled = (argument(arg[place]) for place in range(6))
        status._fill(source, tag, low | high << 31, error=error, cancelled=bool(cancelled))
        return status

    source = property(Get_source, Set_source)
    tag = property(Get_tag, Set_tag)
    error = property(Get_error, Set_error)
    cancelled = property(Is_cancelled, Set_cancelled)

    @property
    def count(self) -> int:
        """Size in bytes."""
        return self._nbytes

    @count.setter
    def count(self, nbytes: int) -> None:
        self._nbytes = argument(nbytes, COUNT)

"""Private functions of the module MPI that mpi4py's pure-Python packages (mpi4py.util, mpi4py.futures) call."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from ckpt.mpi.base.constants import TAG_UB
from ckpt.mpi.base.errors import ERR_COMM, MpiException
from ckpt.mpi.base.handle import Handle
from ckpt.mpi.datatypes.datatypes import Datatype, typecode
from ckpt.mpi.datatypes.memory import address_of
from ckpt.mpi.datatypes.status import Status


def _comm_lock_table(comm: Any) -> dict[Hashable, Any]:
    """The locks that are kept with a communicator, by key."""
    table: dict[Hashable, Any] = comm._alive().extras.setdefault("locks", {})
    return table


def _comm_lock(comm: Any, key: Hashable | None = None) -> Any:
    """The communicator's lock with this key. It is made on first use."""
    return _comm_lock_table(comm).setdefault(key, threading.Lock())


def _context(comm: Any) -> list[Any]:
    context: list[Any] | None = comm._alive().extras.get("context")
    if context is None:
        context = comm._alive().extras["context"] = [comm.Dup(), -1]
    context[1] = (context[1] + 1) % (TAG_UB + 1)
    return context


def _commctx_intra(comm: Any) -> tuple[Any, int]:
    """(private duplicate of an intracommunicator, tag to use on it). Collective; each call returns the next tag."""
    if comm.Is_inter():
        raise MpiException(ERR_COMM, "an intracommunicator is needed")
    private, tag = _context(comm)
    return private, tag


def _commctx_inter(comm: Any) -> tuple[Any, int, Any, bool]:
    """(private duplicate of an intercommunicator, tag, local group's intracommunicator, whether it is the low group).

    Collective; each call returns the next tag."""
    if not comm.Is_inter():
        raise MpiException(ERR_COMM, "an intercommunicator is needed")
    private, tag = _context(comm)
    side = private._side
    return private, tag, side.local, side.low


def _typecode(datatype: Datatype) -> str | None:
    return typecode(datatype)


def _typealign(datatype: Datatype) -> int | None:
    return datatype.layout.align if datatype.is_predefined and datatype else None


def _datatype_create(datatype: Any, combiner: str, params: dict[str, Any], free: bool = False) -> Any:
    """The datatype that `_datatype_decode` has decoded to (datatype, combiner, params). free: free the argument types."""
    prefix = "Get" if combiner == "VALUE_INDEX" else "Create"
    made = datatype if combiner == "NAMED" else getattr(datatype, f"{prefix}_{combiner.lower()}")(**params)
    if free:
        for each in (datatype, *params.get("datatypes", ())):
            each.free()
    return made


def _datatype_decode(datatype: Any, mark: bool = False) -> tuple[Any, str, dict[str, Any]]:
    decoded: tuple[Any, str, dict[str, Any]] = datatype.decode()
    return decoded


def _check(arg: Any) -> type:
    cls = arg if isinstance(arg, type) else type(arg)
    if not issubclass(cls, (Handle, Status)):
        raise TypeError(f"expecting an MPI type or instance, got {cls.__name__}")
    return cls


def _sizeof(arg: Any) -> int:
    """Size of the C object of an MPI type. There is no C object, so the number is a constant: 24 for Status, else 8."""
    return 24 if issubclass(_check(arg), Status) else 8


def _addressof(arg: Any) -> int:
    _check(arg)
    return id(arg)


def _handleof(arg: Any) -> int:
    _check(arg)
    return id(arg)


__all__ = ["address_of"]

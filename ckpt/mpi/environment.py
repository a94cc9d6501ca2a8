"""Functions of the module MPI: environment, versions, buffers for buffered sends, dimensions."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Sequence
from typing import Any

from ckpt.mpi.base.constants import BUFFER_AUTOMATIC, NUMBERS, BufferAutomaticType
from ckpt.mpi.base.errors import ERR_ARG, ERR_BUFFER, ERROR_CLASSES, MpiException
from ckpt.mpi.base.info import INFO_NULL, Info
from ckpt.mpi.base.integers import COUNT, argument, element, elements, is_one
from ckpt.mpi.base.process import process_state
from ckpt.mpi.datatypes.memory import address_of, buffer_type
from ckpt.mpi.engine.operations import Done
from ckpt.mpi.requests.request import Request

ADDRESS_BITS = 64


def Init() -> None:
    """Everything is initialized when a program can call this."""


def Init_thread(required: int = 3) -> int:
    argument(required)
    return Query_thread()


def Finalize() -> None:
    """Nothing to do: the rank serves its peers until all have finished."""
    process_state().interned["finalized"] = True


def Is_initialized() -> bool:
    return True


def Is_finalized() -> bool:
    return bool(process_state().interned.get("finalized", False))


def Query_thread() -> int:
    """One thread at a time may be inside the library: whoever waits there keeps the others out."""
    return NUMBERS["THREAD_SERIALIZED"]


def Is_thread_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def Get_version() -> tuple[int, int]:
    return NUMBERS["VERSION"], NUMBERS["SUBVERSION"]


def Get_library_version() -> str:
    from ckpt.mpi import __name__ as package

    return f"{package}: message passing of the ckpt toolkit, checkpointed and restarted with the program"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    return "ckpt", (0, 1, 0)


def Get_abi_version() -> tuple[int, int]:
    return -1, -1


def Get_abi_info() -> Info:
    return Info.Create()


def Get_abi_fortran_info() -> Info:
    return Info.Create()


def Get_processor_name() -> str:
    return platform.node()


def Get_hw_resource_info() -> Info:
    return Info.Create()


def Wtime() -> float:
    """Seconds of the system's monotonic clock: it runs on over a restart on the same machine."""
    return time.perf_counter()


def Wtick() -> float:
    return time.get_clock_info("perf_counter").resolution


def Pcontrol(level: int) -> None:
    """Profiling level: there is no profiler here."""
    if not 0 <= argument(level) <= 2:
        raise MpiException(ERR_ARG, f"profiling level {level}")


def Get_address(location: Any) -> int:
    """Address of a buffer, in this process."""
    return address_of(location)


def _wrapped(value: int) -> int:
    half = 1 << (ADDRESS_BITS - 1)
    return (value + half) % (1 << ADDRESS_BITS) - half


def Aint_add(base: int, disp: int) -> int:
    return _wrapped(argument(base, COUNT) + argument(disp, COUNT))


def Aint_diff(addr1: int, addr2: int) -> int:
    return _wrapped(argument(addr1, COUNT) - argument(addr2, COUNT))


def Alloc_mem(size: int, info: Info = INFO_NULL) -> Any:
    """Memory of `size` bytes; part of the process image like any other."""
    size = argument(size, COUNT)
    if size < 0:
        raise MpiException(ERR_ARG, f"{size} bytes")
    return buffer_type().allocate(size, True)


def Free_mem(mem: Any) -> None:
    if not isinstance(mem, buffer_type()):
        raise TypeError(f"expected MPI.buffer, got {type(mem).__name__}")
    mem.release()


def Compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Dimensions of a grid of `nnodes`, as equal as possible, largest first; nonzero ones stay."""
    rest = nnodes = argument(nnodes)
    wanted = [0] * element(dims) if is_one(dims) else elements(dims)  # type: ignore[arg-type]
    for dim in wanted:
        if dim < 0 or (dim and rest % dim):
            raise MpiException(ERROR_CLASSES["ERR_DIMS"], f"{nnodes} nodes on a grid of {wanted}")
        rest = rest // dim if dim else rest
    free = wanted.count(0)
    if not free:
        if rest != 1:
            raise MpiException(ERROR_CLASSES["ERR_DIMS"], f"{nnodes} nodes on a grid of {wanted}")
        return wanted
    found = _balanced(rest, free)
    return [dim or found.pop(0) for dim in wanted]


def _balanced(number: int, parts: int) -> list[int]:
    """`number` as a product of `parts` factors, the largest as small as possible, largest first."""
    if parts == 1:
        return [number]
    best: list[int] | None = None
    factor = 1
    while factor**parts < number:
        factor += 1
    for first in range(factor, number + 1):
        if number % first:
            continue
        rest = _balanced(number // first, parts - 1)
        if rest[0] <= first:
            best = [first, *rest]
            break
    return best if best is not None else [number] + [1] * (parts - 1)


# -- buffered sends --------------------------------------------------------------------------------


def Attach_buffer(buf: Any) -> None:
    """A buffer for buffered sends: remembered, but sends are buffered without."""
    state = process_state()
    if state.attached is not None:
        raise MpiException(ERR_BUFFER, "a buffer is attached already")
    if buf is not None and not isinstance(buf, BufferAutomaticType) and memoryview(buf).readonly:
        raise BufferError("the buffer is read-only")
    state.attached = BUFFER_AUTOMATIC if buf is None else buf


def Detach_buffer() -> Any:
    state = process_state()
    held, state.attached = state.attached, None
    if held is None or isinstance(held, BufferAutomaticType):
        return held
    kind = buffer_type()
    return held if isinstance(held, kind) else kind.frombuffer(held)


def Flush_buffer() -> None:
    """Buffered sends need no buffer of the program's, so it is always flushed."""


def Iflush_buffer() -> Request:
    return Request._make(None, Done())


def _set_abort_status(status: object) -> None:
    """What mpi4py.run calls before it lets an exception out: an uncaught exception ends the job anyway."""

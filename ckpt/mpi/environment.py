"""Functions of the module MPI that need no object: start and end, versions, clock, addresses and memory, dimensions of
grids, buffers for buffered sends."""

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
from ckpt.mpi.datatypes.memory import buffer_type, remembered
from ckpt.mpi.engine import worlds
from ckpt.mpi.engine.operations import Done
from ckpt.mpi.requests.request import Request

ADDRESS_BITS = 64


def Init() -> None:
    """No effect: the library is initialized before the program runs."""


def Init_thread(required: int = 3) -> int:
    argument(required)
    return Query_thread()


def Finalize() -> None:
    """Record the call, for Is_finalized. No other effect: the rank serves its peers until all ranks have finished."""
    process_state().interned["finalized"] = True


def Is_initialized() -> bool:
    return True


def Is_finalized() -> bool:
    return bool(process_state().interned.get("finalized", False))


def Query_thread() -> int:
    """THREAD_MULTIPLE: any threads may call the library, also while others wait there (MPI standard 4.1, 11.6.2).

    THREAD_SERIALIZED where several processes compute one rank (`--redundancy`), or the program saves itself (`--explicit`):
    there the order of the calls has to be the program's own."""
    is_multiple = getattr(worlds.engine().progress, "is_thread_multiple", False)
    return NUMBERS["THREAD_MULTIPLE" if is_multiple else "THREAD_SERIALIZED"]


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
    """Seconds of the system's monotonic clock, which goes on after a restart: on the same machine, another one, or one that
    was booted meanwhile (:mod:`ckpt.image.process.clocks`)."""
    return time.perf_counter()


def Wtick() -> float:
    return time.get_clock_info("perf_counter").resolution


def Pcontrol(level: int) -> None:
    """Set the profiling level: no effect, since there is no profiler. MpiException (ERR_ARG): it is not 0, 1 or 2."""
    if not 0 <= argument(level) <= 2:
        raise MpiException(ERR_ARG, f"profiling level {level}")


def Get_address(location: Any) -> int:
    """The address of a buffer in this process. After a restart it still leads there, in a datatype for BOTTOM and as a
    displacement in a dynamic window.

    Where several processes are this rank (`--redundancy`) and a dynamic window is open, it is a number that is the same in
    all of them."""
    from ckpt.mpi.datatypes.addresses import tell  # few programs ask: a rank starts without it

    engine = worlds.engine()
    with engine.lock:
        return tell(engine.windows, location)


def _remembered(address: int, nbytes: int) -> set[int]:
    addresses = worlds.engine().windows.addresses
    return set() if addresses is None else addresses.present(address, nbytes)


remembered.append(_remembered)


def _wrapped(value: int) -> int:
    half = 1 << (ADDRESS_BITS - 1)
    return (value + half) % (1 << ADDRESS_BITS) - half


def Aint_add(base: int, disp: int) -> int:
    return _wrapped(argument(base, COUNT) + argument(disp, COUNT))


def Aint_diff(addr1: int, addr2: int) -> int:
    return _wrapped(argument(addr1, COUNT) - argument(addr2, COUNT))


def Alloc_mem(size: int, info: Info = INFO_NULL) -> Any:
    """An `MPI.buffer` of `size` zeroed bytes. It is part of the process image, like other memory of the program.

    MpiException (ERR_ARG): negative size. ImportError: numpy is missing."""
    size = argument(size, COUNT)
    if size < 0:
        raise MpiException(ERR_ARG, f"{size} bytes")
    return buffer_type().allocate(size, True)


def Free_mem(mem: Any) -> None:
    if not isinstance(mem, buffer_type()):
        raise TypeError(f"expected MPI.buffer, got {type(mem).__name__}")
    mem.release()


def Compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Dimensions of a grid of `nnodes` processes, as equal as possible, largest first (MPI_Dims_create).

    dims: the number of dimensions, or a list of dimensions, where nonzero entries are kept and zeros are replaced.
    MpiException (ERR_DIMS): there is no such grid."""
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
    """`parts` factors whose product is `number`, largest first. The largest factor is as small as possible."""
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
    """Attach a buffer for buffered sends. It is kept for Detach_buffer; buffered sends do not need it.

    MpiException (ERR_BUFFER): one is attached already. BufferError: it is read-only."""
    state = process_state()
    if state.attached is not None:
        raise MpiException(ERR_BUFFER, "a buffer is attached already")
    if buf is not None and not isinstance(buf, BufferAutomaticType) and memoryview(buf).readonly:
        raise BufferError("the buffer is read-only")
    state.attached = BUFFER_AUTOMATIC if buf is None else buf


def Detach_buffer() -> Any:
    state = process_state()
    buffer, state.attached = state.attached, None
    if buffer is None or isinstance(buffer, BufferAutomaticType):
        return buffer
    buffer_class = buffer_type()
    return buffer if isinstance(buffer, buffer_class) else buffer_class.frombuffer(buffer)


def Flush_buffer() -> None:
    """No effect: buffered sends do not use the attached buffer, so it never holds a message."""


def Iflush_buffer() -> Request:
    return Request._make(None, Done())


def _set_abort_status(status: object) -> None:
    """mpi4py.run calls this before it raises an uncaught exception. No effect: the exception ends the job anyway."""

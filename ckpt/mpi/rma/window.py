"""`Win`: windows of memory that other ranks read and change (MPI standard, "One-Sided Communications").

Making a window is collective. The members exchange sizes, units and whether each could do its part; if one could not, all
raise. A member that is through earlier may already send: the engine keeps its messages until the window is open here.

Not here: operations (transfers.py), synchronization (synchronization.py), memory that several ranks load from and store to
directly (shared.py).
"""

from __future__ import annotations

from typing import Any, ClassVar

from ckpt.mpi.base.attributes import HasAttributes
from ckpt.mpi.base.constants import NUMBERS, BottomType
from ckpt.mpi.base.errors import (
    ERR_DISP,
    ERR_OTHER,
    ERR_RMA_FLAVOR,
    ERR_SIZE,
    ERR_WIN,
    MpiException,
)
from ckpt.mpi.base.info import INFO_NULL, Info
from ckpt.mpi.base.integers import COUNT, argument
from ckpt.mpi.base.null_handles import NULL_PART
from ckpt.mpi.comm.communicator import Intracomm, self_of
from ckpt.mpi.comm.guard import guard_all
from ckpt.mpi.comm.unsupported import not_offered
from ckpt.mpi.datatypes.addresses import addresses_of, tell
from ckpt.mpi.datatypes.buffers import raw
from ckpt.mpi.datatypes.memory import TOLD_NUMBERS, address_of, buffer_type, finders
from ckpt.mpi.datatypes.op import prepare
from ckpt.mpi.engine import worlds
from ckpt.mpi.members.state import private_copy
from ckpt.mpi.rma.exposed import Dynamic, Exposed, Fixed, size_of
from ckpt.mpi.rma.shared import NO_MEMORY, SharedPart, memory_of, place_of, share
from ckpt.mpi.rma.state import WindowState
from ckpt.mpi.rma.synchronization import Synchronization, flush
from ckpt.mpi.rma.transfers import Transfers

FLAVOR_CREATE = NUMBERS["WIN_FLAVOR_CREATE"]
FLAVOR_ALLOCATE = NUMBERS["WIN_FLAVOR_ALLOCATE"]
FLAVOR_DYNAMIC = NUMBERS["WIN_FLAVOR_DYNAMIC"]
FLAVOR_SHARED = NUMBERS["WIN_FLAVOR_SHARED"]
UNIFIED = NUMBERS["WIN_UNIFIED"]

_SHARED = f"{NO_MEMORY}; use Win.Allocate with Put, Get and Accumulate"


def handle_of(engine: Any, shared: WindowState) -> Win:
    """A new handle of a window, for its error handler."""
    return Win._of(shared)


class Win(Transfers, Synchronization, HasAttributes):
    """A window."""

    __slots__ = ()
    _constants: ClassVar[tuple[str, ...]] = ("WIN_NULL",)

    # -- making and freeing ------------------------------------------------------------------------

    @classmethod
    def Create(
        cls, memory: Any, disp_unit: int = 1, info: Info = INFO_NULL, comm: Intracomm | None = None
    ) -> Any:
        """A window of memory of the program: a writable contiguous buffer, or None or BOTTOM for none. Collective.

        disp_unit: bytes of a displacement of 1 in this rank's memory. comm: COMM_SELF if it is None. MpiException: ERR_DISP,
        ERR_COMM, ERR_OTHER (another rank could not). BufferError, TypeError: the memory is no such buffer."""
        unit = argument(disp_unit, COUNT)
        kept = None if isinstance(memory, BottomType) else memory
        return _make(cls, FLAVOR_CREATE, comm, info, unit, _of_the_program, kept)

    @classmethod
    def Allocate(
        cls, size: int, disp_unit: int = 1, info: Info = INFO_NULL, comm: Intracomm | None = None
    ) -> Any:
        """A window of `size` bytes of new memory, which are zero. Collective. MpiException: as Create, and ERR_SIZE."""
        nbytes, unit = argument(size, COUNT), argument(disp_unit, COUNT)
        return _make(cls, FLAVOR_ALLOCATE, comm, info, unit, _allocated, nbytes)

    @classmethod
    def Allocate_shared(
        cls, size: int, disp_unit: int = 1, info: Info = INFO_NULL, comm: Intracomm | None = None
    ) -> Any:
        """Like Allocate, of memory to which all ranks of `comm` can store directly (:meth:`Shared_query`).

        The ranks' parts follow each other without gaps, unless `info` has ``alloc_shared_noncontig`` = "true".
        MpiException: as Allocate, and ERR_RMA_SHARED (a rank is on another host). NotImplementedError where several
        processes compute each rank."""
        nbytes, unit = argument(size, COUNT), argument(disp_unit, COUNT)
        if not (comm is not None and comm and isinstance(comm, Intracomm) and comm.Get_size() > 1):
            return _make(cls, FLAVOR_SHARED, comm, info, unit, _allocated, nbytes)
        if memory_of(comm._engine) is None:
            raise not_offered("Win.Allocate_shared", _SHARED)
        return _make(cls, FLAVOR_SHARED, comm, info, unit, SharedPart, nbytes)

    @classmethod
    def Create_dynamic(cls, info: Info = INFO_NULL, comm: Intracomm | None = None) -> Any:
        """A window without memory, for Attach. Displacements are addresses at the target (MPI.Get_address). Collective."""
        return _make(cls, FLAVOR_DYNAMIC, comm, info, 1, _without_memory, None)

    def Attach(self, memory: Any) -> None:
        """Add memory to a dynamic window. MpiException: ERR_RMA_FLAVOR, ERR_RMA_ATTACH (some of it is attached)."""
        state = self._alive()
        with state.engine.lock:
            _pieces(state).attach(memory)
            tell(state.engine.windows, memory)

    def Detach(self, memory: Any) -> None:
        """Remove memory from a dynamic window. MpiException: ERR_RMA_FLAVOR, ERR_BASE (it is not attached)."""
        state = self._alive()
        with state.engine.lock:
            _pieces(state).detach(memory)

    def Free(self) -> None:
        """Free the window, when all members have called Free. MpiException (ERR_RMA_SYNC): an epoch is not ended.

        When an operation or a member has failed, the window is freed here, and the call raises the error."""
        state = self._alive()
        state.epochs.check_free()
        with state.engine.lock:
            error = flush(state, tuple(range(len(state.group))))
        self._delete_attributes()
        try:
            state.private.Barrier()
        except MpiException as failed:
            error = failed
        state.leave()
        self._shared = NULL_PART
        if error is not None:
            raise error

    # -- properties --------------------------------------------------------------------------------

    @property
    def attrs(self) -> tuple[int, int, int]:
        """(address, size in bytes, displacement unit) of this rank's memory. A restart changes the address."""
        state = self._alive()
        return state.base, state.size, state.unit

    @property
    def flavor(self) -> int:
        return self._alive().flavor

    @property
    def model(self) -> int:
        """WIN_UNIFIED: there is one copy of the memory."""
        self._alive()
        return UNIFIED

    def tomemory(self) -> Any:
        """This rank's memory as an MPI.buffer; empty for a dynamic window."""
        state = self._alive()
        if not isinstance(state.exposed, Fixed) or state.exposed.memory is None:
            return buffer_type()()
        return buffer_type().frombuffer(state.exposed.memory)

    def Shared_query(self, rank: int) -> tuple[Any, int]:
        """(memory of a rank that this rank can load from and store to directly, its displacement unit).

        In a window of Allocate_shared that is the memory of each rank; in another one this rank's own, and that of others is
        empty. PROC_NULL: that of the first rank which has some. MpiException (ERR_RANK, ERR_RMA_FLAVOR for a dynamic
        window)."""
        state = self._alive()
        target = self._member(rank)
        if state.pieces is not None:
            raise MpiException(ERR_RMA_FLAVOR, "a dynamic window has no memory to query")
        if target is None:
            target = next((rank for rank, nbytes in enumerate(state.sizes or ()) if nbytes), 0)
        if isinstance(state.exposed, SharedPart):
            memory = state.exposed.of(target)
            shared = buffer_type()() if memory is None else buffer_type().frombuffer(memory)
            return shared, state.units[target]
        if state.rank == target:
            return self.tomemory(), state.unit
        return buffer_type()(), state.units[target]

    def Get_name(self) -> str:
        return "MPI_WIN_NULL" if self._shared is NULL_PART else self._alive().name

    def Set_name(self, name: str) -> None:
        self._alive().name = name

    @property
    def name(self) -> str:
        return self.Get_name()

    @name.setter
    def name(self, name: str) -> None:
        self.Set_name(name)

    def __repr__(self) -> str:
        if not self:
            return f"<{type(self).__name__} null>"
        state = self._alive()
        place = f"rank {state.rank} of {len(state.group)}"
        return f"<{type(self).__name__} {state.name or 'unnamed'}: {place}, {state.size} bytes>"

    # -- attributes --------------------------------------------------------------------------------

    def _attribute_table(self) -> dict[int, Any]:
        return self._alive().attributes

    @classmethod
    def _keyval_kind(cls) -> str:
        return "Win"

    def _predefined_attr(self, keyval: int) -> Any:
        state = self._alive()
        if keyval == NUMBERS["WIN_BASE"]:
            return state.base
        if keyval == NUMBERS["WIN_SIZE"]:
            return state.size
        if keyval == NUMBERS["WIN_DISP_UNIT"]:
            return state.unit
        if keyval == NUMBERS["WIN_CREATE_FLAVOR"]:
            return state.flavor
        return UNIFIED if keyval == NUMBERS["WIN_MODEL"] else None


def _of_the_program(memory: Any) -> Fixed:
    return Fixed(memory, 0 if memory is None else size_of(memory))


def _allocated(nbytes: int) -> Fixed:
    if nbytes < 0:
        raise MpiException(ERR_SIZE, f"negative size {nbytes}")
    return Fixed(bytearray(nbytes), nbytes)


def _without_memory(nothing: None) -> Dynamic:
    return Dynamic()


def _pieces(state: WindowState) -> Dynamic:
    if state.pieces is None:
        raise MpiException(ERR_RMA_FLAVOR, "memory can be attached to a dynamic window only")
    return state.pieces


def _make(cls: Any, flavor: int, comm: Any, info: Info, unit: int, expose: Any, what: Any) -> Any:
    """Make a window. expose(what) returns this rank's `Exposed`, or raises."""
    if comm is None:
        comm = self_of(worlds.engine())
    if not isinstance(comm, Intracomm):
        raise TypeError(f"a window needs an Intracomm, not {type(comm).__name__}")
    comm._alive()
    engine = comm._engine
    if engine.windows.refusal:
        raise not_offered("Win", engine.windows.refusal)
    exposed, problem = _exposed(expose, what, unit)
    private = private_copy(comm)
    state = WindowState(engine, private, flavor, exposed or Dynamic(), unit, handle_of)
    state.join(comm)
    mine = (flavor, state.size, unit, str(problem or ""), place_of(engine), _has_gaps(info))
    try:
        theirs = private.allgather(mine)
        if problem is not None:
            raise problem
        _agree(theirs)
        if flavor != FLAVOR_DYNAMIC:
            state.sizes = tuple([each[1] for each in theirs])
        if isinstance(exposed, SharedPart):
            share(state, exposed, [each[4] for each in theirs], has_gaps=theirs[0][5])
    except BaseException:
        state.leave()
        raise
    prepare()
    state.units = tuple([each[2] for each in theirs])
    state.info.update(info.items())
    with engine.lock:
        engine.windows.add(state)
    return cls._of(state)


def _has_gaps(info: Info) -> bool:
    return dict(info.items()).get("alloc_shared_noncontig") == "true"


def _exposed(expose: Any, what: Any, unit: int) -> tuple[Exposed | None, Exception | None]:
    """(what this rank exposes, None), or (None, why it cannot)."""
    try:
        if unit <= 0:
            raise MpiException(ERR_DISP, f"displacement unit {unit}")
        return expose(what), None
    except Exception as error:
        return None, error.with_traceback(None)


def _agree(theirs: list[Any]) -> None:
    """Raise if a rank could not do its part, or the ranks make different kinds of windows."""
    for rank, (flavor, _, _, problem, *_) in enumerate(theirs):
        if problem:
            raise MpiException(ERR_OTHER, f"no window: rank {rank} cannot: {problem}")
        if flavor != theirs[0][0]:
            raise MpiException(ERR_WIN, f"rank {rank} makes another kind of window than rank 0")


def _memory_at(address: int, nbytes: int) -> Any:
    """The memory of an open window at this address."""
    for window in list(worlds.engine().windows.open.values()):
        exposed = getattr(window, "exposed", None)
        if isinstance(exposed, SharedPart) and exposed.segment is not None:
            memory, size = memoryview(exposed.segment), exposed.segment.nbytes
        elif isinstance(exposed, Fixed) and exposed.nbytes:
            memory, size = memoryview(exposed.memory).cast("B"), exposed.nbytes
        else:
            continue
        offset = address - address_of(memory)
        if 0 <= offset <= size - nbytes:
            return memory[offset : offset + nbytes]
    if address in TOLD_NUMBERS and (found := addresses_of(worlds.engine().windows).find(address, nbytes)):
        owner, place = found[0]  # a number belongs to one piece of memory
        return raw(owner)[place : place + nbytes]
    return None


finders.append(_memory_at)

guard_all(Transfers, Synchronization, Win, direct=frozenset())

WIN_NULL = Win()
"""The null window: every call raises ERR_WIN."""

__all__ = ["WIN_NULL", "Win"]

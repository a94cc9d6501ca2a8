"""The calls that work on the memory of another member: Put, Get, accumulates, and those with a request.

A call checks its arguments, and for all but dynamic windows the range, before anything is sent; the target checks
again. What only the target can see comes up in the call that synchronizes next (Flush, Unlock, Fence, Complete), or in
the wait of the request. Put and Accumulate of less than COPY_BYTES (engine.py) copy the program's data; larger data must
stay unchanged until then.

As with a send and its receive, the data may be less than the place they go to: a Put or Accumulate may bring less than the
target's place has, and a Get less than the buffer here (MPI 4.1, 12.3). Then the rest stays as it is.

Not here: epochs (synchronization.py), the messages (wire.py, origin.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base.constants import PROC_NULL
from ckpt.mpi.base.errors import ERR_COUNT, ERR_OP, ERR_TYPE, MpiException
from ckpt.mpi.base.integers import COUNT, argument, element, is_one
from ckpt.mpi.datatypes.buffers import BufferSpec, _as_datatype, simple
from ckpt.mpi.datatypes.datatypes import BYTE, Datatype
from ckpt.mpi.datatypes.op import NO_OP, SUM, Op
from ckpt.mpi.engine.operations import Done, Operation
from ckpt.mpi.requests.request import Request
from ckpt.mpi.rma import wire
from ckpt.mpi.rma.exposed import bounds, out_of_range
from ckpt.mpi.rma.handle import WinHandle

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine

_INTEGERS = "bBhHiIlLqQ?"

_Fits = Callable[[int, int], bool]


class Transfers(WinHandle):
    """Base class of Win with these methods.

    target_rank: rank in the window; PROC_NULL: no effect. target: None, a displacement in units of the target's
    displacement unit, or a list (displacement, count, datatype) whose rest is as of the origin's buffer. Errors:
    MpiException with ERR_WIN, ERR_RANK, ERR_RMA_SYNC (no epoch), ERR_RMA_RANGE, ERR_TYPE, ERR_COUNT or ERR_OP;
    PeerFailed when the target has failed; TypeError, ValueError, KeyError or BufferError for a bad buffer."""

    __slots__ = ()

    # -- without a request -------------------------------------------------------------------------

    def Put(self, origin: Any, target_rank: int, target: Any = None) -> None:
        """Write data into the target's memory."""
        self._change(wire.PUT, origin, target_rank, target, None)

    def Get(self, origin: Any, target_rank: int, target: Any = None) -> None:
        """Read data of the target's memory into the buffer `origin`."""
        self._get(origin, target_rank, target, own_request=False)

    def Accumulate(self, origin: Any, target_rank: int, target: Any = None, op: Op = SUM) -> None:
        """Combine data with those in the target's memory, element by element; op: a predefined operation."""
        self._change(wire.ACCUMULATE, origin, target_rank, target, op)

    def Get_accumulate(
        self, origin: Any, result: Any, target_rank: int, target: Any = None, op: Op = SUM
    ) -> None:
        """Accumulate, and read what was there before into `result`. With NO_OP, `origin` is not used."""
        self._get_accumulate(origin, result, target_rank, target, op, own_request=False)

    def Fetch_and_op(
        self, origin: Any, result: Any, target_rank: int, target_disp: int = 0, op: Op = SUM
    ) -> None:
        """Get_accumulate of one element of a predefined datatype."""
        displacement = argument(target_disp, COUNT)
        rank = self._member(target_rank)
        if rank is None:
            return
        one = _single("origin", origin, writable=False)
        into = _single("result", result, writable=True)
        _same("origin", one, "result", into)
        what = self._accumulated(self._place(rank, one, displacement, 1, one.datatype), one, op)
        self._ask(rank, wire.GET_ACCUMULATE, what, _data(one, op), into, own_request=False)

    def Compare_and_swap(
        self, origin: Any, compare: Any, result: Any, target_rank: int, target_disp: int = 0
    ) -> None:
        """Replace one element by that of `origin` if it equals that of `compare`; `result` gets what was there before."""
        displacement = argument(target_disp, COUNT)
        rank = self._member(target_rank)
        if rank is None:
            return
        new = _single("origin", origin, writable=False)
        old = _single("compare", compare, writable=False)
        into = _single("result", result, writable=True)
        _same("origin", new, "compare", old)
        _same("origin", new, "result", into)
        if new.datatype != BYTE and (not new.datatype.code or new.datatype.code not in _INTEGERS):
            raise MpiException(ERR_TYPE, f"{new.datatype.name or 'a derived type'} is no integer type")
        what = self._place(rank, new, displacement, 1, new.datatype)
        both = bytes(old.read()) + bytes(new.read())
        self._ask(rank, wire.COMPARE_AND_SWAP, what, both, into, own_request=False)

    # -- with a request ----------------------------------------------------------------------------

    def Rput(self, origin: Any, target_rank: int, target: Any = None) -> Request:
        """Put; the request is done when the program may reuse its buffer."""
        return self._request(self._change(wire.PUT, origin, target_rank, target, None))

    def Rget(self, origin: Any, target_rank: int, target: Any = None) -> Request:
        """Get; the request is done when the data are there."""
        return self._request(self._get(origin, target_rank, target, own_request=True))

    def Raccumulate(self, origin: Any, target_rank: int, target: Any = None, op: Op = SUM) -> Request:
        """Accumulate; the request is done when the program may reuse its buffer."""
        return self._request(self._change(wire.ACCUMULATE, origin, target_rank, target, op))

    def Rget_accumulate(
        self, origin: Any, result: Any, target_rank: int, target: Any = None, op: Op = SUM
    ) -> Request:
        """Get_accumulate; the request is done when the data are there."""
        return self._request(self._get_accumulate(origin, result, target_rank, target, op, own_request=True))

    def _request(self, operation: Operation) -> Request:
        return Request._make(self._alive().engine, operation)

    # -- the common parts --------------------------------------------------------------------------

    def _change(self, action: int, origin: Any, target_rank: int, target: Any, op: Op | None) -> Operation:
        rank = self._member(target_rank)
        if rank is None:
            return Done(PROC_NULL)
        spec = simple(origin, writable=False)
        what = self._described(rank, spec, target, fits=operator.le)
        if op is not None:
            what = self._accumulated(what, spec, op, _target_type(target, spec))
        state = self._alive()
        engine = state.engine
        with engine.lock:
            self._check_access(rank)
            operation = state.origin.change(rank, action, what, spec)
            if rank != state.rank:
                engine.after_send(state.group[rank], spec.nbytes, state)  # type: ignore[arg-type]
        return operation

    def _get(self, origin: Any, target_rank: int, target: Any, *, own_request: bool) -> Operation:
        rank = self._member(target_rank)
        if rank is None:
            return Done(PROC_NULL)
        into = simple(origin, writable=True)
        what = self._described(rank, into, target, fits=operator.ge)
        into = _beginning(into, what.nbytes)
        state = self._alive()
        engine = state.engine
        with engine.lock:
            self._check_access(rank)
            operation = state.origin.get(rank, what, into, own_request=own_request)
            if rank != state.rank and not operation.done:
                engine.after_send(state.group[rank], 0, state)  # type: ignore[arg-type]
            if not own_request:
                _await(engine, operation)
        return operation

    def _get_accumulate(
        self, origin: Any, result: Any, target_rank: int, target: Any, op: Op, *, own_request: bool
    ) -> Operation:
        rank = self._member(target_rank)
        if rank is None:
            return Done(PROC_NULL)
        spec = simple(origin, writable=False)
        into = simple(result, writable=True)
        what = self._described(rank, into if op == NO_OP else spec, target, spec)
        what = self._accumulated(what, spec, op, _target_type(target, spec))
        if into.nbytes != (spec.nbytes if op != NO_OP else into.nbytes):
            raise MpiException(ERR_TYPE, f"a result of {into.nbytes} bytes for {spec.nbytes} bytes of data")
        return self._ask(rank, wire.GET_ACCUMULATE, what, _data(spec, op), into, own_request=own_request)

    def _ask(
        self,
        rank: int,
        action: int,
        what: wire.Description,
        data: bytes,
        into: BufferSpec,
        *,
        own_request: bool,
    ) -> Operation:
        state = self._alive()
        engine = state.engine
        with engine.lock:
            self._check_access(rank)
            body = wire.describe(what) + data
            operation = state.origin.ask(rank, action, body, into, own_request=own_request)
            if rank != state.rank:
                engine.after_send(state.group[rank], len(data), state)  # type: ignore[arg-type]
            if not own_request:
                _await(engine, operation)
        return operation

    def _check_access(self, rank: int) -> None:
        state = self._alive()
        state.epochs.check_access(rank)
        failure = state.failure(rank)
        if failure is not None:
            raise failure

    def _described(
        self,
        rank: int,
        spec: BufferSpec,
        target: Any,
        default: BufferSpec | None = None,
        fits: _Fits = operator.eq,
    ) -> wire.Description:
        """The place that `target` names; its bytes are checked against those of `spec`. default: where the rest of it is
        taken from. fits: see :func:`_place`."""
        rest = spec if default is None else default
        displacement, count, datatype = 0, rest.count, rest.datatype
        if target is None:
            pass
        elif is_one(target):
            displacement = element(target, COUNT)
        elif isinstance(target, (list, tuple)):
            if len(target) > 3:
                raise ValueError("target: expecting 3 items at most")
            if len(target) >= 1:
                displacement = element(target[0], COUNT)
            if len(target) >= 2:
                count = element(target[1], COUNT)
            datatype = _target_type(target, rest)
        else:
            raise ValueError("target: expecting integral or list/tuple")
        return self._place(rank, spec, displacement, count, datatype, fits)

    def _place(
        self,
        rank: int,
        spec: BufferSpec,
        displacement: int,
        count: int,
        datatype: Datatype,
        fits: _Fits = operator.eq,
    ) -> wire.Description:
        """The place of `count` elements. fits: whether so many bytes of `spec` go with so many of the place."""
        if count < 0:
            raise MpiException(ERR_COUNT, f"negative count {count}")
        state, layout = self._alive(), datatype.layout
        nbytes = count * layout.size
        if not fits(spec.nbytes, nbytes):
            raise MpiException(ERR_TYPE, f"{spec.nbytes} bytes here, {nbytes} bytes at the target")
        offset = displacement if state.sizes is None else displacement * state.units[rank]
        if layout.contiguous:
            what = wire.Description(offset, nbytes)
        else:
            what = wire.Description(offset, count, layout)
        if state.sizes is not None:
            low, high = bounds(what.layout, what.elements, offset)
            if low < 0 or high > state.sizes[rank]:
                raise out_of_range(low, high, state.sizes[rank])
        return what

    def _accumulated(
        self, what: wire.Description, spec: BufferSpec, op: Op, datatype: Datatype | None = None
    ) -> wire.Description:
        """The description with the operation. MpiException: ERR_OP, ERR_TYPE."""
        if not op.is_predefined:
            raise MpiException(ERR_OP, "an accumulate needs a predefined operation")
        if spec.count:
            op.check(spec.datatype)
        code = spec.datatype.code
        if datatype is not None and datatype.code != code and op != NO_OP:
            raise MpiException(ERR_TYPE, "the elements here and at the target have different types")
        return what._replace(code=code, operation=op._name)


def _await(engine: Engine, operation: Operation) -> None:
    """Where all ranks are on one host, what a call reads is there when it returns. The standard gives it to a program only
    with the next synchronization, but programs rely on that, since windows of MPI libraries are shared memory there."""
    if engine.one_host and not operation.done:
        engine.wait(operation)


def _beginning(into: BufferSpec, nbytes: int) -> BufferSpec:
    """The part of a buffer that so many bytes fill. One with gaps stays as it is: what comes is written from its beginning
    on."""
    if nbytes == into.nbytes or not into.dense:
        return into
    return BufferSpec(into.obj, nbytes, BYTE, into.offset)


def _target_type(target: Any, spec: BufferSpec) -> Datatype:
    if isinstance(target, (list, tuple)) and len(target) >= 3:
        return _as_datatype(target[2])
    return spec.datatype


def _data(spec: BufferSpec, op: Op) -> bytes:
    """What of the origin's data an accumulate sends."""
    return b"" if op == NO_OP else bytes(spec.read())


def _single(name: str, buffer: Any, *, writable: bool) -> BufferSpec:
    spec = simple(buffer, writable=writable)
    if spec.count != 1:
        raise ValueError(f"{name}: expecting a single element, got {spec.count}")
    return spec


def _same(name: str, one: BufferSpec, other_name: str, other: BufferSpec) -> None:
    if one.datatype != other.datatype:
        raise ValueError(f"mismatch in {name} and {other_name} MPI datatypes")

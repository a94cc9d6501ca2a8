"""Small collectives on an exchange (exchange.py). Where one is not done, the ordinary schedule follows, at all members.

Results have the bits of the schedules in ckpt/mpi/collectives: values are combined in the order of ranks, grouped as
there. The difference is who combines: here every member that gets the result, from all contributions. So operations of
the program, which may do more than combine, stay with the schedules. A reduce of objects is the exception: it keeps the
schedule's tree.

Buffers: at most SLOT_BYTES of each member, which every member can tell from its own arguments; longer ones of an allgather,
an alltoall, a reduce or an allreduce are read from the members' memory (direct.py). A broadcast is the exception: the root
decides, so that a buffer too short for it gets ERR_TRUNCATE as ever. Objects: each member may find that its own is too long,
and says so to all.

Each function tries the fast path first (engine/quick.py), which does a collective, begins it, or does nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ckpt.mpi.base.errors import ERR_TRUNCATE, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.collectives.builders import CUT_BYTES, cut_elements, write
from ckpt.mpi.collectives.reduce import BufferArithmetic
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.op import Op
from ckpt.mpi.engine import quick
from ckpt.mpi.slots import direct
from ckpt.mpi.slots.exchange import ORDINARY, SLOT_BYTES, VALUE, Exchange, Taken

T = TypeVar("T")


def allreduce_order(values: Sequence[T], combine: Callable[[T, T], T]) -> T:
    """The combination of all ranks' values, grouped as recursive doubling does (collectives/reduce.py, `allreduce`)."""
    power = 1
    while power * 2 <= len(values):
        power *= 2
    extra = len(values) - power
    grouped = [combine(values[2 * pair], values[2 * pair + 1]) for pair in range(extra)]
    grouped += values[2 * extra :]
    while len(grouped) > 1:
        grouped = [combine(grouped[at], grouped[at + 1]) for at in range(0, len(grouped), 2)]
    return grouped[0]


def reduce_order(values: Sequence[T], combine: Callable[[T, T], T]) -> T:
    """The same, grouped as a binomial tree to rank 0 does (`reduce` there)."""
    grouped = list(values)
    while len(grouped) > 1:
        pairs = [combine(grouped[at], grouped[at + 1]) for at in range(0, len(grouped) - 1, 2)]
        grouped = pairs + grouped[2 * len(pairs) :]
    return grouped[0]


# -- what all of them use --------------------------------------------------------------------------


def barrier(exchange: Exchange, begun: Any) -> None:
    """`begun`: False, or the number of the collective that `quick.barrier` has begun."""
    if begun is False:
        exchange.run(VALUE, b"", exchange.others, exchange.others)
    else:
        exchange.complete(begun, exchange.others)


def gather_all(comm: Any, exchange: Exchange, data: bytes) -> list[Buffer] | None:
    """The data of all members, at every member. None: those of some member are too long."""
    begun = quick.exchange(comm, data)
    if type(begun) is list:
        return begun
    if begun is not False:
        return _all_of(exchange, data, exchange.complete(begun, exchange.others))
    if len(data) <= SLOT_BYTES:
        return _all_of(exchange, data, exchange.run(VALUE, data, exchange.others, exchange.others))
    exchange.run(ORDINARY, b"", exchange.others, exchange.others)
    return None


def _all_of(exchange: Exchange, data: bytes, found: dict[int, Taken]) -> list[Buffer] | None:
    for kind, _ in found.values():
        if kind != VALUE:
            return None
    return [data if member == exchange.rank else found[member][1] for member in range(len(exchange.members))]


def share(comm: Any, exchange: Exchange, data: bytes | None, root: int) -> Buffer | None:
    """The root's data, at every member; those of others are ignored. None: they are too long."""
    begun = quick.share(comm, data, root)
    if type(begun) is bytes:
        return begun
    if exchange.rank == root:
        assert data is not None and begun is False
        if len(data) <= SLOT_BYTES:
            exchange.run(VALUE, data, exchange.others, 0)
            return data
        exchange.run(ORDINARY, b"", exchange.others, 0)
        return None
    kind, shared = (
        exchange.run(VALUE, b"", 0, 1 << root) if begun is False else exchange.complete(begun, 1 << root)
    )[root]
    return shared if kind == VALUE else None


def collect(exchange: Exchange, data: Buffer, root: int) -> list[Buffer] | None:
    """The data of all members, each at most SLOT_BYTES, at the root; None at the others."""
    if exchange.rank != root:
        exchange.run(VALUE, data, 1 << root, 0)
        return None
    found = exchange.run(VALUE, b"", 0, exchange.others)
    return [data if member == root else found[member][1] for member in range(len(exchange.members))]


def reduce_object(exchange: Exchange, obj: Any, op: Op, root: int) -> Any:
    """All members' objects combined, at the root; None at the others.

    A binomial tree to member 0, and from there to the root, each round an exchange of its own: who combines what, and from
    which pickles, is as in the schedule (collectives/reduce.py, `reduce`). So any operation may be done, an object may be
    longer than a slot, and who has handed its part over does not wait for the others."""
    size, rank = len(exchange.members), exchange.rank
    rounds = (size - 1).bit_length()
    first, done = exchange.number, 0
    last = first + rounds + (root != 0)
    try:
        while done < rounds:
            mask = 1 << done
            done += 1
            if rank & mask:
                exchange.give(pickle.dumps(obj, 5), rank - mask)
                break
            if rank + mask < size:
                obj = op(obj, pickle.loads(_of(exchange, rank + mask)))
            else:
                exchange.skip_to(first + done)
        exchange.skip_to(first + rounds)
        if root and rank == 0:
            exchange.give(pickle.dumps(obj, 5), root)
        elif root and rank == root:
            obj = pickle.loads(_of(exchange, 0))
    finally:
        exchange.skip_to(last)
    return obj if rank == root else None


def _of(exchange: Exchange, member: int) -> Buffer:
    """What one member contributes, and nobody else."""
    return exchange.run(VALUE, b"", 0, 1 << member)[member][1]


# -- buffers ---------------------------------------------------------------------------------------


def bcast_buffer(comm: Any, exchange: Exchange, spec: BufferSpec, root: int) -> bool:
    """Whether it is done; if not, the ordinary schedule follows."""
    if exchange.rank == root and spec.nbytes > SLOT_BYTES:
        exchange.run(ORDINARY, b"", exchange.others, 0)
        return False
    data = share(comm, exchange, bytes(spec.read()) if exchange.rank == root else None, root)
    if data is None:
        return False
    if exchange.rank != root:
        write(data, spec)
    return True


def _expected(values: list[Buffer] | None) -> list[Buffer]:
    """MpiException (ERR_TRUNCATE): a member's buffer is longer than this one's, and too long for a slot."""
    if values is None:
        raise MpiException(
            ERR_TRUNCATE, f"a member's buffer is longer than {SLOT_BYTES} bytes, this one's is not"
        )
    return values


def allreduce_buffer(
    comm: Any, exchange: Exchange, out: BufferSpec, into: BufferSpec, op: Op, begun: Any, *, in_place: bool
) -> bool:
    """Whether it is done; if not, the ordinary schedule follows. `begun`: what `quick.allreduce` has returned: False, or the
    number of what it has begun."""
    if out.nbytes > SLOT_BYTES:
        return out.nbytes >= CUT_BYTES and _allreduce_long(exchange, out, into, op, in_place=in_place)
    data = bytes(out.read())
    if begun is False:
        values = gather_all(comm, exchange, data)
    else:
        values = _all_of(exchange, data, exchange.complete(begun, exchange.others))
    values = _expected(values)
    write(allreduce_order(values, BufferArithmetic(op, out.datatype).combined), into)
    return True


def _allreduce_long(exchange: Exchange, out: BufferSpec, into: BufferSpec, op: Op, *, in_place: bool) -> bool:
    """Buffers that the schedule cuts, too: in the same way. If it is not done, a buffer in place is what it was."""
    parts = cut_elements(into, len(exchange.members))
    kept = _copies(exchange, parts) if in_place else None
    if direct.allreduce(
        exchange, kept or cut_elements(out, len(parts)), parts, op, is_apart=kept is not None
    ):
        return True
    _put_back(parts, kept)
    return False


def _copies(exchange: Exchange, parts: Sequence[BufferSpec]) -> list[BufferSpec] | None:
    """None: they are of no use. One of each part, not of all: memory of moderate size is used again, larger one is mapped
    anew each time."""
    if not direct.can_offer(exchange) or not parts[0].dense:
        return None
    return [BufferSpec(bytearray(part.read()), part.count, part.datatype) for part in parts]


def _put_back(parts: Sequence[BufferSpec], kept: Sequence[BufferSpec] | None) -> None:
    for part, before in zip(parts, kept or (), strict=False):
        part.write(before.read())


def reduce_buffer(
    exchange: Exchange, out: BufferSpec, into: BufferSpec | None, op: Op, root: int, *, in_place: bool
) -> bool:
    """Whether it is done; if not, the ordinary schedule follows. `into`: at the root."""
    if out.nbytes > SLOT_BYTES:
        return out.nbytes >= CUT_BYTES and _reduce_long(exchange, out, into, op, in_place=in_place)
    values = collect(exchange, bytes(out.read()), root)
    if values is not None and into is not None:
        write(reduce_order(values, BufferArithmetic(op, out.datatype).combined), into)
    return True


def _reduce_long(
    exchange: Exchange, out: BufferSpec, into: BufferSpec | None, op: Op, *, in_place: bool
) -> bool:
    """As `_allreduce_long`."""
    size, rank = len(exchange.members), exchange.rank
    given = cut_elements(out, size)
    parts = [] if into is None else cut_elements(into, size)
    kept = _copies(exchange, parts) if in_place and parts else None
    mine = given[rank]
    own = parts[rank] if parts else BufferSpec(bytearray(mine.nbytes), mine.count, mine.datatype)
    if direct.reduce(exchange, kept or given, own, parts, op, is_apart=kept is not None):
        return True
    _put_back(parts, kept)
    return False


def allgather_buffer(
    comm: Any, exchange: Exchange, spec: BufferSpec, into: Sequence[BufferSpec], *, in_place: bool
) -> bool:
    """Whether it is done, as all members find alike; if not, the ordinary schedule follows."""
    if into[0].nbytes > SLOT_BYTES:
        return direct.allgather(exchange, spec, into, in_place=in_place)
    values = _expected(gather_all(comm, exchange, bytes(spec.read())))
    for member, block in enumerate(into):
        if member != exchange.rank or not in_place:
            write(values[member], block)
    return True


def alltoall_buffer(
    comm: Any, exchange: Exchange, out: Sequence[BufferSpec], into: Sequence[BufferSpec]
) -> bool:
    """The same. All blocks of all members have the same size."""
    if into[0].nbytes * len(into) > SLOT_BYTES:
        return direct.alltoall(exchange, out, into)
    values = _expected(gather_all(comm, exchange, b"".join([bytes(block.read()) for block in out])))
    at = out[0].nbytes * exchange.rank
    for value, block in zip(values, into, strict=True):
        write(memoryview(value)[at : at + out[0].nbytes], block)
    return True

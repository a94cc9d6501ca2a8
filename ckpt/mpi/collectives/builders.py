"""Builders of the collectives on buffers: they make a schedule from the arguments of a call.

A builder is given an empty schedule and the call's arguments. It checks the arguments (TypeError, ValueError, KeyError,
BufferError or MpiException) and writes the schedule's program: read the send buffer, run an algorithm (tree.py,
reduce.py), store into the receive buffer. Buffers are read and written while the schedule runs, so a persistent operation
can run again. Stores are the last steps: when a store fails (ERR_TRUNCATE), this rank has already sent all that other
ranks wait for.

IN_PLACE: data that is sent from the receive buffer is copied first, because the result overwrites it.

Not here: intercommunicators (inter.py), neighbourhood collectives (neighbor_builders.py).
"""

from __future__ import annotations

from typing import Any

from ckpt.mpi.base.errors import ERR_BUFFER, ERR_TRUNCATE, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.collectives import reduce as reductions
from ckpt.mpi.collectives import tree as trees
from ckpt.mpi.collectives.reduce import BufferArithmetic
from ckpt.mpi.datatypes.buffers import BufferSpec, blocks, is_in_place, simple, typed_vector, vector
from ckpt.mpi.datatypes.datatypes import BYTE
from ckpt.mpi.datatypes.op import Op
from ckpt.mpi.engine.schedule import Schedule, load

SEGMENT_BYTES = 512 << 10
"""A larger broadcast is divided into segments of this size, which are sent one after the other (`tree.pipeline`); on one
host every rank reads all of it from the root's memory instead (`tree.star`)."""

CUT_BYTES = 128 << 10
"""A reduction of a buffer of this size or more is divided into one block for each rank."""

COPY_BYTES = 4 << 10
"""In allreduce, a smaller send buffer is copied once, so that it is not read twice (to send it, and to combine it)."""


# -- local steps -----------------------------------------------------------------------------------


def write(data: Buffer, spec: BufferSpec) -> None:
    """Write into the program's buffer. MpiException (ERR_TRUNCATE): it is too small."""
    if len(data) > spec.nbytes:
        raise MpiException(ERR_TRUNCATE, f"{len(data)} bytes for a buffer of {spec.nbytes} bytes")
    spec.write(data)


def store(s: Schedule, slot: int, spec: BufferSpec) -> None:
    """`write` the value of a slot, unless it was read into the buffer."""
    value = s.values[slot]
    if value is not spec:
        write(load(value), spec)


def receive_into(s: Schedule, slot: int, spec: BufferSpec) -> None:
    """The slot's value may be put into the program's buffer at once; `store` does it otherwise. Nothing may read what was in
    the buffer before, from now on."""
    s.spots[slot] = spec


def snapshot(s: Schedule, slots: list[int]) -> None:
    """Replace values that refer to the program's memory by copies."""
    for slot in slots:
        s.values[slot] = bytes(load(s.values[slot]))


def cut(s: Schedule, spec: BufferSpec, slots: list[int]) -> None:
    """Pack a buffer with gaps and divide the bytes into segments, one for each slot."""
    data = memoryview(bytes(spec.read()))
    for number, slot in enumerate(slots):
        s.values[slot] = data[number * SEGMENT_BYTES : (number + 1) * SEGMENT_BYTES]


def join(s: Schedule, slots: list[int], spec: BufferSpec) -> None:
    """Join the segments of the slots and write them into a buffer with gaps; the reverse of `cut`."""
    whole = bytearray()
    for slot in slots:
        whole += s.values[slot]
    spec.write(whole)


# -- one to all, all to one ------------------------------------------------------------------------


def barrier(s: Schedule) -> None:
    trees.barrier(s)


def bcast(s: Schedule, buf: Any, root: int) -> None:
    spec = simple(buf, writable=s.rank != root)
    if s.size == 1:
        return
    is_long = spec.nbytes > SEGMENT_BYTES
    is_near = s.engine.one_host and s.size <= trees.DIRECT_RANKS
    if is_long and not is_near:
        _bcast_segments(s, spec, root)
        return
    slot = s.slot(spec if s.rank == root else None)
    if is_long:
        if s.rank == root and not spec.dense:
            s.call(snapshot, [slot])
        trees.star(s, root, slot)
    else:
        trees.broadcast(s, root, slot)
    if s.rank != root:
        receive_into(s, slot, spec)
        s.call(store, slot, spec)


def _bcast_segments(s: Schedule, spec: BufferSpec, root: int) -> None:
    parts: list[BufferSpec | None] = []
    for offset in range(0, spec.nbytes, SEGMENT_BYTES):
        nbytes = min(SEGMENT_BYTES, spec.nbytes - offset)
        dense = spec.dense
        parts.append(BufferSpec(spec.obj, nbytes, BYTE, spec.offset + offset) if dense else None)
    if s.rank == root:
        slots = [s.slot(part) for part in parts]
        if not spec.dense:
            s.call(cut, spec, slots)
        trees.pipeline(s, root, slots)
        return
    slots = [s.slot() for _ in parts]
    trees.pipeline(s, root, slots, [None if part is None else (store, part) for part in parts])
    if not spec.dense:
        s.call(join, slots, spec)


def gather(s: Schedule, sendbuf: Any, recvbuf: Any, root: int, *, by_rank: bool = False) -> None:
    """Gather, or Gatherv (by_rank: blocks of different sizes)."""
    into: list[BufferSpec] = []
    if s.rank == root:
        into = _per_rank(recvbuf, s.size, by_rank=by_rank, writable=True)
    elif is_in_place(sendbuf):
        raise MpiException(ERR_BUFFER, "IN_PLACE is for the root only")
    in_place = is_in_place(sendbuf)
    spec = into[root] if in_place else simple(sendbuf, writable=False)
    slots = [s.slot() for _ in range(s.size)]
    trees.gather(s, root, s.slot(spec), slots, None if by_rank else spec.nbytes)
    for rank, block in enumerate(into):
        if rank != root or not in_place:
            s.call(store, slots[rank], block)


def scatter(s: Schedule, sendbuf: Any, recvbuf: Any, root: int, *, by_rank: bool = False) -> None:
    """Scatter, or Scatterv (by_rank: blocks of different sizes)."""
    values: list[BufferSpec | None] = [None] * s.size
    in_place = is_in_place(recvbuf)
    if s.rank == root:
        values[:] = _per_rank(sendbuf, s.size, by_rank=by_rank, writable=False)
    elif in_place:
        raise MpiException(ERR_BUFFER, "IN_PLACE is for the root only")
    spec = values[root] if in_place else simple(recvbuf, writable=True)
    assert spec is not None
    slots = [s.slot(value) for value in values]
    own = s.slot()
    trees.scatter(s, root, slots, own, None if by_rank else spec.nbytes)
    if not in_place:
        s.call(store, own, spec)


def _per_rank(buf: Any, size: int, *, by_rank: bool, writable: bool) -> list[BufferSpec]:
    return vector(buf, size, writable=writable) if by_rank else blocks(buf, size, writable=writable)


# -- all to all ------------------------------------------------------------------------------------


def allgather(s: Schedule, sendbuf: Any, recvbuf: Any, *, by_rank: bool = False) -> None:
    """Allgather, or Allgatherv (by_rank: blocks of different sizes)."""
    into = _per_rank(recvbuf, s.size, by_rank=by_rank, writable=True)
    in_place = is_in_place(sendbuf)
    spec = into[s.rank] if in_place else simple(sendbuf, writable=False)
    largest = max([block.nbytes for block in into])
    slots = [s.slot() for _ in range(s.size)]
    trees.allgather(s, s.slot(spec), slots, largest)
    for rank, block in enumerate(into):
        if rank != s.rank:
            receive_into(s, slots[rank], block)
        if rank != s.rank or not in_place:
            s.call(store, slots[rank], block)


def alltoall(s: Schedule, sendbuf: Any, recvbuf: Any, *, variant: str = "") -> None:
    """Alltoall, Alltoallv (variant "v") or Alltoallw (variant "w")."""
    into = _for_each(recvbuf, s.size, variant, writable=True)
    in_place = is_in_place(sendbuf)
    out = into if in_place else _for_each(sendbuf, s.size, variant, writable=False)
    outgoing = [s.slot(spec) for spec in out]
    incoming = [s.slot() for _ in range(s.size)]
    if in_place:
        s.call(snapshot, outgoing)
    trees.alltoall(s, outgoing, incoming)
    for rank, block in enumerate(into):
        if rank != s.rank and block.obj is not out[rank].obj:  # else peers may not have read what is there
            receive_into(s, incoming[rank], block)
        s.call(store, incoming[rank], block)


def _for_each(buf: Any, size: int, variant: str, *, writable: bool) -> list[BufferSpec]:
    if variant == "w":
        return typed_vector(buf, size, writable=writable)
    return _per_rank(buf, size, by_rank=variant == "v", writable=writable)


# -- reductions ------------------------------------------------------------------------------------


def pair(sendbuf: Any, recvbuf: Any, op: Op) -> tuple[BufferSpec, BufferSpec, bool]:
    """(send buffer, receive buffer, whether in place) of a reduction. ValueError: counts or datatypes differ."""
    into = simple(recvbuf, writable=True)
    if is_in_place(sendbuf):
        op.check(into.datatype)
        return into, into, True
    out = simple(sendbuf, writable=False)
    if out.count != into.count:
        raise ValueError(f"mismatch in send count {out.count} and receive count {into.count}")
    if out.datatype is not into.datatype and out.datatype.code != into.datatype.code:
        raise ValueError("mismatch in send and receive datatypes")
    op.check(out.datatype)
    return out, into, False


def cut_elements(spec: BufferSpec, size: int) -> list[BufferSpec]:
    """The buffer, divided into `size` parts of nearly equal counts."""
    each, rest = divmod(spec.count, size)
    parts = []
    at = 0
    for rank in range(size):
        count = each + (1 if rank < rest else 0)
        parts.append(spec.part(at, count))
        at += count
    return parts


def to_root(sendbuf: Any, recvbuf: Any, op: Op, *, is_root: bool) -> tuple[BufferSpec, BufferSpec, bool]:
    """The same of a reduction to one root; at other ranks there is no receive buffer."""
    if is_root:
        return pair(sendbuf, recvbuf, op)
    if is_in_place(sendbuf):
        raise MpiException(ERR_BUFFER, "IN_PLACE is for the root only")
    out = simple(sendbuf, writable=False)
    op.check(out.datatype)
    return out, out, False


def reduce(s: Schedule, sendbuf: Any, recvbuf: Any, op: Op, root: int) -> None:
    out, into, in_place = to_root(sendbuf, recvbuf, op, is_root=s.rank == root)
    arithmetic = BufferArithmetic(op, out.datatype)
    if out.nbytes < CUT_BYTES:
        slot = s.slot(out)
        reductions.reduce(s, root, slot, arithmetic)
        if s.rank == root:
            s.call(store, slot, into)
        return
    slots = [s.slot(part) for part in cut_elements(out, s.size)]
    if in_place:
        s.call(snapshot, slots)
    reductions.reduce_blocks(s, root, slots, arithmetic)
    if s.rank == root:
        for slot, part in zip(slots, cut_elements(into, s.size), strict=True):
            s.call(store, slot, part)


def allreduce(s: Schedule, sendbuf: Any, recvbuf: Any, op: Op) -> None:
    out, into, in_place = pair(sendbuf, recvbuf, op)
    arithmetic = BufferArithmetic(op, out.datatype)
    if out.nbytes < CUT_BYTES:
        slot = s.slot(out)
        # in place: the result may be stored before others have read what was there
        if in_place or out.nbytes < COPY_BYTES:
            s.call(snapshot, [slot])
        reductions.allreduce(s, slot, arithmetic)
        s.call(store, slot, into)
        return
    slots = [s.slot(part) for part in cut_elements(out, s.size)]
    if in_place:
        s.call(snapshot, slots)
    reductions.allreduce_blocks(s, slots, arithmetic)
    for rank, part in enumerate(cut_elements(into, s.size)):
        if rank != s.rank:
            receive_into(s, slots[rank], part)
        s.call(store, slots[rank], part)


def reduce_scatter(s: Schedule, sendbuf: Any, recvbuf: Any, counts: list[int] | None, op: Op) -> None:
    """Reduce_scatter: rank r gets the r-th block, of counts[r] elements, of the combination of all ranks' buffers.

    counts None: the blocks are equal. ValueError: counts or datatypes do not match."""
    into = simple(recvbuf, writable=True)
    in_place = is_in_place(sendbuf)
    out = into if in_place else simple(sendbuf, writable=False)
    op.check(out.datatype)
    if counts is None:
        counts = _equal_counts(out.count, s.size)
    if out.datatype.code != into.datatype.code:
        raise ValueError("mismatch in send and receive datatypes")
    if len(counts) != s.size or sum(counts) != out.count or (not in_place and counts[s.rank] != into.count):
        raise ValueError(f"mismatch in counts: {counts} of {out.count} elements for {s.size} ranks")
    parts = []
    at = 0
    for count in counts:
        parts.append(out.part(at, count))
        at += count
    slots = [s.slot(part) for part in parts]
    if in_place:
        s.call(snapshot, slots)
    target = s.slot()
    reductions.reduce_scatter(s, slots, target, BufferArithmetic(op, out.datatype))
    s.call(store, target, into.part(0, counts[s.rank]) if in_place else into)


def _equal_counts(total: int, size: int) -> list[int]:
    each, rest = divmod(total, size)
    if rest:
        raise ValueError(f"{total} elements cannot be cut into {size} equal blocks")
    return [each] * size


def reduce_scatter_block(s: Schedule, sendbuf: Any, recvbuf: Any, op: Op) -> None:
    reduce_scatter(s, sendbuf, recvbuf, None, op)


def own_count(recvbuf: Any) -> int:
    """The number of elements in the receive buffer of a reduce_scatter."""
    return simple(recvbuf, writable=True).count


def scan(s: Schedule, sendbuf: Any, recvbuf: Any, op: Op, *, exclusive: bool) -> None:
    out, into, in_place = pair(sendbuf, recvbuf, op)
    own, target = s.slot(out), s.slot()
    if in_place:
        s.call(snapshot, [own])
    reductions.scan(s, own, target, BufferArithmetic(op, out.datatype), exclusive=exclusive)
    if not exclusive or s.rank > 0:
        s.call(store, target, into)

"""Builders of the collectives between the two groups of an intercommunicator.

Every block is sent directly from its source to its destination. In the schedules here `s.peers` are the local ranks
followed by the remote ranks, so remote rank r is peer s.size + r. As in the MPI standard, `root` is ROOT at the root,
PROC_NULL at the other ranks of the root's group, and the root's rank at the ranks of the other group.

The functions above the line are algorithms on slots. The functions below the line have the names and arguments of
builders.py.
"""

from __future__ import annotations

from typing import Any

from ckpt.mpi.base.constants import ROOT
from ckpt.mpi.base.errors import ERR_COMM, MpiException
from ckpt.mpi.collectives.builders import store
from ckpt.mpi.collectives.reduce import BufferArithmetic
from ckpt.mpi.collectives.tree import move
from ckpt.mpi.datatypes.buffers import BufferSpec, blocks, simple, typed_vector, vector
from ckpt.mpi.datatypes.op import Op
from ckpt.mpi.engine.schedule import Schedule


def remote_size(s: Schedule) -> int:
    return len(s.peers) - s.size


def from_root(s: Schedule, root: int, slot: int) -> None:
    """The root's value of the slot becomes the value at every rank of the other group."""
    if root == ROOT:
        for rank in range(remote_size(s)):
            s.send(s.size + rank, slot)
    elif root >= 0:
        s.recv(s.size + root, slot)
        s.fence()


def to_root(s: Schedule, root: int, own: int, slots: list[int]) -> None:
    """At the root, slots[r] becomes remote rank r's value."""
    if root == ROOT:
        for rank, slot in enumerate(slots):
            s.recv(s.size + rank, slot)
        s.fence()
    elif root >= 0:
        s.send(s.size + root, own)


def one_each(s: Schedule, root: int, slots: list[int], own: int) -> None:
    """Remote rank r gets the root's slots[r]."""
    if root == ROOT:
        for rank, slot in enumerate(slots):
            s.send(s.size + rank, slot)
    elif root >= 0:
        s.recv(s.size + root, own)
        s.fence()


def exchange(s: Schedule, outgoing: list[int], incoming: list[int]) -> None:
    """Remote rank r gets outgoing[r], and incoming[r] becomes the value that remote rank r has sent."""
    for rank, slot in enumerate(outgoing):
        s.send(s.size + rank, slot)
    for rank, slot in enumerate(incoming):
        s.recv(s.size + rank, slot)
    s.fence()


def spread(s: Schedule, slot: int, *, low: bool) -> None:
    """The value of the slot at rank 0 of the low group becomes the value at all ranks of both groups."""
    if low and s.rank == 0:
        for peer in range(1, len(s.peers)):
            s.send(peer, slot)
    else:
        s.recv(0 if low else s.size, slot)
        s.fence()


# -- as in builders.py -----------------------------------------------------------------------------


def _combined(s: Schedule, slots: list[int], arithmetic: BufferArithmetic) -> int:
    target = s.slot()
    s.call(move, slots[0], target)
    for slot in slots[1:]:
        s.call(arithmetic.combine, target, slot, target)
    return target


def barrier(s: Schedule) -> None:
    count = remote_size(s)
    exchange(s, [s.slot(b"")] * count, [s.slot() for _ in range(count)])


def bcast(s: Schedule, buf: Any, root: int) -> None:
    spec = simple(buf, writable=root >= 0) if root == ROOT or root >= 0 else None
    slot = s.slot(spec if root == ROOT else None)
    from_root(s, root, slot)
    if root >= 0 and spec is not None:
        s.call(store, slot, spec)


def _per_rank(buf: Any, size: int, variant: str, *, writable: bool) -> list[BufferSpec]:
    if variant == "w":
        return typed_vector(buf, size, writable=writable)
    return vector(buf, size, writable=writable) if variant else blocks(buf, size, writable=writable)


def gather(s: Schedule, sendbuf: Any, recvbuf: Any, root: int, *, by_rank: bool = False) -> None:
    count = remote_size(s)
    variant = "v" if by_rank else ""
    into = _per_rank(recvbuf, count, variant, writable=True) if root == ROOT else []
    own = s.slot(simple(sendbuf, writable=False) if root >= 0 else None)
    slots = [s.slot() for _ in range(count)]
    to_root(s, root, own, slots)
    for rank, block in enumerate(into):
        s.call(store, slots[rank], block)


def scatter(s: Schedule, sendbuf: Any, recvbuf: Any, root: int, *, by_rank: bool = False) -> None:
    count = remote_size(s)
    variant = "v" if by_rank else ""
    slots = []
    if root == ROOT:
        slots = [s.slot(spec) for spec in _per_rank(sendbuf, count, variant, writable=False)]
    own = s.slot()
    into = simple(recvbuf, writable=True) if root >= 0 else None
    one_each(s, root, slots, own)
    if into is not None:
        s.call(store, own, into)


def allgather(s: Schedule, sendbuf: Any, recvbuf: Any, *, by_rank: bool = False) -> None:
    count = remote_size(s)
    into = _per_rank(recvbuf, count, "v" if by_rank else "", writable=True)
    own = s.slot(simple(sendbuf, writable=False))
    slots = [s.slot() for _ in range(count)]
    exchange(s, [own] * count, slots)
    for rank, block in enumerate(into):
        s.call(store, slots[rank], block)


def alltoall(s: Schedule, sendbuf: Any, recvbuf: Any, *, variant: str = "") -> None:
    count = remote_size(s)
    outgoing = [s.slot(spec) for spec in _per_rank(sendbuf, count, variant, writable=False)]
    into = _per_rank(recvbuf, count, variant, writable=True)
    slots = [s.slot() for _ in range(count)]
    exchange(s, outgoing, slots)
    for rank, block in enumerate(into):
        s.call(store, slots[rank], block)


def reduce(s: Schedule, sendbuf: Any, recvbuf: Any, op: Op, root: int) -> None:
    into = simple(recvbuf, writable=True) if root == ROOT else None
    out = simple(sendbuf, writable=False) if root >= 0 else None
    spec = into or out
    if spec is None:
        return
    op.check(spec.datatype)
    slots = [s.slot() for _ in range(remote_size(s))]
    to_root(s, root, s.slot(out), slots)
    if into is not None:
        s.call(store, _combined(s, slots, BufferArithmetic(op, into.datatype)), into)


def allreduce(s: Schedule, sendbuf: Any, recvbuf: Any, op: Op) -> None:
    out, into = simple(sendbuf, writable=False), simple(recvbuf, writable=True)
    op.check(out.datatype)
    count = remote_size(s)
    slots = [s.slot() for _ in range(count)]
    exchange(s, [s.slot(out)] * count, slots)
    s.call(store, _combined(s, slots, BufferArithmetic(op, into.datatype)), into)


def reduce_scatter(s: Schedule, sendbuf: Any, recvbuf: Any, counts: list[int] | None, op: Op) -> None:
    """The elements of the other group's ranks are combined; local rank r gets counts[r] elements of the result.

    ValueError: counts is None."""
    out, into = simple(sendbuf, writable=False), simple(recvbuf, writable=True)
    op.check(out.datatype)
    if counts is None:
        raise ValueError("recvcounts are needed on an intercommunicator")
    sizes = s.slot(b"".join(count.to_bytes(8, "little") for count in counts))
    count = remote_size(s)
    theirs = [s.slot() for _ in range(count)]
    exchange(s, [sizes] * count, theirs)
    parts = [s.slot() for _ in range(count)]
    s.call(_cut, theirs, out, parts)
    slots = [s.slot() for _ in range(count)]
    exchange(s, parts, slots)
    s.call(store, _combined(s, slots, BufferArithmetic(op, into.datatype)), into)


def _cut(s: Schedule, sizes: list[int], out: BufferSpec, parts: list[int]) -> None:
    data = bytes(s.values[sizes[0]])
    at = 0
    for rank, part in enumerate(parts):
        count = int.from_bytes(data[8 * rank : 8 * rank + 8], "little")
        s.values[part] = bytes(out.part(at, count).read())
        at += count


def reduce_scatter_block(s: Schedule, sendbuf: Any, recvbuf: Any, op: Op) -> None:
    out, into = simple(sendbuf, writable=False), simple(recvbuf, writable=True)
    op.check(out.datatype)
    count = remote_size(s)
    each = out.count // count
    parts = [s.slot(out.part(rank * each, each)) for rank in range(count)]
    slots = [s.slot() for _ in range(count)]
    exchange(s, parts, slots)
    s.call(store, _combined(s, slots, BufferArithmetic(op, into.datatype)), into)


def scan(s: Schedule, sendbuf: Any, recvbuf: Any, op: Op, *, exclusive: bool) -> None:
    raise MpiException(ERR_COMM, "scan and exscan need an intracommunicator")

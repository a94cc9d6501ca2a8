"""Collectives on buffers (upper-case names): blocking, nonblocking (I…) and persistent (…_init).

The three forms of an operation share one builder (ckpt/mpi/collectives/builders.py; inter.py for intercommunicators). A
nonblocking operation makes progress inside any call of the library. The program must not touch the buffers until the
request is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ckpt.mpi.base.integers import COUNT, elements
from ckpt.mpi.collectives import builders
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.object_collectives import ObjectCollectives
from ckpt.mpi.datatypes.buffers import blocks, is_in_place, simple
from ckpt.mpi.datatypes.op import SUM, Op
from ckpt.mpi.engine import quick
from ckpt.mpi.engine.operations import Operation
from ckpt.mpi.engine.schedule import TAGS, Schedule
from ckpt.mpi.requests.request import Prequest, Request
from ckpt.mpi.slots import collectives as small


class BufferCollectives(CommBase):
    """Bcast, Gather, Allreduce …: every rank of the communicator must call them in the same order.

    `_builders`: the module with the builders. Errors: those of the builders, and ERR_ROOT for a bad root."""

    __slots__ = ()
    _builders: ClassVar[Any] = builders

    def _begin(self, schedule: Schedule) -> Request:
        """Start a nonblocking operation."""
        with self._engine.progress.lock:  # not the guard's: the operation has its number, so it has to begin
            schedule.start()
        return Request._make(self._engine, schedule)

    def _persistent(self, write: Callable[..., None], *args: Any, **options: Any) -> Prequest:
        """A persistent operation with its own tag, since persistent operations match in the order of the init calls.

        write: the builder, called with the schedule, `args` and `options`."""
        shared = self._shared
        self._world_rank(0)
        if self._engine.guard is not None:
            self._engine.guard.check()
        number = TAGS + shared.persistent
        shared.persistent += 1
        schedule = Schedule(self._engine, shared, self._rank, number)
        write(schedule, *args, **options)
        return Prequest._prepare(self._engine, _restart, schedule)

    def _counts(self, counts: Sequence[int] | None, sendbuf: Any, recvbuf: Any) -> list[int] | None:
        """The counts of a Reduce_scatter, one for each rank. Without `counts`, they are gathered from the receive buffers
        of all ranks; None for IN_PLACE (equal blocks)."""
        if counts is not None:
            return elements(counts, limit=COUNT)
        if is_in_place(sendbuf):
            return None
        gathered: list[int] = self._local_allgather(builders.own_count(recvbuf))
        return gathered

    def _local_allgather(self, obj: Any) -> list[Any]:
        """The objects of the ranks of the local group."""
        return ObjectCollectives.allgather(self, obj)

    def Barrier(self) -> None:
        """Wait until all ranks have called Barrier."""
        if not self._barrier_of_slots():
            s = self._schedule()
            self._builders.barrier(s)
            self._run(s)

    def Ibarrier(self) -> Request:
        """Barrier, nonblocking."""
        s = self._schedule()
        self._builders.barrier(s)
        return self._begin(s)

    def Barrier_init(self, info: Any = None) -> Prequest:
        """Barrier, persistent."""
        return self._persistent(self._builders.barrier)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Copy the root's buffer into the buffer of every rank."""
        exchange = self._slots()
        if exchange is not None:
            root = self._check_root(root)
            spec = simple(buf, writable=self._rank != root)
            if spec.nbytes <= builders.SEGMENT_BYTES and small.bcast_buffer(self, exchange, spec, root):
                return
        s = self._schedule()
        self._builders.bcast(s, buf, self._check_root(root))
        self._run(s)

    def Ibcast(self, buf: Any, root: int = 0) -> Request:
        """Bcast, nonblocking."""
        s = self._schedule()
        self._builders.bcast(s, buf, self._check_root(root))
        return self._begin(s)

    def Bcast_init(self, buf: Any, root: int = 0, info: Any = None) -> Prequest:
        """Bcast, persistent."""
        return self._persistent(self._builders.bcast, buf, self._check_root(root))

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Copy the buffer of every rank into the root's buffer, where rank r's is block r."""
        s = self._schedule()
        self._builders.gather(s, sendbuf, recvbuf, self._check_root(root))
        self._run(s)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """Gather, nonblocking."""
        s = self._schedule()
        self._builders.gather(s, sendbuf, recvbuf, self._check_root(root))
        return self._begin(s)

    def Gather_init(self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = None) -> Prequest:
        """Gather, persistent."""
        return self._persistent(self._builders.gather, sendbuf, recvbuf, self._check_root(root))

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather with a count and displacement per rank."""
        s = self._schedule()
        self._builders.gather(s, sendbuf, recvbuf, self._check_root(root), by_rank=True)
        self._run(s)

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """Gatherv, nonblocking."""
        s = self._schedule()
        self._builders.gather(s, sendbuf, recvbuf, self._check_root(root), by_rank=True)
        return self._begin(s)

    def Gatherv_init(self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = None) -> Prequest:
        """Gatherv, persistent."""
        return self._persistent(self._builders.gather, sendbuf, recvbuf, self._check_root(root), by_rank=True)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Copy block r of the root's buffer into the buffer of rank r."""
        s = self._schedule()
        self._builders.scatter(s, sendbuf, recvbuf, self._check_root(root))
        self._run(s)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """Scatter, nonblocking."""
        s = self._schedule()
        self._builders.scatter(s, sendbuf, recvbuf, self._check_root(root))
        return self._begin(s)

    def Scatter_init(self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = None) -> Prequest:
        """Scatter, persistent."""
        return self._persistent(self._builders.scatter, sendbuf, recvbuf, self._check_root(root))

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter with a count and displacement per rank."""
        s = self._schedule()
        self._builders.scatter(s, sendbuf, recvbuf, self._check_root(root), by_rank=True)
        self._run(s)

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        """Scatterv, nonblocking."""
        s = self._schedule()
        self._builders.scatter(s, sendbuf, recvbuf, self._check_root(root), by_rank=True)
        return self._begin(s)

    def Scatterv_init(self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = None) -> Prequest:
        """Scatterv, persistent."""
        return self._persistent(
            self._builders.scatter, sendbuf, recvbuf, self._check_root(root), by_rank=True
        )

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Copy the buffer of every rank into the receive buffer of every rank, where rank r's is block r."""
        exchange = self._slots()
        if exchange is not None:
            into, in_place = blocks(recvbuf, self.size, writable=True), is_in_place(sendbuf)
            spec = into[self._rank] if in_place else simple(sendbuf, writable=False)
            if small.allgather_buffer(self, exchange, spec, into, in_place=in_place):
                return
        s = self._schedule()
        self._builders.allgather(s, sendbuf, recvbuf)
        self._run(s)

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Allgather, nonblocking."""
        s = self._schedule()
        self._builders.allgather(s, sendbuf, recvbuf)
        return self._begin(s)

    def Allgather_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Allgather, persistent."""
        return self._persistent(self._builders.allgather, sendbuf, recvbuf)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Allgather with a count and displacement per rank."""
        s = self._schedule()
        self._builders.allgather(s, sendbuf, recvbuf, by_rank=True)
        self._run(s)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Allgatherv, nonblocking."""
        s = self._schedule()
        self._builders.allgather(s, sendbuf, recvbuf, by_rank=True)
        return self._begin(s)

    def Allgatherv_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Allgatherv, persistent."""
        return self._persistent(self._builders.allgather, sendbuf, recvbuf, by_rank=True)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Copy block r of every rank's buffer to rank r, where block q of the receive buffer is from rank q."""
        exchange = self._slots()
        if exchange is not None:
            into = blocks(recvbuf, self.size, writable=True)
            out = into if is_in_place(sendbuf) else blocks(sendbuf, self.size, writable=False)
            if small.alltoall_buffer(self, exchange, out, into):
                return
        s = self._schedule()
        self._builders.alltoall(s, sendbuf, recvbuf)
        self._run(s)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Alltoall, nonblocking."""
        s = self._schedule()
        self._builders.alltoall(s, sendbuf, recvbuf)
        return self._begin(s)

    def Alltoall_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Alltoall, persistent."""
        return self._persistent(self._builders.alltoall, sendbuf, recvbuf)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Alltoall with a count and displacement per rank."""
        s = self._schedule()
        self._builders.alltoall(s, sendbuf, recvbuf, variant="v")
        self._run(s)

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Alltoallv, nonblocking."""
        s = self._schedule()
        self._builders.alltoall(s, sendbuf, recvbuf, variant="v")
        return self._begin(s)

    def Alltoallv_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Alltoallv, persistent."""
        return self._persistent(self._builders.alltoall, sendbuf, recvbuf, variant="v")

    def Alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """Alltoall with a count, a displacement in bytes and a type per rank."""
        s = self._schedule()
        self._builders.alltoall(s, sendbuf, recvbuf, variant="w")
        self._run(s)

    def Ialltoallw(self, sendbuf: Any, recvbuf: Any) -> Request:
        """Alltoallw, nonblocking."""
        s = self._schedule()
        self._builders.alltoall(s, sendbuf, recvbuf, variant="w")
        return self._begin(s)

    def Alltoallw_init(self, sendbuf: Any, recvbuf: Any, info: Any = None) -> Prequest:
        """Alltoallw, persistent."""
        return self._persistent(self._builders.alltoall, sendbuf, recvbuf, variant="w")

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        """Combine the elements of all ranks, in rank order, into the root's buffer."""
        exchange = self._slots()
        if exchange is not None and op.is_predefined:
            root = self._check_root(root)
            is_root = self._rank == root
            out, into, in_place = builders.to_root(sendbuf, recvbuf, op, is_root=is_root)
            if small.reduce_buffer(
                exchange, out, into if is_root else None, op, root, in_place=in_place and is_root
            ):
                return
        s = self._schedule()
        self._builders.reduce(s, sendbuf, recvbuf, op, self._check_root(root))
        self._run(s)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> Request:
        """Reduce, nonblocking."""
        s = self._schedule()
        self._builders.reduce(s, sendbuf, recvbuf, op, self._check_root(root))
        return self._begin(s)

    def Reduce_init(
        self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0, info: Any = None
    ) -> Prequest:
        """Reduce, persistent."""
        return self._persistent(self._builders.reduce, sendbuf, recvbuf, op, self._check_root(root))

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combine the elements of all ranks, in rank order, into the receive buffer of every rank."""
        begun = quick.allreduce(self, sendbuf, recvbuf, op)
        if begun is None:
            return
        exchange = self._slots()
        if exchange is not None and op.is_predefined:
            out, into, in_place = builders.pair(sendbuf, recvbuf, op)
            if small.allreduce_buffer(self, exchange, out, into, op, begun, in_place=in_place):
                return
        s = self._schedule()
        self._builders.allreduce(s, sendbuf, recvbuf, op)
        self._run(s)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        """Allreduce, nonblocking."""
        s = self._schedule()
        self._builders.allreduce(s, sendbuf, recvbuf, op)
        return self._begin(s)

    def Allreduce_init(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, info: Any = None) -> Prequest:
        """Allreduce, persistent."""
        return self._persistent(self._builders.allreduce, sendbuf, recvbuf, op)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combine the elements of all ranks, in rank order. Rank r gets block r of the result; the blocks are equal."""
        s = self._schedule()
        self._builders.reduce_scatter_block(s, sendbuf, recvbuf, op)
        self._run(s)

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        """Reduce_scatter_block, nonblocking."""
        s = self._schedule()
        self._builders.reduce_scatter_block(s, sendbuf, recvbuf, op)
        return self._begin(s)

    def Reduce_scatter_block_init(
        self, sendbuf: Any, recvbuf: Any, op: Op = SUM, info: Any = None
    ) -> Prequest:
        """Reduce_scatter_block, persistent."""
        return self._persistent(self._builders.reduce_scatter_block, sendbuf, recvbuf, op)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> None:
        """Combine the elements of all ranks, in rank order. Rank r gets block r of the result, of recvcounts[r] elements."""
        s = self._schedule()
        self._builders.reduce_scatter(s, sendbuf, recvbuf, self._counts(recvcounts, sendbuf, recvbuf), op)
        self._run(s)

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> Request:
        """Reduce_scatter, nonblocking."""
        s = self._schedule()
        self._builders.reduce_scatter(s, sendbuf, recvbuf, self._counts(recvcounts, sendbuf, recvbuf), op)
        return self._begin(s)

    def Reduce_scatter_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: Op = SUM,
        info: Any = None,
    ) -> Prequest:
        """Reduce_scatter, persistent."""
        return self._persistent(
            self._builders.reduce_scatter, sendbuf, recvbuf, self._counts(recvcounts, sendbuf, recvbuf), op
        )

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combine the elements of ranks 0 to this one, in rank order."""
        s = self._schedule()
        self._builders.scan(s, sendbuf, recvbuf, op, exclusive=False)
        self._run(s)

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        """Scan, nonblocking."""
        s = self._schedule()
        self._builders.scan(s, sendbuf, recvbuf, op, exclusive=False)
        return self._begin(s)

    def Scan_init(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, info: Any = None) -> Prequest:
        """Scan, persistent."""
        return self._persistent(self._builders.scan, sendbuf, recvbuf, op, exclusive=False)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combine the elements of the ranks before this one, in rank order. The buffer of rank 0 is not touched."""
        s = self._schedule()
        self._builders.scan(s, sendbuf, recvbuf, op, exclusive=True)
        self._run(s)

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        """Exscan, nonblocking."""
        s = self._schedule()
        self._builders.scan(s, sendbuf, recvbuf, op, exclusive=True)
        return self._begin(s)

    def Exscan_init(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, info: Any = None) -> Prequest:
        """Exscan, persistent."""
        return self._persistent(self._builders.scan, sendbuf, recvbuf, op, exclusive=True)


def _restart(schedule: Schedule) -> Operation:
    schedule.restart()
    return schedule

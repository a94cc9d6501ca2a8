"""Collectives on Python objects (lower-case names), which are pickled for sending.

The algorithms are in ckpt/mpi/collectives (tree.py, reduce.py), those of small ones of few ranks in
ckpt/mpi/slots. Collectives of an intercommunicator are in comm_inter.py."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from ckpt.mpi.collectives import reduce as reductions
from ckpt.mpi.collectives import tree as trees
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.datatypes.op import SUM, Op
from ckpt.mpi.slots import collectives as small


class ObjectCollectives(CommBase):
    """barrier, bcast, gather …: every rank of the communicator must call them in the same order.

    MpiException: ERR_ROOT for a bad root, ERR_COMM or ERR_REVOKED for a closed communicator, ERR_PROC_FAILED when a member
    has failed."""

    __slots__ = ()

    # -- operations --------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Wait until all ranks have called barrier."""
        if not self._barrier_of_slots():
            schedule = self._schedule()
            trees.barrier(schedule)
            self._run(schedule)

    def bcast(self: CommBase, obj: Any, root: int = 0) -> Any:
        """The root's object, at every rank."""
        root = self._check_root(root)
        exchange = self._slots()
        if exchange is not None:
            data = small.share(self, exchange, self._engine.dumps(obj) if root == self._rank else None, root)
            if data is not None:
                return obj if root == self._rank else self._engine.loads_value(data)
        schedule = self._schedule()
        slot = schedule.slot(self._engine.dumps(obj) if root == self._rank and self.size > 1 else None)
        trees.broadcast(schedule, root, slot)
        self._run(schedule)
        return obj if root == self._rank else self._engine.loads_value(schedule.values[slot])

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """At the root, the list of all ranks' objects; None at other ranks."""
        root = self._check_root(root)
        schedule = self._schedule()
        own = schedule.slot(self._engine.dumps(sendobj))
        slots = [schedule.slot() for _ in range(self.size)]
        trees.gather(schedule, root, own, slots)
        self._run(schedule)
        return self._load_all(schedule, slots) if root == self._rank else None

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """At rank r, the element r of the root's list. ValueError at the root: the list has not one object for each rank."""
        root = self._check_root(root)
        values: list[Any] = [None] * self.size
        if root == self._rank:
            values = self._dump_all(sendobj)
        schedule = self._schedule()
        slots = [schedule.slot(value) for value in values]
        own = schedule.slot()
        trees.scatter(schedule, root, slots, own)
        self._run(schedule)
        return self._engine.loads_value(schedule.values[own])

    def allgather(self: CommBase, sendobj: Any) -> list[Any]:
        """The list of all ranks' objects, at every rank."""
        data = self._engine.dumps(sendobj)
        exchange = self._slots()
        if exchange is not None and (values := small.gather_all(self, exchange, data)) is not None:
            return [self._engine.loads_value(value) for value in values]
        schedule = self._schedule()
        own = schedule.slot(data)
        slots = [schedule.slot() for _ in range(self.size)]
        trees.allgather(schedule, own, slots)
        self._run(schedule)
        return self._load_all(schedule, slots)

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """At rank r, the list of the elements r of all ranks' lists. ValueError: not one object for each rank."""
        values = self._dump_all(sendobj)
        exchange = self._slots()
        if exchange is not None:
            rows = small.gather_all(self, exchange, pickle.dumps(values, 5))
            if rows is not None:
                return [self._engine.loads_value(pickle.loads(row)[self._rank]) for row in rows]
        schedule = self._schedule()
        outgoing = [schedule.slot(value) for value in values]
        incoming = [schedule.slot() for _ in range(self.size)]
        trees.alltoall(schedule, outgoing, incoming)
        self._run(schedule)
        return self._load_all(schedule, incoming)

    def reduce(self: CommBase, sendobj: Any, op: Op = SUM, root: int = 0) -> Any:
        """At the root, all ranks' objects combined in rank order; None at other ranks."""
        root = self._check_root(root)
        exchange = self._slots()
        if exchange is not None:
            return small.reduce_object(exchange, sendobj, op, root)
        schedule = self._schedule()
        slot = schedule.slot(sendobj)
        reductions.reduce(schedule, root, slot, reductions.ObjectArithmetic(op))
        self._run(schedule)
        return schedule.values[slot] if root == self._rank else None

    def allreduce(self, sendobj: Any, op: Op = SUM) -> Any:
        """All ranks' objects combined in rank order, at every rank."""
        exchange = self._slots() if isinstance(op, Op) and op.is_predefined else None
        if exchange is not None:
            values = small.gather_all(self, exchange, pickle.dumps(sendobj, 5))
            if values is not None:
                objects = [pickle.loads(value) for value in values]
                objects[self._rank] = sendobj
                return small.allreduce_order(objects, op)
        schedule = self._schedule()
        slot = schedule.slot(sendobj)
        reductions.allreduce(schedule, slot, reductions.ObjectArithmetic(op))
        self._run(schedule)
        return schedule.values[slot]

    def _scan(self, sendobj: Any, op: Op, *, exclusive: bool) -> Any:
        schedule = self._schedule()
        own, target = schedule.slot(sendobj), schedule.slot()
        reductions.scan(schedule, own, target, reductions.ObjectArithmetic(op), exclusive=exclusive)
        self._run(schedule)
        return schedule.values[target]

    def scan(self, sendobj: Any, op: Op = SUM) -> Any:
        """The objects of ranks 0 to this one combined."""
        return self._scan(sendobj, op, exclusive=False)

    def exscan(self, sendobj: Any, op: Op = SUM) -> Any:
        """The objects of the ranks before this one combined; None at rank 0."""
        return self._scan(sendobj, op, exclusive=True)

    # -- objects as values -------------------------------------------------------------------------

    def _dump_all(self, objects: Sequence[Any] | None) -> list[bytes]:
        """One pickle for each rank. ValueError: there is not exactly one object for each rank."""
        items = [None] * self.size if objects is None else list(objects)
        if len(items) != self.size:
            raise ValueError(f"expecting {self.size} items, got {len(items)}")
        return [self._engine.dumps(item) for item in items]

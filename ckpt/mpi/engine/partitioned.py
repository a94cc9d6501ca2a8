"""Partitioned communication (MPI standard 4, Psend_init, Precv_init): a buffer that is sent and received in partitions.

Each partition of the sender is one message, in the plane PLANE_PARTS: the number of partitions, the index of this
partition (4 bytes each, little-endian), then its elements. So the sender and the receiver may partition the buffer
differently.

The k-th partitioned send to a (destination, tag) matches the k-th partitioned receive from there, in the order of the
init calls. The source in the envelope is k * ranks + rank, so messages of different k do not match.

    PartSend       done when all partitions were marked as ready; a partition is copied when it is marked
    PartReceive    posts one receive after the other until the whole buffer has arrived
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from ckpt.mpi.base.errors import ERR_ARG, ERR_RANK, ERR_REVOKED, ERR_TRUNCATE, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.buffers import BufferSpec, parted
from ckpt.mpi.engine.operations import Done, Operation, Receive

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommShared
    from ckpt.mpi.engine.engine import Engine

_HEAD = struct.Struct("<II")


def cut(buf: Any, partitions: int, *, writable: bool) -> BufferSpec:
    """The buffer of a partitioned operation. A count in the argument is that of one partition, as in MPI's call.

    ValueError: its elements cannot be divided into `partitions` equal parts."""
    if partitions < 1:
        raise ValueError(f"a buffer cannot be cut into {partitions} partitions")
    return parted(buf, partitions, writable=writable)


def match_number(shared: CommShared, kind: str, peer: int, tag: int) -> int:
    """The number of partitioned operations of this kind, peer and tag that were made before (k in the header)."""
    key = "partitioned", kind, peer, tag
    number: int = shared.extras.get(key, 0)
    shared.extras[key] = number + 1
    return number


class PartSend(Operation):
    """A partitioned send under way. `head`: the packed envelope. `missing`: partitions that are not marked as ready."""

    __slots__ = ("dst", "engine", "head", "missing", "partitions", "shared", "spec")

    def __init__(
        self, engine: Engine, shared: CommShared, dst: int, head: bytes, spec: BufferSpec, partitions: int
    ) -> None:
        super().__init__()
        self.engine = engine
        self.shared = shared
        self.dst = dst
        self.head = head
        self.spec = spec
        self.partitions = partitions
        self.missing = set(range(partitions))

    def mark_ready(self, partition: int) -> None:
        """Send one partition. The lock is held. MpiException (ERR_ARG): it was sent already, or does not exist."""
        if partition not in self.missing:
            raise MpiException(ERR_ARG, f"partition {partition} is ready already, or there is none")
        self.missing.discard(partition)
        each = self.spec.count // self.partitions
        part = self.spec.part(partition * each, each)
        data = _HEAD.pack(self.partitions, partition) + bytes(part.read())
        self.engine.progress.send(self.dst, self.head, data)

    def poll(self) -> bool:
        if not self.done and self.dst in self.engine.failed_ranks.known:
            self.error = self.engine.failed_ranks.failure(self.dst)
            self.done = True
        elif not self.done and self.shared.revoked:
            self.error = MpiException(ERR_REVOKED, "the communicator is revoked")
            self.done = True
        elif not self.missing:
            self.done = True
        return self.done


class PartReceive(Operation):
    """A partitioned receive under way.

    `parts`: the sender's number of partitions, 0 before the first has arrived. `arrived_parts`: those that have arrived."""

    __slots__ = (
        "arrived_parts",
        "engine",
        "filling",
        "origin",
        "partitions",
        "parts",
        "receive",
        "shared",
        "spec",
        "src",
        "wire_tag",
    )

    def __init__(
        self,
        engine: Engine,
        shared: CommShared,
        origin: int,
        tag: int,
        src: int,
        spec: BufferSpec,
        partitions: int,
    ) -> None:
        """origin: the source in the envelopes; src: its world rank."""
        super().__init__()
        self.engine = engine
        self.shared = shared
        self.origin = origin
        self.source = origin % len(shared.peers)
        self.tag = self.wire_tag = tag
        self.src = src
        self.spec = spec
        self.partitions = partitions
        self.parts = 0
        self.arrived_parts: set[int] = set()
        self.filling = False
        self.receive: Receive | None = None
        self._receive_next()

    def _receive_next(self) -> None:
        context = self.engine.matcher.context(self.shared.base + envelope.PLANE_PARTS)
        self.filling = True
        while not self._complete():
            self.receive = Receive(context.number, self.origin, self.wire_tag, None, self, 0)
            self.engine.start_receive(context, self.receive, self.src)
            if not self.receive.done or self.receive.error is not None:
                break
        self.filling = False

    def _complete(self) -> bool:
        return bool(self.parts) and len(self.arrived_parts) == self.parts

    def place(self, slot: int) -> None:
        """No place: a message says itself where its part belongs."""

    def arrived(self, slot: int, data: Buffer) -> None:
        """Write an arrived partition of the sender into the buffer. `data` includes the envelope."""
        self.parts, part = _HEAD.unpack_from(data, envelope.SIZE)
        body = memoryview(data)[envelope.SIZE + _HEAD.size :]
        count = len(body) // max(self.spec.datatype.size, 1)
        if (part + 1) * count > self.spec.count:
            self.error = MpiException(ERR_TRUNCATE, f"a part of {len(body)} bytes does not fit")
        else:
            self.spec.part(part * count, count).write(body)
        self.arrived_parts.add(part)
        self.nbytes += len(body)
        if not self.filling:
            self._receive_next()

    def has(self, partition: int) -> bool:
        """Whether all elements of a partition of the receiver have arrived. MpiException (ERR_ARG): it does not exist."""
        if not 0 <= partition < self.partitions:
            raise MpiException(ERR_ARG, f"partition {partition} of {self.partitions}")
        if not self.parts:
            return False
        # In units of 1 / (partitions * parts) of the buffer, which divide both sides' partitions
        first, last = (
            partition * self.parts,
            (partition + 1) * self.parts,
        )
        needed = range(first // self.partitions, -(-last // self.partitions))
        return self.arrived_parts.issuperset(needed)

    def poll(self) -> bool:
        if not self.done:
            failed = None if self.receive is None else self.receive.error
            if failed is not None:
                self.error = failed
            self.done = failed is not None or self._complete()
        return self.done


# -- the operations of persistent requests: a class, or Done, and its arguments ----------------------

Peer = tuple[int | None, int, int]
"""World rank, rank and tag; the world rank is None for PROC_NULL."""


def part_send(
    engine: Engine, shared: CommShared, rank: int, peer: Peer, spec: BufferSpec, partitions: int
) -> tuple[Any, ...]:
    """The operation of a partitioned send by `rank`. MpiException (ERR_RANK): to a wildcard."""
    dst, dest, tag = peer
    if dest == ANY_SOURCE:
        raise MpiException(ERR_RANK, "a send in parts names its destination")
    if dst is None:
        return Done, PROC_NULL
    origin = match_number(shared, "send", dest, tag) * len(shared.group) + rank
    head = envelope.pack(envelope.EAGER, origin, tag, shared.base + envelope.PLANE_PARTS)
    return PartSend, engine, shared, dst, head, spec, partitions


def part_receive(
    engine: Engine, shared: CommShared, peer: Peer, spec: BufferSpec, partitions: int
) -> tuple[Any, ...]:
    """The operation of a partitioned receive. MpiException (ERR_RANK): from a wildcard."""
    src, source, tag = peer
    if src is None:
        return Done, PROC_NULL
    if source == ANY_SOURCE or tag == ANY_TAG:
        raise MpiException(ERR_RANK, "a receive in parts names its source and tag")
    origin = match_number(shared, "recv", source, tag) * len(shared.peers) + source
    return PartReceive, engine, shared, origin, tag, src, spec, partitions

"""Builders of the neighbourhood collectives (MPI standard, "Neighborhood collective communication").

Block k of the send buffer is sent to outgoing neighbour k. Block k of the receive buffer is received from incoming
neighbour k. The block of a neighbour that does not exist (PROC_NULL) is not sent, and not written.
"""

from __future__ import annotations

from typing import Any

from ckpt.mpi.base.constants import PROC_NULL
from ckpt.mpi.collectives.builders import store
from ckpt.mpi.collectives.topology import Cart, DistGraph, Graph
from ckpt.mpi.datatypes.buffers import BufferSpec, blocks, simple, typed_vector, vector
from ckpt.mpi.engine.schedule import Schedule

Topology = Cart | Graph | DistGraph


def exchange(s: Schedule, topology: Topology, outgoing: list[int], incoming: list[int]) -> None:
    """Send outgoing[k] to outgoing neighbour k; incoming[k] becomes the value that incoming neighbour k has sent."""
    for place, peer in enumerate(topology.outgoing(s.rank)):
        if peer != PROC_NULL:
            s.send(peer, outgoing[place])
    sources = topology.incoming(s.rank)
    for place in topology.arrival(s.rank):
        if sources[place] != PROC_NULL:
            s.recv(sources[place], incoming[place])
    s.fence()


def _cut(buf: Any, count: int, variant: str, *, writable: bool) -> list[BufferSpec]:
    if variant == "w":
        return typed_vector(buf, count, writable=writable)
    if variant == "v":
        return vector(buf, count, writable=writable)
    return blocks(buf, count, writable=writable) if count else []


def _store_all(s: Schedule, topology: Topology, slots: list[int], into: list[BufferSpec]) -> None:
    for place, peer in enumerate(topology.incoming(s.rank)):
        if peer != PROC_NULL:
            s.call(store, slots[place], into[place])


def allgather(s: Schedule, topology: Topology, sendbuf: Any, recvbuf: Any, *, variant: str = "") -> None:
    sources = topology.incoming(s.rank)
    into = _cut(recvbuf, len(sources), variant, writable=True)
    own = s.slot(simple(sendbuf, writable=False))
    slots = [s.slot() for _ in sources]
    exchange(s, topology, [own] * len(topology.outgoing(s.rank)), slots)
    _store_all(s, topology, slots, into)


def alltoall(s: Schedule, topology: Topology, sendbuf: Any, recvbuf: Any, *, variant: str = "") -> None:
    sources, targets = topology.incoming(s.rank), topology.outgoing(s.rank)
    out = [s.slot(spec) for spec in _cut(sendbuf, len(targets), variant, writable=False)]
    into = _cut(recvbuf, len(sources), variant, writable=True)
    slots = [s.slot() for _ in sources]
    exchange(s, topology, out, slots)
    _store_all(s, topology, slots, into)

"""Collectives that move data along trees and rings: barrier, broadcast, gather, scatter, allgather, alltoall.

These algorithms write schedules. Ranks are ranks in the group (`s.rank`, `s.size`). Slots hold bytes; only the caller knows
their meaning (pickled objects, packed elements). The choice of an algorithm depends on sizes that all ranks know, never on
timing.

Up to DIRECT_RANKS ranks exchange blocks directly: every block is sent once, in one round. More ranks combine small blocks
into bundles, which are sent in ⌈log2 size⌉ rounds.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in MPICH (2005);
J. Bruck and others, Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems (1997).
"""

from __future__ import annotations

import pickle
from typing import Any

from ckpt.mpi.engine.schedule import Schedule, load

DIRECT_RANKS = 8
"""Up to this many ranks, and for blocks of DIRECT_BYTES or more, every rank sends its blocks directly."""

DIRECT_BYTES = 16 << 10
"""Blocks from this size on are not bundled."""

WINDOW = 16
"""Largest number of exchanges under way at one time when every rank exchanges with every other rank."""


def barrier(s: Schedule) -> None:
    """Dissemination barrier: in round k every rank receives from the rank that is 2^k below it."""
    empty = s.slot(b"")
    ignored = s.slot()
    distance = 1
    while distance < s.size:
        s.send((s.rank + distance) % s.size, empty)
        s.recv((s.rank - distance) % s.size, ignored)
        s.fence()
        distance *= 2


def broadcast(s: Schedule, root: int, slot: int) -> None:
    """At every rank, the slot becomes the root's value. Binomial tree."""
    parent, children = binomial(s.rank, s.size, root)
    if parent is not None:
        s.recv(parent, slot)
        s.fence()
    for child in children:
        s.send(child, slot)


def star(s: Schedule, root: int, slot: int) -> None:
    """The same: the root sends its value to each rank. For ranks that read it from the root's memory."""
    if s.rank != root:
        s.recv(root, slot)
        s.fence()
        return
    for distance in range(1, s.size):
        s.send((root + distance) % s.size, slot)


def binomial(rank: int, size: int, root: int) -> tuple[int | None, list[int]]:
    """(parent or None, children) of a rank in the binomial tree with this root. The child with the largest subtree is the
    first."""
    virtual = (rank - root) % size
    mask = 1
    parent = None
    while mask < size:
        if virtual & mask:
            parent = (virtual - mask + root) % size
            break
        mask *= 2
    mask //= 2
    children = []
    while mask:
        if virtual + mask < size:
            children.append((virtual + mask + root) % size)
        mask //= 2
    return parent, children


def pipeline(s: Schedule, root: int, slots: list[int], stores: list[Any] | None = None) -> None:
    """Broadcast of segments, one after the other: along a chain up to DIRECT_RANKS ranks, else along a binomial tree.

    stores: for each segment None, or (local step, argument), which is called when the segment was sent on.
    """
    if s.size <= DIRECT_RANKS:
        virtual = (s.rank - root) % s.size
        parent = (s.rank - 1) % s.size if virtual else None
        children = [(s.rank + 1) % s.size] if virtual < s.size - 1 else []
    else:
        parent, children = binomial(s.rank, s.size, root)
    for number, slot in enumerate(slots):
        if parent is not None:
            s.recv(parent, slot)
            s.fence()
        for child in children:
            s.send(child, slot)
        after = None if stores is None else stores[number]
        if after is not None:
            s.call(after[0], slot, after[1])


def gather(s: Schedule, root: int, own: int, slots: list[int], nbytes: int | None = None) -> None:
    """At the root, slots[r] becomes rank r's value of `own`. nbytes: size of a block, if all ranks know it."""
    if s.size > DIRECT_RANKS and nbytes is not None and nbytes < DIRECT_BYTES:
        _gather_bundles(s, root, own, slots)
        return
    if s.rank != root:
        s.send(root, own)
        return
    for rank in range(s.size):
        if rank == root:
            s.call(move, own, slots[rank])
        else:
            s.recv(rank, slots[rank])
    s.fence()


def scatter(s: Schedule, root: int, slots: list[int], own: int, nbytes: int | None = None) -> None:
    """At rank r, `own` becomes the root's value of slots[r]. nbytes: size of a block, if all ranks know it."""
    if s.size > DIRECT_RANKS and nbytes is not None and nbytes < DIRECT_BYTES:
        _scatter_bundles(s, root, slots, own)
        return
    if s.rank != root:
        s.recv(root, own)
        s.fence()
        return
    for rank in range(s.size):
        if rank == root:
            s.call(move, slots[rank], own)
        else:
            s.send(rank, slots[rank])


def allgather(s: Schedule, own: int, slots: list[int], nbytes: int | None = None) -> None:
    """At every rank, slots[r] becomes rank r's value of `own`. nbytes: size of a block, if all ranks know it."""
    s.call(move, own, slots[s.rank])
    if s.size <= DIRECT_RANKS:
        _exchange_all(s, [own] * s.size, slots)
    elif nbytes is None or nbytes < DIRECT_BYTES:
        _allgather_bundles(s, slots)
    else:
        _allgather_ring(s, slots)


def alltoall(s: Schedule, outgoing: list[int], incoming: list[int]) -> None:
    """At rank q, incoming[r] becomes rank r's value of outgoing[q]."""
    s.call(move, outgoing[s.rank], incoming[s.rank])
    _exchange_all(s, outgoing, incoming)


def _exchange_all(s: Schedule, outgoing: list[int], incoming: list[int]) -> None:
    """Every pair of ranks exchanges directly, at most WINDOW exchanges at a time."""
    for distance in range(1, s.size):
        s.send((s.rank + distance) % s.size, outgoing[(s.rank + distance) % s.size])
        s.recv((s.rank - distance) % s.size, incoming[(s.rank - distance) % s.size])
        if distance % WINDOW == 0:
            s.fence()
    s.fence()


def _allgather_ring(s: Schedule, slots: list[int]) -> None:
    """Ring: in step k every rank sends the block that it received in step k - 1 to the next rank."""
    for step in range(s.size - 1):
        s.send((s.rank + 1) % s.size, slots[(s.rank - step) % s.size])
        s.recv((s.rank - 1) % s.size, slots[(s.rank - step - 1) % s.size])
        s.fence()


def _allgather_bundles(s: Schedule, slots: list[int]) -> None:
    """Bruck's algorithm: in every round a rank sends all its blocks that the receiver does not have."""
    distance = 1
    while distance < s.size:
        count = min(distance, s.size - distance)
        outgoing, incoming = s.slot(), s.slot()
        s.call(bundle, [slots[(s.rank + k) % s.size] for k in range(count)], outgoing)
        s.send((s.rank - distance) % s.size, outgoing)
        s.recv((s.rank + distance) % s.size, incoming)
        s.fence()
        s.call(unbundle, incoming, [slots[(s.rank + distance + k) % s.size] for k in range(count)])
        distance *= 2


def _subtree(virtual: int, mask: int, size: int) -> int:
    """The number of ranks in the binomial subtree with the root `virtual`, whose parent is `virtual - mask`."""
    return min(mask, size - virtual)


def _gather_bundles(s: Schedule, root: int, own: int, slots: list[int]) -> None:
    """Binomial tree: a rank receives the blocks of its subtree and sends them to its parent in one message."""
    virtual = (s.rank - root) % s.size
    subtree_slots = [own]
    mask = 1
    while mask < s.size:
        if virtual & mask:
            outgoing = s.slot()
            s.call(bundle, list(subtree_slots), outgoing)
            s.send((virtual - mask + root) % s.size, outgoing)
            return
        if virtual + mask < s.size:
            incoming = s.slot()
            more = [s.slot() for _ in range(_subtree(virtual + mask, mask, s.size))]
            s.recv((virtual + mask + root) % s.size, incoming)
            s.fence()
            s.call(unbundle, incoming, more)
            subtree_slots += more
        mask *= 2
    for number, slot in enumerate(subtree_slots):
        s.call(move, slot, slots[(number + root) % s.size])


def _scatter_bundles(s: Schedule, root: int, slots: list[int], own: int) -> None:
    """Binomial tree: a rank receives the blocks of its subtree in one message and sends each child its part."""
    virtual = (s.rank - root) % s.size
    mask = 1
    while mask < s.size and not virtual & mask:
        mask *= 2
    if virtual == 0:
        subtree_slots = [slots[(number + root) % s.size] for number in range(s.size)]
    else:
        subtree_slots = [s.slot() for _ in range(_subtree(virtual, mask, s.size))]
        incoming = s.slot()
        s.recv((virtual - mask + root) % s.size, incoming)
        s.fence()
        s.call(unbundle, incoming, subtree_slots)
    mask //= 2
    while mask:
        if virtual + mask < s.size:
            outgoing = s.slot()
            s.call(bundle, subtree_slots[mask : mask + _subtree(virtual + mask, mask, s.size)], outgoing)
            s.send((virtual + mask + root) % s.size, outgoing)
        mask //= 2
    s.call(move, subtree_slots[0], own)


# -- local steps -----------------------------------------------------------------------------------


def move(s: Schedule, source: int, target: int) -> None:
    """The target slot gets the value of the source slot."""
    s.values[target] = s.values[source]


def bundle(s: Schedule, slots: list[int], target: int) -> None:
    """The target slot gets the pickled list of the slots' values."""
    parts = [bytes(load(s.values[slot])) for slot in slots]
    s.values[target] = pickle.dumps(parts, 5)


def unbundle(s: Schedule, source: int, slots: list[int]) -> None:
    """The slots get the values that `bundle` has put into the source slot."""
    parts = pickle.loads(s.values[source])
    for number, slot in enumerate(slots):
        s.values[slot] = parts[number]

"""Collectives that combine values: reduce, allreduce, reduce-scatter, scan, exscan.

These algorithms write schedules. An `Arithmetic` combines values, and packs them for sending. Values are always combined in
the order of ranks, so an operation need not be commutative. The grouping depends only on the number of ranks, so a
repeated run gives a result with the same bits.

Small values use binomial trees and recursive doubling (⌈log2 size⌉ rounds). A large value is divided into one block for
each rank: every rank receives its block from all ranks and combines them in the order of ranks, then the blocks are
gathered. So every byte is sent twice, for any number of ranks.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in MPICH (2005), for
binomial trees, recursive doubling, and reduce-scatter followed by gather.
"""

from __future__ import annotations

import pickle
from typing import Protocol

from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.collectives.tree import allgather, gather, move
from ckpt.mpi.datatypes import small_reductions
from ckpt.mpi.datatypes.datatypes import Datatype
from ckpt.mpi.datatypes.op import Op
from ckpt.mpi.engine.schedule import Schedule, load


class Arithmetic(Protocol):
    """Local steps on the slots of a schedule. `travels`: values are bytes that are sent as they are, so `pack` and
    `unpack` are not called."""

    travels: bool

    def combine(self, s: Schedule, low: int, high: int, target: int) -> None:
        """target := low ∘ high. No value is changed in place."""

    def accumulate(self, s: Schedule, target: int, high: int) -> None:
        """target := target ∘ high. The target's value has no other user, so it may be overwritten."""

    def pack(self, s: Schedule, source: int, target: int) -> None:
        """target := the bytes of source, for sending."""

    def unpack(self, s: Schedule, source: int, target: int) -> None:
        """target := the value of the received bytes in source."""


class ObjectArithmetic:
    """Arithmetic on Python objects, which are pickled for sending."""

    travels = False

    def __init__(self, op: Op) -> None:
        self.op = op

    def combine(self, s: Schedule, low: int, high: int, target: int) -> None:
        s.values[target] = self.op(s.values[low], s.values[high])

    def accumulate(self, s: Schedule, target: int, high: int) -> None:
        self.combine(s, target, high, target)

    def pack(self, s: Schedule, source: int, target: int) -> None:
        s.values[target] = pickle.dumps(s.values[source], 5)

    def unpack(self, s: Schedule, source: int, target: int) -> None:
        s.values[target] = pickle.loads(s.values[source])


class BufferArithmetic:
    """Arithmetic on packed elements of one datatype."""

    travels = True

    def __init__(self, op: Op, datatype: Datatype) -> None:
        self.op = op
        self.datatype = datatype
        self.code = datatype.code

    def combine(self, s: Schedule, low: int, high: int, target: int) -> None:
        s.values[target] = self.combined(load(s.values[low]), load(s.values[high]))

    def combined(self, low: Buffer, high: Buffer) -> Buffer:
        """low ∘ high, as new bytes."""
        if len(low) <= small_reductions.MAX_BYTES:
            made = small_reductions.combine(self.op._name, self.code, low, high)
            if made is not None:
                return made
        return self.op.combine(low, high, self.datatype)

    def accumulate(self, s: Schedule, target: int, high: int) -> None:
        total = s.values[target]
        if type(total) is memoryview and not total.readonly:
            s.values[target] = self.op.combine(total, load(s.values[high]), self.datatype, total)
        else:
            self.combine(s, target, high, target)

    def pack(self, s: Schedule, source: int, target: int) -> None:
        raise AssertionError("values travel as they are")

    unpack = pack


def reduce(s: Schedule, root: int, slot: int, arithmetic: Arithmetic) -> None:
    """At the root, the slot becomes the combination of all ranks' values. Binomial tree to rank 0, which sends the result
    to the root."""
    mask = 1
    while mask < s.size:
        if s.rank & mask:
            _hand_over(s, s.rank - mask, slot, arithmetic)
            break
        if s.rank + mask < s.size:
            s.call(arithmetic.combine, slot, _obtain(s, s.rank + mask, arithmetic), slot)
        mask *= 2
    if root != 0 and s.rank == 0:
        _hand_over(s, root, slot, arithmetic)
    if root != 0 and s.rank == root:
        s.call(move, _obtain(s, 0, arithmetic), slot)


def allreduce(s: Schedule, slot: int, arithmetic: Arithmetic) -> None:
    """At every rank, the slot becomes the combination of all ranks' values. Recursive doubling.

    When the number of ranks is not a power of two, the first ranks form pairs: the odd rank of a pair sends its value to
    the even rank, takes no part in the doubling, and receives the result at the end.
    """
    power = 1
    while power * 2 <= s.size:
        power *= 2
    extra = s.size - power
    if s.rank < 2 * extra:
        if s.rank % 2:
            _hand_over(s, s.rank - 1, slot, arithmetic)
            s.call(move, _obtain(s, s.rank - 1, arithmetic), slot)
            return
        s.call(arithmetic.combine, slot, _obtain(s, s.rank + 1, arithmetic), slot)
        virtual = s.rank // 2
    else:
        virtual = s.rank - extra
    mask = 1
    while mask < power:
        other = virtual ^ mask
        partner = other * 2 if other < extra else other + extra
        _hand_over(s, partner, slot, arithmetic)
        incoming = _obtain(s, partner, arithmetic)
        if other > virtual:
            s.call(arithmetic.combine, slot, incoming, slot)
        else:
            s.call(arithmetic.combine, incoming, slot, slot)
        mask *= 2
    if s.rank < 2 * extra:
        _hand_over(s, s.rank + 1, slot, arithmetic)


def _hand_over(s: Schedule, peer: int, slot: int, arithmetic: Arithmetic) -> None:
    if arithmetic.travels:
        s.send(peer, slot)
        return
    outgoing = s.slot()
    s.call(arithmetic.pack, slot, outgoing)
    s.send(peer, outgoing)


def _obtain(s: Schedule, peer: int, arithmetic: Arithmetic) -> int:
    incoming = s.slot()
    s.recv(peer, incoming)
    s.fence()
    if not arithmetic.travels:
        s.call(arithmetic.unpack, incoming, incoming)
    return incoming


def reduce_scatter(s: Schedule, outgoing: list[int], target: int, arithmetic: Arithmetic) -> None:
    """At rank r, `target` becomes the combination of all ranks' values of outgoing[r]. All pairs of ranks exchange
    directly."""
    for distance in range(1, s.size):
        peer = (s.rank + distance) % s.size
        _hand_over(s, peer, outgoing[peer], arithmetic)
    for rank in range(s.size):
        part = outgoing[s.rank] if rank == s.rank else _obtain(s, rank, arithmetic)
        if rank == 0:
            s.call(move, part, target)
        elif rank == 1:
            s.call(arithmetic.combine, target, part, target)
        else:
            s.call(arithmetic.accumulate, target, part)


def reduce_blocks(s: Schedule, root: int, blocks: list[int], arithmetic: Arithmetic) -> None:
    """Reduce of a value that is divided into one block for each rank: at the root, the blocks become the result."""
    own = s.slot()
    reduce_scatter(s, blocks, own, arithmetic)
    gather(s, root, own, blocks)


def allreduce_blocks(s: Schedule, blocks: list[int], arithmetic: Arithmetic) -> None:
    """Allreduce of a value that is divided into one block for each rank: at every rank, the blocks become the result."""
    own = s.slot()
    reduce_scatter(s, blocks, own, arithmetic)
    allgather(s, own, blocks, LARGE)


LARGE = 1 << 30
"""A block size for `allgather` with which it does not bundle blocks."""


def scan(s: Schedule, own: int, target: int, arithmetic: Arithmetic, *, exclusive: bool) -> None:
    """`target` becomes the combination of the values of ranks 0 to this one; exclusive: without this rank's own value
    (rank 0 then gets no value).

    Recursive doubling: after round k, `own` is the combination of the aligned group of 2^(k + 1) ranks with this rank.
    """
    empty = exclusive
    if not exclusive:
        s.call(move, own, target)
    mask = 1
    while mask < s.size:
        partner = s.rank ^ mask
        if partner < s.size:
            _hand_over(s, partner, own, arithmetic)
            incoming = _obtain(s, partner, arithmetic)
            if partner > s.rank:
                s.call(arithmetic.combine, own, incoming, own)
            else:
                if empty:
                    s.call(move, incoming, target)
                    empty = False
                else:
                    s.call(arithmetic.combine, incoming, target, target)
                s.call(arithmetic.combine, incoming, own, own)
        mask *= 2

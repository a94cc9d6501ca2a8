"""Collectives of long buffers, for which the members read each other's memory: one copy, and no message.

    offer ── all offers are there ──▶ read ── all have read, or have not ──▶ done, or the ordinary schedule

Both arrows are exchanges (exchange.py) of all members. The rules:

- No member leaves between the two: a member's blocks stay as they are until all have read them. One that leaves by an
  exception takes its offer back first (`ckpt.transport.boards.offers`), so what others read of it from then on counts for
  nothing. It still contributes to the second exchange: numbers stay alike.
- If a member can offer nothing, or could not read what it needs, it says so (ORDINARY), and the ordinary schedule follows at
  all members. They are all in the call still, so their blocks are what they were.
- Images are taken in the exchanges, and an offer is in none. After a restart nobody can read what was offered before, says
  so, and the ordinary schedule follows: whoever had read all, and whoever had not.
- Who takes part follows from what is the same at all members: that there is an exchange, and the length of the blocks.

An allreduce, and a reduce, have one exchange more: each member combines its block of all members' buffers, in the order of
ranks, as the schedule for long buffers does (collectives/reduce.py), and the others, or the root, read the results.

    offer ── all offers are there ──▶ combine ── all have combined ──▶ read ── all have read ──▶ done

Not here: exchanges, collectives in which lengths differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.op import Op
from ckpt.mpi.slots.exchange import OFFER, ORDINARY, WHOLE, Exchange, Taken
from ckpt.transport.wires.crossmemory import address_of

PIECE_BYTES = 256 << 10
"""So much is read of each member, and combined, at a time."""

BYTES_PER_LOOK_NS = 2
LOOK_LONGEST_NS = 5_000_000
"""Who waits for the others looks for about as long as reading all blocks takes, at most so long, before it sleeps: they are
reading, too."""


def alltoall(exchange: Exchange, out: Sequence[BufferSpec], into: Sequence[BufferSpec]) -> bool:
    """Whether it is done; if not, the ordinary schedule follows, at all members."""
    return _exchange(exchange, None if _overlap(out, into) else out, into)


def allgather(exchange: Exchange, out: BufferSpec, into: Sequence[BufferSpec], *, in_place: bool) -> bool:
    """The same. `in_place`: `out` is the member's own block of `into`, to which it does not write."""
    is_free = _are_dense(into) if in_place else not _overlap([out], into)
    return _exchange(exchange, [out] * len(into) if is_free else None, into, in_place=in_place)


def allreduce(
    exchange: Exchange,
    out: Sequence[BufferSpec],
    into: Sequence[BufferSpec],
    op: Op,
    *,
    is_apart: bool = False,
) -> bool:
    """The same. Block r of `out` and of `into` is the part that member r combines: whole elements. If it is not done, `into`
    is changed. `is_apart`: `out` is memory of its own."""
    is_free = is_apart or not _overlap(out, into)
    return _reduction(exchange, out if is_free else None, into[exchange.rank], into, op)


def reduce(
    exchange: Exchange,
    out: Sequence[BufferSpec],
    own: BufferSpec,
    into: Sequence[BufferSpec],
    op: Op,
    *,
    is_apart: bool = False,
) -> bool:
    """The same, for one member alone: at others `into` is empty. `own`: memory for the part that this member combines, which
    is a block of `into` if there is any."""
    is_free = _are_dense(out) and (is_apart or not into or not _overlap(out, into))
    return _reduction(exchange, out if is_free else None, own, into, op)


def _reduction(
    exchange: Exchange, out: Sequence[BufferSpec] | None, own: BufferSpec, into: Sequence[BufferSpec], op: Op
) -> bool:
    """`out` None: this member offers nothing."""
    first, others, size = exchange.number, exchange.others, len(exchange.members)
    look_ns = _look_ns([own] * size)
    number, kind, offer = _offer(exchange, None if out is None else [*out, own])
    try:
        found = exchange.run(kind, offer, others, others, look_ns=look_ns)
        is_well = _all_offer(exchange, found, kind) and _combine(exchange, found, out or (), own, op)
        answers = exchange.run(WHOLE if is_well else ORDINARY, b"", others, others, look_ns=look_ns)
        is_well = is_well and _all_are_whole(answers) and _read_all(exchange, found, into, size)
        answers = exchange.run(WHOLE if is_well else ORDINARY, b"", others, others, look_ns=look_ns)
    finally:
        _leave(exchange, number, first + 3)
    return is_well and _all_are_whole(answers)


def _overlap(out: Sequence[BufferSpec], into: Sequence[BufferSpec]) -> bool:
    """Do the two share memory, or may they? A program must not do that; if it does, others read what was there before."""
    if not _are_dense(out) or not _are_dense(into):
        return True
    (low, high), (first, last) = _extent(out), _extent(into)
    return low < last and first < high


def _are_dense(specs: Sequence[BufferSpec]) -> bool:
    return all(spec.dense for spec in specs)


def _extent(specs: Sequence[BufferSpec]) -> tuple[int, int]:
    """The addresses of the first byte and after the last one."""
    starts = [(address_of(spec.view()), spec.nbytes) for spec in specs if spec.nbytes]
    return min((at for at, _ in starts), default=0), max((at + nbytes for at, nbytes in starts), default=0)


def _exchange(
    exchange: Exchange,
    out: Sequence[BufferSpec] | None,
    into: Sequence[BufferSpec],
    *,
    in_place: bool = False,
) -> bool:
    """Read block `rank` of every member's `out` into `into`. `out` None: this member offers nothing."""
    first, others, look_ns = exchange.number, exchange.others, _look_ns(into)
    number, kind, offer = _offer(exchange, out)
    try:
        found = exchange.run(kind, offer, others, others, look_ns=look_ns)
        is_whole = _all_offer(exchange, found, kind) and _read_all(exchange, found, into, exchange.rank)
        if is_whole and not in_place:
            assert out is not None
            into[exchange.rank].write(out[exchange.rank].read())
        found = exchange.run(WHOLE if is_whole else ORDINARY, b"", others, others, look_ns=look_ns)
    finally:
        _leave(exchange, number, first + 2)
    return is_whole and _all_are_whole(found)


def _look_ns(into: Sequence[BufferSpec]) -> int:
    return min(sum(spec.nbytes for spec in into) // BYTES_PER_LOOK_NS, LOOK_LONGEST_NS)


def _all_offer(exchange: Exchange, found: dict[int, Taken], kind: int) -> bool:
    """`kind`: what this member has contributed."""
    is_offered = kind == OFFER and all(theirs == OFFER for theirs, _ in found.values())
    return is_offered and exchange.engine.offers is not None  # else it goes on from an image


def _all_are_whole(answers: dict[int, Taken]) -> bool:
    return all(answer == WHOLE for answer, _ in answers.values())


def can_offer(exchange: Exchange) -> bool:
    """May the other members read this process's memory, as far as is known?"""
    offers = exchange.engine.offers
    return offers is not None and not offers.is_refused


def _offer(exchange: Exchange, out: Sequence[BufferSpec] | None) -> tuple[int, int, bytes]:
    """The number of the offer, and what this member contributes."""
    if out is None or not can_offer(exchange):
        return 0, ORDINARY, b""
    number, offer = exchange.engine.offers.make([spec.view() for spec in out])
    return number, OFFER, offer


def _leave(exchange: Exchange, number: int, end: int) -> None:
    """Take the offer back. A member that leaves by an exception contributes to the other exchanges before `end`."""
    if exchange.engine.offers is not None:
        exchange.engine.offers.end(number)
    for _ in range(end - exchange.number):
        with contextlib.suppress(MpiException):
            exchange.run(ORDINARY, b"", exchange.others, 0)


def _read_all(exchange: Exchange, found: dict[int, Taken], into: Sequence[BufferSpec], part: int) -> bool:
    """Read this part of every other member's offer into that member's block, if there are blocks. False: something could not
    be read."""
    count, offers = len(into), exchange.engine.offers
    if offers is None:
        return False
    for step in range(1, count):  # not all from the same member at once
        source = (exchange.rank + step) % count
        if not offers.read(found[source][1], part, into[source].view()):
            return False
    return True


def _combine(
    exchange: Exchange, found: dict[int, Taken], out: Sequence[BufferSpec], own: BufferSpec, op: Op
) -> bool:
    """Combine this member's block of all members' `out`, piece by piece, so that what is read is in the cache when it is
    combined. False: something could not be read."""
    rank, offers, datatype = exchange.rank, exchange.engine.offers, own.datatype
    mine, result = out[rank].view(), own.view()
    step = max(1, PIECE_BYTES // datatype.size) * datatype.size
    scratch = memoryview(bytearray(min(step, len(mine))))
    for at in range(0, len(mine), step):
        total = result[at : at + step]
        combined: Buffer = total
        for member in range(len(out)):
            value = mine[at : at + step]
            if member != rank:
                value = scratch[: len(total)] if member else total
                if not offers.read(found[member][1], rank, value, at):
                    return False
            combined = op.combine(combined, value, datatype, total) if member else value
        if combined is not total:
            total[:] = combined
    return True


__all__ = ["allgather", "allreduce", "alltoall", "can_offer", "reduce"]

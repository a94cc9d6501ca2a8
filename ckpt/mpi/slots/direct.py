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

Not here: exchanges, collectives in which lengths differ or values are combined.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.slots.exchange import OFFER, ORDINARY, WHOLE, Exchange, Taken
from ckpt.transport.wires.crossmemory import address_of

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
    others = exchange.others
    look_ns = min(sum(spec.nbytes for spec in into) // BYTES_PER_LOOK_NS, LOOK_LONGEST_NS)
    number, kind, offer = _offer(exchange.engine.offers, out)
    try:
        found = exchange.run(kind, offer, others, others, look_ns=look_ns)
        is_whole = kind == OFFER and _read_all(exchange, found, into)
        if is_whole and not in_place:
            assert out is not None
            into[exchange.rank].write(out[exchange.rank].read())
    except BaseException:
        _take_back(exchange, number)
        with contextlib.suppress(MpiException):
            exchange.run(ORDINARY, b"", others, 0)
        raise
    try:
        found = exchange.run(WHOLE if is_whole else ORDINARY, b"", others, others, look_ns=look_ns)
    finally:
        _take_back(exchange, number)
    return is_whole and all(answer == WHOLE for answer, _ in found.values())


def _offer(offers: Any, out: Sequence[BufferSpec] | None) -> tuple[int, int, bytes]:
    """The number of the offer, and what this member contributes."""
    if offers is None or offers.is_refused or out is None:
        return 0, ORDINARY, b""
    number, offer = offers.make([spec.view() for spec in out])
    return number, OFFER, offer


def _take_back(exchange: Exchange, number: int) -> None:
    if exchange.engine.offers is not None:
        exchange.engine.offers.end(number)


def _read_all(exchange: Exchange, found: dict[int, Taken], into: Sequence[BufferSpec]) -> bool:
    """Read every other member's block. False: something could not be read."""
    if exchange.engine.offers is None or any(kind != OFFER for kind, _ in found.values()):
        return False
    count, rank = len(into), exchange.rank
    for step in range(1, count):  # not all from the same member at once
        source = (rank + step) % count
        if not exchange.engine.offers.read(found[source][1], rank, into[source].view()):
            return False
    return True


__all__ = ["allgather", "alltoall"]

"""The boards of one process: makes them, hands their areas to the other members, takes theirs. (driver)

An area is a memory file without a name. It is handed over as a descriptor by the bells of the two processes
(`ckpt.transport.rings.bell`), as a ring is, with the number of the group that the board is for. What comes before the board
is made here is kept, at most PENDING_MOST of it.

    none ──make──▶ offered ──each member looks at each area──▶ complete
                      └── offered again after OFFER_AGAIN_NS, then after twice that, up to OFFER_LONGEST_NS

A board that never becomes complete (no memory, no descriptor, a member that has no bell) costs nothing but these offers: its
group goes on with messages.

Not here: what a board does (`board.py`), which groups get one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ckpt.transport.boards.offers import Offers
from ckpt.transport.rings.ringwire import RingWire

if TYPE_CHECKING:
    from ckpt.transport.boards._board import Board, Host

BOARDS_MOST: Final = 16
"""Of one process: further groups go on with messages. An area takes 260 KiB."""
PENDING_MOST: Final = 64
OFFER_AGAIN_NS: Final = 1_000_000_000
OFFER_LONGEST_NS: Final = 300_000_000_000
LOOK_EVERY_NS: Final = 2_000_000
"""After so long without a round of progress a collective does not take the short way."""


def _always() -> bool:
    return True


class _Entry:
    """A board, and when its area is offered next."""

    def __init__(self, board: Board, members: Sequence[int], now_ns: int) -> None:
        self.board = board
        self.members = tuple(members)
        self.offer_ns = now_ns
        self.wait_ns = OFFER_AGAIN_NS


class Boards:
    """The boards of one process, by the number of their group. The caller holds the port's lock."""

    def __init__(
        self,
        wire: RingWire,
        rank: int,
        common: Any,
        epoch: int,
        spin_ns: int,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`common`: the endpoint's, which says whether something waits to be sent. `spin_ns`: how long a wait may look."""
        from ckpt.transport.boards._board import Host

        assert wire.inbox is not None
        self.is_free: Callable[[], bool] = _always
        """May a wait look at the boards for a short time now? Else it has something else to do first."""
        self.offers = Offers()
        """Of memory of the program: for collectives of what is too long for a board."""
        self._wire = wire
        self._rank = rank
        self._clock = clock
        self.host: Host = Host(wire.inbox, common, spin_ns, wire.pause_ns, epoch)
        self._entries: dict[int, _Entry] = {}
        self._pending: dict[tuple[int, int], int] = {}
        self.counts = {"boards": 0, "boards_refused": 0}
        wire.on_board = self._on_offer

    def make(self, number: int, members: Sequence[int]) -> Board | None:
        """The board of the group with this number, whose members are these ranks; None: there is none for it."""
        from ckpt.transport.boards._board import Board

        if len(self._entries) >= BOARDS_MOST:
            return None
        try:
            board = Board(self.host, len(members), members.index(self._rank))
        except OSError:
            self.counts["boards_refused"] += 1
            return None
        self._entries[number] = _Entry(board, members, self._clock())
        self.counts["boards"] += 1
        for source in members:
            if (fd := self._pending.pop((number, source), None)) is not None:
                self._add(number, source, fd)
        self.attend(number)
        return board

    def attend(self, number: int) -> None:
        """A round of progress was made: offer the area of a board to members that do not look at it, if it is time."""
        now_ns = self._clock()
        self.host.due_ns = now_ns + LOOK_EVERY_NS
        entry = self._entries.get(number)
        if entry is None or entry.board.fd < 0:
            return
        if entry.board.is_complete:
            entry.board.forget_fd()
        elif now_ns >= entry.offer_ns:
            entry.offer_ns = now_ns + entry.wait_ns
            entry.wait_ns = min(2 * entry.wait_ns, OFFER_LONGEST_NS)
            for rank in entry.members:
                if rank != self._rank:
                    self._wire.offer_board(rank, number, entry.board.fd)

    def close(self, number: int) -> None:
        """The group is gone. What its board owed must have been settled."""
        entry = self._entries.pop(number, None)
        if entry is not None:
            entry.board.close()
        for key in [key for key in self._pending if key[0] == number]:
            os.close(self._pending.pop(key))

    def _on_offer(self, rank: int, number: int, fd: int) -> None:
        """`fd` belongs to the caller. What is not taken comes once more, if its owner still misses this reader then."""
        try:
            own = os.dup(fd)
        except OSError:  # no descriptor is left
            self.counts["boards_refused"] += 1
            return
        if number in self._entries:
            self._add(number, rank, own)
        elif len(self._pending) < PENDING_MOST or (number, rank) in self._pending:
            former = self._pending.get((number, rank))
            self._pending[number, rank] = own
            if former is not None:
                os.close(former)
        else:
            self.counts["boards_refused"] += 1
            os.close(own)

    def _add(self, number: int, rank: int, fd: int) -> None:
        entry = self._entries[number]
        try:
            if rank in entry.members and not entry.board.reads >> entry.members.index(rank) & 1:
                entry.board.add(entry.members.index(rank), fd)
        except (OSError, ValueError):
            self.counts["boards_refused"] += 1
        finally:
            os.close(fd)

"""The exchange of a communicator: a collective as one message from each contributor to all its readers.

Every collective of this kind has the next *number*. A member contributes to it at most once, for some readers, and then
waits for the contributions of some sources. Two *carriers* bring a contribution to a reader:

    message    an ordinary message in the collective plane: number, kind, data. Logged, acknowledged, stamped and saved
               with the port like any other
    board      memory that the reader looks at (`ckpt.transport.boards.board`). There only while reader and writer run:
               before an image, and for a reader that sleeps or cannot look, it becomes a message, too

A reader takes by number, from wherever it finds it; what comes a second time is dropped. So an image needs nothing of the
boards, a restart begins with messages, and the cut is that of messages: `Exchange` itself has a number and nothing else.

Who takes part follows only from what is the same at all ranks and over restarts: the size of the group (at most
MEMBERS_MOST) and `Engine.one_host`. A contribution that is too long for a slot is announced (kind ORDINARY), and the
ordinary schedule follows at all members.

    run ── post ──▶ complete ── all sources there ──▶ taken
                       └── an image may be taken here; an error ends it, and the number is used up

Not here: how values are combined (collectives.py), nonblocking collectives, the fast path (engine/fast_path/quick_boards.c).
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import ERR_INTERN, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.engine.engine import REFERENCE_BYTES, SEND_CHECK_MASK
from ckpt.transport.boards.board import MEMBERS_MOST, SLOT_BYTES

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommShared
    from ckpt.mpi.engine.engine import Engine

VALUE, ORDINARY, OFFER, WHOLE = 0, 1, 2, 3
"""Kinds of contributions: data; none, since the ordinary schedule follows; and those of direct.py: where the data are, and
that all have been read."""

TAG = 1 << 30
"""Of the messages, in the collective plane: schedules have lower ones."""

BOARD_AFTER = 4
"""A communicator gets its board after so many collectives: many do not live as long."""

MESSAGES_AFTER_ONE = 64
"""After a message to a reader that was behind, so many numbers go by message, too (`Exchange.give`)."""

_HEAD = struct.Struct("<QI4x")
_DATA_AT = envelope.SIZE + _HEAD.size

Taken = tuple[int, Buffer]


class Exchange:
    """The exchange of one communicator at one member. Members are ranks in the group; sets of them are bits."""

    __slots__ = (
        "board",
        "context",
        "engine",
        "head",
        "members",
        "messages_until",
        "number",
        "others",
        "rank",
        "shared",
        "tried",
    )

    def __init__(self, engine: Engine, shared: CommShared, rank: int) -> None:
        self.engine = engine
        self.shared = shared
        self.members = shared.group
        self.rank = rank
        self.others = (1 << len(self.members)) - 1 & ~(1 << rank)
        self.number = 0
        """Of the next collective."""
        self.context = engine.matcher.context(shared.base + envelope.PLANE_COLLECTIVE)
        self.head = envelope.pack(envelope.EAGER, engine.progress.rank, TAG, self.context.number)
        self.board: Any = None
        """The `Board`, in an image None."""
        self.tried = 0
        self.messages_until = 0

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        self.messages_until = 0  # images of before do not have it
        for name, value in state[1].items():
            setattr(self, name, value)
        self.board, self.tried = None, 0

    # -- a collective ------------------------------------------------------------------------------

    def run(
        self, kind: int, data: Buffer, readers: int, sources: int, *, look_ns: int = 0
    ) -> dict[int, Taken]:
        """Contribute for `readers`, and wait for `sources`: their contributions. The caller does not hold the lock.
        `data`: bytes; more than SLOT_BYTES are a message, not on the board.
        `look_ns`: a wait looks at the boards for so long before it sleeps, if that is longer than usual.

        MpiException: the communicator is revoked, or a member has failed."""
        engine = self.engine
        with engine.progress.lock:
            if engine.choices is not None:
                engine.choices.started()
            self._check()
            number = self.number
            self.number = number + 1
            self._tend()
            self._post(number, kind, data, readers)
            taken = self._complete(number, sources, look_ns)
            if readers and not sources:
                self._throttle()
            return taken

    def complete(self, number: int, sources: int) -> dict[int, Taken]:
        """As `run`, for what the fast path has begun."""
        with self.engine.progress.lock:
            return self._complete(number, sources)

    def give(self, data: Buffer, member: int) -> None:
        """Contribute for one member, and wait for nobody: as `run`, for contributions that may run ahead of who takes them.
        After a reader that slept, or had not taken the last few from the board, the next ones are messages at once: to write
        both costs more. Raises as `run`."""
        readers = 1 << member
        engine = self.engine
        with engine.progress.lock:
            if engine.choices is not None:
                engine.choices.started()
            self._check()
            number = self.number
            self.number = number + 1
            self._tend()
            if self.board is None or number >= self.messages_until:
                if self._post(number, VALUE, data, readers):
                    self.messages_until = number + MESSAGES_AFTER_ONE
            else:
                self._settle(readers)
                self._send(number, VALUE, data, readers)
            if self.board is not None:
                self.board.finish(number)
            self._throttle()

    def skip_to(self, number: int) -> None:
        """This member has no part in the collectives before `number`, or no more."""
        with self.engine.progress.lock:
            if self.number < number:
                self.number = number

    def _check(self) -> None:
        if self.shared.revoked or self.shared.broken:
            raise self.engine.failed_ranks.collective_error(self.shared)

    def _tend(self) -> None:
        """Make the board when it is time; let it look after itself."""
        boards = self.engine.boards
        if boards is None:
            return
        if self.board is not None:
            boards.attend(self.shared.base)
        elif self.tried <= BOARD_AFTER:
            self.tried += 1
            if self.tried == BOARD_AFTER:
                self.board = boards.make(self.shared.base, self.members)

    def _post(self, number: int, kind: int, data: Buffer, readers: int) -> int:
        """Returns the readers that got a message."""
        if not readers:
            return 0
        if self.board is not None:
            readers = self.board.post(number, kind, data, readers)
            self._settle(readers)
        self._send(number, kind, data, readers)
        return readers

    def _send(self, number: int, kind: int, data: Buffer, readers: int) -> None:
        """Contributions as messages."""
        if not readers:
            return
        engine, message = self.engine, self.head + _HEAD.pack(number, kind)
        by_reference = len(data) >= REFERENCE_BYTES
        if not by_reference:
            message += data
        for member, rank in enumerate(self.members):
            if readers >> member & 1 and rank not in engine.failed_ranks.known:
                if by_reference:
                    engine.progress.send(rank, message, data)
                else:
                    engine.progress.send(rank, message)

    def _complete(self, number: int, sources: int, look_ns: int = 0) -> dict[int, Taken]:
        engine = self.engine
        end_ns = time.monotonic_ns() + look_ns if look_ns else 0
        try:
            engine.make_progress()
            while (taken := self._take(number, sources)) is None:
                self._check()
                found = self._look(number, sources)
                if found == 2:
                    engine.make_progress()
                elif found == 0 and time.monotonic_ns() >= end_ns:
                    self._sleep(number, sources)
                    engine.advance_collectives()
            return taken
        finally:
            if self.board is not None:
                self.board.finish(number)

    def _look(self, number: int, sources: int) -> int:
        """Look at the boards for a short time: see `Board.wait`."""
        boards = self.engine.boards
        if self.board is None or self.engine.look is None or not boards.is_free():
            return 0
        found: int = self.board.wait(number, sources)
        return found

    def _sleep(self, number: int, sources: int) -> None:
        """Wait until a message comes, unless all are there. An image may be taken here."""
        if self.board is not None:
            self.board.arm()
        try:
            if not self._is_there(number, sources):
                self.engine.block(hungry=True)
        finally:
            if self.board is not None:
                self.board.disarm()

    def _throttle(self) -> None:
        """Who waits for nobody waits while the backlog to a reader is high; looked at now and then."""
        engine = self.engine
        engine.sends += 1
        if not engine.sends & SEND_CHECK_MASK:
            for rank in self.members:
                engine.throttle(rank)

    # -- what the others contribute ----------------------------------------------------------------

    def _is_there(self, number: int, sources: int) -> bool:
        board = self.board
        for member in range(len(self.members)):
            if sources >> member & 1 and not (
                (board is not None and board.has(number, member)) or self._has_message(number, member)
            ):
                return False
        return True

    def _take(self, number: int, sources: int) -> dict[int, Taken] | None:
        """The contributions of the sources; None: not all are there, and nothing is taken."""
        taken: dict[int, Taken] = {}
        by_message = []
        for member in range(len(self.members)):
            if not sources >> member & 1:
                continue
            if self._has_message(number, member):
                by_message.append(member)
            elif (found := self._shown(number, member)) is not None:
                taken[member] = found
            else:
                return None
        for member in by_message:
            channel = self.context.channels[self.members[member], TAG]
            data = self.engine.matcher.pop(channel)
            self.engine.settle_account(channel, data)
            value: Buffer = memoryview(data)[_DATA_AT:]
            if len(value) <= SLOT_BYTES:
                value = bytes(value)  # may be kept, and be in an image; longer ones are loaded at once
            taken[member] = _HEAD.unpack_from(data, envelope.SIZE)[1], value
        return taken

    def _shown(self, number: int, member: int) -> Taken | None:
        """What a member shows on its board."""
        if self.board is None:
            return None
        try:
            found: Taken | None = self.board.take(number, member)
        except ValueError as damage:
            raise MpiException(ERR_INTERN, f"rank {self.members[member]} of the job: {damage}") from damage
        return found

    def _has_message(self, number: int, member: int) -> bool:
        """Is the oldest message of a member the one with this number? Older ones are dropped."""
        channel = self.context.channels.get((self.members[member], TAG))
        if channel is None:
            return False
        while channel.messages:
            found = _HEAD.unpack_from(channel.messages[0][1], envelope.SIZE)[0]
            if found >= number:
                return bool(found == number)
            self.engine.settle_account(channel, self.engine.matcher.pop(channel))
        return False

    # -- images, and the end -----------------------------------------------------------------------

    def settle(self) -> None:
        """What is on the board, and may be needed, becomes messages. The lock is held."""
        if self.board is not None:
            self._settle(self.others)

    def _settle(self, members: int) -> None:
        """The same for some of the members: messages are in the order of numbers."""
        if members:
            for number, kind, data, needed in self.board.settle(members):
                self._send(number, kind, data, needed)

    def close(self) -> None:
        """The communicator is freed. The lock is held."""
        self.settle()
        for member in range(len(self.members)):
            self._has_message(self.number, member)  # drops what has come a second time
        if self.board is not None:
            self.board = None
            self.engine.boards.close(self.shared.base)


def settle_all(engine: Engine) -> None:
    """`Exchange.settle` of all communicators: an image is about to be captured. The lock is held."""
    for shared in list(engine.shared.values()):
        if shared.exchange is not None:
            shared.exchange.settle()


def exchange_of(engine: Engine, shared: CommShared, rank: int) -> Exchange | None:
    """The exchange of a communicator; None: its collectives are schedules."""
    if not engine.one_host:
        return None
    if shared.exchange is None and 2 <= len(shared.group) <= MEMBERS_MOST and shared.group == shared.peers:
        shared.exchange = Exchange(engine, shared, rank)
    found: Exchange | None = shared.exchange
    return found


__all__ = [
    "OFFER",
    "ORDINARY",
    "SLOT_BYTES",
    "VALUE",
    "WHOLE",
    "Exchange",
    "exchange_of",
    "settle_all",
]

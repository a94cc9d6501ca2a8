"""A board: what one member of a group on one host shows the others, without a message. What `_board.c` has to do. Pure.

Every member has an *area* of shared memory, which it alone writes and the others read:

    published   the epoch of the latest image that this member has captured, is about to capture, or never will
    captured    the epoch of its latest image
    reads       the members (bits) whose areas it looks at
    word        ASLEEP: it sleeps, and looks at no area; AWAKE: it looks when it comes to wait
    done        number of collectives that it has left
    SLOTS slots, each with number + 1, kind, length and the data of one contribution

The contribution to collective `number` goes to slot number % SLOTS. A board is only a faster way for what is otherwise a
message: `post` says which readers need the message all the same, and `settle` says what has to become a message because an
image is about to be taken (or the board to be closed). So an image needs nothing of a board.

Rules (tests/model/boards.py leaves them out one by one)

- *No orphan.* A contribution may be read only while its member's `published` epoch is not above the reader's own image. That
  is looked at after the number of the slot, and a member publishes before it captures.
- *No loss.* Before an image is captured, all contributions that a reader may not have taken before its own image of that
  epoch become messages, which the image of the port has. What a member has `done` counts as an acknowledgement: only while
  its `published` epoch is not above the own image.
- A reader that could not read a slot, since its `captured` epoch is below the writer's `published` one, gets a message.
- A slot is written again only when nobody needs it: until then contributions are messages. A reader that got a message, too,
  may find a slot while it is written: it looks at the number again after it has copied.
- Messages to a reader are in the order of numbers: before one, what the reader has on the board only becomes messages.
- A member says ASLEEP, and looks once more, before it sleeps; a writer looks at the word after it has written. So one of the
  two sees the other (the order of memory is that of a ring: tests/model/ring_memory.py), and who sleeps gets a message.
- A reader takes by number: what it has taken already comes again as a message after an image, and is dropped.

Not here: messages, waiting, what contributions mean.
"""

from __future__ import annotations

import struct
from typing import Final

SLOTS: Final = 4
SLOT_BYTES: Final = 64 << 10
MEMBERS_MOST: Final = 8
AWAKE, ASLEEP = 0, 1

MAGIC: Final = 0x44524F42
VERSION: Final = 1
START: Final = struct.Struct("<IIII")
PUBLISHED_AT, CAPTURED_AT, READS_AT, WORD_AT, DONE_AT = 64, 72, 80, 84, 128
SLOTS_AT: Final = 256
SMALL_BYTES: Final = 48
"""Data of at most this size lie in the slot's header, longer ones in the slot's own part of the area."""
DATA_AT: Final = 4096
_HEADER = struct.Struct("<QII")
_U64, _U32 = struct.Struct("<Q"), struct.Struct("<I")

try:
    from ckpt.transport.boards import _board
except ImportError:
    _board = None  # type: ignore[assignment]


def available() -> bool:
    """Is there the C module, so that boards can be used between processes?"""
    return _board is not None


def area_bytes() -> int:
    """Size of an area."""
    return DATA_AT + SLOTS * SLOT_BYTES


def new_area() -> bytearray:
    """An area of a member that has posted nothing yet."""
    area = bytearray(area_bytes())
    START.pack_into(area, 0, MAGIC, VERSION, SLOTS, SLOT_BYTES)
    return area


class Board:
    """One member's end. Members are numbered from 0; sets of members are bits of an int. `area` is the own one."""

    def __init__(self, size: int, rank: int, area: bytearray, epoch: int = 0) -> None:
        self.size, self.rank = size, rank
        self.areas: list[bytearray | None] = [None] * size
        self.areas[rank] = self.area = area
        self._owed = [0] * SLOTS
        """Who has this slot's contribution here only, and may not have taken it."""
        self._owed_number = [0] * SLOTS
        self.publish(epoch)
        self.advance(epoch)

    # -- epochs and members ------------------------------------------------------------------------

    def publish(self, epoch: int) -> None:
        """Contributions may belong to `epoch` from now on."""
        _U64.pack_into(self.area, PUBLISHED_AT, epoch)

    def advance(self, epoch: int) -> None:
        """The image of `epoch` is captured."""
        _U64.pack_into(self.area, CAPTURED_AT, epoch)

    def add(self, member: int, area: bytearray) -> None:
        """Look at a member's area from now on."""
        self.areas[member] = area
        _U32.pack_into(self.area, READS_AT, self._own(READS_AT) | 1 << member)

    @property
    def is_complete(self) -> bool:
        """Do all members look at each other's areas, as far as this one takes part?"""
        return all(self._is_read_by(member) for member in range(self.size) if member != self.rank)

    def _own(self, at: int) -> int:
        return int(_U32.unpack_from(self.area, at)[0])

    def _number_of(self, member: int, at: int) -> int:
        area = self.areas[member]
        assert area is not None
        return int(_U64.unpack_from(area, at)[0])

    def _is_read_by(self, member: int) -> bool:
        area = self.areas[member]
        return area is not None and bool(_U32.unpack_from(area, READS_AT)[0] >> self.rank & 1)

    # -- as a writer -------------------------------------------------------------------------------

    def post(self, number: int, kind: int, data: bytes, readers: int) -> int:
        """Contribute to collective `number`, for `readers`. Returns those of them who need a message with it.

        To contribute the same again changes nothing but the answer."""
        return self.owe(number, readers) if self.show(number, kind, data) else readers

    def show(self, number: int, kind: int, data: bytes) -> bool:
        """The first half of `post`: write the slot. False: it is too short, or needed."""
        slot = number % SLOTS
        if len(data) > SLOT_BYTES:
            return False
        if _U64.unpack_from(self.area, SLOTS_AT + 64 * slot)[0] != number + 1:
            if self._needed(slot):
                return False
            _U64.pack_into(self.area, SLOTS_AT + 64 * slot, 0)
            at = self._data_at(slot, len(data))
            self.area[at : at + len(data)] = data
            _HEADER.pack_into(self.area, SLOTS_AT + 64 * slot, number + 1, len(data), kind)
        return True

    def owe(self, number: int, readers: int) -> int:
        """The second half: who cannot be relied on to look?"""
        by_message = 0
        published = self._number_of(self.rank, PUBLISHED_AT)
        for member in range(self.size):
            if readers >> member & 1 and not (
                self._is_read_by(member)
                and self._number_of(member, CAPTURED_AT) >= published
                and self._word(member) == AWAKE
            ):
                by_message |= 1 << member
        slot = number % SLOTS
        self._owed[slot], self._owed_number[slot] = readers & ~by_message, number
        return by_message

    def clone(self) -> Board:
        """The same, with areas that are still shared: whoever clones a whole group replaces them."""
        new = Board.__new__(Board)
        new.size, new.rank, new.area = self.size, self.rank, self.area
        new.areas = list(self.areas)
        new._owed, new._owed_number = list(self._owed), list(self._owed_number)
        return new

    def key(self) -> tuple[object, ...]:
        """Hashable: what this end has besides the areas."""
        numbers = [number if owed else 0 for number, owed in zip(self._owed_number, self._owed, strict=True)]
        return tuple(area is not None for area in self.areas), tuple(self._owed), tuple(numbers)

    def _data_at(self, slot: int, nbytes: int) -> int:
        return SLOTS_AT + 64 * slot + 16 if nbytes <= SMALL_BYTES else DATA_AT + SLOT_BYTES * slot

    def _word(self, member: int) -> int:
        area = self.areas[member]
        assert area is not None
        return int(_U32.unpack_from(area, WORD_AT)[0])

    def _needed(self, slot: int) -> int:
        """Those who may not have taken what is in a slot, and have it there only."""
        for member in range(self.size):
            if self._owed[slot] >> member & 1:
                done = self._number_of(member, DONE_AT)  # before the epoch
                trusted = self._number_of(member, PUBLISHED_AT) <= self._number_of(self.rank, CAPTURED_AT)
                if trusted and done > self._owed_number[slot]:
                    self._owed[slot] &= ~(1 << member)
        return self._owed[slot]

    def settle(self, members: int) -> list[tuple[int, int, bytes, int]]:
        """What has to become messages to these members now, oldest first: (number, kind, data, those who need it)."""
        found = []
        for slot in range(SLOTS):
            needed = self._needed(slot) & members
            if needed:
                _, nbytes, kind = _HEADER.unpack_from(self.area, SLOTS_AT + 64 * slot)
                at = self._data_at(slot, nbytes)
                found.append((self._owed_number[slot], kind, bytes(self.area[at : at + nbytes]), needed))
                self._owed[slot] &= ~needed
        return sorted(found)

    # -- as a reader -------------------------------------------------------------------------------

    def has(self, number: int, member: int) -> bool:
        """May the member's contribution to collective `number` be taken from its area now?"""
        area = self.areas[member]
        if area is None or _U64.unpack_from(area, SLOTS_AT + 64 * (number % SLOTS))[0] != number + 1:
            return False
        return self._number_of(member, PUBLISHED_AT) <= self._number_of(self.rank, CAPTURED_AT)

    def take(self, number: int, member: int) -> tuple[int, bytes] | None:
        """(kind, data) of a contribution; None: not to be had here. Raises ValueError: an area that cannot be."""
        if not self.has(number, member):
            return None
        area, slot = self.areas[member], number % SLOTS
        assert area is not None
        _, nbytes, kind = _HEADER.unpack_from(area, SLOTS_AT + 64 * slot)
        if nbytes > SLOT_BYTES:
            raise ValueError(f"member {member} shows a contribution of {nbytes} bytes")
        at = self._data_at(slot, nbytes)
        data = bytes(area[at : at + nbytes])
        return (kind, data) if self.has(number, member) else None

    def finish(self, number: int) -> None:
        """This member has all that it needs of collective `number`, and of all before."""
        _U64.pack_into(self.area, DONE_AT, number + 1)

    def arm(self) -> None:
        """Say that this member is going to sleep. It looks once more, and then sleeps until a message comes."""
        _U32.pack_into(self.area, WORD_AT, ASLEEP)

    def disarm(self) -> None:
        """Say that this member looks by itself."""
        _U32.pack_into(self.area, WORD_AT, AWAKE)

"""When ranks that share memory may take their images: the rules. Pure.

::

    running ──gather──▶ gathered ──stand──▶ standing ──the last one stands──▶ together ──copied──▶ copied ──leave──▶ running
       ▲                    │                  │
       └──────withdraw──────┴──────────────────┘

    gathered    the main thread is at a place where it can be captured, and waits; messages are handled, other threads go on
    standing    all threads of the program stand still, and no message is handled: nothing of this rank stores anything
    together    all members stand. From here on nobody can withdraw; each copies its own part
    copied      the part is copied, and must not change the image any more; the rank goes on when nobody is together

A *member* is a rank with an open window, or one that has mapped a file for shared writing which another rank has mapped,
too; all members of a host stand together, whatever they have in common. A rank that has files which no other rank has mapped
stands alone, for the case that another one maps them meanwhile.

Rules (tests/model/shared_memory.py leaves them out one by one)

- Nobody copies before all members stand: else a part has what is stored after the image of who stores it.
- Nobody goes on before all have copied: else a part that is copied later has what is stored after the image.
- Who has become a member after its image of an epoch is not waited for in that epoch: it stores nothing yet. For nobody
  stores to new memory before :func:`may_store`: all members have told each other the epoch of their last images, twice, and
  all have told the same one. What was told the second time was looked up when all were members. So the images up to that
  epoch came before all stores, and all members stand together for each later one.
- A file may be stored to as soon as it is mapped. So a rank has no image of an epoch if another rank, which has a file in
  common with it, has had its image of that epoch without it; also if that other rank has died since.
- Who copies for so long that the others go on without it (:meth:`Table.give_up`) has no image of this epoch.
- A member that has died is none any more.

An image that a rank does not have costs the round, as every image that fails. *token*: a number that is drawn when ranks
come together. It is in the images of all of them, so that a restart can tell images that were not taken together.

Not here: where the table is (:mod:`ckpt.shared_memory.table`), how long ranks wait (:mod:`ckpt.shared_memory.host`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from ckpt.transport.records import dataclass

__all__ = ["COPIED", "GATHERED", "MANY", "RUNNING", "STANDING", "TOGETHER", "Slot", "Table", "may_store"]

MANY: Final = 0
RUNNING: Final = 0
GATHERED: Final = 1
STANDING: Final = 2
TOGETHER: Final = 3
COPIED: Final = 4


@dataclass(slots=True)
class Slot:
    """One rank. ``windows``: how many it has open; ``epoch``: what ``phase`` is for; ``done``: the epoch of its last image,
    ``token``: that of the same; ``is_slow``: it copies for as long as it takes to write its image; ``files``: numbers of
    files, and :data:`MANY` where these are not all."""

    pid: int = 0
    windows: int = 0
    phase: int = RUNNING
    epoch: int = 0
    done: int = 0
    token: int = 0
    is_slow: int = 0
    is_dead: int = 0
    files: frozenset[int] = frozenset()

    def shares_files_with(self, other: Slot) -> bool:
        if MANY in self.files or MANY in other.files:
            return bool(self.files and other.files)
        return not self.files.isdisjoint(other.files)


class Table:
    """The ranks of one host, by the number of the process. ``given_up``: the highest epoch for which ranks have gone on
    without one of them that copied; ``token``: the last one."""

    def __init__(self) -> None:
        self.slots: dict[int, Slot] = {}
        self.given_up = 0
        self.token = 0

    def members(self) -> Iterator[tuple[int, Slot]]:
        return (
            (number, slot)
            for number, slot in self.slots.items()
            if not slot.is_dead and (slot.windows or self.shares_files(number))
        )

    def shares_files(self, me: int) -> bool:
        mine = self.slots[me]
        return bool(mine.files) and any(
            number != me and not slot.is_dead and mine.shares_files_with(slot)
            for number, slot in self.slots.items()
        )

    # -- members -----------------------------------------------------------------------------------

    def join(self, me: int, pid: int, done: int, token: int) -> None:
        """A window is made here, or comes from an image. ``done``, ``token``: of the last image."""
        slot = self._here(me, pid, done)
        slot.windows, slot.token = slot.windows + 1, token

    def map_files(self, me: int, pid: int, done: int, files: frozenset[int]) -> None:
        """These files are mapped for shared writing here, or are about to be."""
        self._here(me, pid, done).files = files

    def _here(self, me: int, pid: int, done: int) -> Slot:
        slot = self.slots.setdefault(me, Slot())
        slot.pid, slot.is_dead, slot.done = pid, 0, max(slot.done, done)
        return slot

    def part(self, me: int) -> None:
        """A window is freed here."""
        self.slots[me].windows -= 1

    def drop(self, dead: Collection[int]) -> None:
        """These ranks have died."""
        for number in dead:
            self.slots[number].windows, self.slots[number].is_dead = 0, 1
        self._come_together()

    # -- coming together ---------------------------------------------------------------------------

    def gather(self, me: int, epoch: int) -> None:
        self._enter(me, GATHERED, epoch)

    def missing(self, me: int, epoch: int) -> list[int]:
        """The other members that are not on their way to the images of this epoch."""
        members = dict(self.members())
        return [
            number
            for number, slot in members.items()
            if number != me
            and me in members
            and slot.done < epoch
            and (slot.phase == RUNNING or slot.epoch != epoch)
        ]

    def is_passed_over(self, me: int, epoch: int) -> bool:
        mine = self.slots[me]
        return any(
            number != me and slot.done >= epoch and mine.shares_files_with(slot)
            for number, slot in self.slots.items()
            if not (mine.phase >= TOGETHER and slot.token == mine.token)
        )

    def stand(self, me: int, epoch: int, token: int) -> None:
        """``token``: drawn by the caller, used if it is the last one. The caller has looked whether it is passed over."""
        self._enter(me, STANDING, epoch)
        self._come_together(token)

    def is_together(self, me: int) -> bool:
        return self.slots[me].phase == TOGETHER

    def withdraw(self, me: int) -> bool:
        """``False``: it is too late for that."""
        slot = self.slots[me]
        if slot.phase >= TOGETHER:
            return False
        slot.phase = RUNNING
        return True

    def _enter(self, me: int, phase: int, epoch: int) -> None:
        slot = self.slots[me]
        slot.phase, slot.epoch = phase, epoch

    def _come_together(self, token: int = 0) -> None:
        members = dict(self.members())
        epoch = max((slot.epoch for slot in members.values() if slot.phase == STANDING), default=0)
        awaited = [slot for slot in members.values() if slot.done < epoch]
        if any(slot.phase != STANDING or slot.epoch != epoch for slot in awaited):
            awaited = []
        alone = [
            slot for number, slot in self.slots.items() if slot.phase == STANDING and number not in members
        ]
        for slot in (*awaited, *alone):
            self.token = token = token or self.token + 1
            slot.phase, slot.token = TOGETHER, token

    # -- going on ----------------------------------------------------------------------------------

    def copied(self, me: int) -> bool:
        """The own part is copied. ``False``: too late, the others have gone on; or one has mapped a file meanwhile."""
        slot = self.slots[me]
        is_passed_over = self.is_passed_over(me, slot.epoch)
        slot.phase, slot.done = COPIED, slot.epoch
        return slot.epoch > self.given_up and not is_passed_over

    def waits_for(self, me: int) -> list[int]:
        """The members that still copy, for the images of which this rank's is one."""
        epoch = self.slots[me].epoch
        return [number for number, slot in self.members() if slot.phase == TOGETHER and slot.epoch == epoch]

    def give_up(self, me: int) -> None:
        """Go on, although one still copies."""
        self.given_up = max(self.given_up, self.slots[me].epoch)

    def leave(self, me: int) -> None:
        self.slots[me].phase = RUNNING


def may_store(told: Sequence[Sequence[int]]) -> bool:
    """``told``: for each time that the members of a new window have told each other the epochs of their last images, what
    they have told. All have the same, so all decide alike."""
    return len(told) > 1 and len({*told[-1], *told[-2]}) == 1

"""The memory that ranks of one host share, as one rank uses it: allocated, mapped, freed, and taken into images. (driver)

The file is one of the agent's, in memory and without a name; a rank opens it as ``/proc/AGENT/fd/N``. So it needs no
cleaning: it is gone with the processes of the host, and each incarnation of the job has a new one. No byte is given out
twice. (Freed memory is returned to the system: a hole is punched.)

An image is taken in two steps, since ranks come to their places at different times:

    gather     without the lock, as long as :data:`_GATHER_FIRST_S`, after each attempt that has failed twice as long, up to
               :data:`_GATHER_LONGEST_S`. Between two attempts the program goes on for :data:`_REST` times as long, or until
               all others wait for this rank alone
    stand      with the port frozen and all threads stopped. All others are at the same point, or near it: nobody waits for
               one that has withdrawn
    leave      until the others have copied, too

The rules are those of :mod:`ckpt.shared_memory.rules`.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from ckpt.image.errors import RestoreError
from ckpt.shared_memory.pages import copy_of, give_back, reserve
from ckpt.shared_memory.rules import RUNNING
from ckpt.shared_memory.segment import Segment
from ckpt.shared_memory.table import MOST_SLOTS, Busy, HostTable, Place, Shared, opened

__all__ = ["HostMemory", "NoImage", "NotTogether"]

_GATHER_FIRST_S: Final = 0.05
_GATHER_LONGEST_S: Final = 2.0
_REST: Final = 2
_STAND_S: Final = 5.0
_COPY_S: Final = 5.0
_COPY_BYTES_S: Final = 200 << 20
"""After so long, and one second for so many bytes, a rank that copies is left behind."""
_PAUSE_S: Final = 0.0002
"""For each rank that has something to share: all of them look at the table."""
_KEPT_S: Final = 60.0
_LOOK_FOR_DEAD_S: Final = 0.1


class NotTogether(Exception):
    """The ranks that share memory do not stand still at one instant now: the image is tried again."""


class NoImage(Exception):
    """There can be no image of this rank for this epoch."""


class Lock(Protocol):
    def acquire(self) -> bool: ...
    def release(self) -> None: ...


class HostMemory:
    """The shared memory of one rank. Every method but :meth:`content_of` needs the runtime's lock."""

    def __init__(self, owner: Any, place: Place, number: int, lock: Lock) -> None:
        """``owner``: the runtime, which an image knows by name; ``number``: of the process."""
        self._owner, self.place, self._number, self._lock = owner, place, number, lock
        self._known: HostTable | None = None
        self._segments: weakref.WeakSet[Segment] = weakref.WeakSet()
        self._files: frozenset[int] = frozenset()
        self._seen: dict[int, float] = {}
        """When each of them was seen last."""
        self._copies: dict[int, Any] = {}
        self.token = 0
        """Of the last image of this rank: see the rules."""
        self._is_awaited = False
        """Others may wait for this rank, to stand or to go on."""
        self._epoch = 0
        self._limit_s, self._pause_s = _GATHER_FIRST_S, _PAUSE_S
        self._rests_until = 0.0
        self._looked_for_dead = 0.0

    def __reduce__(self) -> Any:
        return getattr, (self._owner, "shared_memory")

    @property
    def epoch(self) -> int:
        """That of the last image of this rank."""
        return int(self._owner.epoch)

    @property
    def _table(self) -> HostTable:
        if self._known is None:
            self._known = HostTable(self.place)
        return self._known

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """New memory, which is zero. Returns where it begins. Raises OSError, Busy."""
        with self._table.changed() as (table, fd):
            if self._number > MOST_SLOTS:
                raise OSError(
                    f"process {self._number}: shared memory is for the first {MOST_SLOTS} processes"
                )
            offset = table.free_at
            reserve(table, fd, offset + nbytes)
        return offset

    def map(self, offset: int, nbytes: int, part: tuple[int, int], group: tuple[int, ...]) -> Segment:
        """Raises OSError, Busy."""
        with opened(self.place) as fd:
            segment = Segment(fd, offset, nbytes)
        segment.host, segment.offset, segment.part, segment.group = self, offset, part, group
        self._segments.add(segment)
        return segment

    def map_again(self, offset: int, nbytes: int, part: tuple[int, int], group: tuple[int, ...]) -> Segment:
        """Map memory of an image: the same bytes of the host's memory, which is new. Raises RestoreError."""
        try:
            with self._table.changed() as (table, fd):
                reserve(table, fd, max(offset + nbytes, table.free_at))
            return self.map(offset, nbytes, part, group)
        except (OSError, Busy) as failure:
            raise RestoreError(f"{nbytes} bytes of shared memory cannot be had again: {failure}") from failure

    def join(self, segment: Segment) -> None:
        """From now on this rank and others may store to the memory. Raises OSError, Busy."""
        with self._table.changed() as (table, _):
            table.join(self._number, os.getpid(), self.epoch, self.token)
        segment.is_open = True

    def part(self, segment: Segment) -> None:
        """This rank stores nothing more. Raises OSError, Busy."""
        if segment.is_open:
            with self._table.changed() as (table, _):
                table.part(self._number)
            segment.is_open = segment.is_complete = False

    def discard(self, segment: Segment) -> None:
        """All members have parted: return the memory to the system."""
        with opened(self.place) as fd:
            give_back(fd, segment.offset, segment.nbytes)

    # -- images ------------------------------------------------------------------------------------

    @property
    def is_in_use(self) -> bool:
        """Has this rank memory in common with another one, or could it have some at any moment?"""
        return bool(self._files) or any(segment.is_open for segment in self._segments)

    @property
    def has_files(self) -> bool:
        return bool(self._files)

    @property
    def shares_files(self) -> bool:
        """Perhaps, where a rank that has the table is stopped."""
        try:
            with self._changed() as table:
                return self._number in table.slots and table.shares_files(self._number)
        except NotTogether:
            return True

    def map_files(self, files: frozenset[int], *, all_of_them: bool = True) -> None:
        """These files are mapped for shared writing here, beside others if not ``all_of_them``. The lock is not needed.

        A program may map a file anew for each of its steps: so a file counts as mapped for :data:`_KEPT_S` longer. Else the
        ranks would have it mapped at the images of some, and not at those of others, and there would be no checkpoint."""
        now = time.monotonic()
        self._seen.update(dict.fromkeys(files, now))
        if all_of_them:
            for number in [each for each, seen in self._seen.items() if seen < now - _KEPT_S]:
                del self._seen[number]
        files = frozenset(self._seen)
        if files != self._files:
            with contextlib.suppress(NotTogether), self._changed() as table:  # said at the next look
                table.map_files(self._number, os.getpid(), self.epoch, files)
                self._files = files

    def rests(self, epoch: int) -> str:
        """Is it useless to look for a place now? "": no; else which members are not at theirs. This rank has waited for them
        just before, and its program is to go on for some time."""
        if epoch != self._epoch:
            self._epoch, self._limit_s, self._rests_until = epoch, _GATHER_FIRST_S, 0.0
        if time.monotonic() < self._rests_until:
            try:
                with self._changed() as table:
                    missing = table.missing(self._number, epoch)
            except NotTogether as failure:
                return str(failure)
            return _have_not_come(missing) if missing else ""
        return ""

    def gather(self, epoch: int, is_wanted: Callable[[], bool]) -> str:
        """Wait, without the lock, until the other members are at places where they can be captured. "": they are, and
        :meth:`leave` must follow; else who is not.

        ``is_wanted()``: is there still to be an image of this epoch?"""
        try:
            missing = self._gather(epoch, is_wanted)
        except NotTogether as failure:
            return str(failure)
        except BaseException:  # a signal: nobody is to wait for this rank
            self._is_awaited = True
            self.leave()
            raise
        if not missing:
            self._is_awaited = True
            return ""
        self._rests_until = time.monotonic() + _REST * self._limit_s
        self._limit_s = min(2 * self._limit_s, _GATHER_LONGEST_S)
        return _have_not_come(missing)

    def _gather(self, epoch: int, is_wanted: Callable[[], bool]) -> list[int]:
        with self._changed() as table:
            table.gather(self._number, epoch)
        until = time.monotonic() + self._limit_s
        while True:
            with self._changed() as table:
                self._drop_dead(table)
                missing = table.missing(self._number, epoch)
                if not missing:
                    return []
                if time.monotonic() > until or not is_wanted():
                    table.withdraw(self._number)
                    return missing
            self._lock.release()
            try:
                time.sleep(self._pause_s)
            finally:
                self._lock.acquire()

    def stand(self, epoch: int, available: Callable[[], int | None], *, forks: bool = True) -> None:
        """All threads of the program stand still: wait until all members do, then copy the own parts of windows. Mapped
        files are copied next, by others; :meth:`copied` and :meth:`leave` must follow, the second also if this has failed.
        ``available()``: bytes of memory that this rank can still get; None: nobody knows. ``forks``: else this
        rank is slow, if it shares files: they are not copied, but written at once. Raises NotTogether, NoImage."""
        needed, left = sum(each.part[1] for each in self._segments), available()
        if left is not None and needed > left:
            raise NoImage(
                f"{needed} bytes of shared memory cannot be copied: {left} bytes of memory are left"
            )
        token, is_slow = int.from_bytes(os.urandom(8), "little") | 1, not forks and self.shares_files
        with self._changed() as table:
            self._require_all(table)
            self._require_images(table, epoch)
            table.slots[self._number].is_slow = int(is_slow)
            table.stand(self._number, epoch, token)
        until = time.monotonic() + _STAND_S
        while not self._is_together(epoch, until):
            time.sleep(self._pause_s)
        self._copies = {id(each): copy_of(each.own_part()) for each in self._segments}

    def copied(self) -> None:
        """All that this rank shares is copied: the others may go on; where this rank is slow, when it leaves. Raises
        NoImage."""
        with self._changed() as table:
            if table.slots[self._number].is_slow:
                return
            if not table.copied(self._number):
                raise NoImage(
                    "the other ranks that share memory have gone on: copying it has taken too long, or one of them "
                    "has mapped a file meanwhile"
                )

    def _is_together(self, epoch: int, until: float) -> bool:
        with self._changed() as table:
            if table.is_together(self._number):
                self.token = table.slots[self._number].token  # that of the table may be of others by now
                return True
            self._drop_dead(table)
            self._require_images(table, epoch)
            missing = table.missing(self._number, epoch)
            if (missing or time.monotonic() > until) and table.withdraw(self._number):
                raise NotTogether(_have_not_come(missing))
        return False

    def leave(self) -> None:
        """The image is captured, or there is none: go on when all have copied. Nobody waits for this rank then."""
        if not self._is_awaited:
            return None
        self._copies, self._is_awaited = {}, False
        until = time.monotonic() + _COPY_S + sum(each.nbytes for each in self._segments) / _COPY_BYTES_S
        while True:
            try:
                with self._table.changed() as (table, _):
                    if self._may_leave(table, until):
                        return table.leave(self._number)
            except (Busy, OSError):
                pass  # it must not go on: the others may still copy
            time.sleep(self._pause_s)

    def _may_leave(self, table: Shared, until: float) -> bool:
        me = table.slots.get(self._number)
        if me is None or me.phase == RUNNING or table.withdraw(self._number):
            return True
        self._drop_dead(table)
        table.copied(self._number)
        if not (waits_for := table.waits_for(self._number)):
            return True
        if time.monotonic() > until and not any(table.slots[each].is_slow for each in waits_for):
            table.give_up(self._number)
            return True
        return False

    @staticmethod
    def is_refusal(failure: Exception) -> bool:
        """Does the failure say that the ranks do not stand still together now?"""
        return isinstance(failure, NotTogether)

    def content_of(self, segment: Segment) -> Any:
        """The content of the own part, for the image."""
        copied = self._copies.get(id(segment))
        return bytes(segment.own_part()) if copied is None else copied

    # -- restarts ----------------------------------------------------------------------------------

    def problem(self) -> str:
        """After a restart: have all members of this rank's windows filled in their parts? "": they have; else what is wrong
        if all ranks have loaded their images."""
        with self._changed() as table:
            mine = table.slots.get(self._number)
            for segment in self._segments:
                for number in segment.group if segment.is_complete else ():
                    slot = table.slots.get(number)
                    if slot is None or not slot.windows:
                        return f"rank {number} is not on this host: start both on one host"
                    if mine is not None and slot.token != mine.token:
                        return f"the images of this rank and of rank {number} were not taken at one instant"
        return ""

    # -- the table ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _changed(self) -> Iterator[Shared]:
        """Raises NotTogether: the table cannot be had now, since a rank that has it is stopped."""
        try:
            with self._table.changed() as (table, _):
                self._pause_s = _PAUSE_S * len(table.slots)
                yield table
        except (Busy, OSError) as failure:
            raise NotTogether(f"the table of shared memory cannot be had: {failure}") from failure

    def _drop_dead(self, table: Shared) -> None:
        """From time to time."""
        now = time.monotonic()
        if now > self._looked_for_dead + _LOOK_FOR_DEAD_S:
            self._looked_for_dead = now
            table.drop([number for number, slot in table.members() if not _lives(slot.pid)])

    def _require_images(self, table: Shared, epoch: int) -> None:
        if table.is_passed_over(self._number, epoch):
            raise NoImage(
                "a file was mapped for shared writing while the checkpoint was taken, which another rank has mapped, too"
            )

    def _require_all(self, table: Shared) -> None:
        present = {number for number, _ in table.members()}
        for segment in self._segments:
            lost = sorted(set(segment.group) - present) if segment.is_complete else []
            if lost:
                raise NoImage(
                    f"rank {lost[0]} has died, which had a part of the memory that this rank shares: free the window"
                )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _have_not_come(missing: list[int]) -> str:
    if not missing:
        return "the ranks that share memory do not stand still at one time"
    which = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
    return (
        f"rank{'s' if len(missing) > 1 else ''} {which}, with which this rank shares memory (a window, a mapped file), "
        f"{'have' if len(missing) > 1 else 'has'} not come to a place where it can be captured"
    )

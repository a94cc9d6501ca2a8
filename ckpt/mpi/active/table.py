"""The channels of active messages of one rank: which handler is called next. A pure state machine.

    made ──start──▶ started ──remove──▶ (gone)

    event            channel not made, or made        channel started
    message          kept                             its handler is to be called
    end of a member  kept                             noted: the member sends nothing more
    death            (told when it starts)            its handler is to be told, once for each channel

Rules
  * What has been kept comes first when a channel starts, in the order of arrival; then the deaths, in the order of the
    reports. So all that a rank has sent is handled before its death is told, and the messages of one source stay in order.
  * `next` takes one call off the list. Whoever calls it makes the call under the same hold of the lock.
  * A channel is known by (first context number of its communicator, number among that communicator's channels). Context
    numbers are never used again, so a channel outlives a communicator that is freed.

Not here: locks, threads, the call itself (handlers.py); what a program sees (channel.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ckpt.mpi.base.progress import Buffer

__all__ = ["Call", "Key", "Member", "Table"]

Key = tuple[int, int]
"""(first context number of the communicator, number of the channel)."""


class Member:
    """A channel at this rank. `group`: world ranks by rank in the communicator."""

    __slots__ = ("ended", "failed", "group", "key", "receive", "started", "told")

    def __init__(
        self,
        key: Key,
        group: tuple[int, ...],
        receive: Callable[[int, Any], object],
        failed: Callable[[int], object] | None,
    ) -> None:
        self.key = key
        self.group = group
        self.receive = receive
        self.failed = failed
        self.started = False
        self.told: set[int] = set()
        """World ranks whose death this channel has been told."""
        self.ended: set[int] = set()
        """Ranks (in the communicator) that have freed the channel."""

    def awaited(self) -> list[int]:
        """Ranks that have neither freed the channel nor died."""
        return [
            rank for rank, world in enumerate(self.group) if rank not in self.ended and world not in self.told
        ]


class Call(NamedTuple):
    """A handler to be called: `receive` with a message of `rank`, with its envelope, or `failed` for `rank` (data None)."""

    member: Member
    rank: int
    data: Buffer | None


class Table:
    """All channels of one rank, what is kept for channels to come, and the calls to be made.

    `dead`: the world ranks that are dead, in the order of the reports; a sequence that its owner appends to."""

    __slots__ = ("calls", "dead", "kept", "members", "waiting")

    def __init__(self, dead: Sequence[int]) -> None:
        self.members: dict[Key, Member] = {}
        self.kept: dict[Key, list[tuple[int, Buffer | None]]] = {}
        """For channels that have not started: (rank of the source, message, or None for its end)."""
        self.calls: deque[Call] = deque()
        self.waiting: list[Member] = []
        """Channels that are made and have not started."""
        self.dead = dead

    @property
    def in_use(self) -> bool:
        """Whether there is a channel here, or a message for one."""
        return bool(self.members or self.kept)

    def add(self, member: Member) -> None:
        """A new channel."""
        self.members[member.key] = member
        self.waiting.append(member)

    def start(self) -> None:
        """Start the channels that are made."""
        waiting, self.waiting = self.waiting, []
        for member in waiting:
            member.started = True
            for rank, data in self.kept.pop(member.key, ()):
                self._arrived(member, rank, data)
            self._tell(member, self.dead)

    def remove(self, member: Member) -> None:
        """Forget a channel that is freed."""
        self.members.pop(member.key, None)
        if member in self.waiting:
            self.waiting.remove(member)

    def arrived(self, key: Key, rank: int, data: Buffer | None) -> None:
        """A message of the channel, or the end of the member `rank` (data None)."""
        member = self.members.get(key)
        if member is None or not member.started:
            self.kept.setdefault(key, []).append((rank, data))
        else:
            self._arrived(member, rank, data)

    def _arrived(self, member: Member, rank: int, data: Buffer | None) -> None:
        if data is None:
            member.ended.add(rank)
        else:
            self.calls.append(Call(member, rank, data))

    def died(self, ranks: Iterable[int]) -> None:
        """These world ranks are dead."""
        ranks = tuple(ranks)
        for member in self.members.values():
            if member.started:
                self._tell(member, ranks)

    def _tell(self, member: Member, ranks: Iterable[int]) -> None:
        for world in ranks:
            if world in member.group and world not in member.told:
                member.told.add(world)
                if member.failed is not None:
                    self.calls.append(Call(member, member.group.index(world), None))

    def next(self) -> Call | None:
        """Take the next call off the list; None: there is none."""
        return self.calls.popleft() if self.calls else None

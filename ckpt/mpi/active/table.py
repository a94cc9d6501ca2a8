"""The channels of active messages of one rank: which handler is called next. A pure state machine.

    made ──start──▶ started ──end_round──▶ being freed, round 1, 2, … ──▶ done ──remove──▶ (gone)

    event            channel not made, or not started    channel started       channel gone
    message          kept                                its handler is to be  (there is none)
                                                         called
    step of freeing  kept                                noted                 dropped
    death            (told when it starts)               its handler is to be  dropped
                                                         told, once

Rules
  * What has been kept comes first when a channel starts, in the order of arrival; then the deaths, in the order of the
    reports. So all that a rank has sent is handled before its death is told, and the messages of one source stay in order.
  * `next` takes one call off the list. Whoever calls it makes the call under the same hold of the lock.
  * A channel is known by (first context number of its communicator, number among that communicator's channels). Context
    numbers are never used again, so a channel outlives a communicator that is freed.

Freeing goes in rounds, because handlers may send to the end. In each round a member says END to all members, itself
included: whether it has sent since its last END, and whose death it had been told. When it has the END of every member that
is not dead, the round is over. It was *quiet* if every member that was not dead when this one said END has said that it
sent nothing, and names the same dead. Then no message is under way: each had handled what was sent before the last round
when it said END, and nobody has sent anything since. After a quiet round a member says DONE, and who hears DONE is done:
it may have missed the END of a member that died, and would wait for another round.

Not here: locks, threads, the call itself (handlers.py); what a program sees (channel.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.engine.operations import frozen

__all__ = ["Call", "End", "Key", "Member", "Table"]

Key = tuple[int, int]
"""(first context number of the communicator, number of the channel)."""

End = tuple[bool, tuple[int, ...]]
"""What a member says when it begins a round: (whether it has sent since its last END, world ranks that it knows dead)."""


class Member:
    """A channel at this rank. `group`: world ranks by rank in the communicator."""

    __slots__ = (
        "done", "ends", "failed", "group", "key", "receive", "round", "said_dead", "sent", "started", "told"
    )  # fmt: skip

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
        self.sent = False
        """Whether this rank has sent a message since its last END."""
        self.round = 0
        """Number of the round of freeing; 0: it has not begun."""
        self.said_dead: tuple[int, ...] = ()
        """What the last END has named as dead."""
        self.ends: dict[int, list[End]] = {}
        """The ENDs of each rank (in the communicator), by round."""
        self.done = False

    def end_round(self) -> End:
        """Begin the next round of freeing: the END to be sent to all members."""
        end = self.sent, tuple(sorted(self.told))
        self.round += 1
        self.sent, self.said_dead = False, end[1]
        return end

    def is_round_over(self) -> bool:
        """Whether every member has said END in this round, or is dead."""
        return all(
            world in self.told or len(self.ends.get(rank, ())) >= self.round
            for rank, world in enumerate(self.group)
        )

    def is_quiet(self) -> bool:
        """Whether this round, which is over, was quiet."""
        for rank, world in enumerate(self.group):
            ends = self.ends.get(rank, [])
            if world in self.said_dead:
                continue
            if len(ends) < self.round or ends[self.round - 1] != (False, self.said_dead):
                return False
        return True


class Call(NamedTuple):
    """A handler to be called: `receive` with a message of `rank`, with its envelope, or `failed` for `rank` (data None)."""

    member: Member
    rank: int
    data: Buffer | None


class Table:
    """All channels of one rank, what is kept for channels to come, and the calls to be made.

    `dead`: the world ranks that are dead, in the order of the reports; a sequence that its owner appends to."""

    __slots__ = ("calls", "dead", "kept", "made", "members", "waiting")

    def __init__(self, dead: Sequence[int]) -> None:
        self.members: dict[Key, Member] = {}
        self.made: dict[int, int] = {}
        """How many channels this rank has made, by the communicator's first context number: the others are to come."""
        self.kept: dict[Key, list[tuple[int, Buffer | End | None]]] = {}
        """For channels that have not started: (rank of the source, message, or END, or None for DONE)."""
        self.calls: deque[Call] = deque()
        self.waiting: list[Member] = []
        """Channels that are made and have not started."""
        self.dead = dead

    def __getstate__(self) -> tuple[Any, ...]:
        kept = {key: [(rank, frozen(data)) for rank, data in rows] for key, rows in self.kept.items()}
        calls = [Call(call.member, call.rank, frozen(call.data)) for call in self.calls]
        return self.members, self.made, kept, calls, self.waiting, self.dead

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.members, self.made, self.kept, calls, self.waiting, self.dead = state
        self.calls = deque(calls)

    @property
    def in_use(self) -> bool:
        """Whether there is a channel here, or a message for one."""
        return bool(self.members or self.kept)

    def add(self, member: Member) -> None:
        """A new channel."""
        base, number = member.key
        self.members[member.key] = member
        self.made[base] = number + 1
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

    def arrived(self, key: Key, rank: int, data: Buffer | End | None) -> bool:
        """A message of the channel from its member `rank`, or the member's END or DONE (None). False: it is gone here."""
        member = self.members.get(key)
        if member is not None and member.started:
            self._arrived(member, rank, data)
        elif member is not None or key[1] >= self.made.get(key[0], 0):
            self.kept.setdefault(key, []).append((rank, data))
        else:
            return False
        return True

    def _arrived(self, member: Member, rank: int, data: Buffer | End | None) -> None:
        if data is None:
            member.done = True
        elif isinstance(data, tuple):
            member.ends.setdefault(rank, []).append(data)
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

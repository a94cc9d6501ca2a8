"""The choices of one rank's replicas: made by one of them, the leader, and followed by the others. Pure.

What a program is told may depend on when messages arrive: which message a receive from ANY_SOURCE gets, whether a request is
done, which one is done first. Each such choice has a key that is the same in all replicas, because it counts the program's
own calls: ``("q", 3)`` is its third question, ``("w", 7)`` its seventh receive from ANY_SOURCE; ``("o", 5)`` is the fifth
request to its windows, and says of whom it is; ``("c", 2)`` is what came of the second write to its parallel files. The
leader, the living replica with the lowest number, makes the choice by what it sees, and tells it to the others; these wait
for it.

    leads        decides, unless the choice is known already
    follows      looks the choice up; unknown: it waits
    gathers      the new leader after a loss: it decides nothing until each follower has sent what it knows

A leader is lost:
    every follower sends the new leader all choices that it knows (`known`), and from then on takes nothing from the old one.
    The new leader joins them, sends the whole to each follower, and leads. A choice that anybody living has followed is thus
    known to all, and is never made a second time. If the old leader was *wrong* (not dead), a choice of it that nobody
    living has followed may be impossible to follow; so only what has been followed is sent, and the rest is chosen anew.

Rules
- The view is the number of the leader; it only grows. Messages of an older view are dropped, those of a newer one kept.
- A choice is forgotten when all living replicas have followed it: each tells the others how far it is (`FLOOR_EVERY`).

A copy of the leader is to be started (`hold`, then `join` or `let_go`):
    From `hold` on, every replica keeps all choices that it has not forgotten yet. When all do, the leader's image is taken:
    it has what the leader has followed and what it knows (`state`), and the copy begins with that (`copy`). At `join` the
    leader sends it all choices that it knows, as after a loss. All replicas are told of holds, joins and losses in one
    order. If the leader is lost before the join, the copy is given up (`let_go`): it has followed what nobody else may know.

Not here: what choices mean (choices.py), the order of requests (turns.py), the messages' way (layer.py), who is lost (the
controller).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MISSING", "REQUEST", "WRITE", "Key", "Order"]

Key = tuple[str, int]
Message = tuple[Any, ...]
Outgoing = list[tuple[int, Message]]

REQUEST = "o"
"""The kind of the choices of requests to windows."""

WRITE = "c"
"""The kind of the choices of what came of a write to a parallel file."""

NONE = {"q": 0, "w": 0, REQUEST: 0, WRITE: 0}
"""The kinds of choices: questions, receives from ANY_SOURCE, requests to windows, writes to parallel files."""

FLOOR_EVERY = 64
"""A replica tells the others how far it is after so many choices."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"  # one object, also after an image has been loaded


MISSING = _Missing()


class Order:
    """The choices as replica `me` of `replicas` knows them. Methods return the messages to send: (replica, message).

    `begun`: the numbers of the first choices of each kind, where the program goes on from an image."""

    def __init__(
        self,
        me: int,
        replicas: int,
        begun: Mapping[str, int] | None = None,
        living: Iterable[int] | None = None,
    ) -> None:
        """`living`: the replicas there are, if these are not all with which the rank began."""
        begun = {**NONE, **(begun or {})}
        self.me = me
        self.living = set(range(replicas) if living is None else living)
        self.view = min(self.living)
        self.known: dict[Key, Any] = {}
        self.followed = dict(begun)
        """This replica has followed or made all choices of each kind below that number."""
        self.ahead: set[Key] = set()
        """Choices above these numbers that it has followed or made: receives are not matched in the order of their posts."""
        self.gathering: set[int] = set()
        self.floors: dict[int, dict[str, int]] = {k: dict(begun) for k in self.living if k != me}
        self.early: list[tuple[int, Message]] = []
        self.forgotten = dict(begun)
        self._told = 0

    @classmethod
    def copy(cls, me: int, living: Iterable[int], state: Mapping[str, Any]) -> Order:
        """That of replica `me`, which begins with the image of one of the `living`, whose `state` this is."""
        order = cls(me, 0, state["forgotten"], {me, *living})
        order.followed, order.ahead = {**NONE, **state["followed"]}, set(state["ahead"])
        order.known = dict(state["known"])
        return order

    def state(self) -> dict[str, Any]:
        """For an image: how far this replica is, and what it knows."""
        return {
            "followed": dict(self.followed),
            "ahead": sorted(self.ahead),
            "forgotten": dict(self.forgotten),
            "known": dict(self.known),
        }

    def hold(self, replica: int) -> None:
        """A copy is to become this replica: from now on nothing is forgotten that it may need."""
        self.floors.setdefault(replica, dict(self.forgotten))

    def let_go(self, replica: int) -> None:
        """There will be no such copy."""
        self.floors.pop(replica, None)
        self.early = [each for each in self.early if each[0] != replica]
        self._forget()

    def join(self, replica: int) -> Outgoing:
        """This copy is there now, and follows."""
        self.living.add(replica)
        self.hold(replica)
        found: Outgoing = [(replica, ("n", self.view, dict(self.known)))] if self.leads else []
        return found + self._receive_early()

    def joined(self, living: Iterable[int]) -> Outgoing:
        """The copy itself is told who lives now: some of which it was told may be lost meanwhile."""
        return self.lost(self.living - {self.me, *living}, wrong=False)

    @property
    def leads(self) -> bool:
        return self.view == self.me and not self.gathering

    @property
    def is_catching_up(self) -> bool:
        """Is a question answered that this replica has not come to yet?"""
        return ("q", self.followed["q"]) in self.known

    def look_up(self, key: Key) -> Any:
        """The choice, or MISSING."""
        return self.known.get(key, MISSING)

    def decide(self, key: Key, value: Any) -> Outgoing:
        """The leader makes a choice that is not known."""
        assert self.leads and key not in self.known, (self.view, self.me, key)
        self.known[key] = value
        return [(replica, ("d", self.view, key, value)) for replica in sorted(self.living - {self.me})]

    def follow(self, key: Key) -> Outgoing:
        """This choice has been made or followed here."""
        kind = key[0]
        self.ahead.add(key)
        while (kind, self.followed[kind]) in self.ahead:
            self.ahead.discard((kind, self.followed[kind]))
            self.followed[kind] += 1
        self._told += 1
        if self._told < FLOOR_EVERY:
            return []
        self._told = 0
        self._forget()
        return [(other, ("f", self.view, dict(self.followed))) for other in sorted(self.living - {self.me})]

    def receive(self, source: int, message: Message) -> Outgoing:
        """A message of another replica."""
        if source not in self.living:
            if source in self.floors:  # a copy knows already that it has joined
                self.early.append((source, message))
            return []
        kind, view, *rest = message
        if kind == "f":
            self.floors[source] = rest[0]
            self._forget()
            return []
        if view > self.view:
            self.early.append((source, message))
            return []
        if view < self.view:
            return []
        if kind == "d":
            key, value = rest
            self.known.setdefault(key, value)
        elif kind == "n":
            self.known.update(rest[0])
        elif source in self.gathering:  # "s": what a follower knows
            for key, value in rest[0].items():
                self.known.setdefault(key, value)
            self.gathering.discard(source)
            if not self.gathering:
                return self._tell_all()
        return []

    def lost(self, replicas: Iterable[int], *, wrong: bool) -> Outgoing:
        """These replicas are lost. `wrong`: at least one of them computed wrongly, and may have led wrongly."""
        gone = set(replicas) & self.living
        self.living -= gone
        for replica in gone:
            self.floors.pop(replica, None)
        self._forget()
        leader = min(self.living)
        if leader == self.view:
            return self._gathered_without(gone)
        if wrong:
            self._forget_unfollowed()
        self.view = leader
        found: Outgoing = []
        if leader == self.me:
            self.gathering = self.living - {self.me}
        else:
            found.append((leader, ("s", leader, dict(self.known))))
        return found + self._receive_early()

    def _receive_early(self) -> Outgoing:
        found: Outgoing = []
        early, self.early = self.early, []
        for source, message in early:
            found += self.receive(source, message)
        return found

    def _gathered_without(self, gone: set[int]) -> Outgoing:
        was_gathering = bool(self.gathering)
        self.gathering -= gone
        return self._tell_all() if was_gathering and not self.gathering else []

    def _tell_all(self) -> Outgoing:
        whole = dict(self.known)
        return [(replica, ("n", self.view, whole)) for replica in sorted(self.living - {self.me})]

    def _forget_unfollowed(self) -> None:
        self.known = {
            key: value
            for key, value in self.known.items()
            if key[1] < self.followed[key[0]] or key in self.ahead
        }

    def _forget(self) -> None:
        """Forget choices that everybody living has followed."""
        for kind in NONE:
            floor = min([self.followed[kind], *(floors[kind] for floors in self.floors.values())])
            if floor > self.forgotten[kind]:
                self.forgotten[kind] = floor
                self.known = {
                    key: value for key, value in self.known.items() if key[0] != kind or key[1] >= floor
                }

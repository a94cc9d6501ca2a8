"""Every schedule of a small reduction: all orders of calls, messages, combinations, deaths and the news of them.

A step concerns one rank, and its result follows from that rank and what arrives. So it is computed once, on a copy, and kept
under the rank's state: states of the world are tuples of numbers. Two states of a rank are the same if all that it keeps is
equal (`key_of`).

Checked are the properties of world.py, and that in every state without further steps all that live have the outcome and keep
nothing.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Hashable
from typing import Any, NamedTuple

from ckpt.reduction.messages import Contract
from tests.model.reduction.world import RuleBroken, World

Network = tuple[tuple[tuple[int, int], tuple[int, ...]], ...]


class State(NamedTuple):
    """Numbers of the ranks' states and of the messages under way; sets of ranks as paths."""

    ranks: tuple[int, ...]
    links: Network
    dead: int
    unheard: frozenset[tuple[int, int]]
    deaths: int


def key_of(thing: Any) -> Hashable:
    """All that an object holds, as something that can be compared."""
    if thing is None or isinstance(thing, (int, str, float)):
        return thing
    if isinstance(thing, tuple):
        return (type(thing).__name__, *map(key_of, thing))
    if isinstance(thing, dict):
        return tuple((key_of(key), key_of(value)) for key, value in thing.items())
    if isinstance(thing, (list, deque)):
        return tuple(map(key_of, thing))
    if isinstance(thing, set):
        return tuple(sorted(thing))
    names: list[str] = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
    return (type(thing).__name__, *(key_of(getattr(thing, name)) for name in names))


class Found(NamedTuple):
    """What was visited: states, ends; how the ends were."""

    states: int
    ends: int
    outcomes: dict[str, int]


class Search:
    """All schedules within bounds."""

    def __init__(
        self, size: int, contract: Contract, deaths: int, *, expires: bool = False, direct: bool = False
    ) -> None:
        self.size, self.contract, self.expires = size, contract, expires
        self._ranks: list[bytes] = []
        self._rank_number: dict[Hashable, int] = {}
        self._messages: list[Any] = []
        self._message_number: dict[Hashable, int] = {}
        self._local: dict[Hashable, Any] = {}
        world = World(size, contract, deaths, expires=expires, direct=direct)
        self.first = State(
            tuple(self._number_of(process) for process in world.processes), (), 0, frozenset(), deaths
        )

    def _number_of(self, process: Any) -> int:
        key = key_of(process)
        if key not in self._rank_number:
            self._rank_number[key] = len(self._ranks)
            self._ranks.append(pickle.dumps(process, 5))
        return self._rank_number[key]

    def _message(self, message: Any) -> int:
        key = key_of(message)
        if key not in self._message_number:
            self._message_number[key] = len(self._messages)
            self._messages.append(message)
        return self._message_number[key]

    def _events(self, number: int) -> tuple[tuple[Any, ...], ...]:
        """What a rank can do by itself."""
        key = ("events", number)
        if key not in self._local:
            process = pickle.loads(self._ranks[number])
            found: list[tuple[Any, ...]] = [] if process.called else [("call",)]
            found += [("compute", each) for each in process.computing]
            for each in process.computing if process.direct else ():
                found += [("vanish", each, left) for left in process.copies(each)]
            found += [(each,) for each in ("read", "unread") if process.reading]
            if self.expires and process.called and process.outcome is None:
                member = next(iter(process.members.members.values()), None)
                if member is not None and not member.expired:
                    found.append(("expire",))
            self._local[key] = tuple(found)
        return self._local[key]

    def _after(self, number: int, event: tuple[Any, ...]) -> tuple[int, tuple[tuple[int, int], ...], bool]:
        """The rank after an event, what it sends, whether it has just got the outcome."""
        key = (number, event)
        if key not in self._local:
            process = pickle.loads(self._ranks[number])
            before = process.outcome
            kind, *arguments = event
            if kind == "call":
                sent = process.call(self.contract)
            elif kind == "arrive":
                sent = process.arrive(arguments[0], pickle.loads(pickle.dumps(self._messages[arguments[1]])))
            else:
                sent = getattr(process, kind)(*arguments)
            told = before is None and process.outcome is not None
            messages = tuple((each.dest, self._message(each.message)) for each in sent)
            self._local[key] = self._number_of(process), messages, told
        return self._local[key]

    def next(self, state: State) -> list[tuple[tuple[Any, ...], State]]:
        """All states that follow, deaths included, with the event."""
        found = []
        links = dict(state.links)
        for rank in range(self.size):
            if state.dead >> rank & 1:
                continue
            own = self._events(state.ranks[rank])
            found += [((rank, *event), self._step(state, rank, event, links)) for event in own]
        for source, dest in links:
            queue = links[source, dest]
            rest = {**links, (source, dest): queue[1:]}
            event = ("arrive", source, queue[0])
            found.append(((dest, *event), self._step(state, dest, event, rest)))
        for rank, of in state.unheard:
            after = state._replace(unheard=state.unheard - {(rank, of)})
            found.append(((rank, "hear", of), self._step(after, rank, ("hear", of), links)))
        if state.deaths and state.dead.bit_count() + 1 < self.size:
            living = [rank for rank in range(self.size) if not state.dead >> rank & 1]
            found += [((rank, "kill"), self._kill(state, rank, links)) for rank in living]
        return found

    def _kill(self, state: State, rank: int, links: dict[tuple[int, int], tuple[int, ...]]) -> State:
        dead = state.dead | 1 << rank
        unheard = {each for each in state.unheard if each[0] != rank}
        unheard |= {(other, rank) for other in range(self.size) if not dead >> other & 1}
        ranks = (*state.ranks[:rank], -1, *state.ranks[rank + 1 :])
        rest = tuple(sorted((link, queue) for link, queue in links.items() if link[1] != rank))
        return State(ranks, rest, dead, frozenset(unheard), state.deaths - 1)

    def _step(
        self, state: State, rank: int, event: tuple[Any, ...], links: dict[tuple[int, int], tuple[int, ...]]
    ) -> State:
        number, messages, told = self._after(state.ranks[rank], event)
        links = dict(links)
        for dest, message in messages:
            if not state.dead >> dest & 1:
                links[rank, dest] = (*links.get((rank, dest), ()), message)
        ranks = (*state.ranks[:rank], number, *state.ranks[rank + 1 :])
        after = state._replace(
            ranks=ranks, links=tuple(sorted((link, queue) for link, queue in links.items() if queue))
        )
        if told:
            self._world(after).check_told(rank)
        return after

    def _world(self, state: State) -> World:
        """The state as a world, to be checked."""
        world = World(self.size, self.contract, state.deaths)
        world.dead = state.dead
        for rank, number in enumerate(state.ranks):
            if number >= 0:
                world.processes[rank] = pickle.loads(self._ranks[number])
        return world

    def run(self, most: int = 0) -> Found:
        """Visit all states, or the first `most`, depth first. Raises RuleBroken with the events that lead there."""
        seen = {self.first}
        path: list[tuple[Any, ...]] = []
        stack = [iter([(("begin",), self.first)])]
        ends, outcomes = 0, dict[str, int]()
        try:
            while stack:
                for event, state in stack[-1]:
                    if state in seen and state is not self.first:
                        continue
                    seen.add(state)
                    path.append(event)
                    following = self.next(state)
                    if all(each[1] == "kill" for each, _ in following):
                        ends += 1
                        world = self._world(state)
                        world.check_end()
                        outcome = world.living()[0].outcome
                        assert outcome is not None
                        how = outcome.error or ("partial" if outcome.missing else "whole")
                        outcomes[how] = outcomes.get(how, 0) + 1
                    stack.append(iter(following))
                    break
                else:
                    stack.pop()
                    if path:
                        path.pop()
                if most and len(seen) >= most:
                    break
        except Exception as error:
            raise RuleBroken(f"{error!r} after {path}") from error
        return Found(len(seen), ends, outcomes)


if __name__ == "__main__":
    import sys
    import time

    began = time.time()
    size, deaths, copies = map(int, sys.argv[1:4])
    print(
        Search(
            size,
            Contract(copies=copies, order=sys.argv[4], root=int(sys.argv[5])),
            deaths,
            direct="direct" in sys.argv,
        ).run(2_000_000)
    )
    print(time.time() - began)

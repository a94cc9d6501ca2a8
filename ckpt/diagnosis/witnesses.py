"""Who cannot hear whom, joined over all ranks, before anything is asked. Pure.

One rank that does not hear another cannot say whose fault it is. All of them together can:

    every pair of host B is silent, others are not      the side of B: the host, its interface, cable or port
    every pair across a switch, or across a trunk       the switch, the trunk
    what B sends does not arrive, but B hears           sending of B: a filter, or a line that is half dead
    B does not hear, but what it sends arrives          receiving of B
    one pair of hosts only, both ways or one way        the way between them, neither host: a filter, a route
    one rank, others on its host are heard              its process

Each of these is a *hypothesis*: it says which pairs are silent. One *explains* if nothing that it calls silent was
heard, and it covers what was silent. The smallest sets of hypotheses that explain everything are compared; a set
is named only if it is the only one. Pairs of which nobody has said anything count neither way. With two hosts no
name is possible; with three or more it is, as soon as enough pairs have been heard of.

A hypothesis that is contained in a larger one with the same silent pairs (two hosts on their only switch) is told
apart by nothing: then both are listed.

Not here: how a rank learns that a peer is silent (the transport's events).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

__all__ = ["Hypothesis", "Joined", "Said", "join"]

Kind = Literal["process", "host", "switch", "trunk", "sending", "receiving", "pair", "direction"]
Pair = tuple[int, int]
"""(observer, peer): ranks."""

_MOST_AT_ONCE = 3
_MOST_TRIED = 40


@dataclass(frozen=True, slots=True)
class Said:
    """`observer` has, or has not, heard `peer` lately."""

    observer: int
    peer: int
    heard: bool


@dataclass(frozen=True, slots=True, order=True)
class Hypothesis:
    """`names`: of the rank, the host, the switch; two for trunk (switches), pair, and direction (from, to)."""

    kind: Kind
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """`named`: what explains all of it, if only one thing does; else empty. `possible`: every smallest explanation."""

    named: tuple[Hypothesis, ...]
    possible: tuple[tuple[Hypothesis, ...], ...]


def join(
    said: Sequence[Said], hosts: Mapping[int, str], ways: Mapping[tuple[str, str], Sequence[str]]
) -> Joined:
    """What the reports of all ranks say together.

    said: the newest report of each pair counts. hosts: rank → host. ways: (host, host) → switches between them, in
    order; a pair may be given one way only.
    """
    heard: set[Pair] = set()
    silent: set[Pair] = set()
    for each in said:
        pair = (each.observer, each.peer)
        (heard if each.heard else silent).add(pair)
        (silent if each.heard else heard).discard(pair)
    silent = {pair for pair in silent if hosts[pair[0]] != hosts[pair[1]]}
    heard = {pair for pair in heard if hosts[pair[0]] != hosts[pair[1]]}
    if not silent:
        return Joined((), ())
    crowded = {host for host, count in Counter(hosts.values()).items() if count > 1}
    # what was heard is most of it, with many hosts: so it makes plain tuples only
    refuted = {made for pair in heard for made in _covering(pair, hosts, ways, crowded)}
    explaining: dict[Hypothesis, set[Pair]] = {}
    for pair in silent:
        for made in _covering(pair, hosts, ways, crowded):
            if made not in refuted:
                explaining.setdefault(Hypothesis(*made), set()).add(pair)
    possible = _smallest(_without_contained(explaining), silent)
    return Joined(possible[0] if len(possible) == 1 else (), possible)


def _covering(
    pair: Pair,
    hosts: Mapping[int, str],
    ways: Mapping[tuple[str, str], Sequence[str]],
    crowded: Collection[str],
) -> Iterator[tuple[Kind, tuple[str, ...]]]:
    """Kind and names of every hypothesis that makes this pair silent. `crowded`: hosts of several ranks, where one alone may
    be to blame."""
    a, b = (hosts[rank] for rank in pair)
    for rank in pair:
        if hosts[rank] in crowded:
            yield ("process", (str(rank),))
    yield ("host", (a,))
    yield ("host", (b,))
    yield ("sending", (b,))
    yield ("receiving", (a,))
    yield ("pair", (min(a, b), max(a, b)))
    yield ("direction", (b, a))
    way = _way(a, b, ways)
    for switch in way:
        yield ("switch", (switch,))
    for one, other in pairwise(way):
        yield ("trunk", (min(one, other), max(one, other)))


def _way(a: str, b: str, ways: Mapping[tuple[str, str], Sequence[str]]) -> Sequence[str]:
    return ways.get((a, b)) or ways.get((b, a)) or ()


def _without_contained(explaining: Mapping[Hypothesis, set[Pair]]) -> dict[Hypothesis, set[Pair]]:
    """Without those that explain less than another one: that one would be enough."""
    kept: dict[Hypothesis, set[Pair]] = {}
    for hypothesis in sorted(explaining, key=lambda each: (-len(explaining[each]), each)):
        if not any(explaining[hypothesis] < other for other in kept.values()):
            kept[hypothesis] = explaining[hypothesis]
            if len(kept) > _MOST_TRIED:
                break
    return kept


def _smallest(
    explaining: Mapping[Hypothesis, set[Pair]], silent: Collection[Pair]
) -> tuple[tuple[Hypothesis, ...], ...]:
    """All smallest sets of hypotheses that cover everything that is silent. None where too many would have to be
    tried."""
    if len(explaining) > _MOST_TRIED:
        return ()
    for count in range(1, _MOST_AT_ONCE + 1):
        found = tuple(
            chosen
            for chosen in combinations(sorted(explaining), count)
            if set().union(*(explaining[each] for each in chosen)) >= set(silent)
        )
        if found:
            return found
    return ()

"""The order of loads and stores of a ring (transport/wires/ring_layout.h), explored under the memory model of C11.

The machine is that of Kang et al., A Promising Semantics for Relaxed-Memory Concurrency (POPL 2017), without promises.
Each location keeps all that was ever stored there; each thread has a view, the oldest store of every location that it
may still read. A load may return any store from there on: so stores arrive late and in another order than they were
made, as on ARM. A release store takes its thread's view along, an acquire load takes that over; a fence that is
sequentially consistent joins the thread's view with that of all such fences. What that machine lacks is a load that
takes place after a later store of its thread. The one place of the ring where that matters, the copy of a record and
the store of `tail` behind it, is explored in both orders unless the store has release.

Threads   the writer writes `records` records into a ring of `slots`, waits for room, and rings the bell when it finds
          ASLEEP. The reader reads them all, and sleeps when it finds none: only a bell ends that. The bell takes no
          view along. `peer_dies`: the writer may stop for ever between any two steps.
Checked   each record is read once, in order, with its own content; no record waits for a reader that sleeps and is not
          woken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MOST_SLOTS = 2
HEAD, TAIL, WORD = "head", "tail", "word"
AWAKE, ASLEEP = 0, 1
View = tuple[tuple[str, int], ...]
PLACES = (HEAD, TAIL, WORD, *(f"slot{index}" for index in range(MOST_SLOTS)))
START: View = tuple((place, 0) for place in PLACES)


@dataclass(frozen=True)
class Rules:
    """The orders that `_ring.c` asks for; each can be left out. And the bounds."""

    head_released: bool = True
    head_acquired: bool = True
    tail_released: bool = True
    writer_fence: bool = True
    reader_fence: bool = True
    looks_after_arming: bool = True
    peer_dies: bool = False
    records: int = 2
    slots: int = 1


class RuleBroken(AssertionError):
    """A state that must not be."""


@dataclass(frozen=True)
class Thread:
    """`at`: its next step; `count`: records done; `seen`: what its last load of the other side's number was."""

    at: str = "begin"
    count: int = 0
    seen: int = 0
    view: View = START
    acquirable: View = START
    released: View = START


@dataclass(frozen=True)
class State:
    """All of memory, both threads, the joint view of the fences, and the bells that were rung and not heard."""

    writer: Thread = field(default_factory=Thread)
    reader: Thread = field(default_factory=Thread)
    stores: tuple[tuple[tuple[int, View], ...], ...] = tuple(((0, START),) for _ in PLACES)
    fences: View = START
    bells: int = 0


def _joined(one: View, other: View) -> View:
    return tuple((place, max(at, second)) for (place, at), (_, second) in zip(one, other, strict=True))


def _at(view: View, place: str) -> int:
    return view[PLACES.index(place)][1]


def _moved(view: View, place: str, at: int) -> View:
    return tuple((name, at if name == place else former) for name, former in view)


def _loads(state: State, thread: Thread, place: str, *, acquire: bool) -> Iterator[tuple[int, Thread]]:
    """Every value that this load may return, with the thread after it."""
    stores = state.stores[PLACES.index(place)]
    for at in range(_at(thread.view, place), len(stores)):
        value, carried = stores[at]
        view = _moved(thread.view, place, at)
        acquirable = _joined(thread.acquirable, carried)
        if acquire:
            view = _joined(view, carried)
        yield value, _with(thread, view=view, acquirable=_joined(acquirable, view))


def _store(state: State, thread: Thread, place: str, value: int, *, release: bool) -> tuple[State, Thread]:
    index = PLACES.index(place)
    at = len(state.stores[index])
    view = _moved(thread.view, place, at)
    carried = view if release else _moved(thread.released, place, at)
    stores = list(state.stores)
    stores[index] = (*stores[index], (value, carried))
    return _with(state, stores=tuple(stores)), _with(thread, view=view)


def _fence(state: State, thread: Thread) -> tuple[State, Thread]:
    view = _joined(_joined(thread.view, thread.acquirable), state.fences)
    return _with(state, fences=view), _with(thread, view=view, released=view, acquirable=view)


def _with(value: Any, **changes: object) -> Any:
    made = object.__new__(type(value))
    made.__dict__.update(value.__dict__)
    made.__dict__.update(changes)
    return made


def _write(state: State, rules: Rules) -> Iterator[State]:
    """The steps of the writer: what `write_record` and `publish` do."""
    me = state.writer
    match me.at:
        case "begin":
            if me.count == rules.records:
                return
            if me.count - me.seen < rules.slots:
                yield _with(state, writer=_with(me, at="fill"))
                return
            for tail, after in _loads(state, me, TAIL, acquire=True):
                yield _with(state, writer=_with(after, seen=tail))
        case "fill":
            after, me = _store(state, me, f"slot{me.count % rules.slots}", me.count + 1, release=False)
            yield _with(after, writer=_with(me, at="publish"))
        case "publish":
            after, me = _store(state, me, HEAD, me.count + 1, release=rules.head_released)
            yield _with(after, writer=_with(me, at="fence", count=me.count + 1))
        case "fence":
            if rules.writer_fence:
                state, me = _fence(state, me)
            yield _with(state, writer=_with(me, at="look"))
        case "look":
            for word, after in _loads(state, me, WORD, acquire=False):
                yield _with(state, writer=_with(after, at="wake" if word == ASLEEP else "begin"))
        case "wake":
            # A compare-and-exchange that succeeds has read the last store of all.
            last = len(state.stores[PLACES.index(WORD)]) - 1
            if state.stores[PLACES.index(WORD)][last][0] == ASLEEP:
                after, me = _store(state, me, WORD, AWAKE, release=True)
                yield _with(after, writer=_with(me, at="begin"), bells=state.bells + 1)
            else:
                yield _with(state, writer=_with(me, at="begin"))


def _read(state: State, rules: Rules) -> Iterator[State]:
    """The steps of the reader: what `next_frame`, `arm` and `disarm` do, and sleeping between them."""
    me = state.reader
    match me.at:
        case "begin":
            if me.count == rules.records:
                return
            for head, after in _loads(state, me, HEAD, acquire=rules.head_acquired):
                yield _with(state, reader=_with(after, seen=head, at="copy" if head > me.count else "arm"))
        case "copy":
            for value, after in _loads(state, me, f"slot{me.count % rules.slots}", acquire=False):
                if value != me.count + 1:
                    raise RuleBroken(f"record {me.count + 1} was read as {value}")
                yield _with(state, reader=_with(after, at="free"))
            if not rules.tail_released:
                after, me = _store(state, me, TAIL, me.count + 1, release=False)
                yield _with(after, reader=_with(me, at="copy late"))
        case "copy late":
            for value, after in _loads(state, me, f"slot{me.count % rules.slots}", acquire=False):
                if value != me.count + 1:
                    raise RuleBroken(f"record {me.count + 1} was overwritten by {value}")
                yield _with(state, reader=_with(after, at="begin", count=me.count + 1))
        case "free":
            after, me = _store(state, me, TAIL, me.count + 1, release=rules.tail_released)
            yield _with(after, reader=_with(me, at="begin", count=me.count + 1))
        case "arm":
            after, me = _store(state, me, WORD, ASLEEP, release=False)
            yield _with(after, reader=_with(me, at="fence"))
        case "fence":
            if rules.reader_fence:
                state, me = _fence(state, me)
            yield _with(state, reader=_with(me, at="look" if rules.looks_after_arming else "sleep"))
        case "look":
            for head, after in _loads(state, me, HEAD, acquire=False):
                yield _with(state, reader=_with(after, at="disarm" if head > me.count else "sleep"))
        case "sleep":
            if state.bells:
                yield _with(state, bells=0, reader=_with(me, at="disarm"))
        case "disarm":
            after, me = _store(state, me, WORD, AWAKE, release=False)
            yield _with(after, reader=_with(me, at="begin"))


def explore(rules: Rules) -> int:
    """Visit every state; returns how many there are. Raises RuleBroken."""
    begin = State()
    seen, open_states = {begin}, [begin]
    while open_states:
        state = open_states.pop()
        written = list(_write(state, rules))
        following = [*written, *_read(state, rules)]
        if rules.peer_dies and written:
            following.append(_with(state, writer=_with(state.writer, at="dead")))
        if not following:
            _check_end(state, rules)
        for after in following:
            if after not in seen:
                seen.add(after)
                open_states.append(after)
    return len(seen)


def _check_end(state: State, rules: Rules) -> None:
    """Nothing moves any more. A writer that died between a record and its bell may leave the reader asleep: a death is
    told another way."""
    if state.writer.at != "dead" and state.reader.count < rules.records:
        published = len(state.stores[PLACES.index(HEAD)]) - 1
        raise RuleBroken(f"the reader sleeps, and record {state.reader.count + 1} of {published} is there")

"""The order of loads and stores of a ring (transport/rings/ring_layout.h), explored under the memory model of C11.

The machine: tests/model/c11_memory.py. What it lacks is a load that takes place after a later store of its thread.
The one place of the ring where that matters, the copy of a record and the store of `tail` behind it, is explored in
both orders unless the store has release.

Threads   the writer writes `records` records into a ring of `slots`, waits for room, and rings the bell when it finds
          ASLEEP. The reader reads them all, and sleeps when it finds none: only a bell ends that. The bell takes no
          view along. `peer_dies`: the writer may stop for ever between any two steps.
Checked   each record is read once, in order, with its own content; no record waits for a reader that sleeps and is not
          woken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.c11_memory import Memory, Stores, View, changed

MOST_SLOTS = 2
HEAD, TAIL, WORD = "head", "tail", "word"
AWAKE, ASLEEP = 0, 1
PLACES = (HEAD, TAIL, WORD, *(f"slot{index}" for index in range(MOST_SLOTS)))
MEMORY = Memory(PLACES)
START = MEMORY.start


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
    stores: Stores = MEMORY.stores
    fences: View = START
    bells: int = 0


def _write(state: State, rules: Rules) -> Iterator[State]:
    """The steps of the writer: what `write_record` and `publish` do."""
    me = state.writer
    match me.at:
        case "begin":
            if me.count == rules.records:
                return
            if me.count - me.seen < rules.slots:
                yield changed(state, writer=changed(me, at="fill"))
                return
            for tail, after in MEMORY.loads(state, me, TAIL, acquire=True):
                yield changed(state, writer=changed(after, seen=tail))
        case "fill":
            after, me = MEMORY.store(state, me, f"slot{me.count % rules.slots}", me.count + 1, release=False)
            yield changed(after, writer=changed(me, at="publish"))
        case "publish":
            after, me = MEMORY.store(state, me, HEAD, me.count + 1, release=rules.head_released)
            yield changed(after, writer=changed(me, at="fence", count=me.count + 1))
        case "fence":
            if rules.writer_fence:
                state, me = MEMORY.fence(state, me)
            yield changed(state, writer=changed(me, at="look"))
        case "look":
            for word, after in MEMORY.loads(state, me, WORD, acquire=False):
                yield changed(state, writer=changed(after, at="wake" if word == ASLEEP else "begin"))
        case "wake":
            # A compare-and-exchange that succeeds has read the last store of all.
            if MEMORY.last(state, WORD) == ASLEEP:
                after, me = MEMORY.store(state, me, WORD, AWAKE, release=True)
                yield changed(after, writer=changed(me, at="begin"), bells=state.bells + 1)
            else:
                yield changed(state, writer=changed(me, at="begin"))


def _read(state: State, rules: Rules) -> Iterator[State]:
    """The steps of the reader: what `next_frame`, `arm` and `disarm` do, and sleeping between them."""
    me = state.reader
    match me.at:
        case "begin":
            if me.count == rules.records:
                return
            for head, after in MEMORY.loads(state, me, HEAD, acquire=rules.head_acquired):
                yield changed(
                    state, reader=changed(after, seen=head, at="copy" if head > me.count else "arm")
                )
        case "copy":
            for value, after in MEMORY.loads(state, me, f"slot{me.count % rules.slots}", acquire=False):
                if value != me.count + 1:
                    raise RuleBroken(f"record {me.count + 1} was read as {value}")
                yield changed(state, reader=changed(after, at="free"))
            if not rules.tail_released:
                after, me = MEMORY.store(state, me, TAIL, me.count + 1, release=False)
                yield changed(after, reader=changed(me, at="copy late"))
        case "copy late":
            for value, after in MEMORY.loads(state, me, f"slot{me.count % rules.slots}", acquire=False):
                if value != me.count + 1:
                    raise RuleBroken(f"record {me.count + 1} was overwritten by {value}")
                yield changed(state, reader=changed(after, at="begin", count=me.count + 1))
        case "free":
            after, me = MEMORY.store(state, me, TAIL, me.count + 1, release=rules.tail_released)
            yield changed(after, reader=changed(me, at="begin", count=me.count + 1))
        case "arm":
            after, me = MEMORY.store(state, me, WORD, ASLEEP, release=False)
            yield changed(after, reader=changed(me, at="fence"))
        case "fence":
            if rules.reader_fence:
                state, me = MEMORY.fence(state, me)
            yield changed(state, reader=changed(me, at="look" if rules.looks_after_arming else "sleep"))
        case "look":
            for head, after in MEMORY.loads(state, me, HEAD, acquire=False):
                yield changed(state, reader=changed(after, at="disarm" if head > me.count else "sleep"))
        case "sleep":
            if state.bells:
                yield changed(state, bells=0, reader=changed(me, at="disarm"))
        case "disarm":
            after, me = MEMORY.store(state, me, WORD, AWAKE, release=False)
            yield changed(after, reader=changed(me, at="begin"))


def explore(rules: Rules) -> int:
    """Visit every state; returns how many there are. Raises RuleBroken."""
    begin = State()
    seen, open_states = {begin}, [begin]
    while open_states:
        state = open_states.pop()
        written = list(_write(state, rules))
        following = [*written, *_read(state, rules)]
        if rules.peer_dies and written:
            following.append(changed(state, writer=changed(state.writer, at="dead")))
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
        published = MEMORY.count(state, HEAD)
        raise RuleBroken(f"the reader sleeps, and record {state.reader.count + 1} of {published} is there")

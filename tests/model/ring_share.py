"""A payload that the reader and the writer of a ring copy together (transport/rings/ring_share.c): every order of their
steps, under the memory model of C11 (tests/model/c11_memory.py).

In each of `turns` turns the reader offers `pieces` pieces of the writer's payload, takes some and copies them, takes
away what is left, waits for the writer's, and gives the payload to its program, which reads it and then uses that
memory for something else. The writer looks, reads what is offered, takes pieces and writes them into the reader's
memory, or cannot. A payload is a number for each turn.

Checked   the program gets the payload of its turn in every piece; nothing is written into memory that the program has again;
          the reader waits for ever for nobody, the writer's death included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.c11_memory import Memory, Stores, View, changed

WORK, OFFER, WRITTEN, FAILED = "work", "offer", "written", "failed"
MOST_PIECES = 2
PLACES = (WORK, OFFER, WRITTEN, FAILED, *(f"piece{number}" for number in range(MOST_PIECES)))
MEMORY = Memory(PLACES, {WORK: (0, 0)})
USED = -1
"""What the program stores in its memory when it has the payload."""


@dataclass(frozen=True)
class Rules:
    """What `ring_share.c` does; each can be left out. And the bounds."""

    offer_released: bool = True
    offer_acquired: bool = True
    taken_of_this_turn: bool = True
    rest_taken_away: bool = True
    writer_awaited: bool = True
    written_released: bool = True
    written_acquired: bool = True
    failure_told: bool = True
    death_noticed: bool = True
    turns: int = 2
    pieces: int = MOST_PIECES


class RuleBroken(AssertionError):
    """A state that must not be."""


@dataclass(frozen=True)
class Thread:
    """`turn`: the reader's, or that of which the writer has taken a piece. `piece`: taken, and not copied yet. `own`: so
    many the reader has copied; `expected`: of the writer, in all turns. `offer`: what the writer has read."""

    at: str = "begin"
    turn: int = 0
    left: int = 0
    piece: int = 0
    own: int = 0
    expected: int = 0
    offer: int = 0
    view: View = MEMORY.start
    acquirable: View = MEMORY.start
    released: View = MEMORY.start


@dataclass(frozen=True)
class State:
    reader: Thread = field(default_factory=Thread)
    writer: Thread = field(default_factory=Thread)
    stores: Stores = MEMORY.stores
    is_program: bool = True
    """The program has the memory."""


def _read(state: State, rules: Rules) -> Iterator[State]:
    """The reader's steps: `ring_copy_shared`."""
    me = state.reader
    match me.at:
        case "begin":
            if me.turn < rules.turns:
                after, me = MEMORY.store(state, me, OFFER, me.turn + 1, release=False)
                yield changed(
                    after, reader=changed(me, at="offer", turn=me.turn + 1, own=0), is_program=False
                )
        case "offer":
            work = (me.turn, rules.pieces)
            after, me = MEMORY.store(state, me, WORK, work, release=rules.offer_released)
            yield changed(after, reader=changed(me, at="take"))
        case "take":
            turn, left = MEMORY.last(state, WORK)
            if left:
                after, me = MEMORY.exchange(state, me, WORK, (turn, left - 1), acquire=True, release=True)
                yield changed(after, reader=changed(me, at="copy", piece=left - 1))
            # its load may be of before, and it stops reading at a piece that cannot be read: so at any time
            yield changed(state, reader=changed(me, at="close"))
        case "copy":
            after, me = MEMORY.store(state, me, f"piece{me.piece}", me.turn, release=False)
            yield changed(after, reader=changed(me, at="take", own=me.own + 1))
        case "close":
            left = MEMORY.last(state, WORK)[1]
            if rules.rest_taken_away:
                state, me = MEMORY.exchange(state, me, WORK, (me.turn, 0), acquire=True, release=True)
            others = rules.pieces - me.own - left
            me = changed(me, left=left, expected=me.expected + others)
            yield changed(
                state, reader=changed(me, at="await" if others and rules.writer_awaited else "check")
            )
        case "await":
            for written, after in MEMORY.loads(state, me, WRITTEN, acquire=rules.written_acquired):
                if written == me.expected:
                    yield changed(state, reader=changed(after, at="check"))
            if state.writer.at == "dead" and rules.death_noticed:
                yield changed(state, reader=changed(me, at="over"))
        case "check":
            # what is left was not copied by anybody: then one of the pieces could not be read, or this one copies the rest
            for failed, after in MEMORY.loads(state, me, FAILED, acquire=False):
                is_whole = failed != me.turn and not me.left
                yield changed(state, reader=changed(after, at="use 0" if is_whole else "again 0"))
        case "over":
            return
        case _:
            yield from _finish(state, rules)


def _finish(state: State, rules: Rules) -> Iterator[State]:
    """Copy everything again, where that is needed; then the program reads each piece, and uses its memory."""
    me = state.reader
    what, number = me.at.split()
    piece = int(number)
    following = f"{what} {piece + 1}" if piece + 1 < rules.pieces else ""
    if what == "again":
        after, me = MEMORY.store(state, me, f"piece{piece}", me.turn, release=False)
        yield changed(after, reader=changed(me, at=following or "use 0"))
        return
    for value, after in MEMORY.loads(state, me, f"piece{piece}", acquire=False):
        if value != me.turn:
            raise RuleBroken(f"piece {piece} of turn {me.turn} is that of {value}")
        used, me_after = MEMORY.store(state, after, f"piece{piece}", USED, release=False)
        is_over = not following
        yield changed(
            used, reader=changed(me_after, at=following or "begin"), is_program=is_over or state.is_program
        )


def _write(state: State, rules: Rules) -> Iterator[State]:
    """The writer's steps: `ring_help`."""
    me = state.writer
    match me.at:
        case "begin":
            for (turn, left), after in MEMORY.loads(state, me, WORK, acquire=rules.offer_acquired):
                if left:
                    yield changed(state, writer=changed(after, at="read", turn=turn, left=left))
        case "read":
            for offer, after in MEMORY.loads(state, me, OFFER, acquire=False):
                yield changed(state, writer=changed(after, at="take", offer=offer))
        case "take":
            turn, left = MEMORY.last(state, WORK)
            is_same = (turn, left) == (me.turn, me.left)
            if left and (is_same or not rules.taken_of_this_turn):
                after, me = MEMORY.exchange(state, me, WORK, (turn, left - 1), acquire=True, release=True)
                yield changed(after, writer=changed(me, at="write", piece=left - 1))
            else:
                yield changed(state, writer=changed(me, at="begin"))
        case "write":
            if state.is_program:
                raise RuleBroken("the writer writes into memory that the program has again")
            if me.offer != me.turn:
                raise RuleBroken(f"a piece of turn {me.turn} is copied by the numbers of turn {me.offer}")
            after, written = MEMORY.store(state, me, f"piece{me.piece}", me.offer, release=False)
            yield changed(after, writer=changed(written, at="count"))
            if rules.failure_told:
                state, me = MEMORY.store(state, me, FAILED, me.turn, release=False)
            yield changed(state, writer=changed(me, at="count"))
        case "count":
            count = MEMORY.last(state, WRITTEN) + 1
            release = rules.written_released
            after, me = MEMORY.exchange(state, me, WRITTEN, count, acquire=False, release=release)
            yield changed(after, writer=changed(me, at="begin"))


def explore(rules: Rules) -> int:
    """Visit every state; returns how many there are. Raises RuleBroken."""
    begin = State()
    seen, open_states = {begin}, [begin]
    while open_states:
        state = open_states.pop()
        following = [*_read(state, rules), *_write(state, rules)]
        if state.writer.at not in ("dead", "begin"):  # else it is as if it never looked again
            following.append(changed(state, writer=changed(state.writer, at="dead")))
        moves = [after for after in following if after.reader != state.reader]
        is_over = state.reader.at == "over" or (
            state.reader.at == "begin" and state.reader.turn == rules.turns
        )
        if not moves and not is_over and state.writer.at in ("dead", "begin"):
            raise RuleBroken(f"the reader waits for ever: {state.reader.at}")
        for after in following:
            if after not in seen:
                seen.add(after)
                open_states.append(after)
    return len(seen)

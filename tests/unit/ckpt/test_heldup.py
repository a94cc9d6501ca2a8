"""When a program counts as held up by an image that it cannot have."""

from __future__ import annotations

from ckpt.heldup import LONGEST_CALLS_NS, LONGEST_WAIT_NS, HeldUp


def test_who_waits_while_messages_are_held_is_held_up_after_a_while() -> None:
    held_up = HeldUp()
    assert held_up.look(5, held=1, entries=7) == 0
    assert not held_up.is_stall(held_up.look(5 + LONGEST_WAIT_NS, held=1, entries=7), entries=7, waits=True)
    assert held_up.is_stall(held_up.look(6 + LONGEST_WAIT_NS, held=1, entries=7), entries=7, waits=True)


def test_who_computes_is_not_and_who_calls_the_library_is_later() -> None:
    held_up = HeldUp()
    held_up.look(5, held=1, entries=7)
    held_ns = held_up.look(6 + LONGEST_CALLS_NS, held=3, entries=7)
    assert not held_up.is_stall(held_ns, entries=7, waits=False)
    assert held_up.is_stall(held_ns, entries=8, waits=False)
    assert not held_up.is_stall(LONGEST_CALLS_NS, entries=8, waits=False)


def test_time_without_held_messages_does_not_count() -> None:
    held_up = HeldUp()
    held_up.look(5, held=1, entries=0)
    assert held_up.look(2 * LONGEST_WAIT_NS, held=0, entries=0) == 0
    assert held_up.look(3 * LONGEST_WAIT_NS, held=1, entries=0) == 0

"""When a program counts as held up by an image that it cannot have."""

from __future__ import annotations

from ckpt.capture.stalls import LONGEST_CALLS_NS, LONGEST_WAIT_NS, AwaitedRound, HeldFrames


def test_who_waits_while_messages_are_held_is_held_up_after_a_while() -> None:
    held_up = HeldFrames()
    assert held_up.look(5, held=1, entries=7) == 0
    assert not held_up.is_stall(held_up.look(5 + LONGEST_WAIT_NS, held=1, entries=7), entries=7, waits=True)
    assert held_up.is_stall(held_up.look(6 + LONGEST_WAIT_NS, held=1, entries=7), entries=7, waits=True)


def test_who_computes_is_not_and_who_calls_the_library_is_later() -> None:
    held_up = HeldFrames()
    held_up.look(5, held=1, entries=7)
    held_ns = held_up.look(6 + LONGEST_CALLS_NS, held=3, entries=7)
    assert not held_up.is_stall(held_ns, entries=7, waits=False)
    assert held_up.is_stall(held_ns, entries=8, waits=False)
    assert not held_up.is_stall(LONGEST_CALLS_NS, entries=8, waits=False)


def test_time_without_held_messages_does_not_count() -> None:
    held_up = HeldFrames()
    held_up.look(5, held=1, entries=0)
    assert held_up.look(2 * LONGEST_WAIT_NS, held=0, entries=0) == 0
    assert held_up.look(3 * LONGEST_WAIT_NS, held=1, entries=0) == 0


TICK_NS = 20_000_000


def first_stall(awaited: AwaitedRound, receives: int, until_ns: int, *, tick_ns: int = TICK_NS) -> int:
    """The program waits, looked at every tick, and gets a message every `receives` ticks (0: none). 0: no stall."""
    looks = range(1, until_ns // tick_ns)
    stalls = (
        look * tick_ns
        for look in looks
        if awaited.is_stall(
            look * tick_ns, entries=look, received=look // receives if receives else 0, waits=True
        )
    )
    return next(stalls, 0)


def test_who_is_asked_while_a_program_waits_for_the_round_may_wait_so_long_in_one_place() -> None:
    stalled_ns = first_stall(AwaitedRound(), 0, LONGEST_CALLS_NS)
    assert LONGEST_WAIT_NS < stalled_ns <= LONGEST_WAIT_NS + 2 * TICK_NS


def test_who_receives_meanwhile_or_waits_now_and_then_may_go_on_for_longer() -> None:
    for receives, tick_ns in ((5, TICK_NS), (0, 10 * TICK_NS)):
        stalled_ns = first_stall(AwaitedRound(), receives, 2 * LONGEST_CALLS_NS, tick_ns=tick_ns)
        assert LONGEST_CALLS_NS < stalled_ns <= LONGEST_CALLS_NS + 2 * tick_ns


def test_who_computes_while_a_program_waits_for_the_round_goes_on_and_who_calls_the_library_does_not() -> (
    None
):
    awaited = AwaitedRound()
    for now_ns in (5, 100 * LONGEST_CALLS_NS):
        assert not awaited.is_stall(now_ns, entries=7, received=0, waits=False)
    assert awaited.is_stall(100 * LONGEST_CALLS_NS, entries=8, received=0, waits=False)

"""When a program counts as held up by an image that it cannot have."""

from __future__ import annotations

from ckpt.capture.stalls import LONGEST_CALLS_NS, LONGEST_WAIT_NS, Stall

TICK_NS = 20_000_000


def first_stall(
    stall: Stall, *, until_ns: int, receives: int = 0, tick_ns: int = TICK_NS, since_ns: int = 0
) -> int:
    """The program waits, looked at every tick, and gets a message every `receives` ticks (0: none). 0: no stall."""
    for look in range(1, until_ns // tick_ns):
        now_ns = since_ns + look * tick_ns
        received = look // receives if receives else 0
        if stall.look(now_ns, is_withheld=True, entries=look, waits=True, received=received):
            return now_ns
    return 0


def test_who_waits_in_one_place_is_held_up_after_a_while() -> None:
    stalled_ns = first_stall(Stall(), until_ns=LONGEST_CALLS_NS)
    assert LONGEST_WAIT_NS < stalled_ns <= LONGEST_WAIT_NS + 2 * TICK_NS


def test_who_receives_meanwhile_or_waits_now_and_then_may_go_on_for_longer() -> None:
    for receives, tick_ns in ((5, TICK_NS), (0, 10 * TICK_NS)):
        stalled_ns = first_stall(Stall(), receives=receives, until_ns=2 * LONGEST_CALLS_NS, tick_ns=tick_ns)
        assert LONGEST_CALLS_NS < stalled_ns <= LONGEST_CALLS_NS + 2 * tick_ns


def test_who_computes_goes_on_and_who_calls_the_library_does_not() -> None:
    stall = Stall()
    for now_ns in (5, 100 * LONGEST_CALLS_NS):
        assert not stall.look(now_ns, is_withheld=True, entries=7, waits=False)
    held_ns = stall.look(100 * LONGEST_CALLS_NS + 5, is_withheld=True, entries=8, waits=False)
    assert held_ns == 100 * LONGEST_CALLS_NS


def test_time_in_which_nothing_is_withheld_does_not_count() -> None:
    stall = Stall()
    assert first_stall(stall, until_ns=LONGEST_WAIT_NS) == 0
    assert stall.look(LONGEST_WAIT_NS, is_withheld=False, entries=0, waits=True) == 0
    assert first_stall(stall, until_ns=LONGEST_WAIT_NS, since_ns=LONGEST_WAIT_NS) == 0

"""A search for a place where the program can be captured: what is said of it, and when it is given up."""

from __future__ import annotations

import pytest

from ckpt.capture.search import LibraryUse, Search
from ckpt.image.errors import Refused

S_NS = 1_000_000_000


def search(*, refused: bool = True) -> Search:
    begun = Search()
    begun.begin(S_NS)
    if refused:
        begun.note_refusal(Refused("sum() is running f", "a.py:3 f"), 2 * S_NS)
    return begun


def stall(
    of: Search, *, held: int = 0, waiting: tuple[int, ...] = (), waits: bool = True
) -> tuple[str, int] | None:
    """Three seconds in which rank 1 waits, or calls the library again and again."""
    for look in range(200):
        library = LibraryUse(look, 0, waits)
        found = of.stall(3 * S_NS + look * S_NS // 50, library, held_frames=held, waiting=waiting, rank=1)
        if found is not None:
            return found
    return None


def test_a_refusal_is_kept_with_its_place_and_counted() -> None:
    of = search()
    assert (of.refusals, of.refused_longest_ns, of.is_refused) == (1, S_NS, True)
    assert of.reason == "sum() is running f (a.py:3 f)"
    of.begin(5 * S_NS)
    assert (of.refusals, of.is_refused) == (1, False)
    assert of.reason == "the program has not come to a place between two instructions", (
        "that of another search"
    )


@pytest.mark.parametrize(
    ("held", "waiting", "waits", "reason"),
    [
        (1, (), True, "it waits for what was sent after another rank's image, where"),
        (1, (), False, "it asks for what was sent after another rank's image, where"),
        (0, (0,), True, "it waits for what may be sent after another rank's image, which the program there"),
        (0, (1,), True, "the program waits for its checkpoint where"),
    ],
)
def test_what_holds_a_program_up_is_told_apart(
    held: int, waiting: tuple[int, ...], waits: bool, reason: str
) -> None:
    found = stall(search(), held=held, waiting=waiting, waits=waits)
    assert found is not None and found[0].startswith(reason) and found[0].endswith("(a.py:3 f)")
    assert bool(found[1]) == bool(held), "only held frames make the next round come later"


def test_a_program_that_can_be_captured_or_that_nobody_waits_for_is_not_held_up() -> None:
    assert stall(search(refused=False), held=1, waiting=(0,)) is None
    assert stall(search()) is None


def test_the_controller_is_told_once_a_second_and_not_at_once() -> None:
    of = search()
    assert [of.is_report_due(S_NS + at * S_NS // 10) for at in (1, 2, 3, 13)] == [False, True, False, True]


def test_looks_come_at_longer_and_longer_intervals() -> None:
    of = search()
    assert of.retry_ns(S_NS) < of.retry_ns(S_NS + S_NS // 20) < of.retry_ns(2 * S_NS) == of.retry_ns(9 * S_NS)
    assert of.tick_ns(S_NS) < of.tick_ns(2 * S_NS) == of.tick_ns(9 * S_NS)


def test_a_long_call_in_c_is_told_from_a_refusal() -> None:
    assert search(refused=False).is_in_long_c_call(2 * S_NS) and not search().is_in_long_c_call(2 * S_NS)
    assert not search(refused=False).is_in_long_c_call(S_NS + S_NS // 10)

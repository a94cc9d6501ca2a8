"""Who takes part: quorum, deadline, losses."""

from __future__ import annotations

import pytest

from ckpt.reduction.messages import Contract, Outcome
from ckpt.reduction.partial import SLOW_TASKS, Attendance, Pace, difference, event_of, pending_text, quorum_of


@pytest.mark.parametrize(
    ("quorum", "count"), [(None, 0), (1, 1), (4, 4), (0.5, 2), (0.51, 3), (1.0, 4), (0.01, 1)]
)
def test_a_quorum_is_a_number_or_a_fraction(quorum: float | None, count: int) -> None:
    assert quorum_of(quorum, 4) == count


def test_a_fraction_is_not_rounded_up_for_the_sake_of_its_last_bit() -> None:
    """0.07 * 100 is 7.000000000000001."""
    assert quorum_of(0.07, 100) == 7 and quorum_of(0.55, 20) == 11 and quorum_of(0.071, 100) == 8


def test_calls_that_differ_are_told_in_the_words_of_the_program() -> None:
    ours = Contract(-1, "<f8[3]|MPI_SUM", quorum=2)
    theirs = Contract(1, "<f8[4]|MPI_MAX", deadline_ns=1_500_000_000, copies=2)
    assert difference(theirs, ours) == (
        "root is 1 there and none (allreduce) elsewhere, what is reduced is <f8[4] with MPI.MAX there and <f8[3] with "
        "MPI.SUM elsewhere, copies is 2 there and 1 elsewhere, quorum is None there and 2 elsewhere, deadline_s is 1.5 "
        "there and None elsewhere"
    )
    assert difference(ours._replace(content="a.Body of size 3|"), ours).startswith(
        "what is reduced is a.Body of size 3 there"
    )
    assert not difference(ours, ours)


@pytest.mark.parametrize("quorum", [0, -1, 5, 0.0, 1.5, -0.5, True, "half", float("inf")])
def test_a_quorum_that_cannot_be_is_refused(quorum: object) -> None:
    with pytest.raises(ValueError, match="quorum"):
        quorum_of(quorum, 4)  # type: ignore[arg-type]


def test_everybody_is_waited_for_without_a_quorum() -> None:
    book = Attendance(3)
    assert book.join(0) and book.join(2)
    assert book.possible == 7 and not book.complete
    assert book.join(1) and book.complete and not book.closed


def test_a_quorum_closes_it_and_who_comes_later_is_late() -> None:
    book = Attendance(3, quorum=2)
    assert book.join(2) and not book.closed
    assert book.join(0) and book.closed and book.possible == 5 and book.complete
    assert not book.join(1) and book.possible == 5
    assert book.join(0)  # again


def test_a_deadline_closes_it_with_what_is_there() -> None:
    book = Attendance(3, deadline=True)
    book.join(1)
    book.expire()
    assert book.possible == 2 and not book.join(0)


def test_a_deadline_before_the_first_call_leaves_the_first_one() -> None:
    book = Attendance(3, deadline=True)
    book.expire()
    assert not book.closed
    assert book.join(1) and book.closed and book.possible == 2


def test_a_deadline_with_a_quorum_that_is_not_reached_is_short_whenever_it_passes() -> None:
    """Where it had passed before the first call, that one was enough."""
    early, late = Attendance(3, quorum=2, deadline=True), Attendance(3, quorum=2, deadline=True)
    early.expire()
    early.join(1)
    late.join(1)
    late.expire()
    for book in (early, late):
        assert book.closed and book.short and not book.join(0)
        assert book.why_short == ("the quorum is 2, and by the deadline these ranks had not called: 0, 2", 5)
    dead = Attendance(3, quorum=2)
    dead.join(0)
    dead.leave(6)
    assert dead.short and dead.why_short == ("1 ranks can contribute, and the quorum is 2", 6)


def test_what_is_lost_is_waited_for_no_more() -> None:
    book = Attendance(3)
    book.join(0)
    book.join(1)
    book.leave(2 | 4)
    assert book.possible == book.joined == 1 and book.complete
    assert not book.join(2)


def test_a_quorum_that_cannot_be_reached_any_more() -> None:
    book = Attendance(3, quorum=3)
    book.join(0)
    book.leave(2)
    assert not book.short  # rank 2 may still come
    book.join(2)
    assert book.short and book.tolerant


KEY = ("stack", 0)


def outcome(error: str = "", contributors: int = 15, ranks: int = 0) -> Outcome:
    return Outcome(error, contributors, 15 & ~contributors, -1, 0, 1.0, "why", ranks)


def test_what_deaths_have_done_is_an_event() -> None:
    assert event_of(KEY, outcome(), 0, False) == {} == event_of(KEY, outcome("Mismatch"), 2, False)
    assert event_of(KEY, outcome(contributors=13), 0, True) == {}, "as it was asked for"
    lost = event_of(KEY, outcome("ContributionLost", 0, 2), 2, False)
    assert lost == {"name": "reduction-lost", "reduction": "stack", "ranks": [1], "reason": "why"}
    partial = event_of(KEY, outcome(contributors=13), 2, False)
    assert partial == {"name": "reduction-partial", "reduction": "stack", "missing": [1]}
    assert event_of(KEY, outcome(contributors=13), 2, False, 2) == {}, "it was said before"
    recovered = event_of(("", 3), outcome(), 6, False)
    assert recovered == {"name": "reduction-recovered", "reduction": "3", "ranks": [1, 2], "dead": [1, 2]}


def test_status_says_what_is_pending_and_whom_it_waits_for() -> None:
    assert pending_text({}, {}) == ""
    pending = {KEY: (None, 6), ("", 4): (None, None), ("late", 0): (None, None)}
    text = "reductions pending: 'stack' waits for ranks 1, 2; number 4; 'late', not called here"
    assert pending_text(pending, {KEY[0]: KEY[1] + 1, "": 5}) == text
    assert pending_text({("", n): (None, None) for n in range(6)}, {"": 6}).endswith(" and 2 more")


def test_who_is_slow_for_long_is_told_of_once() -> None:
    pace, said = Pace(), []
    for step in range(3 * SLOW_TASKS):
        said += pace.look({0: 2_000_000 + step, 1: 20_000_000 + step, 2: 2_100_000 + step})
        said += pace.look({0: 2_000_000 + step, 1: 20_000_000 + step, 2: 2_100_000 + step})  # no new tasks
    assert said == [{"slow": 1, "ms": 20.0, "others_ms": 2.1}]
    for step in range(2 * SLOW_TASKS):  # every second task: it does not persist
        said += pace.look({0: 2_000_000 + step, 1: (2 if step % 2 else 20) * 1_000_000 + step})
    assert len(said) == 1

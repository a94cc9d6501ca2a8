"""Who takes part: quorum, deadline, losses."""

from __future__ import annotations

import pytest

from ckpt.reduction.partial import Attendance, quorum_of


@pytest.mark.parametrize(
    ("quorum", "count"), [(None, 0), (1, 1), (4, 4), (0.5, 2), (0.51, 3), (1.0, 4), (0.01, 1)]
)
def test_a_quorum_is_a_number_or_a_fraction(quorum: float | None, count: int) -> None:
    assert quorum_of(quorum, 4) == count


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

"""What may go into looks at a program that cannot be captured."""

from __future__ import annotations

from ckpt.capture.check_budget import CheckBudget

MS = 1_000_000


def test_looks_that_are_made_whenever_they_may_take_less_than_two_percent_of_the_time() -> None:
    allowance, now_ns, spent_ns = CheckBudget(), 0, 0
    allowance.begin(now_ns)
    while now_ns < 100_000 * MS:
        if allowance.is_left(now_ns):
            allowance.spend(3 * MS)
            now_ns += 3 * MS
            spent_ns += 3 * MS
        now_ns += MS // 2
    assert 0.01 < spent_ns / now_ns < 0.02


def test_what_is_not_spent_is_not_saved_up() -> None:
    allowance = CheckBudget()
    allowance.begin(0)
    assert allowance.is_left(3_600_000 * MS)
    allowance.spend(2 * MS)
    assert not allowance.is_left(3_600_000 * MS)


def test_a_begin_gives_for_a_few_looks_and_no_more_however_many_there_are() -> None:
    allowance = CheckBudget()
    for _ in range(10):
        allowance.begin(0)
    allowance.spend(2 * MS)
    assert not allowance.is_left(0)
    allowance.spend(10 * MS)
    allowance.begin(0)
    assert not allowance.is_left(0), "what was spent too much is not forgotten"

"""Two thousand random programs of file operations for every commit, others than for the one before; `make soak`: a million.

Two cases, so that all of it runs in every `make test`. The programs and the checks are those of test_sequences.py: one rank
or two, at any checkpoint, killed or at its end, and a restart that is killed now and then, too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import soak as ledger
from tests.seeds import seed_of_the_commit

AT_ONCE = 1000
VERY_MANY, PIECE = 1_000_000, 5_000

Count = Callable[[str, int], None]


@pytest.mark.parametrize("half", range(2))
def test_whatever_programs_have_done_is_undone(half: int, figures: Count) -> None:
    """What cannot be told apart, of what two ranks did in one directory, is named; all else is undone."""
    count, found = ledger.undone((2 * seed_of_the_commit() + half) * AT_ONCE, AT_ONCE)
    figures("sequences of file operations, undone", count)
    assert count == AT_ONCE
    assert found["restarts killed"] > AT_ONCE // 8
    assert found["of two ranks without a problem"] > AT_ONCE // 8


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_whatever_very_many_programs_have_done_is_undone(figures: Count, soaked: Callable[..., None]) -> None:
    first = ledger.next_number("undone")
    for number in range(first, first + VERY_MANY, PIECE):
        count, found = ledger.undone(number, PIECE)
        figures("sequences of file operations, undone", count)
        soaked("undone", count, **found)

"""Why nothing has been committed: the reason of the newest round."""

from __future__ import annotations

from ckpt.controller.supervision.uncommitted import CommitGap


def test_a_refusal_of_an_earlier_round_is_not_the_reason_of_a_later_one() -> None:
    """A rank that was just importing something at the first round, and can be captured since; its images fail."""
    drought = CommitGap()
    drought.round_begins(0)
    drought.refused(0, "an import is in progress")
    drought.round_fails("no line after 30 s")
    drought.round_fails("rank 0: a frame object cannot be saved")
    said = drought.epitaph()
    assert said is not None and "a frame object cannot be saved" in said and "import" not in said


def test_what_a_rank_is_refused_for_says_more_than_that_the_round_was_too_long() -> None:
    drought = CommitGap()
    drought.round_begins(0)
    for _ in range(2):
        drought.refused(0, "sum() is running")
        drought.round_fails("no line after 30 s")
    said = drought.epitaph()
    assert said is not None and "sum() is running" in said


def test_a_reason_is_printed_once_and_so_is_what_to_do() -> None:
    """A program in a debugger, which can never be saved: three messages about one thing."""
    drought = CommitGap()
    drought.round_begins(0)
    for is_first in (True, False, False):
        assert drought.round_fails("rank 0: a frame object cannot be saved") is is_first
    notice = drought.notice(1)
    assert notice == f"no checkpoint for 0 s and 3 tries, for the reason above. What to do: {drought.remedy}"
    assert drought.epitaph() == "nothing was committed, for the reason above"


def test_another_reason_is_printed() -> None:
    drought = CommitGap()
    drought.round_begins(0)
    for number in range(3):
        drought.round_fails(f"rank 0: reason {number}")
    assert "rank 0: reason 2" in str(drought.notice(1))
    drought.refused(1, "sum() is running (app.py:3)")
    assert "because rank 1 cannot be captured: sum() is running (app.py:3)" in str(drought.epitaph())

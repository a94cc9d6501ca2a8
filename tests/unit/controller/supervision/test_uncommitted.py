"""Why nothing has been committed: the reason of the newest round."""

from __future__ import annotations

from ckpt.controller.supervision.uncommitted import CommitGap


def test_a_refusal_of_an_earlier_round_is_not_the_reason_of_a_later_one() -> None:
    """A rank that was just importing something at the first round, and can be captured since; its images fail."""
    drought = CommitGap()
    drought.round_begins(0)
    drought.refused(0, "an import is in progress")
    drought.round_fails("rank 0: a frame object cannot be saved")
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

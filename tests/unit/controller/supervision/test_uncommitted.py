"""Why nothing has been committed: the reason of the newest round and, at the end of the job, the one that was met most."""

from __future__ import annotations

from ckpt.controller.supervision import remedies
from ckpt.controller.supervision.uncommitted import CommitGap


def test_a_refusal_of_an_earlier_round_is_not_the_reason_of_a_later_one() -> None:
    """A rank that was just importing something at the first round, and can be captured since; its images fail."""
    gap = CommitGap()
    gap.round_begins(0)
    gap.refused(0, "an import is in progress")
    gap.round_fails("no line after 30 s")
    gap.round_fails("rank 0: a frame object cannot be saved")
    said = gap.final_notice()
    assert said is not None and "a frame object cannot be saved" in said and "import" not in said


def test_what_a_rank_is_refused_for_says_more_than_that_the_round_was_too_long() -> None:
    gap = CommitGap()
    gap.round_begins(0)
    for _ in range(2):
        gap.refused(0, "sum() is running")
        gap.round_fails("no line after 30 s")
    said = gap.final_notice()
    assert said is not None and "sum() is running" in said


def test_a_reason_is_printed_once_and_so_is_what_to_do() -> None:
    """A program in a debugger, which can never be saved: three messages about one thing."""
    gap = CommitGap()
    gap.round_begins(0)
    for is_first in (True, False, False):
        assert gap.round_fails("rank 0: a frame object cannot be saved") is is_first
    notice = gap.notice(1)
    assert notice == f"no checkpoint for 0 s and 3 tries, for the reason above. What to do: {gap.remedy}"
    assert gap.final_notice() == "nothing was committed, for the reason above"


def test_another_reason_is_printed() -> None:
    gap = CommitGap()
    gap.round_begins(0)
    for number in range(3):
        gap.round_fails(f"rank 0: reason {number}")
    assert "rank 0: reason 2" in str(gap.notice(1))
    gap.refused(1, "sum() is running (app.py:3)")
    assert "because rank 1 cannot be captured: sum() is running (app.py:3)" in str(gap.final_notice())


def test_the_last_message_names_what_was_met_most_often_how_often_and_at_which_ranks() -> None:
    """At the end of the program, one rank is asked once more, and has just begun a call in C."""
    gap = CommitGap()
    gap.round_begins(0)
    for second in range(6):
        gap.refused(second % 3 % 2, f"sum() is running (app.py:{second})")
    gap.refused(0, "an import is in progress (app.py:1)")
    gap.round_fails("no line after 30 s")
    gap.refused(1, "the program has not come to a place between two instructions")
    assert gap.final_notice() == (
        "nothing was committed, because rank 0 cannot be captured: sum() is running (app.py:5) "
        f"(6 of 8 times; rank 0: 4, rank 1: 2). What to do: {remedies.for_refusal('sum() is running')}"
    )


def test_that_no_place_was_reached_is_the_reason_only_where_there_is_no_other() -> None:
    for others, said in (([], "two instructions"), (["an import is in progress"], "an import")):
        gap = CommitGap()
        gap.round_begins(0)
        for reason in (*others, "the program has not come to a place between two instructions"):
            gap.refused(0, reason)
        assert said in str(gap.final_notice())

"""What the death of a rank means."""

from __future__ import annotations

import pytest

from ckpt.controller.supervision.events import Died
from ckpt.controller.supervision.failure_policy import Decision, judge, restart_if_left, signal_name


def test_a_signal_is_an_accident() -> None:
    decision = judge(Died(2, 0, signal=9), restarts=0, max_restarts=1)
    assert decision == Decision("restart", "rank 2 was killed by SIGKILL")


def test_an_exit_code_is_the_programs_doing() -> None:
    decision = judge(Died(2, 0, code=7), restarts=0, max_restarts=10)
    assert decision == Decision("end", "rank 2 left with exit code 7", 7)


def test_leaving_with_0_without_a_word_is_an_error() -> None:
    decision = judge(Died(2, 0, code=0), restarts=0, max_restarts=10)
    assert (decision.verdict, decision.exit_code) == ("end", 1)
    assert "without finishing" in decision.reason


@pytest.mark.parametrize(("restarts", "allowed"), [(0, 0), (3, 3), (4, 3)])
def test_the_budget_ends_with_14(restarts: int, allowed: int) -> None:
    decision = restart_if_left("x", restarts=restarts, max_restarts=allowed)
    assert (decision.verdict, decision.exit_code) == ("end", 14)
    assert decision.reason.startswith("x, and ")


def test_signals_have_names() -> None:
    assert signal_name(11) == "SIGSEGV"
    assert signal_name(50) == "signal 50"


@pytest.mark.parametrize("died", [Died(2, 0, signal=9), Died(2, 0, code=0), Died(2, 0, code=7)])
def test_where_the_program_deals_with_failures_nothing_is_restarted_or_ended(died: Died) -> None:
    decision = judge(died, restarts=0, max_restarts=0, on_failure="continue")
    assert decision.verdict == "continue" and decision.reason.startswith("rank 2 ")

"""An agent without a controller: when the job is over, and with what result."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ckpt.controller.launch.alone import Verdict, judge


@dataclass
class Facts:
    rank: int = 0
    finished: int | None = None
    failed: int | None = None
    status: int | None = None


def test_ranks_go_on_while_all_are_well() -> None:
    assert judge([Facts(0), Facts(1, finished=0)]) is None
    assert judge([]) is None


def test_when_all_have_finished_they_are_released() -> None:
    verdict = judge([Facts(0, finished=0), Facts(1, finished=0, status=0)])
    assert verdict == Verdict(0, "all ranks have finished", release=True)


@pytest.mark.parametrize("bad", [Facts(1, failed=3), Facts(1, finished=3)])
def test_a_failure_is_the_result(bad: Facts) -> None:
    assert judge([Facts(0), bad]) == Verdict(3, "rank 1 failed with exit code 3")


def test_a_kill_is_an_interruption_without_exit_code() -> None:
    verdict = judge([Facts(0, status=-9), Facts(1)])
    assert verdict is not None and verdict.exit_code is None and "signal 9" in verdict.reason


def test_a_rank_that_has_finished_may_die() -> None:
    assert judge([Facts(0, finished=0, status=-9), Facts(1)]) is None


def test_leaving_without_a_word() -> None:
    assert judge([Facts(0, status=4), Facts(1)]) == Verdict(4, "rank 0 left with exit code 4")
    silent = judge([Facts(0, status=0), Facts(1)])
    assert silent is not None and silent.exit_code is None


def test_where_failures_are_the_programs_business_the_dead_count_as_finished() -> None:
    dead, well = Facts(0, status=-9), Facts(1)
    assert judge([dead, well], tolerant=True) is None
    verdict = judge([dead, Facts(1, finished=0)], tolerant=True)
    assert verdict == Verdict(0, "all ranks but 0, which failed, have finished", release=True)
    nobody = judge([dead, Facts(1, status=-9)], tolerant=True)
    assert nobody is not None and nobody.exit_code is None
    raised = judge([Facts(0, failed=3, status=3), well], tolerant=True)
    assert raised is not None and raised.exit_code == 3

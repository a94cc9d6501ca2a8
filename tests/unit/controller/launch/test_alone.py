"""An agent without a controller: when the job is over, and with what result."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ckpt.controller.launch.alone import Ending, Verdict, judge


@dataclass
class Facts:
    rank: int = 0
    finished: int | None = None
    failed: int | None = None
    status: int | None = None
    is_late: bool = False

    @property
    def is_alive(self) -> bool:
        return self.status is None


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


def ended(ending: Ending, ranks: list[Facts], now_s: float) -> str | None:
    return ending.reason(ranks, now_s, tolerant=False)


def test_released_ranks_are_waited_for_and_others_are_killed_after_a_while() -> None:
    finished, failed = [Facts(0, finished=0)], [Facts(0), Facts(1, failed=3, status=3)]
    for ranks, is_killed in ((finished, False), (failed, True)):
        ending = Ending()
        assert ended(ending, ranks, 0.0) is None
        verdict = ending.begin(ranks, 0.0, tolerant=False)
        assert verdict is not None and ending.begin(ranks, 0.1, tolerant=False) is None, "said once"
        assert ended(ending, ranks, 0.5) is None
        assert ended(ending, ranks, 1e6) == (verdict.reason if is_killed else None)
        ranks[0].status = 0
        assert ended(ending, ranks, 0.5) == verdict.reason


def test_a_released_rank_that_leaves_with_a_code_gives_the_job_its_code() -> None:
    ending, ranks = Ending(), [Facts(0, finished=0)]
    ending.begin(ranks, 0.0, tolerant=False)
    ranks[0].status = 120
    assert ended(ending, ranks, 0.1) == "rank 0 left with exit code 120"
    assert ending.verdict is not None and ending.verdict.exit_code == 120


def test_sigterm_gives_ranks_more_time_and_a_failure_then_gives_none() -> None:
    ending, ranks = Ending(), [Facts(0), Facts(1, failed=1)]
    ending.terminate(0.0)
    assert ending.begin(ranks, 0.0, tolerant=False) is None
    assert ended(ending, ranks, 4.9) is None
    assert ended(ending, ranks, 5.1) == "stopped by SIGTERM, and there was no controller"


def test_when_all_ranks_have_failed_what_they_had_started_goes_on_and_the_job_is_interrupted() -> None:
    dead = [Facts(0, status=-9), Facts(1, status=-9)]
    assert judge([*dead, Facts(2, is_late=True)], tolerant=True) is None
    verdict = judge([*dead, Facts(2, finished=0, is_late=True)], tolerant=True)
    assert verdict is not None and (verdict.exit_code, verdict.release) == (None, True)
    one = judge([dead[0], Facts(1, finished=0), Facts(2, finished=0, is_late=True)], tolerant=True)
    assert one is not None and one.exit_code == 0

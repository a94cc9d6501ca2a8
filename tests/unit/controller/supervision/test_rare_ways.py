"""Ways through the controller's core that few jobs take. With the other tests every branch is taken."""

from __future__ import annotations

import pytest

from ckpt.controller.supervision import history, messages
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Begin,
    Boundary,
    CheckpointRequested,
    Fence,
    Fenced,
    Finished,
    Hello,
    Launch,
    Ready,
    Send,
    StopRequested,
    Tick,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.supervisor import Supervisor


def running(size: int = 2) -> Supervisor:
    supervisor = Supervisor(Coordinator(size))
    supervisor.handle(Begin(), now_ns=0)
    for rank in range(size):
        supervisor.handle(Hello(rank, 0, "here"), now_ns=0)
    return supervisor


def test_a_job_has_ranks() -> None:
    with pytest.raises(ValueError, match="size is 0"):
        Coordinator(0)


def test_the_committed_epoch_is_not_above_the_highest() -> None:
    with pytest.raises(ValueError, match="highest number seen is 2"):
        Coordinator(1, highest=2, committed=3)


def test_the_end_answers_whoever_waits_for_a_control_file_being_written() -> None:
    coordinator = Coordinator(1)
    coordinator.ready(0, now_ns=0)
    coordinator.handle(CheckpointRequested(1), now_ns=0)
    written = coordinator.handle(Voted(0, 0, 1, (0, 1), "m", "d", {}), now_ns=0)
    assert isinstance(written[0], WriteControl)
    answers = coordinator.closed("over")
    assert [getattr(answer, "token", None) for answer in answers] == [1]


def test_explicit_ranks_agree_on_a_boundary() -> None:
    supervisor = running()
    assert supervisor.handle(Boundary(0, 0, 1, 3, False), now_ns=0) == []  # no round is open
    supervisor.handle(CheckpointRequested(1), now_ns=0)
    for rank in range(2):
        supervisor.handle(Ready(rank, 0, 1), now_ns=0)
    said = [supervisor.handle(Boundary(rank, 0, 1, 3 + rank, False), now_ns=0) for rank in range(2)]
    cuts = [action.packet for actions in said for action in actions if isinstance(action, Send)]
    assert cuts and all(cut["m"] == "cut" and cut["epoch"] == 1 for cut in cuts)


def test_packets_that_only_say_their_name() -> None:
    assert messages.cut(4, 7, True) == {"m": "cut", "epoch": 4, "at": 7, "take": True}
    assert messages.alone() == {"m": "alone"} and messages.status() == {"m": "status"}


def test_the_log_of_a_job_that_goes_on_without_a_rank() -> None:
    found = history.summarise(
        [
            {"event": "continuing", "rank": 1},
            {"event": "rank-finished", "rank": 0, "exit_code": 0},
            {"event": "round-started", "epoch": 3},
            {"event": "voted", "epoch": 3, "rank": 0},
            {"event": "result-reported"},
        ]
    )
    assert found.ranks[1].failed and found.ranks[0].finished == 0 and found.result_reported
    assert found.open_round == 3 and found.highest_epoch == 3


def test_a_rank_that_finishes_with_a_code_has_failed() -> None:
    supervisor = running()
    supervisor.handle(Finished(0, 0, 3), now_ns=0)
    assert supervisor.phase == "stopping" and supervisor.outcome is not None
    assert supervisor.outcome.exit_code == 3


def test_a_stop_while_everything_is_fenced_ends_the_job_instead_of_starting_it_again() -> None:
    supervisor = running()
    from ckpt.controller.supervision.events import AgentLost, End

    actions = supervisor.handle(AgentLost("killed"), now_ns=0)
    assert any(isinstance(action, Fence) for action in actions)
    supervisor.handle(StopRequested(143, "stopped"), now_ns=0)
    last = supervisor.handle(Fenced(0), now_ns=0)
    assert isinstance(last[-1], End) and last[-1].exit_code == 143
    assert not any(isinstance(action, Launch) for action in last)
    assert supervisor.handle(Tick(), now_ns=1) == []

"""The life of a job. Scenarios as text are in tests/scenarios/controller; here is what must hold in every
order of events.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    Adopt,
    AgentLost,
    BackRequested,
    Begin,
    Captured,
    CheckpointRequested,
    ControlFailed,
    ControlWritten,
    Died,
    Discard,
    End,
    Event,
    Failed,
    Fence,
    Fenced,
    FilesDamaged,
    FilesKept,
    FilesRefused,
    Finished,
    Hello,
    KeepFiles,
    Launch,
    Loaded,
    Log,
    ProgramError,
    PutFilesBack,
    Ready,
    Reply,
    Say,
    Send,
    SetBranch,
    StopRequested,
    Terminate,
    Tick,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.lines import DEATHS
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.controller.supervision.stopping import AGAIN_AFTER_NS, GRACE_NS, KILL_AFTER_NS, TERM_AFTER_NS
from ckpt.controller.supervision.supervisor import Supervisor

MS = 1_000_000


def supervisor(
    size: int = 2,
    *,
    incarnation: int = 0,
    lines: tuple[int, ...] = (),
    max_restarts: int = 3,
    asks: bool = False,
    start_over: bool = False,
) -> Supervisor:
    committed = max(lines, default=None)
    options = RoundOptions(asks=asks)
    coordinator = Coordinator(size, highest=committed or 0, committed=committed, options=options)
    return Supervisor(
        coordinator, incarnation=incarnation, lines=lines, max_restarts=max_restarts, start_over=start_over
    )


def running(size: int = 2, **options: int) -> Supervisor:
    job = supervisor(size, **options)  # type: ignore[arg-type]
    job.handle(Begin(), now_ns=0)
    for rank in range(size):
        job.handle(Hello(rank, 0, f"address-{rank}"), now_ns=0)
    assert job.phase == "running"
    return job


def of(kind: type, actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def test_a_controller_goes_on_with_ranks_that_run() -> None:
    """They get the table, as some may wait for it; the newest commit, which may not have been announced; and the number of
    the open round is burnt."""
    coordinator = Coordinator(2, highest=7, committed=6, options=RoundOptions(asks=False))
    job = Supervisor(coordinator, incarnation=4, lines=(5, 6))
    actions = job.handle(Adopt(3, {0: "a", 1: "b"}, {1: 0}, open_round=7), now_ns=0)
    assert of(Send, actions) == [
        Send({"m": "table", "peers": {"0": [3, "a"], "1": [3, "b"]}}),
        Send({"m": "committed", "epoch": 6}),
        Send({"m": "abort", "epoch": 7, "reason": "its controller was lost"}),
    ]
    assert of(Discard, actions) == [Discard(7)] and not of(Launch, actions)
    assert [action.event for action in of(Log, actions)] == ["adopted", "round-aborted"]  # type: ignore[union-attr]
    assert (job.phase, job.incarnation, job.finished) == ("running", 3, {1: 0})
    log, _ = job.handle(CheckpointRequested(), now_ns=0)
    assert log == Log("round-started", {"epoch": 8, "incarnation": 3})
    died = job.handle(Died(0, 3, signal=9), now_ns=0)
    assert of(Fence, died) == [Fence(3)]
    assert of(Launch, job.handle(Fenced(3), now_ns=0)) == [Launch(4, 6, "rank 0 was killed by SIGKILL")]


def test_a_number_that_may_have_been_said_to_ranks_is_burnt_when_the_log_has_no_round_of_it() -> None:
    job = Supervisor(Coordinator(1, highest=7, committed=6), incarnation=4, lines=(5, 6))
    actions = job.handle(Adopt(3, {0: "a"}, {}), now_ns=0)
    assert of(Discard, actions) == [Discard(7)]
    assert [action.event for action in of(Log, actions)] == ["adopted"]  # type: ignore[union-attr]
    assert (job.last_line, job.needed_lines) == (6, ())


def test_ranks_that_have_all_finished_without_a_controller_are_released_by_the_next_one() -> None:
    job = supervisor(lines=(2,))
    actions = job.handle(Adopt(0, {0: "a", 1: "b"}, {0: 0, 1: 0}), now_ns=0)
    assert of(Send, actions)[-1] == Send({"m": "release"})
    assert job.phase == "releasing"


def test_files_are_put_back_when_the_last_rank_has_loaded() -> None:
    job = supervisor(lines=(6,))
    assert of(Launch, job.handle(Begin(), now_ns=0)) == [Launch(0, 6, "resumed")]
    assert job.handle(Loaded(1, 0), now_ns=0) == []
    assert job.handle(Loaded(1, 7), now_ns=0) == [], "of another incarnation"
    assert job.handle(Loaded(0, 0), now_ns=0) == [PutFilesBack(stays=False)]
    assert job.handle(Loaded(0, 0), now_ns=0) == [], "once"


def test_what_was_put_back_stays_before_any_rank_goes_on() -> None:
    """When all ranks have loaded the rest of their images, too: what one of them fails at then can be taken back."""
    job = supervisor(lines=(6,))
    job.handle(Begin(), now_ns=0)
    job.handle(Loaded(0, 0), now_ns=0)
    job.handle(Loaded(1, 0), now_ns=0)
    assert job.handle(Hello(0, 0, "a"), now_ns=0) == []
    assert job.handle(Hello(1, 0, "b"), now_ns=0) == [KeepFiles(0)]
    assert job.handle(Hello(1, 0, "b"), now_ns=0) == [], "once"
    assert job.handle(FilesKept(7), now_ns=0) == [], "of another incarnation"
    actions = job.handle(FilesKept(0), now_ns=0)
    assert job.phase == "running" and of(Send, actions)[0].packet["m"] == "table"


def test_what_was_put_back_stays_at_once_where_no_rank_can_fail_to_load_any_more() -> None:
    job = supervisor(lines=(6,))
    job.handle(Begin(), now_ns=0)
    job.handle(Loaded(0, 0, is_all=True), now_ns=0)
    assert job.clone().handle(Loaded(1, 0, is_all=False), now_ns=0) == [PutFilesBack(stays=False)]
    assert job.handle(Loaded(1, 0, is_all=True), now_ns=0) == [PutFilesBack(stays=True)]
    job.handle(Hello(0, 0, "a"), now_ns=0)
    actions = job.handle(Hello(1, 0, "b"), now_ns=0)
    assert job.phase == "running" and not of(KeepFiles, actions)


def test_what_was_put_back_does_not_stay_where_a_rank_cannot_load_the_rest() -> None:
    job = supervisor(lines=(3, 6))
    job.handle(Begin(), now_ns=0)
    job.handle(Loaded(0, 0), now_ns=0)
    job.handle(Loaded(1, 0), now_ns=0)
    job.handle(Hello(0, 0, "a"), now_ns=0)
    actions = job.handle(ProgramError(1, 0, 3, "__setstate__ has raised"), now_ns=0)
    assert of(Fence, actions) == [Fence(0)] and not of(KeepFiles, actions)
    assert of(Launch, job.handle(Fenced(0), now_ns=0)) == [Launch(1, 3, "epoch 6 cannot be read")]


def test_files_are_not_put_back_where_a_rank_cannot_load_its_image() -> None:
    job = supervisor(lines=(3, 6))
    job.handle(Begin(), now_ns=0)
    job.handle(Loaded(1, 0), now_ns=0)
    assert of(Fence, job.handle(ProgramError(0, 0, 3, "no such module"), now_ns=0)) == [Fence(0)]
    assert job.handle(Loaded(0, 0), now_ns=0) == [], "it is too late"
    assert of(Launch, job.handle(Fenced(0), now_ns=0)) == [Launch(1, 3, "epoch 6 cannot be read")]
    assert job.handle(Loaded(0, 1), now_ns=0) == []
    assert job.handle(Loaded(1, 1), now_ns=0) == [PutFilesBack(stays=False)]


def test_files_that_the_file_system_refuses_end_the_job_with_its_words() -> None:
    job = supervisor(lines=(6,))
    job.handle(Begin(), now_ns=0)
    job.handle(Loaded(0, 0), now_ns=0)
    job.handle(Loaded(1, 0), now_ns=0)
    actions = job.handle(FilesRefused(1, "read-only"), now_ns=0)
    assert of(Send, actions) == [Send({"m": "stop", "exit_code": 1, "reason": ""})]
    assert job.outcome == End(1, "read-only", "interrupted")


def test_the_table_is_sent_when_the_last_rank_has_said_hello() -> None:
    job = supervisor()
    assert job.handle(Begin(), now_ns=0) == [Launch(0, None, "started")]
    assert job.handle(Hello(1, 0, "b"), now_ns=MS) == []
    send, log = job.handle(Hello(0, 0, "a"), now_ns=2 * MS)
    assert send == Send({"m": "table", "peers": {"0": [0, "a"], "1": [0, "b"]}})
    assert log == Log("running", {"incarnation": 0, "from_epoch": None, "ms": 2.0})


def test_a_death_fences_the_whole_incarnation_before_the_next_is_launched() -> None:
    job = running()
    actions = job.handle(Died(1, 0, signal=9), now_ns=MS)
    assert of(Fence, actions) == [Fence(0)] and not of(Launch, actions)
    assert job.handle(Died(0, 0, signal=9), now_ns=2 * MS) == [], "that was us"
    actions = job.handle(Fenced(0), now_ns=3 * MS)
    assert of(Launch, actions) == [Launch(1, None, "rank 1 was killed by SIGKILL")]


def test_the_newest_committed_line_is_resumed() -> None:
    job = running(1)
    job.handle(CheckpointRequested(1), now_ns=0)
    job.handle(Voted(0, 0, 1, (0, 1), "m", "d", {}), now_ns=1)
    job.handle(ControlWritten(1), now_ns=2)
    job.handle(Died(0, 0, signal=9), now_ns=3)
    assert of(Launch, job.handle(Fenced(0), now_ns=4)) == [Launch(1, 1, "rank 0 was killed by SIGKILL")]


def test_a_death_while_the_line_is_being_committed_resumes_from_that_line() -> None:
    job = running(1)
    job.handle(CheckpointRequested(1), now_ns=0)
    job.handle(Voted(0, 0, 1, (0, 1), "m", "d", {}), now_ns=1)
    job.handle(Died(0, 0, signal=9), now_ns=2)
    job.handle(ControlWritten(1), now_ns=3)
    assert of(Launch, job.handle(Fenced(0), now_ns=4)) == [Launch(1, 1, "rank 0 was killed by SIGKILL")]


def test_old_incarnations_are_not_listened_to() -> None:
    job = running()
    job.handle(Died(1, 0, signal=9), now_ns=MS)
    job.handle(Fenced(0), now_ns=MS)
    for late in (Hello(0, 0, "x"), Finished(0, 0, 0), ProgramError(0, 0, 1), Died(0, 0, signal=9)):
        assert job.handle(late, now_ns=MS) == []
    assert job.phase == "starting"


def test_stopping_is_gentle_first() -> None:
    job = running()
    actions = job.handle(ProgramError(0, 0, 3, "Traceback\nValueError: no"), now_ns=0)
    (send,) = of(Send, actions)
    assert isinstance(send, Send) and send.packet["m"] == "stop"
    assert job.deadline_ns() is None, "the rank that has failed ends in its own time"
    job.handle(Died(0, 0, code=3), now_ns=0)
    assert job.deadline_ns() == TERM_AFTER_NS
    assert job.handle(Tick(), now_ns=TERM_AFTER_NS) == [Terminate()]
    assert job.handle(Tick(), now_ns=KILL_AFTER_NS) == [Fence(0)]
    (end,) = job.handle(Fenced(0), now_ns=KILL_AFTER_NS)
    assert isinstance(end, End) and (end.exit_code, end.kind) == (3, "finished")


def test_a_signal_is_the_programs_first_and_who_has_finished_waits_for_the_others() -> None:
    job = running()
    job.handle(Finished(0, 0, 0), now_ns=0)
    actions = job.handle(StopRequested(143, "stopped by SIGTERM", signal=15), now_ns=0)
    assert of(Terminate, actions) == [Terminate(15, (1,))] and not of(Send, actions)
    assert job.deadline_ns() == GRACE_NS
    assert job.handle(ProgramError(1, 0, 1), now_ns=1) == [], (
        "it has left its handler by an exception; it will be gone"
    )
    assert of(Send, job.handle(Died(1, 0, code=1), now_ns=2)) == [Send({"m": "release", "final": False})]
    assert of(Fence, job.handle(Died(0, 0, code=0), now_ns=3)) == [Fence(0)]
    (end,) = job.handle(Fenced(0), now_ns=4)
    assert isinstance(end, End) and (end.exit_code, end.kind) == (143, "stopped")


def test_ranks_that_end_by_themselves_after_a_signal_are_released_together() -> None:
    job = running()
    job.handle(StopRequested(143, "stopped by SIGTERM", signal=15), now_ns=0)
    assert not of(Send, job.handle(Finished(0, 0, 0), now_ns=1))
    assert of(Send, job.handle(Finished(1, 0, 0), now_ns=2)) == [Send({"m": "release", "final": False})]
    assert not of(Fence, job.handle(Died(0, 0, code=0), now_ns=3))
    assert of(Fence, job.handle(Died(1, 0, code=0), now_ns=3)) == [Fence(0)]


def test_a_signal_goes_to_the_rank_that_has_failed_and_takes_its_time_to_end() -> None:
    job = running()
    job.handle(ProgramError(0, 0, 3, ""), now_ns=0)
    assert job.deadline_ns() is None, "what it still writes is its program's"
    actions = job.handle(StopRequested(130, "stopped by SIGINT", signal=2), now_ns=1)
    assert of(Terminate, actions) == [Terminate(2, (0,))]
    assert job.handle(Tick(), now_ns=GRACE_NS + 1) == [Fence(0)]
    (end,) = job.handle(Fenced(0), now_ns=GRACE_NS + 2)
    assert isinstance(end, End) and end.exit_code == 3


def test_a_signal_once_more_ends_at_once_but_not_one_that_was_sent_twice() -> None:
    job = running()
    interrupt = StopRequested(130, "stopped by SIGINT", signal=2)
    job.handle(interrupt, now_ns=0)
    assert job.handle(interrupt, now_ns=AGAIN_AFTER_NS - 1) == []
    assert job.handle(StopRequested(143, "`ckpt stop`", token=1, signal=15), now_ns=AGAIN_AFTER_NS) == []
    assert of(Fence, job.handle(interrupt, now_ns=AGAIN_AFTER_NS)) == [Fence(0)]
    assert job.handle(interrupt, now_ns=AGAIN_AFTER_NS) == []
    assert job.deadline_ns() is None


def test_who_does_not_end_in_the_time_given_is_fenced() -> None:
    job = running()
    job.handle(StopRequested(143, "stopped by SIGTERM", signal=15), now_ns=0)
    assert job.handle(Tick(), now_ns=GRACE_NS) == [Fence(0)]


def test_after_a_last_checkpoint_no_handler_runs() -> None:
    """What it did would be done again, or be undone, by whoever goes on from there."""
    job = running(1)
    job.handle(StopRequested(143, "stopped", checkpoint=True, signal=15), now_ns=0)
    job.handle(Voted(0, 0, 1, (0, 1), "m", "d", {}), now_ns=1)
    actions = job.handle(ControlWritten(1), now_ns=2)
    assert [send.packet["m"] for send in of(Send, actions) if isinstance(send, Send)][-1] == "stop"
    assert not of(Terminate, actions)


def test_a_failed_rank_that_does_not_end_is_ended_when_somebody_asks() -> None:
    job = running()
    job.handle(ProgramError(0, 0, 3, ""), now_ns=0)
    job.handle(StopRequested(130, "stopped by SIGINT", checkpoint=False), now_ns=5)
    assert job.deadline_ns() == 5 + TERM_AFTER_NS


def released() -> Supervisor:
    job = running()
    for rank in range(2):
        job.handle(Finished(rank, 0, 0), now_ns=0)
    assert job.phase == "releasing" and job.deadline_ns() is None, "the end of an interpreter takes its time"
    return job


def test_a_released_rank_that_is_killed_has_not_written_all_and_is_restarted() -> None:
    job = released()
    assert of(Fence, job.handle(Died(0, 0, code=0), now_ns=1)) == []
    assert of(Fence, job.handle(Died(1, 0, signal=9), now_ns=2)) == [Fence(0)]
    assert of(Launch, job.handle(Fenced(0), now_ns=3)) == [Launch(1, None, "rank 1 was killed by SIGKILL")]


def test_the_exit_code_of_a_released_rank_is_the_jobs() -> None:
    job = released()
    job.handle(Died(0, 0, code=120), now_ns=1)
    assert of(Fence, job.handle(Died(1, 0, code=0), now_ns=2)) == [Fence(0)]
    (end,) = job.handle(Fenced(0), now_ns=3)
    assert end == End(120, "rank 0 left with exit code 120")


def test_released_ranks_that_take_too_long_for_somebody_are_stopped() -> None:
    job = released()
    job.handle(StopRequested(130, "stopped by SIGINT", checkpoint=True), now_ns=7)
    assert job.phase == "stopping" and job.deadline_ns() == 7 + TERM_AFTER_NS


def test_a_second_stop_does_not_wait_for_the_last_checkpoint() -> None:
    job = running()
    first = job.handle(StopRequested(130, "stopped by SIGINT", checkpoint=True), now_ns=0)
    assert [send.packet["m"] for send in first if isinstance(send, Send)] == ["checkpoint"]
    second = job.handle(StopRequested(130, "stopped by SIGINT", checkpoint=True), now_ns=1)
    assert [send.packet["m"] for send in second if isinstance(send, Send)] == ["abort", "stop"]


def test_when_the_last_checkpoint_fails_the_job_stops_unless_it_was_the_point() -> None:
    job = running()
    job.handle(StopRequested(143, "stopped", checkpoint=True), now_ns=0)
    job.handle(Failed(0, 0, 1, "disk full"), now_ns=1)
    assert job.phase == "stopping" and job.outcome is not None and job.outcome.exit_code == 143
    job = running()
    job.handle(StopRequested(143, "x", checkpoint=True, only_if_committed=True, token=5), now_ns=0)
    actions = job.handle(Failed(0, 0, 1, "disk full"), now_ns=1)
    assert job.phase == "running" and job.stopping.request is None
    assert [(reply.token, reply.ok) for reply in actions if isinstance(reply, Reply)] == [(5, False)]


def test_an_image_that_cannot_be_read_is_passed_over_for_an_older_line() -> None:
    job = supervisor(1, incarnation=4, lines=(3, 8))
    assert job.handle(Begin(), now_ns=0) == [Launch(4, 8, "resumed")]
    actions = job.handle(ProgramError(0, 4, 12, "x\nBlockDamaged: pack"), now_ns=1)
    assert Log("line-unusable", {"epoch": 8, "rank": 0, "reason": "BlockDamaged: pack"}) in actions
    assert of(Launch, job.handle(Fenced(4), now_ns=2)) == [Launch(5, 3, "epoch 8 cannot be read")]
    assert job.restarts == 0, "not a restart of the program"
    job.handle(ProgramError(0, 5, 12, "BlockDamaged: too"), now_ns=3)
    job.handle(Died(0, 5, code=12), now_ns=4)
    (end,) = job.handle(Fenced(5), now_ns=5)
    assert isinstance(end, End) and (end.exit_code, end.kind) == (12, "interrupted")


@pytest.mark.parametrize("epochs", [(3, 8), (8,)])
def test_what_several_ranks_cannot_load_is_told_once_and_each_other_reason(epochs: tuple[int, ...]) -> None:
    """Every rank printed it."""
    job = supervisor(4, incarnation=1, lines=epochs)
    job.handle(Begin(), now_ns=0)
    job.handle(Hello(3, 1, "there"), now_ns=0)
    first = job.handle(ProgramError(1, 1, 12, "x is gone\n"), now_ns=1)
    told = [*of(Say, first), job.outcome]
    assert sum("x is gone" in str(each) for each in told) == 1
    assert job.handle(ProgramError(0, 1, 12, "x is gone\n"), now_ns=2) == []
    assert job.handle(ProgramError(3, 1, 1, "a program that has begun"), now_ns=2) == []
    assert job.handle(ProgramError(2, 1, 12, "y is gone\n"), now_ns=2) == [
        Log("line-unusable", {"epoch": 8, "rank": 2, "reason": "y is gone"}),
        Say("rank 2 cannot go on from epoch 8 either: y is gone"),
    ]
    assert job.handle(ProgramError(0, 1, 12, "y is gone\n"), now_ns=3) == []


def test_where_a_copy_of_a_file_is_damaged_the_older_line_is_tried() -> None:
    """No rank was started."""
    job = supervisor(2, incarnation=4, lines=(3, 8))
    assert job.lines.has_older
    job.handle(Begin(), now_ns=0)
    actions = job.handle(FilesDamaged("the copy of x is gone"), now_ns=1)
    assert Log("line-unusable", {"epoch": 8, "rank": None, "reason": "the copy of x is gone"}) in actions
    [said] = of(Say, actions)
    assert said == Say("the job cannot go on from epoch 8, trying epoch 3: the copy of x is gone")
    assert of(Fence, actions) == [Fence(4)]
    assert of(Launch, job.handle(Fenced(4), now_ns=2)) == [Launch(5, 3, "epoch 8 cannot be read")]
    assert not job.lines.has_older
    job.handle(StopRequested(143, "x"), now_ns=3)
    assert job.handle(FilesDamaged("another one"), now_ns=4) == []


@pytest.mark.parametrize("code", [1, 2, 3, 12, 70])
def test_whatever_hinders_a_rank_from_loading_a_line_the_older_one_is_tried(code: int) -> None:
    """A disk error (1) ended the job, where the older line was promised."""
    job = supervisor(1, lines=(3, 8))
    job.handle(Begin(), now_ns=0)
    job.handle(ProgramError(0, 0, code, "StorageFailed: read failed (Input/output error)"), now_ns=1)
    assert of(Launch, job.handle(Fenced(0), now_ns=2)) == [Launch(1, 3, "epoch 8 cannot be read")]


def test_a_rank_that_leaves_while_it_loads_a_line_has_not_loaded_it() -> None:
    job = supervisor(1, lines=(3, 8))
    job.handle(Begin(), now_ns=0)
    assert of(Fence, job.handle(Died(0, 0, code=70), now_ns=1)) == [Fence(0)]
    assert of(Launch, job.handle(Fenced(0), now_ns=2)) == [Launch(1, 3, "epoch 8 cannot be read")]


def test_an_interpreter_that_does_not_fit_is_final() -> None:
    job = supervisor(1, lines=(3, 8))
    job.handle(Begin(), now_ns=0)
    job.handle(ProgramError(0, 0, 13, "IncompatibleImage: Python 3.12"), now_ns=1)
    assert job.phase == "stopping" and job.outcome is not None and job.outcome.exit_code == 13
    assert job.outcome.kind == "interrupted", "the program has not come to its end"


def test_a_line_whose_loading_is_killed_again_and_again_is_set_aside() -> None:
    job = supervisor(1, lines=(3, 8))
    job.handle(Begin(), now_ns=0)
    for incarnation in range(DEATHS):
        assert job.lines.epochs == [3, 8]
        job.handle(Died(0, incarnation, signal=11), now_ns=1)
        launched = of(Launch, job.handle(Fenced(incarnation), now_ns=2))
    assert launched == [Launch(DEATHS, 3, "epoch 8 cannot be read")]
    for incarnation in range(DEATHS, 2 * DEATHS + 1):
        job.handle(Died(0, incarnation, signal=11), now_ns=1)
        launched = of(Launch, job.handle(Fenced(incarnation), now_ns=2))
    assert job.lines.epochs == [3], "the last one is kept; the restarts are used up one day"


def test_newer_lines_are_left_behind_durably_before_ranks_go_on_from_an_older_one() -> None:
    job = supervisor(1, lines=(3, 8))
    job.handle(Begin(), now_ns=0)
    job.handle(ProgramError(0, 0, 1, "no"), now_ns=1)
    job.handle(Fenced(0), now_ns=2)
    actions = job.handle(Hello(0, 1, "here"), now_ns=3)
    assert actions[0] == SetBranch(3) and isinstance(actions[1], Send) and actions[1].packet["m"] == "table"
    job.handle(Died(0, 1, signal=9), now_ns=4)
    job.handle(Fenced(1), now_ns=5)
    assert not of(SetBranch, job.handle(Hello(0, 2, "here"), now_ns=6)), "it is said already"


def test_without_a_line_that_can_be_used_the_program_starts_over_and_says_so() -> None:
    job = supervisor(1, lines=(8,), start_over=True)
    job.handle(Begin(), now_ns=0)
    actions = job.handle(ProgramError(0, 0, 12, "BlockDamaged: pack"), now_ns=1)
    assert Log("starting-over", {"epoch": 8, "reason": "BlockDamaged: pack"}) in actions
    assert any("trying the start" in say.text for say in of(Say, actions) if isinstance(say, Say))
    assert of(Launch, job.handle(Fenced(0), now_ns=2)) == [Launch(1, None, "epoch 8 cannot be read")]
    assert job.handle(Hello(0, 1, "here"), now_ns=3)[0] == SetBranch(None)


def test_pruned_lines_are_not_resumed() -> None:
    job = supervisor(1, lines=(3, 8))
    job.keep_lines([8])
    assert job.lines.epochs == [8]


# ---- in any order ----------------------------------------------------------------------------------------


class World:
    """Ranks, agent and disk, as far as the supervisor can tell; does things in random order and checks the
    rules.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.size = self.rng.randint(1, 3)
        asks = self.rng.random() < 0.5
        self.job = supervisor(self.size, max_restarts=self.rng.randint(0, 4), asks=asks)
        self.question = 0  # the epoch for which ranks were asked
        self.now_ns = 0
        self.alive: set[tuple[int, int]] = set()  # (rank, incarnation)
        self.launched: list[int] = []
        self.loaded: set[tuple[int, int]] = set()
        self.fenced = -1
        self.pending: list[Event] = []  # completions that will come
        self.epochs: list[int] = []
        self.committed: list[int] = []
        self.aside: set[int] = set()  # lines that ranks could not load
        self.asked: list[int] = []
        self.answered: Counter[int | str] = Counter()
        self.end: End | None = None

    def feed(self, event: Event) -> None:
        self.now_ns += self.rng.randrange(5 * MS)
        for action in self.job.handle(event, now_ns=self.now_ns):
            self.obey(action)

    def obey(self, action: Action) -> None:
        assert self.end is None, f"{action} after the end"
        match action:
            case Launch(incarnation=incarnation, epoch=epoch):
                assert incarnation not in self.launched and not self.alive, "fenced, and a number of its own"
                assert not self.launched or self.fenced == incarnation - 1
                assert epoch == max(set(self.committed) - self.aside, default=None)
                self.launched.append(incarnation)
                self.alive = {(rank, incarnation) for rank in range(self.size)}
            case PutFilesBack():
                assert self.alive <= self.loaded, "a rank that has not loaded may still fail to"
            case KeepFiles(incarnation=incarnation):
                self.pending.append(FilesKept(incarnation))
            case Log(event="line-unusable", fields=fields):
                self.aside.add(int(fields["epoch"]))
            case Fence(incarnation=incarnation):
                self.pending.append(Fenced(incarnation))
            case WriteControl(epoch=epoch, votes=votes, incarnation=incarnation):
                assert {vote.rank for vote in votes} == set(range(self.size))
                assert {vote.incarnation for vote in votes} == {incarnation}
                assert epoch == self.epochs[-1]
                done: Event = ControlWritten(epoch)
                if self.rng.random() < 0.3:
                    done = ControlFailed(epoch, "no space")
                self.pending.insert(0, done)
            case Send(packet=packet) if packet["m"] == "checkpoint":
                assert not self.epochs or packet["epoch"] > self.epochs[-1], "numbers only grow"
                self.epochs.append(packet["epoch"])
            case Send(packet=packet) if packet["m"] == "ask":
                self.question = packet["epoch"]
            case Discard(epoch=epoch):
                assert epoch not in self.committed, "images of a committed line are removed"
            case Send(packet=packet) if packet["m"] == "committed":
                assert packet["epoch"] in self.committed, "announced before it was durable"
            case Reply(token=token):
                self.answered[token] += 1
            case End():
                assert not self.alive, "something survived the job"
                self.end = action

    def step(self) -> None:
        if self.pending and self.rng.random() < 0.5:
            event = self.pending.pop(0)
            if isinstance(event, Fenced):
                self.fenced = event.incarnation
                gone = {entry for entry in self.alive if entry[1] <= event.incarnation}
                for rank, incarnation in gone:
                    self.feed(Died(rank, incarnation, signal=9))
                self.alive -= gone
            elif isinstance(event, ControlWritten):
                self.committed.append(event.epoch)
            self.feed(event)
            return
        if self.pending and isinstance(self.pending[0], ControlWritten | ControlFailed):
            return  # the controller writes synchronously
        self.feed(self.anything())

    def anything(self) -> Event:
        rng = self.rng
        rank = rng.randrange(self.size)
        incarnation = self.job.incarnation if rng.random() < 0.9 else rng.randint(0, 3)
        epoch = self.epochs[-1] if self.epochs and rng.random() < 0.9 else rng.randint(0, 5)
        alive = (rank, incarnation) in self.alive
        kind = rng.randrange(100)
        if alive and self.question and rng.random() < 0.4:
            return Ready(rank, incarnation, self.question)
        if kind < 25 and alive:
            return Hello(rank, incarnation, "x")
        if kind < 35:
            token = len(self.asked)
            self.asked.append(token)
            return CheckpointRequested(token)
        if kind < 70 and alive:
            return Voted(rank, incarnation, epoch, (epoch - 1, epoch), "m", "d", {})
        if kind < 75 and alive:
            return Captured(rank, incarnation, epoch)
        if kind == 75 and alive:
            self.loaded.add((rank, incarnation))
            return Loaded(rank, incarnation)
        if kind < 77 and alive:
            return Failed(rank, incarnation, epoch, "no")
        if kind < 84 and alive:
            return Finished(rank, incarnation, 0)
        if kind < 88 and alive:
            self.alive.discard((rank, incarnation))
            return rng.choice(
                [Died(rank, incarnation, signal=9), Died(rank, incarnation, code=rng.randint(0, 2))]
            )
        if kind < 89 and alive:
            return ProgramError(rank, incarnation, 1, "x")
        if kind == 89:
            self.alive.clear()
            return AgentLost("killed")
        if kind == 90:
            return StopRequested(
                143, "stop", checkpoint=rng.random() < 0.7, only_if_committed=rng.random() < 0.3
            )
        self.now_ns += rng.randrange(2000) * MS
        return Tick()


@pytest.mark.parametrize("block", range(10))
def test_the_rules_hold_in_every_order(block: int) -> None:
    ends = Counter[str]()
    for seed in range(block * 60, block * 60 + 60):
        world = World(seed)
        world.feed(Begin())
        for _ in range(400):
            if world.end is not None:
                break
            world.step()
        else:
            world.feed(StopRequested(143, "enough"))
            world.feed(StopRequested(143, "enough"))
            for _ in range(400):
                if world.end is not None:
                    break
                world.now_ns += 1000 * MS
                world.feed(Tick())
                if world.pending:
                    world.rng.seed(seed)
                    world.step()
        assert world.end is not None, f"seed {seed}: never ends, phase {world.job.phase}"
        assert all(count == 1 for count in world.answered.values()), f"seed {seed}: {world.answered}"
        assert set(world.asked) <= set(world.answered), f"seed {seed}: somebody still waits"
        ends[world.end.kind] += 1
    assert len(ends) >= 2, "the walk reaches different ends"


def test_a_clone_is_independent() -> None:
    job = running()
    copy = job.clone()
    copy.handle(Died(0, 0, signal=9), now_ns=1)
    assert (job.phase, copy.phase) == ("running", "fencing")


# ---- the program deals with failures itself --------------------------------------------------------------


def tolerant(size: int = 3) -> Supervisor:
    job = Supervisor(Coordinator(size, options=RoundOptions()), on_failure="continue")
    job.handle(Begin(), now_ns=0)
    for rank in range(size):
        job.handle(Hello(rank, 0, f"address-{rank}"), now_ns=0)
    return job


def test_a_dead_rank_is_told_to_the_others_before_anything_else() -> None:
    job = tolerant()
    actions = job.handle(Died(1, 0, signal=9), now_ns=MS)
    assert actions[0] == Send({"m": "failed", "ranks": [1]})
    assert Log("continuing", {"rank": 1, "incarnation": 0, "failed": [1]}) in actions
    assert not of(Fence, actions) and job.phase == "running"
    assert job.handle(Died(2, 0, code=0), now_ns=MS)[0] == Send({"m": "failed", "ranks": [1, 2]}), (
        "all of them"
    )


def test_the_job_is_finished_when_all_that_are_left_have_finished() -> None:
    job = tolerant()
    job.handle(Finished(0, 0, 0), now_ns=0)
    job.handle(Died(1, 0, signal=9), now_ns=0)
    assert of(Send, job.handle(Finished(2, 0, 0), now_ns=0)) == [Send({"m": "release"})]
    job.handle(Died(0, 0, code=0), now_ns=0)
    assert of(Fence, job.handle(Died(2, 0, code=0), now_ns=0))
    (end,) = of(End, job.handle(Fenced(0), now_ns=0))
    assert end == End(0, "all ranks but 1, which failed, have finished", "finished")


def test_the_last_death_can_be_what_finishes_the_job() -> None:
    job = tolerant(2)
    job.handle(Finished(0, 0, 0), now_ns=0)
    assert Send({"m": "release"}) in job.handle(Died(1, 0, signal=9), now_ns=0)


def test_a_program_that_cannot_go_on_without_the_dead_has_the_job_go_back() -> None:
    """All ranks are there again, as after a death without --on-failure continue; what others ask is answered by that."""
    job = tolerant()
    job.handle(Died(1, 0, signal=9), now_ns=MS)
    actions = job.handle(BackRequested(0, 0, "data of rank 1 are lost"), now_ns=MS)
    assert of(Fence, actions) == [Fence(0)] and job.phase == "fencing"
    assert job.handle(BackRequested(2, 0, "the same"), now_ns=MS) == []
    actions = job.handle(Fenced(0), now_ns=MS)
    assert of(Launch, actions) and not job.failed and job.restarts == 1
    (log,) = of(Log, actions)
    assert (
        log.event == "restarting"
        and log.fields["reason"] == "rank 0 asks to go back: data of rank 1 are lost"
    )
    assert job.handle(BackRequested(0, 0, "of the former incarnation"), now_ns=MS) == []


def test_a_job_goes_back_only_as_often_as_it_may_be_restarted() -> None:
    job = tolerant()
    job.restarts = job.max_restarts
    actions = job.handle(BackRequested(0, 0, "lost"), now_ns=MS)
    assert not of(Launch, actions) and job.phase == "stopping"
    assert job.outcome is not None and job.outcome.exit_code == 14


def test_when_nobody_is_left_the_job_is_interrupted() -> None:
    job = tolerant(2)
    job.handle(Died(0, 0, signal=9), now_ns=0)
    job.handle(Died(1, 0, signal=9), now_ns=0)
    (end,) = of(End, job.handle(Fenced(0), now_ns=0))
    assert (end.exit_code, end.kind) == (1, "interrupted") and "the last one" in end.reason


def test_an_exception_still_ends_the_job() -> None:
    job = tolerant()
    assert Send({"m": "stop", "exit_code": 1, "reason": ""}) in job.handle(
        ProgramError(0, 0, 1, "x"), now_ns=0
    )


def test_a_rank_that_dies_before_all_are_there_is_not_waited_for() -> None:
    job = Supervisor(Coordinator(3, options=RoundOptions()), on_failure="continue")
    job.handle(Begin(), now_ns=0)
    job.handle(Hello(0, 0, "a"), now_ns=0)
    job.handle(Hello(1, 0, "b"), now_ns=0)
    job.handle(Died(1, 0, signal=9), now_ns=0)
    sent = of(Send, job.handle(Hello(2, 0, "c"), now_ns=0))
    assert sent == [Send({"m": "table", "peers": {"0": [0, "a"], "2": [0, "c"]}})]
    job = Supervisor(Coordinator(2, options=RoundOptions()), on_failure="continue")
    job.handle(Begin(), now_ns=0)
    job.handle(Hello(0, 0, "a"), now_ns=0)
    assert Send({"m": "table", "peers": {"0": [0, "a"]}}) in job.handle(Died(1, 0, signal=9), now_ns=0)


def test_a_rank_that_is_lost_with_its_host_has_failed_and_the_others_are_told_why() -> None:
    job = tolerant()
    actions = job.handle(Died(1, 0, host="b", diagnosis={"text": "cable", "hosts": ["b"]}), now_ns=0)
    assert actions[0] == Send(
        {"m": "failed", "ranks": [1], "diagnoses": [[1, {"text": "cable", "hosts": ["b"]}]]}
    )
    assert Log("rank-died", {"rank": 1, "incarnation": 0, "host": "b"}) in actions
    assert Say("rank 1 was lost with host b; the job goes on without it") in actions
    (sent,) = of(Send, job.handle(Died(2, 0, signal=9), now_ns=0))
    assert sent.packet["ranks"] == [1, 2] and [rank for rank, _ in sent.packet["diagnoses"]] == [1]


def test_a_host_that_is_lost_while_its_ranks_load_a_line_says_nothing_about_the_line() -> None:
    job = Supervisor(Coordinator(2, options=RoundOptions()), on_failure="continue", lines=[1, 2])
    job.handle(Begin(), now_ns=0)
    job.handle(Hello(0, 0, "a"), now_ns=0)
    actions = job.handle(Died(1, 0, host="b"), now_ns=0)
    assert Send({"m": "table", "peers": {"0": [0, "a"]}}) in actions
    assert not of(Fence, actions) and job.lines.newest == 2


def test_the_loss_of_the_agent_ends_a_job_that_is_not_restarted() -> None:
    job = tolerant(2)
    job.handle(AgentLost("killed"), now_ns=0)
    for rank in range(2):
        job.handle(Died(rank, 0, signal=9), now_ns=0)
    (end,) = of(End, job.handle(Fenced(0), now_ns=0))
    assert (end.exit_code, end.kind) == (1, "interrupted")

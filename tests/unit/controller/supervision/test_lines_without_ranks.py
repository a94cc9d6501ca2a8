"""Lines of the ranks that are left: what a death does to rounds, and what starts from a line that lacks a rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    Adopt,
    BackRequested,
    Begin,
    Captured,
    CheckpointRequested,
    ControlWritten,
    Died,
    Discard,
    Event,
    Fence,
    Fenced,
    Finished,
    Hello,
    Launch,
    Log,
    Ready,
    Reply,
    Say,
    Send,
    SetBranch,
    StopRequested,
    Tick,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.controller.supervision.supervisor import Supervisor

MS = 1_000_000


def of(kind: type, actions: list[Action]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


class Job:
    """A supervisor of `size` ranks that deal with failures themselves; at time 0, unless said otherwise."""

    def __init__(
        self,
        size: int = 3,
        *,
        lines: Iterable[int] = (),
        absent: Mapping[int, Iterable[int]] | None = None,
        begins: bool = True,
        **options: Any,
    ) -> None:
        rounds = RoundOptions(**options)
        highest = max(lines, default=0)
        coordinator = Coordinator(size, highest=highest, committed=highest or None, options=rounds)
        self.supervisor = Supervisor(coordinator, on_failure="continue", lines=lines, absent=absent or {})
        self.actions: list[Action] = []
        if begins:
            self.tell(Begin())
            self.all_there()

    @property
    def left(self) -> list[int]:
        return [rank for rank in range(self.supervisor.size) if rank not in self.supervisor.failed]

    def tell(self, event: Event, now_ns: int = 0) -> list[Action]:
        self.actions = self.supervisor.handle(event, now_ns=now_ns)
        return self.actions

    def all_there(self) -> list[Action]:
        for rank in self.left:
            self.tell(Hello(rank, self.supervisor.incarnation, f"address-{rank}"))
        return self.actions

    def die(self, rank: int) -> list[Action]:
        return self.tell(Died(rank, self.supervisor.incarnation, signal=9))

    @property
    def epoch(self) -> int:
        found = self.supervisor.coordinator.round
        assert found is not None
        return found.epoch

    def ready(self, *ranks: int) -> list[Action]:
        for rank in ranks or self.left:
            self.tell(Ready(rank, self.supervisor.incarnation, self.epoch))
        return self.actions

    def vote(self, *ranks: int, vectors: Mapping[int, Any] | None = None) -> list[Action]:
        for rank in ranks or self.left:
            label = self.epoch - 1, self.epoch
            self.tell(
                Voted(
                    rank,
                    self.supervisor.incarnation,
                    self.epoch,
                    label,
                    "m",
                    "d",
                    (vectors or {}).get(rank, {}),
                )
            )
        return self.actions

    def commit(self) -> WriteControl:
        """A whole round."""
        self.tell(CheckpointRequested())
        self.ready()
        (control,) = of(WriteControl, self.vote())
        self.tell(ControlWritten(control.epoch))
        return control  # type: ignore[no-any-return]

    def restart(self) -> Launch:
        """The old incarnation has ended."""
        (launch,) = of(Launch, self.tell(Fenced(self.supervisor.incarnation)))
        return launch  # type: ignore[no-any-return]


def test_those_that_are_left_commit_a_line_without_the_dead() -> None:
    job = Job()
    job.die(1)
    control = job.commit()
    assert [vote.rank for vote in control.votes] == [0, 2] and control.absent == (1,)


def test_a_line_that_was_committed_before_the_death_has_all_ranks() -> None:
    job = Job()
    assert job.commit().absent == ()
    job.die(1)
    assert job.supervisor.lines.without(1) == frozenset()


@pytest.mark.parametrize("stage", ["asking", "collecting", "voted"])
def test_a_death_burns_the_open_round_and_the_next_one_begins_at_once(stage: str) -> None:
    """So no image of a line was taken before the death was known: what the dead rank has sent is before the line."""
    job = Job()
    job.tell(CheckpointRequested(7))
    if stage != "asking":
        job.ready()
    if stage == "voted":
        job.vote(0, 1)
    actions = job.die(1)
    assert of(Discard, actions) == [Discard(1)] and not of(Reply, actions)
    packets = [each.packet for each in of(Send, actions)]
    assert [packet["m"] for packet in packets] == ["failed", "abort", "ask"]
    assert [packet.get("epoch") for packet in packets] == [None, 1, 2]
    job.ready()
    (control,) = of(WriteControl, job.vote())
    (reply,) = of(Reply, job.tell(ControlWritten(2)))
    assert (control.epoch, control.absent) == (2, (1,)) and (reply.token, reply.ok) == (7, True)


def test_what_a_dead_rank_has_said_for_the_next_round_does_not_count() -> None:
    job = Job()
    job.die(1)
    job.tell(CheckpointRequested())
    job.ready(0)
    assert not of(Send, job.ready(1)), "the dead one is not asked"
    assert [each.packet["m"] for each in of(Send, job.ready(2))] == ["checkpoint"]
    job.tell(Captured(1, 0, 1, 0))
    assert not of(WriteControl, job.vote(0, 1)) and of(WriteControl, job.vote(2))


def test_a_line_that_is_being_written_has_the_image_of_the_rank_that_dies_meanwhile() -> None:
    job = Job()
    job.tell(CheckpointRequested())
    job.ready()
    assert of(WriteControl, job.vote())[0].absent == ()
    assert not of(Discard, job.die(1))
    job.tell(ControlWritten(1))
    assert job.supervisor.lines.without(1) == frozenset()
    assert job.commit().absent == (1,)


def test_messages_with_the_dead_do_not_count_in_a_line() -> None:
    """2 has two messages of the dead rank 1, which nobody sends again; to it went one, which nobody receives."""
    job = Job()
    job.die(1)
    job.tell(CheckpointRequested())
    job.ready()
    vectors = {0: {1: (3, 3, 0), 2: (1, 0, 0)}, 2: {1: (1, 1, 2), 0: (0, 0, 1)}}
    assert of(WriteControl, job.vote(vectors=vectors))


def test_messages_among_the_living_do() -> None:
    job = Job()
    job.die(1)
    job.tell(CheckpointRequested())
    job.ready()
    assert not of(WriteControl, job.vote(vectors={0: {2: (1, 0, 0)}, 2: {0: (0, 0, 2)}}))


def test_the_schedule_goes_on() -> None:
    job = Job(2, every_ns=MS)
    job.die(1)
    actions = job.tell(Tick(), now_ns=MS)
    assert [each.packet["m"] for each in of(Send, actions)] == ["checkpoint"], "the only one is not asked"


def test_the_last_checkpoint_before_a_stop_is_taken_without_the_dead() -> None:
    job = Job()
    job.tell(StopRequested(143, "stopped", checkpoint=True))
    job.die(1)
    job.ready()
    assert of(WriteControl, job.vote())[0].absent == (1,)
    assert job.supervisor.phase != "stopping"
    stops = [each.packet for each in of(Send, job.tell(ControlWritten(2))) if each.packet["m"] == "stop"]
    assert stops and job.supervisor.outcome is not None and job.supervisor.outcome.exit_code == 75


# ---- starting from such a line -----------------------------------------------------------------------------


def test_absent_ranks_are_not_started_and_the_others_are_told_before_they_go_on() -> None:
    job = Job(lines=[4, 6], absent={6: [1]}, begins=False)
    actions = job.tell(Begin())
    (launch,) = of(Launch, actions)
    assert (launch.epoch, launch.absent) == (6, frozenset({1}))
    assert of(Log, actions) == [Log("rank-absent", {"rank": 1, "incarnation": 0, "epoch": 6})]
    assert of(Say, actions) == [Say("going on without rank 1, dead before epoch 6; epoch 4 has all ranks")]
    packets = [each.packet for each in of(Send, job.all_there())]
    assert packets == [
        {"m": "failed", "ranks": [1]},
        {"m": "table", "peers": {"0": [0, "address-0"], "2": [0, "address-2"]}},
    ]
    assert job.commit().absent == (1,)


def test_the_job_is_finished_when_those_that_were_started_have_finished() -> None:
    job = Job(lines=[6], absent={6: [1]})
    job.tell(Finished(0, 0, 0))
    assert Send({"m": "release"}) in job.tell(Finished(2, 0, 0))
    job.tell(Died(0, 0, code=0))
    assert of(Fence, job.tell(Died(2, 0, code=0))), (
        "nobody waits for the end of a process that was never started"
    )


def test_a_rank_that_dies_after_such_a_start_is_absent_too() -> None:
    job = Job(4, lines=[6], absent={6: [1]})
    job.die(3)
    assert job.commit().absent == (1, 3)


def test_a_program_that_wants_the_dead_again_goes_back_to_a_line_that_has_them() -> None:
    job = Job()
    job.commit()
    job.die(1)
    job.commit()
    job.tell(BackRequested(0, 0, "data of rank 1 are lost"))
    launch = job.restart()
    assert (launch.epoch, launch.absent) == (1, frozenset())
    assert SetBranch(1) in job.all_there(), "the line without rank 1 does not count any more"


def test_it_does_not_want_those_again_without_which_it_has_begun() -> None:
    job = Job(4, lines=[5, 6], absent={6: [1]})
    job.die(3)
    job.commit()
    job.tell(BackRequested(0, 0, "data of rank 3 are lost"))
    launch = job.restart()
    assert (launch.epoch, launch.absent) == (6, frozenset({1}))


def test_with_no_such_line_it_goes_back_to_the_start() -> None:
    job = Job()
    job.die(1)
    job.commit()
    job.tell(BackRequested(0, 0, "data of rank 1 are lost"))
    assert job.restart().epoch is None
    assert SetBranch(None) in job.all_there()


def test_the_line_that_it_may_want_to_go_back_to_is_kept() -> None:
    job = Job()
    job.commit()
    assert job.supervisor.needed_lines == ()
    job.die(1)
    for _ in range(3):
        job.commit()
    assert job.supervisor.needed_lines == (1,)
    job.supervisor.keep_lines([1, 3, 4])
    job.tell(BackRequested(0, 0, "data of rank 1 are lost"))
    assert job.restart().epoch == 1


def test_a_line_that_cannot_be_loaded_gives_way_to_one_that_has_the_dead() -> None:
    job = Job(lines=[4, 6], absent={6: [1]}, begins=False)
    job.tell(Begin())
    job.tell(Died(0, 0, code=3))
    launch = job.restart()
    assert (launch.epoch, launch.absent) == (4, frozenset())
    assert [each.packet["m"] for each in of(Send, job.all_there())] == ["table"]


def test_the_next_controller_goes_on_with_lines_without_the_dead_and_knows_whom_it_can_have_again() -> None:
    job = Job(4, lines=[5, 6], absent={6: [1]}, begins=False)
    left = {0: "a", 2: "c"}
    job.tell(Adopt(3, left, {}, failed=frozenset({1, 3}), told=frozenset({1}), absent=frozenset({1})))
    assert job.commit().absent == (1, 3)
    assert job.supervisor.needed_lines == (6,)


# ---- explicit ranks ----------------------------------------------------------------------------------------


def test_where_ranks_are_replayed_an_open_round_is_burnt_and_others_are_refused_with_the_reason() -> None:
    job = Job(goes_on=False)
    job.tell(CheckpointRequested(7))
    actions = job.die(1)
    (reply,) = of(Reply, actions)
    assert (reply.token, reply.ok) == (7, False) and "no checkpoint without it" in reply.fields["reason"]
    assert of(Discard, actions)
    why = reply.fields["reason"]
    assert Say(f"checkpoint 1 failed, the job goes on: {why}") in actions
    refused = job.tell(CheckpointRequested(8))
    assert [type(action) for action in refused] == [Log, Reply] and refused[0].event == "round-refused"
    assert job.supervisor.deadline_ns() is None


def test_where_ranks_are_replayed_the_schedule_stops_with_the_first_failure() -> None:
    job = Job(2, every_ns=MS, goes_on=False)
    assert job.supervisor.deadline_ns() == MS
    job.die(1)
    assert job.supervisor.deadline_ns() is None and job.tell(Tick(), now_ns=5 * MS) == []


def test_where_ranks_are_replayed_a_stop_that_waited_for_its_last_checkpoint_stops_without_it() -> None:
    job = Job(2, goes_on=False)
    job.tell(StopRequested(143, "stopped", checkpoint=True))
    assert Send({"m": "stop", "exit_code": 143, "reason": ""}) in job.die(1)

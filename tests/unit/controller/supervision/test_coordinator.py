"""Checkpoint rounds: requests, votes, the check, the commit, and everything that burns a number."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    Captured,
    CheckpointRequested,
    ControlFailed,
    ControlWritten,
    Discard,
    Failed,
    Log,
    Ready,
    Refused,
    Reply,
    Say,
    Send,
    Tick,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.rounds import RoundOptions

MS = 1_000_000
SECOND = 1_000_000_000


def ready(size: int = 2, **options: Any) -> Coordinator:
    """A coordinator whose ranks of incarnation 0 are all connected, at time 0."""
    coordinator = Coordinator(size, options=RoundOptions(**{"asks": False, **options}))
    assert coordinator.ready(0, now_ns=0) == []
    return coordinator


def vote(rank: int, epoch: int = 1, *, incarnation: int = 0, label: tuple[int, int] | None = None) -> Voted:
    return Voted(rank, incarnation, epoch, label or (epoch - 1, epoch), f"m{rank}", f"d{rank}", {}, 100, 10)


def start(coordinator: Coordinator, token: int | None = 1, now_ns: int = 0) -> list[Action]:
    return coordinator.handle(CheckpointRequested(token), now_ns=now_ns)


def packets(actions: list[Action]) -> list[str]:
    return [str(action.packet["m"]) for action in actions if isinstance(action, Send)]


def of(kind: type, actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def test_a_request_opens_a_round_and_the_number_is_logged_before_it_is_used() -> None:
    log, send = start(ready())
    assert log == Log("round-started", {"epoch": 1, "incarnation": 0})
    assert isinstance(send, Send) and send.packet == {"m": "checkpoint", "epoch": 1, "mode": "fork"}


def test_all_votes_lead_to_one_control_file_with_votes_in_rank_order() -> None:
    coordinator = ready()
    start(coordinator)
    assert coordinator.handle(vote(1), now_ns=MS) == []
    assert coordinator.handle(vote(0), now_ns=MS) == [WriteControl(1, 0, (vote(0), vote(1)))]


def test_the_commit_is_announced_only_when_the_control_file_is_durable() -> None:
    coordinator = ready()
    start(coordinator, token=7)
    coordinator.handle(vote(0), now_ns=MS)
    coordinator.handle(vote(1), now_ns=MS)
    assert coordinator.committed is None
    actions = coordinator.handle(ControlWritten(1), now_ns=80 * MS)
    fields = {"epoch": 1, "ms": 80.0, "bytes": 200, "bytes_written": 20}
    assert actions == [
        Log("committed", fields),
        Send({"m": "committed", "epoch": 1}),
        Reply(7, True, fields),
    ]
    assert coordinator.committed == 1


def test_a_failed_control_file_burns_the_round() -> None:
    coordinator = ready()
    start(coordinator, token=7)
    coordinator.handle(vote(0), now_ns=MS)
    coordinator.handle(vote(1), now_ns=MS)
    actions = coordinator.handle(ControlFailed(1, "no space"), now_ns=MS)
    assert packets(actions) == ["abort"]
    assert of(Reply, actions) == [Reply(7, False, {"epoch": 1, "reason": "the control file: no space"})]
    assert coordinator.committed is None
    assert start(coordinator)[0] == Log("round-started", {"epoch": 2, "incarnation": 0})


def test_a_failed_vote_burns_the_round_at_once_and_says_why() -> None:
    coordinator = ready()
    start(coordinator, token=7)
    actions = coordinator.handle(Failed(1, 0, 1, "disk full", "frame f / x"), now_ns=MS)
    assert packets(actions) == ["abort"]
    (say,) = of(Say, actions)
    assert isinstance(say, Say)
    assert say.text == "checkpoint 1 failed, the job goes on: rank 1: disk full (frame f / x)"
    assert Discard(1) in actions


def test_an_image_that_is_finished_after_its_round_was_burnt_is_removed() -> None:
    coordinator = ready()
    start(coordinator)
    coordinator.handle(Failed(1, 0, 1, "disk full"), now_ns=MS)
    assert coordinator.handle(vote(0), now_ns=MS) == [Discard(1)]
    start(coordinator)
    assert coordinator.handle(vote(0), now_ns=MS) == [Discard(1)], "also while the next round is open"
    assert coordinator.handle(vote(0, 7), now_ns=MS) == [], "a number that was never given out"


def test_images_of_a_committed_line_are_never_removed() -> None:
    coordinator = ready(1)
    start(coordinator)
    coordinator.handle(vote(0), now_ns=MS)
    coordinator.handle(ControlWritten(1), now_ns=MS)
    assert coordinator.handle(vote(0), now_ns=MS) == []


def test_numbers_go_on_above_the_highest_ever_seen() -> None:
    coordinator = Coordinator(1, highest=41, committed=7)
    coordinator.ready(0, now_ns=0)
    assert start(coordinator)[0] == Log("round-started", {"epoch": 42, "incarnation": 0})
    with pytest.raises(ValueError, match="highest"):
        Coordinator(1, highest=3, committed=4)


@pytest.mark.parametrize(
    "late",
    [
        vote(0, incarnation=1),
        vote(0, epoch=2),
        Voted(5, 0, 1, (0, 1), "m", "d", {}),
        Failed(0, 1, 1, "other incarnation"),
        Captured(0, 0, 9),
        Refused(0, 0, 9, "other round"),
    ],
)
def test_what_does_not_belong_to_the_open_round_is_ignored(
    late: Voted | Failed | Captured | Refused,
) -> None:
    coordinator = ready(1)
    start(coordinator)
    assert coordinator.handle(late, now_ns=MS) == []
    assert coordinator.round is not None and not coordinator.round.captured


def test_the_same_vote_twice_counts_once() -> None:
    coordinator = ready()
    start(coordinator)
    assert coordinator.handle(vote(0), now_ns=MS) == []
    assert coordinator.handle(vote(0), now_ns=MS) == []


@pytest.mark.parametrize("label", [(3, 4), (4, 4), (4, 6), (3, 9)])
def test_an_image_stands_for_the_epochs_of_its_label(label: tuple[int, int]) -> None:
    coordinator = Coordinator(1, highest=3)
    coordinator.ready(0, now_ns=0)
    start(coordinator)
    actions = coordinator.handle(vote(0, 4, label=label), now_ns=MS)
    stands_for_4 = label[0] < 4 <= label[1]
    assert bool(of(WriteControl, actions)) == stands_for_4
    assert ("abort" in packets(actions)) != stands_for_4


def test_inconsistent_vectors_burn_the_round() -> None:
    coordinator = ready()
    start(coordinator)
    coordinator.handle(Voted(0, 0, 1, (0, 1), "m", "d", {1: (1, 0, 0)}), now_ns=MS)
    actions = coordinator.handle(Voted(1, 0, 1, (0, 1), "m", "d", {0: (0, 0, 2)}), now_ns=MS)
    assert not of(WriteControl, actions)
    (log,) = of(Log, actions)
    assert isinstance(log, Log) and "orphan on link 0→1" in log.fields["reason"]


def test_a_round_without_votes_times_out_and_names_everybody_who_is_missing() -> None:
    coordinator = ready(4, timeout_ns=2 * SECOND)
    start(coordinator)
    coordinator.handle(vote(0), now_ns=MS)
    coordinator.handle(Captured(1, 0, 1), now_ns=MS)
    coordinator.handle(Refused(2, 0, 1, "inside sum()", "app.py:3 f"), now_ns=MS)
    assert coordinator.deadline_ns() == 2 * SECOND
    assert coordinator.handle(Tick(), now_ns=2 * SECOND - 1) == []
    (log,) = of(Log, coordinator.handle(Tick(), now_ns=2 * SECOND))
    assert isinstance(log, Log)
    assert log.fields["reason"] == (
        "no line after 2 s: rank 1 is still writing its image; "
        "rank 2 cannot be captured: inside sum() (app.py:3 f); rank 3 has not answered"
    )


def test_a_refusal_is_logged_when_its_reason_is_new() -> None:
    coordinator = ready()
    start(coordinator)
    assert len(coordinator.handle(Refused(0, 0, 1, "sum()", "a:1"), now_ns=1)) == 1
    assert coordinator.handle(Refused(0, 0, 1, "sum()", "a:2"), now_ns=2) == []
    assert len(coordinator.handle(Refused(0, 0, 1, "sorted()", "a:3"), now_ns=3)) == 1


# ---- merging ---------------------------------------------------------------------------------------------


def test_requests_before_anybody_captured_join_the_open_round() -> None:
    coordinator = ready(1)
    start(coordinator, token=1)
    assert start(coordinator, token=2) == []
    coordinator.handle(vote(0), now_ns=MS)
    replies = of(Reply, coordinator.handle(ControlWritten(1), now_ns=MS))
    assert [reply.token for reply in replies if isinstance(reply, Reply)] == [1, 2]


def test_requests_after_the_first_image_share_the_next_round() -> None:
    coordinator = ready()
    start(coordinator, token=1)
    coordinator.handle(Captured(0, 0, 1), now_ns=MS)
    assert start(coordinator, token=2) == []
    assert start(coordinator, token=3) == []
    coordinator.handle(vote(0), now_ns=MS)
    coordinator.handle(vote(1), now_ns=MS)
    actions = coordinator.handle(ControlWritten(1), now_ns=MS)
    assert [reply.token for reply in actions if isinstance(reply, Reply)] == [1]
    assert packets(actions) == ["committed", "checkpoint"]
    assert coordinator.round is not None and coordinator.round.tokens == [2, 3]


def test_a_rank_that_has_not_captured_joins_and_one_that_has_gets_another_round() -> None:
    coordinator = ready()
    start(coordinator)
    coordinator.handle(Captured(0, 0, 1), now_ns=MS)
    coordinator.handle(CheckpointRequested(rank=1), now_ns=MS)
    assert not coordinator.wanted
    coordinator.handle(CheckpointRequested(rank=0), now_ns=MS)
    assert coordinator.wanted


# ---- coming and going of the ranks ------------------------------------------------------------------------


def test_no_round_before_all_are_connected() -> None:
    coordinator = Coordinator(2)
    assert start(coordinator) == []
    assert packets(coordinator.ready(0, now_ns=5)) == ["ask"]


def test_an_interruption_burns_the_number_and_keeps_the_request() -> None:
    coordinator = ready()
    start(coordinator, token=1)
    actions = coordinator.interrupted("rank 1 was killed by SIGKILL")
    assert packets(actions) == ["abort"] and not of(Reply, actions) and not of(Say, actions)
    assert coordinator.deadline_ns() is None
    again = coordinator.ready(1, now_ns=SECOND)
    assert again[0] == Log("round-started", {"epoch": 2, "incarnation": 1})
    assert coordinator.round is not None and coordinator.round.tokens == [1]


def test_a_death_while_the_control_file_is_written_changes_nothing() -> None:
    coordinator = ready(1)
    start(coordinator)
    coordinator.handle(vote(0), now_ns=MS)
    assert coordinator.interrupted("rank 0 was killed") == []
    assert "committed" in packets(coordinator.handle(ControlWritten(1), now_ns=MS))


def test_at_the_end_everybody_who_waits_is_told() -> None:
    coordinator = ready()
    start(coordinator, token=1)
    coordinator.handle(Captured(0, 0, 1), now_ns=MS)
    start(coordinator, token=2)
    replies = of(Reply, coordinator.closed("all ranks have finished"))
    reason = {"reason": "all ranks have finished"}
    assert replies == [Reply(1, False, reason), Reply(2, False, reason)]


# ---- schedule --------------------------------------------------------------------------------------------


def test_rounds_start_on_schedule_counted_from_the_start_of_the_last() -> None:
    coordinator = ready(1, every_ns=10 * SECOND)
    assert coordinator.deadline_ns() == 10 * SECOND
    assert coordinator.handle(Tick(), now_ns=10 * SECOND - 1) == []
    assert packets(coordinator.handle(Tick(), now_ns=10 * SECOND)) == ["checkpoint"]
    coordinator.handle(vote(0), now_ns=13 * SECOND)
    coordinator.handle(ControlWritten(1), now_ns=13 * SECOND)
    assert coordinator.deadline_ns() == 20 * SECOND


def test_after_a_round_longer_than_the_interval_the_program_is_left_alone_for_as_long() -> None:
    """Rounds of 0.5 s every 0.3 s used to follow each other at once, and the program crawled."""
    coordinator = ready(1, every_ns=SECOND)
    coordinator.handle(Tick(), now_ns=SECOND)
    assert coordinator.handle(Tick(), now_ns=5 * SECOND) == [], "one at a time"
    coordinator.handle(vote(0), now_ns=6 * SECOND)
    coordinator.handle(ControlWritten(1), now_ns=6 * SECOND)
    assert coordinator.deadline_ns() == 11 * SECOND
    assert coordinator.handle(Tick(), now_ns=11 * SECOND - 1) == []
    assert packets(coordinator.handle(Tick(), now_ns=11 * SECOND)) == ["checkpoint"]


def test_a_long_wait_for_a_place_is_not_followed_by_as_long_a_time_without_checkpoints() -> None:
    """A script that imported for four seconds at its begin had no second checkpoint before its tenth."""
    coordinator = ready(1, every_ns=SECOND)
    coordinator.handle(Tick(), now_ns=SECOND)
    coordinator.handle(Captured(0, 0, 1, pause_ns=SECOND), now_ns=60 * SECOND)
    coordinator.handle(vote(0), now_ns=62 * SECOND)
    coordinator.handle(ControlWritten(1), now_ns=62 * SECOND)
    assert coordinator.deadline_ns() == 65 * SECOND


def test_requests_do_not_wait_for_the_schedule() -> None:
    coordinator = ready(1, every_ns=SECOND)
    coordinator.handle(Tick(), now_ns=SECOND)
    coordinator.handle(vote(0), now_ns=6 * SECOND)
    coordinator.handle(ControlWritten(1), now_ns=6 * SECOND)
    assert packets(coordinator.handle(CheckpointRequested("me"), now_ns=7 * SECOND)) == ["checkpoint"]


def fail(coordinator: Coordinator, now_ns: int, **more: int) -> list[Action]:
    assert coordinator.round is not None
    return coordinator.handle(Failed(0, 0, coordinator.round.epoch, "no", "", **more), now_ns=now_ns)


def test_rounds_that_come_to_nothing_make_the_schedule_rarer_until_one_commits() -> None:
    """81 rounds in vain, one after the other, made a program 26 times slower."""
    coordinator = ready(1, every_ns=SECOND)
    now_ns = SECOND
    for wait_s in (2, 4, 8, 16, 32, 64, 64):
        assert "checkpoint" in packets(coordinator.handle(Tick(), now_ns=now_ns))
        fail(coordinator, now_ns)
        assert coordinator.due_ns == now_ns + wait_s * SECOND
        now_ns += wait_s * SECOND
    coordinator.handle(Tick(), now_ns=now_ns)
    coordinator.handle(vote(0, coordinator.highest), now_ns=now_ns)
    coordinator.handle(ControlWritten(coordinator.highest), now_ns=now_ns)
    assert coordinator.deadline_ns() == now_ns + SECOND


def test_what_has_held_the_program_up_is_followed_by_thirty_times_as_long_without() -> None:
    coordinator = ready(1, every_ns=SECOND)
    coordinator.handle(Tick(), now_ns=SECOND)
    fail(coordinator, 2 * SECOND, held_ns=SECOND)
    assert coordinator.due_ns == 35 * SECOND


def test_a_failure_is_said_once_until_something_commits() -> None:
    coordinator = ready(1)
    said = []
    for _ in range(5):
        start(coordinator)
        said += [action.text for action in fail(coordinator, MS) if isinstance(action, Say)]
    first, notice = said
    assert first == "checkpoint 1 failed, the job goes on: rank 0: no"
    assert notice.startswith("no checkpoint for 0 s and 3 tries, for the reason above. What to do: ")
    start(coordinator)
    coordinator.handle(vote(0, 6), now_ns=MS)
    coordinator.handle(ControlWritten(6), now_ns=MS)
    start(coordinator)
    assert len(of(Say, fail(coordinator, MS))) == 1


# ---- ranks are asked first -------------------------------------------------------------------------------


def test_a_round_is_opened_when_all_ranks_could_be_captured() -> None:
    coordinator = ready(asks=True)
    assert packets(start(coordinator)) == ["ask"]
    assert coordinator.handle(Ready(1, 0, 1), now_ns=MS) == []
    assert coordinator.handle(Ready(1, 0, 1), now_ns=MS) == [], "the same again"
    assert coordinator.handle(Ready(0, 0, 7), now_ns=MS) == [], "another round"
    assert coordinator.handle(Ready(0, 1, 1), now_ns=MS) == [], "another incarnation"
    assert packets(coordinator.handle(Ready(0, 0, 1), now_ns=5 * MS)) == ["checkpoint"]
    assert coordinator.handle(Ready(0, 0, 1), now_ns=6 * MS) == [], "late"


def test_the_time_of_a_round_counts_from_when_the_ranks_take_their_images() -> None:
    coordinator = ready(asks=True, timeout_ns=10 * SECOND)
    start(coordinator)
    coordinator.handle(Ready(0, 0, 1), now_ns=0)
    coordinator.handle(Ready(1, 0, 1), now_ns=9 * SECOND)
    assert coordinator.handle(Tick(), now_ns=18 * SECOND) == []
    assert packets(coordinator.handle(Tick(), now_ns=19 * SECOND)) == ["abort"]


def test_a_rank_that_can_never_be_captured_is_named_and_nobody_takes_an_image() -> None:
    coordinator = ready(asks=True, timeout_ns=60 * SECOND)
    actions = start(coordinator)
    actions += coordinator.handle(Ready(0, 0, 1), now_ns=MS)
    where = "app.py:7 main"
    actions += coordinator.handle(Refused(1, 0, 1, f"sum() is running <genexpr> ({where})", where), now_ns=MS)
    assert coordinator.deadline_ns() == 10 * SECOND
    (notice,) = of(Say, coordinator.handle(Tick(), now_ns=10 * SECOND))
    assert isinstance(notice, Say)
    assert notice.text.startswith(
        "no checkpoint for 10 s: rank 1 cannot be captured: sum() is running <genexpr> (app.py:7 main). What to do: "
    )
    assert coordinator.handle(Tick(), now_ns=11 * SECOND) == [], "once"
    actions += coordinator.handle(Tick(), now_ns=60 * SECOND)
    assert packets(actions) == ["ask", "abort"]
    (log,) = [each for each in of(Log, actions) if isinstance(each, Log) and each.event == "round-aborted"]
    assert "rank 0" not in str(log.fields["reason"]), "it was ready"
    (last,) = of(Say, coordinator.closed("all ranks have finished"))
    assert isinstance(last, Say)
    assert last.text == "nothing was committed, for the reason above"
    assert coordinator.closed("again") == []


def test_a_job_that_has_committed_something_or_wanted_nothing_ends_in_silence() -> None:
    assert ready(1).closed("all ranks have finished") == []
    coordinator = ready(1)
    start(coordinator)
    coordinator.handle(vote(0), now_ns=MS)
    coordinator.handle(ControlWritten(1), now_ns=MS)
    start(coordinator)
    fail(coordinator, MS)
    assert of(Say, coordinator.closed("all ranks have finished")) == []


def test_requests_join_a_round_for_which_ranks_are_asked() -> None:
    coordinator = ready(asks=True)
    start(coordinator, token=1)
    assert start(coordinator, token=2) == []
    assert coordinator.round is not None and coordinator.round.tokens == [1, 2]


def test_a_rank_that_is_asked_may_say_that_there_will_be_no_image() -> None:
    coordinator = ready(asks=True)
    start(coordinator, token=7)
    actions = coordinator.handle(Failed(1, 0, 1, "disk full"), now_ns=MS)
    assert packets(actions) == ["abort"] and of(Reply, actions)


def asked(actions: list[Action]) -> list[tuple[object, tuple[int, ...] | None]]:
    """Whose programs wait, as told, and to whom it is told."""
    return [(each.packet.get("waiting"), each.ranks) for each in actions if isinstance(each, Send)]


def test_who_is_asked_is_told_whose_programs_wait_for_the_round() -> None:
    coordinator = ready(4, asks=True)
    waits = [CheckpointRequested(rank=rank, waits=True) for rank in range(4)]
    assert asked(coordinator.handle(CheckpointRequested(rank=0), now_ns=0)) == [([], None)], "it goes on"
    assert asked(coordinator.handle(waits[2], now_ns=MS)) == [([2], None)]
    assert asked(coordinator.handle(waits[2], now_ns=MS)) == [([2], (2,))], "the others know"
    assert asked(coordinator.handle(waits[1], now_ns=MS)) == [([1, 2], (1,))], "the others need no more"
    for rank in range(4):
        coordinator.handle(Ready(rank, 0, 1), now_ns=MS)
    assert coordinator.handle(waits[3], now_ns=MS) == [], "the round is open: all take their images"
    coordinator.handle(Captured(0, 0, 1), now_ns=MS)
    assert coordinator.handle(waits[0], now_ns=MS) == [], "for the next round"
    assert asked(coordinator.handle(Failed(1, 0, 1, "disk full"), now_ns=MS)) == [(None, None), ([0], None)]


def test_programs_of_ranks_that_are_gone_do_not_wait_any_more() -> None:
    coordinator = Coordinator(2)
    coordinator.handle(CheckpointRequested(rank=0, waits=True), now_ns=0)
    coordinator.interrupted("killed")
    assert asked(coordinator.ready(1, now_ns=MS)) == [([], None)]


def test_the_schedule_begins_anew_after_a_restart() -> None:
    coordinator = ready(1, every_ns=10 * SECOND)
    coordinator.interrupted("killed")
    assert coordinator.deadline_ns() is None
    coordinator.ready(1, now_ns=15 * SECOND)
    assert coordinator.deadline_ns() == 25 * SECOND

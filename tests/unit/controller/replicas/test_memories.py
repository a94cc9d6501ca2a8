"""Arrays of replicas that differ after a checkpoint: who is lost, which lines are used no more."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.controller.replicas.events import LinePrinted, LineTold, MemoryTold, reported
from ckpt.controller.replicas.memory import LINES_MAX
from ckpt.controller.supervision.events import (
    CheckpointRequested,
    ControlWritten,
    Died,
    Event,
    Fenced,
    Ready,
    Say,
    Send,
    StopRequested,
    Voted,
    WriteControl,
)
from ckpt.redundancy.memory.comparison import Record
from tests.unit.controller.replicas.test_replica_supervisor import Job


class Compared(Job):
    """One rank whose first line is committed: replica 0 has given the image."""

    def __init__(self, replicas: int = 3) -> None:
        super().__init__(ranks=1, replicas=replicas)
        self.feed(CheckpointRequested(None))
        self.feed(Ready(0, self.run, 1))
        marks = {"point": (4, "aa")}
        self.feed(LineTold(0, self.run, 1, marks, 1, written=0))
        self.feed(Voted(0, self.run, 1, (0, 1), "image", "", {}))
        for process in range(1, replicas):
            self.feed(LineTold(process, self.run, 1, marks, 1))
        self.feed(LinePrinted(1))
        assert any(isinstance(each, WriteControl) for each in self.actions)
        self.feed(ControlWritten(1))

    def asked(self) -> list[tuple[int, tuple[int, ...]]]:
        sends = [each for each in self.actions if isinstance(each, Send) and "memory" in each.packet]
        return [(each.packet["place"], tuple(each.ranks or ())) for each in sends]

    def compare(self, digests: str, epoch: int = 1) -> None:
        """Each replica tells where it is, and then its array."""
        for process in range(len(digests)):
            self.told(process, {"memory": epoch, "place": 0, "at": 7 + process})
        place = 7 + len(digests)
        for process, digest in enumerate(digests):
            blocks = {"u": ["<f8 (8,)", 4096, 8, [digest], []]}
            self.told(
                process, {"memory": epoch, "place": place, "where": "main:2", "parts": 1, "blocks": blocks}
            )

    def told(self, process: int, fields: dict[str, Any]) -> None:
        event = reported(process, self.run, {"memory": 1, **fields})
        assert isinstance(event, MemoryTold)
        self.feed(event)


def test_all_replicas_of_a_rank_are_asked_at_a_place_that_none_has_passed() -> None:
    job = Compared()
    job.compare("aaa")
    assert job.asked() == [(0, (0, 1, 2)), (10, (0, 1, 2))]
    assert job.logged("memory-compared") == [
        {"epoch": 1, "verified": True, "same": 1, "variables": 1, "not_compared": {}}
    ]
    assert not job.logged("replica-differs")


def test_the_odd_one_is_lost_and_named_with_its_variable() -> None:
    job = Compared()
    job.compare("aba")
    job.answer_all()
    (differs,) = job.logged("replica-differs")
    assert (differs["rank"], differs["replica"], differs["what"]) == (0, 1, "memory")
    assert differs["reason"] == "variable u"
    assert job.killed() == {1}
    assert not job.logged("lines-distrusted")


def test_the_lines_of_a_leader_that_was_wrong_are_used_no_more() -> None:
    job = Compared()
    job.compare("baa")
    job.answer_all()
    assert job.killed() == {0}
    assert job.logged("lines-distrusted")[0]["epochs"] == [1]


def test_where_two_differ_all_go_back() -> None:
    job = Compared(replicas=2)
    job.compare("ab")
    job.answer_all()
    assert job.logged("replica-differs")[0]["replica"] is None
    assert job.logged("lines-distrusted")[0]["epochs"] == [1]


def test_a_replica_that_is_lost_meanwhile_is_not_waited_for() -> None:
    job = Compared()
    for process in range(3):
        job.told(process, {"place": 0, "at": 7})
    job.feed(Died(2, job.run, signal=9))
    for process in range(2):
        blocks = {"u": ["<f8 (8,)", 4096, 8, ["aa"], []]}
        job.told(process, {"place": 8, "where": "main:2", "parts": 1, "blocks": blocks})
    assert job.logged("memory-compared")[0]["same"] == 1


def test_a_line_that_is_committed_meanwhile_is_compared_next() -> None:
    job = Compared()
    memories = job.supervisor.memories
    assert memories.begin(2, {0, 1, 2}) == [] == memories.begin(3, {0, 1, 2})
    job.compare("aaa")
    assert job.logged("memory-compared")[0]["epoch"] == 1
    assert [place for place, _ in job.asked()] == [0, 10, 0] and memories.epoch == 3


def test_a_comparison_that_does_not_end_is_given_up_after_some_lines() -> None:
    job = Compared()
    job.told(0, {"place": 0, "at": 7})
    for epoch in range(2, 2 + LINES_MAX):
        job.actions += job.supervisor.memories.begin(epoch, {0, 1, 2})
    (given_up,) = job.logged("memory-compared")
    assert given_up["not_compared"] == {"0": "not all replicas have come to the place"}
    assert job.supervisor.memories.epoch == 1 + LINES_MAX


@pytest.mark.parametrize(
    ("why", "by"), [("the program has ended", "program"), ("no process could be forked", "")]
)
def test_why_arrays_were_not_compared_is_logged(why: str, by: str) -> None:
    """Where the program is the reason, no later place would help: its lines count nevertheless."""
    job = Compared()
    job.told(1, {"place": 0, "none": why, "by": by})
    fields = {"epoch": 1, "verified": bool(by), "same": 0, "variables": 0, "not_compared": {"0": why}}
    assert job.logged("memory-compared") == [fields]
    assert job.supervisor.compared == ({1} if by else set())


def second_line(job: Compared, request: Event) -> None:
    job.feed(request)
    job.feed(Ready(0, job.run, 2))
    job.feed(LineTold(0, job.run, 2, {"point": (5, "bb")}, 1, written=0))
    job.feed(Voted(0, job.run, 2, (1, 2), "image", "", {}))
    for process in (1, 2):
        job.feed(LineTold(process, job.run, 2, {"point": (5, "bb")}, 1))
    job.feed(LinePrinted(2))
    job.feed(ControlWritten(2))


def kill_all(job: Compared) -> None:
    for process in range(3):
        job.feed(Died(process, job.run, signal=9))
    job.feed(Fenced(job.run))


def test_a_restart_passes_over_a_line_whose_memory_is_still_compared() -> None:
    job = Compared()
    job.compare("aaa")
    second_line(job, CheckpointRequested(None))
    assert {1, 2} <= set(job.supervisor.needed_lines)
    kill_all(job)
    assert job.logged("unverified-passed-over")[0]["epochs"] == [2]
    assert job.logged("restarting")[0]["from_epoch"] == 1


def test_where_no_memory_was_compared_a_restart_says_so_by_name() -> None:
    job = Compared()
    kill_all(job)
    assert job.logged("memory-not-compared")[0]["epoch"] == 1
    assert job.logged("restarting")[0]["from_epoch"] == 1
    assert any(
        isinstance(each, Say) and "checkpoint 1" in each.text and "compared" in each.text
        for each in job.actions
    )


def test_who_stops_a_job_waits_for_the_comparison_of_the_last_line() -> None:
    job = Compared()
    second_line(job, StopRequested(75, "asked", token=7, checkpoint=True))
    assert job.supervisor.phase == "running"
    job.compare("aaa")
    assert job.supervisor.phase == "running", "line 1 has been compared"
    job.compare("aaa", epoch=2)
    assert job.supervisor.phase == "stopping"


def test_a_packet_becomes_an_event_without_what_is_not_well_formed() -> None:
    event = reported(
        4, 2, {"memory": 3, "place": 9, "parts": "x", "blocks": {"u": ["f", 1, 1, ["a"], []], "v": 3}}
    )
    assert event == MemoryTold(4, 2, 3, 9, blocks={"u": Record("f", 1, 1, ("a",), ())})

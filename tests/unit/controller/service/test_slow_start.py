"""A start that takes long is told once, with the ranks that are not there and where they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ckpt.controller.service.livestatus import SlowStart, describe_start

ANSWER: dict[str, Any] = {
    "incarnation": 2,
    "resumed_from": 5,
    "ranks": [
        {"rank": rank, "pid": 10 + rank, "where": f"app.py:{rank} load", "state": "S", "answers": False}
        for rank in range(3)
    ],
}


def test_it_is_due_once_in_each_incarnation_and_only_while_ranks_start() -> None:
    slow, at = SlowStart(100), SimpleNamespace(phase="starting", incarnation=0)
    asked: Any = at
    assert slow.deadline_ns() is None
    assert not slow.is_due(asked, now_ns=1000)
    assert slow.deadline_ns() == 1100
    assert not slow.is_due(asked, now_ns=1099)
    assert slow.is_due(asked, now_ns=1100)
    assert slow.deadline_ns() is None
    assert not slow.is_due(asked, now_ns=5000)
    at.phase, at.incarnation = "starting", 1
    assert not slow.is_due(asked, now_ns=6000)
    at.phase = "running"
    assert not slow.is_due(asked, now_ns=9000)
    assert slow.deadline_ns() is None


def test_those_that_are_not_there_are_named_and_where_the_first_of_them_is() -> None:
    told = describe_start(ANSWER, {0: "address"}, 120.0)
    assert told is not None
    fields, text = told
    assert text.startswith("ranks 1, 2 loading checkpoint 5 for 120 s now; rank 1 is at app.py:1 load;")
    assert "`ckpt restart JOB@EPOCH`" in text
    assert (fields["from_epoch"], fields["s"]) == (5, 120.0)
    assert fields["ranks"] == [{"rank": r, "where": f"app.py:{r} load", "state": "S"} for r in (1, 2)]


def test_of_a_new_job_nothing_older_is_proposed_and_of_ranks_that_are_there_nothing_is_told() -> None:
    told = describe_start({**ANSWER, "resumed_from": None}, (), 120.0)
    assert told is not None and told[1] == "ranks 0, 1, 2 starting for 120 s now; rank 0 is at app.py:0 load"
    assert describe_start(ANSWER, range(3), 120.0) is None

"""The demo of redundant ranks: the picture of who computes when."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("demo_redundancy")


def event(name: str, seconds: float, **fields: Any) -> dict[str, Any]:
    return {"event": name, "ns": int(seconds * 1e9), **fields}


EVENTS = [
    event("rank-started", -1, rank=0, pid=100),
    event("rank-started", -1, rank=1, pid=101),
    event("rank-started", -1, rank=2, pid=102),
    event("running", 0),
    event("replica-differs", 3, rank=0, replica=1, what="messages"),
    event("rank-left", 3, rank=1, replica=1),
    event("replica-cloned", 5, rank=None, replica=3, place=1, reason="replica 3 took the place of replica 1"),
    event(
        "replica-lost", 6, rank=0, replica=0, process=0, reason="replica 0 of rank 0 was killed by SIGKILL"
    ),
    event("replica-differs", 8, rank=None, replica=None, seen_in=0, what="memory"),
    event("restarted", 9),
    event("job-finished", 12),
]


def test_the_picture_has_a_line_for_each_place(demo: Any) -> None:
    assert demo.picture(EVENTS, 3, width=13) == [
        "0=====k..>0==",
        "1==x.3===>1==",
        "2========>2==",
    ]


def test_a_loss_and_a_copy_in_one_column_are_both_seen(demo: Any) -> None:
    assert demo.picture(EVENTS, 3, width=5)[1] == "1x3>1"


def test_processes_that_have_ended_are_not_killed(demo: Any) -> None:
    assert demo.pids(EVENTS) == {2: 102}


def test_what_happened_is_told_in_order(demo: Any) -> None:
    assert demo.story(EVENTS) == [
        "   3.0 s  replica 1 of rank 0: wrong messages",
        "   5.0 s  replica 3 took the place of replica 1",
        "   6.0 s  replica 0 of rank 0 was killed by SIGKILL",
        "   8.0 s  replicas of rank 0 (where it began is not known): wrong memory",
        "   9.0 s  all replicas were started again",
    ]

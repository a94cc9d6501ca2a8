"""From packets to events: every kind a rank or an agent says, and what is for the log only."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.controller.supervision import messages
from ckpt.controller.supervision.events import (
    BackRequested,
    Boundary,
    Captured,
    CheckpointRequested,
    Died,
    Failed,
    Fenced,
    Finished,
    Hello,
    Loaded,
    ProgramError,
    Ready,
    Refused,
    Voted,
)
from ckpt.controller.supervision.packet_events import agent_event, log_line, message, process_of, rank_event

VOTE = {
    "m": "voted",
    "epoch": 3,
    "label": [1, 3],
    "manifest": "images/rank-00001/x.json",
    "digest": "d0" * 32,
    "vectors": {"1": [5, 3, 4]},
    "bytes_raw": 10,
    "bytes_written": 7,
}


@pytest.mark.parametrize(
    ("packet", "event"),
    [
        ({"m": "hello", "address": "ipc://x"}, Hello(2, 1, "ipc://x")),
        ({"m": "loaded", "all": True}, Loaded(2, 1, is_all=True)),
        ({"m": "loaded", "all": 1}, Loaded(2, 1)),
        ({"m": "captured", "epoch": 3, "pause_ns": 7}, Captured(2, 1, 3, 7)),
        (VOTE, Voted(2, 1, 3, (1, 3), "images/rank-00001/x.json", "d0" * 32, {1: (5, 3, 4)}, 10, 7)),
        ({"m": "ready", "epoch": 3}, Ready(2, 1, 3)),
        ({"m": "refused", "epoch": 3, "reason": "a socket"}, Refused(2, 1, 3, "a socket", "")),
        ({"m": "failed", "epoch": 3, "reason": "full", "where": "disk"}, Failed(2, 1, 3, "full", "disk")),
        ({"m": "boundary", "epoch": 3, "count": 9, "reached": True}, Boundary(2, 1, 3, 9, True)),
        ({"m": "finished", "exit_code": 0}, Finished(2, 1, 0)),
        ({"m": "error", "exit_code": 0, "traceback": None}, ProgramError(2, 1, 1, "")),
        ({"m": "error", "exit_code": 4, "traceback": "E"}, ProgramError(2, 1, 4, "E")),
        ({"m": "request", "what": "checkpoint"}, CheckpointRequested(rank=2)),
        ({"m": "request", "what": "checkpoint", "wait": True}, CheckpointRequested(rank=2, waits=True)),
        ({"m": "request", "what": "go-back", "reason": "lost"}, BackRequested(2, 1, "lost")),
        ({"m": "request", "what": "coffee"}, None),
        ({"m": "event", "event": "fork-failed"}, None),
        ({"m": "status"}, None),
    ],
)
def test_what_a_rank_says(packet: dict[str, Any], event: object) -> None:
    assert rank_event(2, 1, messages.parse_rank(packet)) == event


@pytest.mark.parametrize(
    ("packet", "event"),
    [
        ({"e": "died", "rank": 1, "incarnation": 4, "signal": 9, "code": None}, Died(1, 4, 9, None)),
        ({"e": "fenced", "incarnation": 4}, Fenced(4)),
        ({"e": "ended", "reason": ""}, None),
    ],
)
def test_what_an_agent_says_of_its_own(packet: dict[str, Any], event: object) -> None:
    assert agent_event(packet) == event


def test_what_goes_into_the_log() -> None:
    assert log_line(2, 1, VOTE) == (
        "voted",
        {"rank": 2, "incarnation": 1, "epoch": 3, "label": [1, 3], "bytes_raw": 10, "bytes_written": 7},
    )
    assert log_line(2, 1, {"m": "event", "event": "fork-failed", "reason": "memory"}) == (
        "fork-failed",
        {"rank": 2, "incarnation": 1, "reason": "memory"},
    )
    assert log_line(2, 1, {"m": "hello", "address": "x"}) is None


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (
            {
                "m": "event",
                "event": "output-held-back",
                "stream": "stdout",
                "reason": "No space left on device",
            },
            "rank 2: stdout cannot be written (No space left on device); it is held back, and written when there is room",
        ),
        (
            {"m": "event", "event": "output-written", "stream": "stderr", "bytes": 70},
            "rank 2: stderr is written, 70 bytes late",
        ),
        ({"m": "event", "event": "fork-failed"}, None),
        ({"m": "status", "event": "output-written"}, None),
    ],
)
def test_what_the_user_is_told_at_once(packet: dict[str, Any], text: str | None) -> None:
    assert message(2, packet) == text


def test_a_process_is_told_by_what_the_agent_knows_of_it() -> None:
    event = {"event": "rank-started", "rank": 1, "incarnation": 2, "pid": 7, "start_ticks": 8, "t": "now"}
    assert process_of(event, "rank") == {"rank": 1, "pid": 7, "start_ticks": 8}
    assert process_of({**event, "host": "b"}) == {"pid": 7, "start_ticks": 8, "host": "b"}

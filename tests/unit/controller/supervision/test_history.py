"""What the event log says to the next controller and to `ckpt status`."""

from __future__ import annotations

import json
from typing import Any

from ckpt.controller.supervision.history import Process, dump, finished_code, summarise


def line(event: str, **fields: Any) -> dict[str, Any]:
    return {"t": "", "ns": 0, "event": event, **fields}


START = [
    line("job-started", size=1),
    line("agent-started", pid=10, start_ticks=1),
    line("rank-started", rank=0, pid=11, incarnation=0, start_ticks=2),
]


def test_an_empty_log() -> None:
    history = summarise([])
    assert (history.highest_epoch, history.incarnation, history.outcome) == (0, -1, None)
    assert finished_code(history) is None


def test_burnt_numbers_count_as_used() -> None:
    history = summarise(
        [
            *START,
            line("round-started", epoch=1),
            line("committed", epoch=1, bytes=5),
            line("round-started", epoch=2),
            line("round-aborted", epoch=2, reason="disk full"),
            line("round-started", epoch=3),
        ]
    )
    assert history.highest_epoch == 3
    assert list(history.committed) == [1]
    assert history.aborted == {2: "disk full"}
    assert history.open_round == 3


def test_processes_of_the_newest_incarnation_are_known() -> None:
    history = summarise(
        [
            *START,
            line("rank-died", rank=0, signal=9),
            line("restarting", incarnation=1),
            line("rank-started", rank=0, pid=12, incarnation=1, start_ticks=3),
        ]
    )
    assert history.agent == Process(10, 1)
    assert history.processes == [Process(12, 3)]
    assert (history.incarnation, history.restarts) == (1, 1)
    assert (history.ranks[0].deaths, history.ranks[0].pid) == (1, 12)


def test_a_finished_job_has_a_code_until_it_is_started_again() -> None:
    done = [*START, line("job-finished", exit_code=4, kind="finished")]
    assert finished_code(summarise(done)) == 4
    assert finished_code(summarise([*done, *START[1:]])) is None


def test_a_stopped_or_interrupted_job_has_no_code() -> None:
    for end in (
        line("job-finished", exit_code=75, kind="stopped"),
        line("job-finished", exit_code=14, kind="interrupted"),
        line("job-interrupted", reason="killed"),
    ):
        assert finished_code(summarise([*START, end])) is None


def test_the_agents_word_counts_like_the_controllers() -> None:
    assert finished_code(summarise([*START, line("job-finished", exit_code=0, by="agent")])) == 0


def test_pauses_are_collected_per_rank() -> None:
    history = summarise([line("captured", rank=1, epoch=1, pause_ns=2_500_000)])
    assert history.ranks[1].pauses_ms == [2.5]


def test_lines_of_a_newer_version_change_nothing() -> None:
    history = summarise([line("sang", epoch=99), {"no": "event"}, line("committed", epoch="x")])
    assert history.highest_epoch == 0 and history.lines == 3


def test_the_longest_wait_for_an_image_is_kept_with_its_reason() -> None:
    refused = {"rank": 0, "reason": "sum() is running <genexpr> (app.py:6)", "where": "app.py:4 slow"}
    history = summarise([
        line("round-started", epoch=1, ns=1_000_000_000),
        line("captured", rank=0, epoch=1, pause_ns=0, waited_ns=2_000_000),
        line("round-started", epoch=2, ns=2_000_000_000),
        line("refused", epoch=2, **refused),
        line("refused", epoch=2, **refused),
        line("captured", rank=0, epoch=2, pause_ns=0, waited_ns=900_000_000),
        line("round-started", epoch=3, ns=4_000_000_000),
        line("captured", rank=0, epoch=3, pause_ns=0, waited_ns=3_000_000),
    ])  # fmt: skip
    wait = history.ranks[0].longest_wait
    assert wait is not None and (wait.epoch, wait.ms, wait.captured) == (2, 900, True)
    assert wait.reason == refused["reason"]
    assert history.ranks[0].refused_rounds == 1


def test_a_wait_that_ends_with_the_burning_of_the_round_counts() -> None:
    history = summarise([
        line("round-started", epoch=1, ns=1_000_000_000),
        line("refused", epoch=1, rank=1, reason="sum()", where="a:1"),
        line("captured", rank=0, epoch=1, pause_ns=0, waited_ns=1_000_000),
        line("round-aborted", epoch=1, reason="no line after 3 s", ns=4_000_000_000),
    ])  # fmt: skip
    waits = {rank: record.longest_wait for rank, record in history.ranks.items()}
    assert waits[1] is not None and (waits[1].ms, waits[1].captured, waits[1].reason) == (
        3000,
        False,
        "sum()",
    )
    assert waits[0] is not None and waits[0].ms == 1, "it had its image"


def test_a_line_with_fields_of_another_kind_is_passed_over() -> None:
    lines = [
        {"event": "agent-started"},
        {"event": "rank-started", "rank": [], "pid": 1},
        {"event": "captured", "epoch": 1, "rank": 0, "pause_ns": "long"},
        {"event": "round-aborted", "epoch": 1, "ns": {}},
        {"event": "committed", "epoch": 2},
    ]
    assert list(summarise(lines).committed) == [2]


def a_long_job(rounds: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"event": "agent-started", "pid": 5, "start_ticks": 50},
        {"event": "rank-started", "rank": 0, "pid": 6, "start_ticks": 60, "incarnation": 3},
    ]
    for epoch in range(1, rounds + 1):
        lines += [
            {"event": "round-started", "epoch": epoch, "ns": epoch * 10**9},
            {"event": "refused", "epoch": epoch, "rank": 0, "reason": "busy", "where": "a.py:1"},
            {"event": "captured", "epoch": epoch, "rank": 0, "pause_ns": epoch * 1000, "waited_ns": epoch},
            {"event": "committed" if epoch % 3 else "round-aborted", "epoch": epoch, "ns": 0, "reason": "no"},
        ]
    return lines


def test_a_log_that_was_begun_anew_says_the_same_and_is_bounded() -> None:
    lines = a_long_job(3000)
    first = json.loads(json.dumps({"event": "continued", **dump(summarise(lines))}))
    assert len(json.dumps(first)) < 50_000
    more = [
        {"event": "rank-died", "rank": 0},
        {"event": "round-started", "epoch": 3001, "ns": 1},
        {"event": "committed", "epoch": 3001},
    ]
    whole, continued = summarise([*lines, *more]), summarise([first, *more])
    assert (continued.commits, continued.burnt) == (whole.commits, whole.burnt) == (2001, 1000)
    for name in ("highest_epoch", "incarnation", "open_round", "outcome", "restarts", "agent", "processes"):
        assert getattr(continued, name) == getattr(whole, name), name
    assert max(continued.committed) == 3001 and continued.committed[3001] == more[-1]
    mine, full = continued.ranks[0], whole.ranks[0]
    assert (mine.pauses, mine.pause_max_ms, mine.deaths, mine.refused_rounds, mine.longest_wait) == (
        full.pauses, full.pause_max_ms, full.deaths, full.refused_rounds, full.longest_wait
    )  # fmt: skip
    again = {"event": "continued", **dump(continued)}
    assert summarise([json.loads(json.dumps(again))]).commits == 2001, "and once more"


def test_a_rank_that_never_waited_is_the_same_in_a_log_begun_anew() -> None:
    lines = [line("rank-died", rank=1), *a_long_job(1)]
    continued = summarise([json.loads(json.dumps({"event": "continued", **dump(summarise(lines))}))])
    assert continued.ranks == summarise(lines).ranks
    assert continued.ranks[1].longest_wait is None and continued.ranks[1].deaths == 1
    assert continued.ranks[0].longest_wait is not None


def test_changes_of_files_that_are_not_covered_count_until_the_next_checkpoint_or_restart() -> None:
    lines = [*START, line("files-not-covered", epoch=0, rank=0), line("files-not-covered", epoch=3, rank=0)]
    assert summarise(lines).uncovered == {0: 1, 3: 1}, "a rank takes its image before the line is committed"
    lines.append(line("committed", epoch=3))
    assert summarise(lines).uncovered == {3: 1}
    continued = [json.loads(json.dumps({"event": "continued", **dump(summarise(lines))}))]
    assert summarise(continued).uncovered == {3: 1}
    for event in ("files-put-back", "files-given-up"):
        assert not summarise([*lines, line(event)]).uncovered


def test_a_controller_that_goes_on_with_the_ranks_keeps_lease_and_engine_of_the_last_one() -> None:
    before = [
        *START,
        line("controller", pid=9),
        line("engine", lease_s=4.0),
        line("host-joined", lease_s=6.0),
    ]
    shared = [*before, line("files-shared", host="b")]
    assert (summarise(shared).shared or {})["host"] == "b"
    adopted = summarise([*shared, line("controller", pid=10, adopts=True)])
    assert (adopted.lease_s, adopted.engine, adopted.shared) == (6.0, before[4], None)
    anew = summarise([*shared, line("controller", pid=10)])
    assert (anew.lease_s, anew.engine) == (0.0, None)


def test_what_replicas_have_found_is_known_to_the_next_controller() -> None:
    history = summarise(
        [
            *START,
            line("memory-compared", epoch=1, verified=True),
            line("memory-compared", epoch=2, verified=False),
            line("lines-distrusted", epochs=[2, None]),
            line("fault-located", host="b"),
        ]
    )
    assert (history.compared, history.distrusted) == ([1], [2])
    assert (history.fault or {})["host"] == "b"


def test_who_is_dead_without_a_restart_is_known_until_the_next_one() -> None:
    lines = [*START, line("rank-died", rank=0, signal=9), line("continuing", rank=0)]
    assert summarise(lines).failed == {0}
    lines.append(line("rank-started", rank=0, pid=12, incarnation=1, start_ticks=3))
    assert summarise(lines).failed == frozenset()

"""The demo's own logic: reading the event log, comparing results, adding up what it cost."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def load_demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_script", EXAMPLES / "demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


demo: Any = load_demo()


def write(path: Path, *events: dict[str, Any], torn: str = "") -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + torn)
    return path


def test_a_half_written_line_is_left_for_the_next_look(tmp_path: Path) -> None:
    path = write(tmp_path / "log", {"event": "a"}, torn='{"event": "b')
    watch = demo.Watch(path, lambda: True)
    assert watch.read() == [{"event": "a"}]
    with path.open("a") as log:
        log.write('b"}\n')
    assert watch.read() == [{"event": "bb"}]
    assert watch.events == [{"event": "a"}, {"event": "bb"}]


def test_a_torn_line_in_the_middle_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"event": "a"}\n{"event": "b\n\n{"event": "c"}\n')
    assert demo.Watch(path, lambda: True).read() == [{"event": "a"}, {"event": "c"}]


def test_an_event_that_was_read_before_counts_unless_a_fresh_one_is_wanted(tmp_path: Path) -> None:
    path = write(tmp_path / "log", {"event": "committed", "epoch": 1})
    watch = demo.Watch(path, lambda: True)
    watch.read()
    assert watch.wait("", demo.named("committed"), timeout_s=0.01)["epoch"] == 1
    with pytest.raises(demo.Failed, match="not within"):
        watch.wait("a new one", demo.named("committed"), timeout_s=0.01, fresh=True)


def test_a_job_that_ends_too_early_fails_the_demo_by_name(tmp_path: Path) -> None:
    watch = demo.Watch(tmp_path / "none", lambda: False)
    with pytest.raises(demo.Failed, match="ended before: a first commit"):
        watch.wait("a first commit", demo.named("committed"), timeout_s=10)


def test_what_was_logged_while_the_job_ended_is_still_seen(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def ends() -> bool:
        write(path, {"event": "restarted"})
        return False

    assert demo.Watch(path, ends).wait("", demo.named("restarted"), timeout_s=10) == {"event": "restarted"}


def test_the_process_of_a_rank_is_the_newest_one() -> None:
    events = [
        {"event": "rank-started", "rank": 1, "pid": 10},
        {"event": "rank-started", "rank": 2, "pid": 11},
        {"event": "rank-started", "rank": 1, "pid": 20},
    ]
    assert demo.pid_of(events, 1) == 20


def test_costs_are_read_off_the_event_log() -> None:
    events = [
        {"ns": 1_000_000, "event": "captured", "epoch": 1, "pause_ns": 3_000_000},
        {"ns": 2_000_000, "event": "voted", "epoch": 1, "bytes_written": 2_000_000},
        {"ns": 3_000_000, "event": "committed", "epoch": 1, "ms": 80.5},
        {"ns": 9_000_000, "event": "rank-died", "rank": 1, "signal": 9},
        {"ns": 9_000_000, "event": "round-aborted", "epoch": 2, "reason": "rank 1 died"},
        {"ns": 305_000_000, "event": "restarted", "ms": 296.0},
    ]
    costs = demo.costs(events, [(1, 5_000_000)])
    assert costs == {
        "pause_ms": [3.0],
        "image_mb": [2.0],
        "commit_ms": [80.5],
        "noticed_ms": [4.0],
        "burnt": [2.0],
        "restart_ms": [300.0],
    }
    shown = dict(demo.table(10.0, 12.0, costs))
    assert shown["checkpoints committed"] == "1"
    assert shown["pause of a rank"] == "3.0 ms, at most 3.0 ms"


def test_each_kill_is_paired_with_the_death_and_the_restart_that_followed() -> None:
    events = [
        {"ns": 20_000_000, "event": "rank-died", "rank": 2},
        {"ns": 30_000_000, "event": "restarted"},
        {"ns": 50_000_000, "event": "rank-died", "rank": 2},
        {"ns": 70_000_000, "event": "restarted"},
    ]
    costs = demo.costs(events, [(2, 10_000_000), (2, 45_000_000)])
    assert costs["noticed_ms"] == [10.0, 5.0]
    assert costs["restart_ms"] == [20.0, 25.0]


def test_nothing_to_report_is_a_dash() -> None:
    assert dict(demo.table(1.0, 1.0, demo.costs([], [])))["pause of a rank"] == "-"


def test_equal_results_have_no_differences(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"same")
    assert demo.differences(tmp_path / "a", tmp_path / "b", ["x"]) == []


@pytest.mark.parametrize(("other", "at"), [(b"sane", 2), (b"same and more", 4), (b"", 0)])
def test_one_different_byte_is_found(tmp_path: Path, other: bytes, at: int) -> None:
    for name, data in (("a", b"same"), ("b", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(data)
    [line] = demo.differences(tmp_path / "a", tmp_path / "b", ["x"])
    assert line.startswith("x:") and line.endswith(f"byte {at}")


def test_a_missing_result_is_a_difference(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"same")
    [line] = demo.differences(tmp_path / "a", tmp_path / "b", ["x"])
    assert "missing in" in line and str(tmp_path / "b") in line

"""The ledger of long sweeps: sums over sessions, commits apart, nothing counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import soak


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "LEDGER", tmp_path / "soak.json")
    monkeypatch.setattr(soak, "commit", lambda: "abc")


def test_a_piece_that_goes_on_is_added_to_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    soak.record("simulation", 0, 500, 2.4, {"commits": 7})
    soak.record("simulation", 500, 500, 2.4, {"commits": 5})
    monkeypatch.setattr(soak, "commit", lambda: "def")
    soak.record("simulation", 1000, 250, 1.0, {"commits": 1})
    found = soak.entries("simulation")
    assert [(each["commit"], each["first"], each["count"]) for each in found] == [
        ("abc", 0, 1000),
        ("def", 1000, 250),
    ]
    assert found[0]["figures"] == {"commits": 12}
    assert soak.next_number("simulation") == 1250 and soak.next_number("flips") == 0


def test_a_row_may_count_every_version_of_python_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert soak.ROWS["restores"].by_version and not soak.ROWS["flips"].by_version
    for name in ("restores", "flips"):
        soak.record(name, 0, 40, 1.0, {})
    monkeypatch.setattr(soak.platform, "python_version_tuple", lambda: ("3", "99", "0"))
    assert soak.next_number("restores") == 0 and soak.next_number("flips") == 40


def test_of_what_is_reached_the_largest_counts() -> None:
    soak.record("frames", 0, 10, 1, {"branches": 400})
    soak.record("frames", 10, 10, 1, {"branches": 390})
    assert soak.entries()[0]["figures"] == {"branches": 400}


def test_the_table_says_what_is_wanted_and_by_which_commit() -> None:
    soak.record("messages", 0, 1_000_000, 60, {"lost": 3})
    text = soak.table(soak.entries())
    assert "1,000,000  of  10,000,000  messages under kernel faults" in text
    assert "abc, Python" in text and "3 lost" in text and "0  of     100,000  simulated seeds" in text


def test_a_row_goes_on_where_it_ended_until_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def piece(first: int, count: int) -> tuple[int, soak.Figures]:
        asked.append(first)
        return count, {}

    monkeypatch.setitem(soak.ROWS, "flips", soak.Row("flips", 100, 10, piece))
    soak.go_on("flips", minutes=1, until=30)
    soak.go_on("flips", minutes=1, until=50)
    assert asked == [0, 10, 20, 30, 40]


def test_a_piece_that_fails_is_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def piece(first: int, count: int) -> tuple[int, soak.Figures]:
        raise AssertionError("seed 3")

    monkeypatch.setitem(soak.ROWS, "flips", soak.Row("flips", 100, 10, piece))
    with pytest.raises(AssertionError, match="seed 3"):
        soak.go_on("flips", minutes=1, until=None)
    assert soak.entries() == []

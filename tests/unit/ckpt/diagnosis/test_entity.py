"""Fans and power supplies of a switch, of the tables of RFC 6933, 3433 and 4268: what they say, and what they do not."""

from __future__ import annotations

import pytest

from ckpt.diagnosis.handlers.entity import from_mib

PARTS = {
    **{f"4.{part}": inside for part, inside in {"1": "0", "10": "1", "11": "10", "20": "1", "21": "20", "22": "20"}.items()},
    **{f"5.{part}": kind for part, kind in {"1": "3", "10": "7", "11": "8", "20": "6", "21": "8", "22": "8"}.items()},
}  # fmt: skip


def sensor(
    index: int, kind: int, value: int, scale: int = 9, precision: int = 0, status: int = 1
) -> dict[str, str]:
    values = (kind, scale, precision, value, status)
    return {f"{column}.{index}": str(each) for column, each in enumerate(values, 1)}


WELL = {**sensor(11, 10, 6000), **sensor(21, 4, 12_000, scale=8), **sensor(22, 8, 45)}


def test_speeds_and_voltages() -> None:
    assert from_mib(PARTS, WELL, {}) == {"slowest_fan": 6000, "supply_failed": "no", "hottest": 45}
    assert from_mib(PARTS, {**WELL, **sensor(1, 8, 1085, precision=1)}, {})["hottest"] == 108.5
    assert from_mib(PARTS, {**WELL, **sensor(11, 10, 25, precision=1)}, {})["slowest_fan"] == 2.5
    assert from_mib(PARTS, {**WELL, **sensor(21, 4, 0)}, {})["supply_failed"] == "yes"
    assert from_mib(PARTS, {**WELL, **sensor(12, 10, 2, scale=10)}, {})["slowest_fan"] == 2000


@pytest.mark.parametrize("broken", [{"status": 3}, {"status": 2}])
def test_a_sensor_that_is_broken_says_nothing_of_its_part(broken: dict[str, int]) -> None:
    sensors = {**sensor(11, 10, 0, **broken), **sensor(21, 4, 0, **broken), **sensor(22, 8, 200, **broken)}
    assert from_mib(PARTS, sensors, {}) == {}


def test_states() -> None:
    assert from_mib(PARTS, {}, {"3.10": "3", "3.20": "3"}) == {"fan_failed": "no", "supply_failed": "no"}
    assert from_mib(PARTS, {}, {"3.10": "2", "3.20": "1"}) == {"fan_failed": "yes"}
    assert from_mib(PARTS, WELL, {"3.20": "2"})["supply_failed"] == "yes"


def test_a_voltage_that_is_not_of_a_supply() -> None:
    assert "supply_failed" not in from_mib({**PARTS, "4.21": "1"}, WELL, {})


@pytest.mark.parametrize(
    ("parts", "sensors"),
    [
        ({}, {}),
        ({"5.1": "x", "4.1": "1"}, {"1.1": "4", "2.1": "y", "3.1": "", "4.1": "z", "5.1": "1"}),
        ({"5.1": "3", "4.1": "2", "5.2": "3", "4.2": "1"}, sensor(1, 4, 0)),
        ({}, {"1.1": "10"}),
        ({"garbage": "1", "5": "6"}, {"": "", "1.": "10"}),
    ],
)
def test_garbage(parts: dict[str, str], sensors: dict[str, str]) -> None:
    assert from_mib(parts, sensors, {}) == {}

"""Fans, power supplies and heat of a switch, asked of a real agent: what fails is named, what is well is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.diagnosis import Request
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.handlers.entity import PARTS, SENSORS, STATES
from ckpt.diagnosis.library import load as load_models
from ckpt.diagnosis.topology import Topology
from tests.system.diagnosis import devices

pytestmark = [pytest.mark.system, pytest.mark.turns(2)]
LONG_S = 40  # how busy the machine is decides nothing
SECRETS = Credentials({"snmp": {"": devices.V2C}})
CHASSIS, HEAT, FAN, SENSOR, SUPPLY, VOLTS = 1, 2, 10, 11, 20, 21
Objects = dict[str, tuple[str, int | str]]


def objects(speed: int = 6000, volts: int = 12, fan: int = 3, supply: int = 3, heat: int = 61) -> Objects:
    """What an agent with ENTITY-MIB, ENTITY-SENSOR-MIB and ENTITY-STATE-MIB has."""
    inside = {CHASSIS: 0, HEAT: CHASSIS, FAN: CHASSIS, SENSOR: FAN, SUPPLY: CHASSIS, VOLTS: SUPPLY}
    kinds = {CHASSIS: 3, HEAT: 8, FAN: 7, SENSOR: 8, SUPPLY: 6, VOLTS: 8}
    found: Objects = {f"{PARTS}.4.{part}": ("integer", outer) for part, outer in inside.items()}
    found |= {f"{PARTS}.5.{part}": ("integer", kind) for part, kind in kinds.items()}
    told = {SENSOR: (10, 9, 0, speed, 1), VOLTS: (4, 9, 0, volts, 1), HEAT: (8, 9, 0, heat, 1)}
    for part, values in told.items():
        found |= {f"{SENSORS}.{column}.{part}": ("integer", each) for column, each in enumerate(values, 1)}
    return found | {f"{STATES}.3.{part}": ("integer", each) for part, each in ((FAN, fan), (SUPPLY, supply))}


@pytest.fixture
def told(tmp_path: Path) -> Iterator[tuple[devices.Told, str]]:
    if devices.program("snmpd") is None:
        pytest.skip("snmpd is not installed")
    pytest.importorskip("ezsnmp", reason="ezsnmp is not installed")
    told = devices.Told(tmp_path / "told")
    told.tell(objects())
    agent = devices.Agent(tmp_path, more=told.lines(PARTS, SENSORS, STATES))
    yield told, agent.address
    agent.end()


def asked(address: str) -> Request:
    host = {"interface": "lo", "shell": ["env"], "switch": "sw1"}
    topology = Topology.model_validate(
        {
            "host": {f"n{n}": {"address": f"127.0.0.{n}", "port": f"p{n}", **host} for n in (1, 2)},
            "switch": {"sw1": {"snmp": [address], "cache_s": 0}},
        }
    )
    found = Request("silent", "n1", "n2", topology=topology, models=load_models(), credentials=SECRETS)
    found.query(LONG_S)
    return found


PARTS_OF_SW1 = {
    "switch-fan.speed@sw1",
    "switch-fan.failed@sw1",
    "switch-power.supply@sw1",
    "switch-temperature.high@sw1",
}


def of_the_switch(request: Request) -> tuple[set[str], set[str]]:
    faults = {each.id for each in request.faults} & PARTS_OF_SW1
    return faults, {*request.verdict.clear} & PARTS_OF_SW1


@pytest.mark.rotate(6)
@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ({}, None),
        ({"speed": 120}, "switch-fan.speed@sw1"),
        ({"fan": 2}, "switch-fan.failed@sw1"),
        ({"volts": 0}, "switch-power.supply@sw1"),
        ({"supply": 2}, "switch-power.supply@sw1"),
        ({"heat": 117}, "switch-temperature.high@sw1"),
    ],
)
def test_what_has_failed_is_named(
    bad: dict[str, int], fault: str | None, told: tuple[devices.Told, str]
) -> None:
    told[0].tell(objects(**bad))
    faults, clear = of_the_switch(asked(told[1]))
    assert faults == ({fault} if fault else set())
    assert clear == PARTS_OF_SW1 - faults


def test_a_switch_that_is_hot_because_of_a_fan(told: tuple[devices.Told, str]) -> None:
    told[0].tell(objects(speed=120, heat=117))
    request = asked(told[1])
    faults, _ = of_the_switch(request)
    assert faults == {"switch-fan.speed@sw1"}
    assert ("switch-temperature.high@sw1", ("switch-fan.speed@sw1",)) in request.verdict.consequences


def test_an_agent_that_tells_nothing_of_its_parts_is_unknown(told: tuple[devices.Told, str]) -> None:
    told[0].tell({})
    request = asked(told[1])
    assert of_the_switch(request) == (set(), set())
    reasons = {each.id: each.reason for each in request.unknown}
    for each in PARTS_OF_SW1:
        assert reasons[each].endswith("tells nothing of fans and power supplies (ENTITY-MIB)")

"""What is made of answers: sensors, messages, reports. Garbage is left out, and what is not there is not a value."""

from __future__ import annotations

import re

import pytest

from ckpt.diagnosis.errors import NoAnswer, NoSuchFault
from ckpt.diagnosis.handlers import ipmi, kernel_log
from ckpt.diagnosis.handlers.shared import Once, host_and_port
from ckpt.diagnosis.library import load
from ckpt.diagnosis.report import explain, listing

SENSORS = """\
CPU1 Temp,45,degrees C,ok
CPU2 Temp,na,degrees C,na
CPU3 Temp,nan,degrees C,ok
CPU4 Temp,inf,degrees C,ok
Inlet Temp,23.5,degrees C,ok
Fan1,6000,RPM,ok
Fan2,0,RPM,cr
Fan3,no reading,RPM,ns
Fan4,0,RPM,ns
CPU2 Status,80h,ok,3.2,Transition to Non-Critical from OK
PS1 Status,C8h,ok,10.1,Presence detected
PS2 Status,C9h,ok,10.2,"Presence detected, Failure detected"
DIMM A1,0Ch,ns,8.1,No Reading
CPU1 IERR,01h,ok,3.1,
OCP1 Vcc,0.02,Volts,lcr
OCP1 Status,C8h,ok,44.1,Device Failure
RAID Status,C9h,ok,11.1,Drive Present
Watchdog

,,,
\x00\xff garbage
"""


def test_sensors_with_numbers_states_and_nothing() -> None:
    readings = ipmi.parse(SENSORS)
    assert ipmi.select(readings, "cpu.*temp", "on") == {"highest": 45, "lowest": 45, "count": 1}
    assert ipmi.select(readings, "fan", "on") == {"highest": 6000, "lowest": 0, "count": 2}
    assert ipmi.select(readings, "fan", "off") == {"highest": 6000, "lowest": 6000, "count": 1}
    assert ipmi.select(readings, "^ps1", "on") == {"failed": "no"}
    assert ipmi.select(readings, "^ps", "on") == {"failed": "yes"}
    assert ipmi.select(readings, "cpu2 status", "on") == {"failed": "no"}
    assert ipmi.select(readings, "dimm", "on") == {}
    assert ipmi.select(readings, "(ocp).*(volt|vcc|[0-9]v)", "on")["lowest"] == 0.02
    assert ipmi.select(readings, "ocp", "on")["failed"] == "yes"
    assert ipmi.select(readings, "raid|hba", "on") == {"failed": "no"}
    assert ipmi.select(readings, "pump", "on") == {}
    assert ipmi.parse("") == []


def test_ten_thousand_sensors() -> None:
    readings = ipmi.parse("".join(f"Fan{number},{number},RPM,ok\n" for number in range(10_000)))
    assert ipmi.select(readings, "fan", "on") == {"highest": 9999, "lowest": 0, "count": 10_000}


RECORDS = [
    "6,1,1000000,-;eth0: link up\n",
    "3,2,5000000,-;Out of memory: Killed process 17 (python)\n SUBSYSTEM=x\n",
    "3,3,6000000,-,caller=T1;Out of memory: Killed process 18 (python)",
    "garbage",
    "3,x,y,-;Out of memory",
]


def test_messages_since() -> None:
    assert kernel_log.count(RECORDS, "Out of memory", 0) == {
        "matches": 2,
        "last": "Out of memory: Killed process 18 (python)",
    }
    assert kernel_log.count(RECORDS, "Out of memory", 5_500_000)["matches"] == 1
    assert kernel_log.count(RECORDS, "Out of memory", 7_000_000) == {"matches": 0}
    assert kernel_log.count(RECORDS, "SUBSYSTEM", 0) == {"matches": 0}


def test_a_senseless_pattern_is_an_error_also_where_the_log_of_the_kernel_has_nothing() -> None:
    """It was "no match": the element was clear."""
    with pytest.raises(re.error):
        kernel_log.count([], "(", 0)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.0.7", ("10.1.0.7", 623)),
        ("bmc7:6230", ("bmc7", 6230)),
        ("fd00::7", ("fd00::7", 623)),
        ("[fd00::7]", ("fd00::7", 623)),
        ("[fd00::7]:1", ("fd00::7", 1)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert host_and_port(address, 623) == expected


@pytest.mark.parametrize("address", ["", ":1", "x:", "x:y", "[]:1"])
def test_no_address(address: str) -> None:
    with pytest.raises(NoAnswer, match="is no address"):
        host_and_port(address, 623)


def test_once() -> None:
    once, calls = Once(), []

    def fail() -> None:
        calls.append(1)
        raise NoAnswer("dead", silent=True)

    for _ in range(3):
        with pytest.raises(NoAnswer, match="dead"):
            once("a", fail)
    assert once("b", lambda: calls.append(1) or 7) == once("b", lambda: 8) == 7
    assert len(calls) == 2


def test_explain_goes_all_the_way() -> None:
    models = load()
    found = explain(models, "process")
    assert found["fault"] == "process.gone"
    assert found["causes"]["power.off"]["cpu.temperature"]["fan.speed"] == {"power.supply": {}}
    assert "process.gone" in explain(models, "fan.speed")["effects"]["cpu.temperature"]["power.off"]
    assert "interface.shut" in explain(models, "process.gone")["hidden_by"]
    hints = {"cable": "did you mean cable.dark-at-i", "fan.sped": "did you mean fan.speed", "x": "see --list"}
    for fault, hint in hints.items():
        with pytest.raises(NoSuchFault, match=hint):
            explain(models, fault)


def test_every_fault_has_a_text_a_source_and_an_error() -> None:
    for row in listing(load()):
        assert row["text"] and row["errors"] and row["handlers"] and row["source"], row

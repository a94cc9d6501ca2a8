"""The record of a fault for other tools: a condition for each host, an event for what is at none."""

from __future__ import annotations

from typing import Any

from ckpt.controller.faults.record import is_back, statuses

TIME = "2026-11-26T10:00:00Z"
NOTHING: dict[str, Any] = {"text": "x", "hosts": [], "between": [], "faults": []}
CABLE = {"id": "cable.dark-at-port@n3:eth0-sw1:3", "fault": "cable.dark-at-port"}


def test_a_host_at_fault_is_a_condition_and_is_over_when_it_is_back() -> None:
    [line] = statuses({**NOTHING, "hosts": ["n3"], "faults": [CABLE]}, TIME)
    condition = {
        "type": "NetworkFault",
        "status": "True",
        "transition": TIME,
        "reason": "CableDarkAtPort",
        "message": "x",
    }
    assert line == {"node": "n3", "source": "ckpt", "events": [], "conditions": [condition]}
    [over] = is_back("n3", TIME)["conditions"]
    assert (over["type"], over["status"], over["reason"]) == ("NetworkFault", "False", "NoNetworkFault")


def test_witnesses_alone_and_several_hosts() -> None:
    lines = statuses({**NOTHING, "hosts": ["n3", "n4"]}, TIME)
    assert [line["node"] for line in lines] == ["n3", "n4"]
    assert {line["conditions"][0]["reason"] for line in lines} == {"HostNotReached"}


def test_what_is_at_no_host_is_an_event_and_nothing_is_nothing() -> None:
    [line] = statuses({**NOTHING, "faults": [{"fault": "trunk.dark"}]}, TIME)
    assert line["node"] is None and line["conditions"] == []
    assert line["events"][0]["reason"] == "TrunkDark"
    assert len(statuses({**NOTHING, "between": ["n2", "n3"]}, TIME)) == 1
    assert statuses(NOTHING, TIME) == []

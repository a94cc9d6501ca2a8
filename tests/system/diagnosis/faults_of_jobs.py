"""Every kind of fault, done to a plant on which a job of eight ranks runs, and what is said of it: in the job, and by hand.

    Case.do        how it is done. `there`: the host that n1 asks about
    by_hand        the components that `ckpt diagnose n1 n3` names
    in_job         those that the job names by itself; None: no rank gets an error of the network, and nothing is asked

`world` does one or several, at random times, and returns what was said, after how long.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.system import apps
from tests.system.diagnosis.cluster import PORT
from tests.system.diagnosis.plant import Plant
from tests.system.support import Job, write_app

STEPS = 400
_QUIET_S = 6.0
_TIMES = 8
_SAYING = ("link-down", "fault-located", "host-lost", "host-left-out")


@dataclass(frozen=True)
class Case:
    do: Callable[[Plant], None]
    by_hand: frozenset[str]
    in_job: frozenset[str] | None
    hosts: frozenset[str] = frozenset({"n3"})
    """At fault, in the job; one of them, if there are two."""
    there: str = "n3"
    error: str = "ETIMEDOUT"
    witnesses: str = ""
    """What is in the text besides, where no component can be named."""
    seen: frozenset[str] = frozenset()
    """Components that may be suspected, where none can be named."""


def _case(do: Callable[[Plant], None], by_hand: str, in_job: str | None = "=", **more: Any) -> Case:
    """Components in texts, with blanks. In the job: those by hand, if nothing else is given."""
    named = frozenset(by_hand.split())
    return Case(
        do, named, None if in_job is None else named if in_job == "=" else frozenset(in_job.split()), **more
    )


def _both_filters(plant: Plant) -> None:
    plant.cluster.filter("n1", "n3")
    plant.cluster.filter("n3", "n1")


def _switch_off(plant: Plant) -> None:
    plant.power_off_switch("sw2")


def _small_packets(plant: Plant) -> None:
    plant.cluster.on("n3", "link", "set", "eth0", "mtu", "1000")


def _kill_a_rank(plant: Plant) -> None:
    for rank in plant.cluster.ranks_on("n3")[:1]:  # none: the fault before has ended them
        os.kill(rank, signal.SIGKILL)


NOBODY: frozenset[str] = frozenset()
ALONE, BEYOND = "host n3 is not reached by n1, n2, n4", "it is switch sw2, or trunk sw1 sw2"
CASES: dict[str, Case] = {
    "cable of the peer": _case(lambda p: p.cluster.pull("c3"), "cable@n3:eth0-sw2:port3"),
    "own cable": _case(lambda p: p.cluster.pull("c1"), "cable@n1:eth0-sw1:port1", hosts=frozenset({"n1"})),
    "interface shut": _case(lambda p: p.cluster.shut("n3", "eth0", "c3", "b"), "interface@n3:eth0"),
    "port shut": _case(lambda p: p.cluster.shut("sw2", "port3", "c3", "a"), "port@sw2:port3"),
    "switch off": _case(_switch_off, "", hosts=NOBODY, witnesses=BEYOND, seen=frozenset({"switch@sw2"})),
    "trunk cut": _case(lambda p: p.cluster.pull("t0"), "trunk@sw1:up0-sw2:down0", hosts=NOBODY),
    "address gone": _case(lambda p: p.cluster.on("n3", "addr", "flush", "dev", "eth0"), "interface@n3:eth0"),
    "route gone": _case(lambda p: p.cluster.on("n3", "route", "flush", "dev", "eth0"), "route@n3"),
    "filter, one way": _case(lambda p: p.cluster.filter("n3", "n1"), "filter@n3"),
    "filter, both ways": _case(_both_filters, "filter@n1 filter@n3", hosts=frozenset({"n1", "n3"})),
    "MTU": _case(_small_packets, "mtu@n3:eth0", None),
    "process killed": _case(_kill_a_rank, "process@n3", None, error="ECONNREFUSED"),
    "host hung": _case(lambda p: p.hang("n3"), "", witnesses=ALONE, seen=frozenset({"neighbour@n3"})),
    "host powered off": _case(lambda p: p.power_off("n3"), "power@n3"),
    "fan, heat, power (IPMI)": _case(lambda p: p.cook("n4"), "fan@n4", there="n4", hosts=frozenset({"n4"})),
    "fan, heat, power (Redfish)": _case(lambda p: p.cook("n3"), "fan@n3"),
    "memory (ECC)": _case(lambda p: p.fail("n3", "memory"), "memory@n3", None),
    "disk": _case(lambda p: p.fail("n3", "disk"), "disk@n3", None),
    "power supply": _case(lambda p: p.fail("n3", "supply"), "power@n3", None),
    "agent of SNMP dead": _case(lambda p: p.agents["sw2"].end(), "", None),
    "controller (BMC) dead": _case(lambda p: p.stop_controller("n3"), "", None),
    "lldpd dead": _case(lambda p: p.daemons["n3"].end(), "", None),
    "file system hangs": _case(lambda p: p.files.stop(), "file-system@n3", None),
    "sshd gone": _case(lambda p: p.remote_shell.end(), "remote-shell@n3", None),
}  # fmt: skip


def components(found: dict[str, Any], key: str = "faults") -> set[str]:
    return {row["component"] for row in found[key]}


def started(plant: Plant, folder: Path) -> Job:
    """A job of eight ranks under load, which has checkpoints."""
    job = plant.job(folder / "job", write_app(folder, apps.RING, "ring.py"), STEPS, 0.003)
    job.wait_event("topology-kept")
    job.wait_event("committed", 2)
    return job


def world(plant: Plant, folder: Path, cases: Sequence[str], random: Random) -> dict[str, Any]:
    """Do it, one after the other at random times. `located`: the first event of the job, None if none is to come;
    `error_s` and `answer_s`: from the fault to the error, and from there to the answer; `by_hand`: what is said then."""
    job = started(plant, folder)
    try:
        time.sleep(random.random() * 2)
        began = time.time()
        for number, case in enumerate(cases):
            time.sleep(random.random() * 0.5 if number else 0)
            CASES[case].do(plant)
        located, found = None, {"cases": list(cases), "error_s": None, "answer_s": None}
        if any(CASES[case].in_job is not None for case in cases):
            located = job.wait_event("fault-located")
            errors = [_seconds(each) for each in job.events() if each["event"] in ("link-down", "host-lost")]
            found["error_s"] = round(min(errors) - began, 2)
            found["answer_s"] = round(_seconds(located) - min(errors), 2)
        else:
            time.sleep(_QUIET_S)  # if something were to be said, it would be by then
        there = next((CASES[case].there for case in cases if CASES[case].there != "n3"), "n3")
        error = CASES[cases[0]].error if len(cases) == 1 else "ETIMEDOUT"
        said = _by_hand(plant, there, error, cases)
        events = [each["event"] for each in job.events() if each["event"] in _SAYING]
        return {**found, "located": located, "by_hand": said, "events": events, "left_out": _left_out(job)}
    finally:
        job.close()


def _by_hand(plant: Plant, there: str, error: str, cases: Sequence[str]) -> dict[str, Any]:
    """What `ckpt diagnose` says, when all that was done is named, or it has been asked often enough; no answer is wrong."""
    words = ["n1", there, "--error", error, "--topology", plant.topology(), "--age", 10]
    if "process killed" in cases:  # nobody listens there, in any case
        words += ["--port", PORT]
    expected = {component for case in cases for component in CASES[case].by_hand}
    for _ in range(_TIMES):  # within five seconds, which a busy machine may not do
        _, said = plant.diagnose(*words)
        assert components(said) <= expected, (cases, said)
        if components(said) == expected:
            break
    return said


def _left_out(job: Job) -> set[str]:
    return {str(each["host"]) for each in job.events("host-left-out")}


def draw(number: int, folder: Path) -> dict[str, int]:
    """The world of this number: two faults, at random times. What is named was done, what is suspected leads there.
    Returns what became of it, for the ledger."""
    random = Random(number)
    chosen = random.sample(sorted(CASES), 2)
    plant = Plant(folder)
    try:
        plant.start()
        found = world(plant, folder, chosen, random)
    finally:
        plant.end()
    done = {component for case in chosen for component in (*CASES[case].by_hand, *CASES[case].seen)}
    hit = {host for case in chosen for host in CASES[case].hosts}
    what = (number, chosen, found)
    named: set[str] = set()
    for said in (found["located"], found["by_hand"]):
        if said is None:
            continue
        for fault in said["faults"]:  # what may have caused it and did not answer is said with it
            possible = {_component(each) for each in (fault["id"], *fault["perhaps"])}
            assert possible & done, what
        named |= components(said)
        for suspect in said["suspects"]:
            possible = {_component(each) for each in (suspect["id"], *suspect["instead"])}
            assert possible & done, what
    if found["located"] is not None:
        assert {*found["located"]["hosts"]} <= hit, what
    assert found["left_out"] <= hit, what
    said_of = {component for case in chosen for component in CASES[case].by_hand}
    became = "all named" if named >= said_of else "some named" if named else "none named"
    times = [_within("error", found["error_s"], 3.0, 10.0), _within("answer", found["answer_s"], 1.5, 5.0)]
    return {"faults": 2, f"{became}, of {len(said_of)}": 1, **{each: 1 for each in times if each}}


def _within(what: str, taken_s: float | None, wanted_s: float, worst_s: float) -> str:
    """The figure that counts this time; "": there is none."""
    if taken_s is None:
        return ""
    limit = next((limit for limit in (wanted_s, worst_s) if taken_s <= limit), None)
    return f"{what} within {limit:g} s" if limit else f"{what} later than {worst_s:g} s"


def _component(name: str) -> str:
    """`cable.dark-at-port@n3:eth0-sw2:port3` → `cable@n3:eth0-sw2:port3`."""
    fault, _, place = name.partition("@")
    return f"{fault.partition('.')[0]}@{place}"


def _seconds(event: dict[str, Any]) -> float:
    from datetime import datetime

    return datetime.fromisoformat(str(event["t"])).timestamp()

"""A diagnosis in its own process: the answer is logged, and whatever becomes of that process, the job goes on."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.faults.link_failures import LeaveOut
from ckpt.controller.faults.locator import FaultLocator, FaultOptions

S = 1_000_000_000
T = time.monotonic_ns()


class Hosts:
    """Three hosts with two slots each."""

    def __init__(self) -> None:
        self.surveys: list[int] = []
        self.left_out: list[str] = []

    def survey(self, number: int, limit_s: float, lost: Collection[str]) -> Mapping[str, Sequence[str]]:
        self.surveys.append(number)
        return {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]}

    def leave_out(self, name: str, reason: str) -> None:
        self.left_out.append(name)

    def slots_without(self, name: str) -> int:
        return 4

    def addresses(self) -> Mapping[str, str]:
        return {"a": "10.87.0.1", "b": "10.87.0.2", "c": "10.87.0.3"}

    def own(self) -> str | None:
        return "a"


class Bench:
    def __init__(self, directory: Path) -> None:
        self.hosts = Hosts()
        self.selector = selectors.DefaultSelector()
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.said: list[str] = []
        options = FaultOptions(self.hosts, None, True, str(directory / "diagnosis.log"), 5 * S)
        self.locator = FaultLocator(
            options, self.selector, lambda name, fields: self.log.append((name, fields)), self.said.append
        )
        for rank, host in enumerate("aabbcc"):
            started = {"e": "started", "rank": rank, "incarnation": 0, "host": host}
            self.locator.agent_event(started, T)

    def lose(self) -> None:
        """b is lost: a and c say so."""
        packet = {"m": "event", "event": "link-down", "peer": 2, "kind": "silent", "silent_ns": 2 * S}
        self.locator.packet(0, 0, packet, T + 3 * S)
        for host in "ac":
            event = {"e": "surveyed", "host": host, "number": 1, "failed": {"b": None}}
            self.locator.agent_event(event, T + 4 * S)

    def wait(self) -> None:
        until = time.monotonic() + 60
        while not self.log:
            assert time.monotonic() < until
            for key, _ in self.selector.select(1):
                key.data()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Bench(tmp_path)


def test_the_answer_is_logged_and_the_host_goes_when_the_time_has_come(bench: Bench) -> None:
    bench.lose()
    bench.wait()
    [(name, fields)] = bench.log
    assert name == "fault-located"
    assert fields["hosts"] == ["b"]
    assert fields["lost"][0]["there"] == "b"
    assert bench.said == ["fault located: host b is not reached by a, c, which reach each other"]
    assert bench.hosts.left_out == []
    due_ns = bench.locator.deadline_ns()
    assert due_ns == T + 6 * S
    bench.locator.tick(T + 6 * S)
    assert bench.hosts.left_out == ["b"]
    assert bench.hosts.surveys == [1]


def test_a_process_that_is_killed_is_an_unknown_fault(bench: Bench) -> None:
    packet = {"m": "event", "event": "link-down", "peer": 2, "kind": "silent", "silent_ns": 2 * S}
    bench.locator.packet(0, 0, packet, T + 3 * S)
    assert bench.locator._child is not None
    child = bench.locator._child.process
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    bench.locator.tick(T + 9 * S)
    bench.wait()
    assert "unknown fault: the diagnosis failed, see " in bench.log[0][1]["text"]
    assert bench.hosts.left_out == []


def test_a_process_that_does_not_end_is_ended(bench: Bench) -> None:
    packet = {"m": "event", "event": "link-down", "peer": 2, "kind": "silent", "silent_ns": 2 * S}
    bench.locator.packet(0, 0, packet, T + 3 * S)
    assert bench.locator._child is not None
    child = bench.locator._child.process
    os.kill(child.pid, signal.SIGSTOP)
    bench.locator.tick(T + 5 * S)
    assert bench.locator.deadline_ns() == T + 8 * S, "five seconds after the first error"
    bench.locator.tick(T + 8 * S)
    assert bench.log[0][1]["text"] == "unknown fault: devices have not answered within 5 s"
    assert child.poll() is not None


def test_what_hosts_have_said_is_the_answer_where_nothing_else_comes(bench: Bench, tmp_path: Path) -> None:
    """The user's topology lies in a file system that hangs (a FIFO that nobody writes), and then the process is stopped."""
    (tmp_path / "ckpt").mkdir()
    os.mkfifo(tmp_path / "ckpt" / "topology.toml")
    now_ns = time.monotonic_ns()
    packet = {"m": "event", "event": "link-down", "peer": 2, "kind": "silent", "silent_ns": 2 * S}
    bench.locator.packet(0, 0, packet, now_ns)
    for host in "ac":
        event = {"e": "surveyed", "host": host, "number": 1, "failed": {"b": None}}
        bench.locator.agent_event(event, now_ns + S)
    child = bench.locator._child
    assert child is not None
    while b"more" not in child._said:
        assert child.process.poll() is None and bench.log == []
        for key, _ in bench.selector.select(1):
            key.data()
    os.kill(child.process.pid, signal.SIGSTOP)
    assert bench.locator.deadline_ns() == now_ns + 5 * S
    bench.locator.tick(now_ns + 5 * S)
    [(_, fields)] = bench.log
    assert fields["hosts"] == ["b"] and fields["reason"] == "devices have not answered within 5 s"
    assert fields["text"] == "host b is not reached by a, c, which reach each other"
    assert child.process.poll() is not None


@pytest.mark.rotate(2)
def test_files_that_hang_are_not_waited_for(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    os.mkfifo(tmp_path / "ckpt" / "topology.toml")
    now_ns = time.monotonic_ns()
    packet = {"m": "event", "event": "link-down", "peer": 2, "kind": "silent", "silent_ns": 2 * S}
    bench.locator.packet(0, 0, packet, now_ns - S)
    for host in "ac":
        event = {"e": "surveyed", "host": host, "number": 1, "failed": {"b": None}}
        bench.locator.agent_event(event, now_ns)
    bench.wait()
    [(_, fields)] = bench.log
    assert fields["hosts"] == ["b"] and "could not be read in time" in fields["reason"]


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(
    not os.access(FREEZER, os.W_OK) or not (FREEZER / "tasks").exists(),
    reason="needs the freezer of cgroups v1",
)
def test_a_process_that_cannot_be_killed_does_not_hold_up_the_controller(bench: Bench) -> None:
    """It hangs in the kernel, as one does whose file system is dead: SIGKILL ends it when that is over."""
    packet = {"m": "event", "event": "link-down", "peer": 2, "kind": "silent", "silent_ns": 2 * S}
    bench.locator.packet(0, 0, packet, T + 3 * S)
    assert bench.locator._child is not None
    child = bench.locator._child.process
    group = FREEZER / f"ckpt-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "tasks").write_text(str(child.pid))
        (group / "freezer.state").write_text("FROZEN")
        bench.locator.tick(T + 5 * S)
        bench.locator.tick(T + 8 * S)
        assert "unknown fault: devices have not answered within 5 s" in bench.log[0][1]["text"]
        assert child.returncode is None, "it is there still"
    finally:
        (group / "freezer.state").write_text("THAWED")
        child.wait(60)
        group.rmdir()


def test_a_disk_that_takes_no_log_costs_the_answer_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path / "not there")
    bench.lose()
    assert bench.log[0][1]["text"] == "unknown fault: the diagnosis could not be started"
    assert "could not be started: " in bench.said[0]


def test_a_restart_ends_what_was_begun(bench: Bench) -> None:
    packet = {"m": "event", "event": "link-down", "peer": 2, "kind": "refused", "silent_ns": S}
    bench.locator.packet(0, 0, packet, T + 3 * S)
    assert bench.locator._child is not None
    child = bench.locator._child.process
    bench.locator.agent_event({"e": "started", "rank": 0, "incarnation": 1, "host": "a"}, T + 3 * S)
    assert child.poll() is not None
    bench.locator.tick(T + 9 * S)
    assert bench.log == []


def test_what_is_found_is_kept_for_the_ranks_of_the_host(bench: Bench) -> None:
    """Until something else is found: what was said before is over then, but for hosts that are given up."""
    bench.lose()
    bench.wait()
    found = bench.locator.diagnosis_of("b")
    assert found is not None and found["hosts"] == ["b"] and found["text"] == bench.log[0][1]["text"]
    assert bench.locator.diagnosis_of("a") is None
    bench.locator._conclude({"text": "unknown fault: nothing", "hosts": []}, T + 20 * S)
    assert bench.locator.diagnosis_of("b") is None


def test_a_fault_is_recorded_for_other_tools_and_so_is_its_end(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    log_path = str(tmp_path / "diagnosis.log")
    bench.locator._options = FaultOptions(bench.hosts, None, True, log_path, 5 * S, record_path=str(path))
    bench.lose()
    bench.wait()
    for _ in range(2):
        back = {"e": "note", "event": "host-back", "fields": {"host": "b"}}
        bench.locator.agent_event(back, T + 5 * S)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["node"], line["conditions"][0]["status"]) for line in found] == [
        ("b", "True"),
        ("b", "False"),
    ]
    path.unlink()
    path.mkdir()
    bench.locator._conclude({"text": "x", "hosts": ["b"]}, T + 20 * S)
    assert bench.said[-1].startswith(f"the record of the fault is not written: {path}: ")


def test_a_slurm_that_refuses_or_is_not_there_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Without the file the command would look for it in the network, for a minute
    (tmp_path / "slurm.conf").write_text("")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    bench.locator._options = FaultOptions(bench.hosts, None, False, "", 0, drains=True)
    bench.locator._leave_out(LeaveOut(("a", "b"), "of two none"))
    assert bench.locator._draining == {}
    bench.locator._leave_out(LeaveOut(("b",), "the cable"))
    bench.wait()
    [(name, fields)] = bench.log
    assert (name, fields["host"], fields["fault"]) == ("host-drained", "b", "the cable")
    assert fields["reason"]
    assert bench.said == [f"host b is not drained in Slurm: {fields['reason']}"]
    assert bench.hosts.left_out == []


def test_ranks_that_are_not_started_elsewhere_need_no_room_there(bench: Bench) -> None:
    room = bench.locator._room_without
    assert room("b") == 4
    bench.locator._options = FaultOptions(bench.hosts, None, True, "", 0, tolerant=True)
    assert room("b") == 6, "for all ranks"

"""The topology of a job: who asks for LLDP is asked about once, in a process of its own, and what it says is kept."""

from __future__ import annotations

import json
import os
import selectors
import signal
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.faults.topology import JobTopology
from tests.unit.controller.faults.asked import answer

S = 1_000_000_000
FILE = """\
lldp = true
[host.h1]
address = "10.0.0.1"
interface = "eth0"
switch = "sw1"
port = "p1"
[host.h2]
address = "10.0.0.2"
interface = "eth0"
[switch.sw1]
"""


class Bench:
    def __init__(self, folder: Path, text: str | None) -> None:
        self.given = folder / "given.toml"
        if text is not None:
            self.given.write_text(text)
        self.folder = folder
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.said: list[str] = []
        self.selector = selectors.DefaultSelector()

    def begin(self) -> JobTopology:
        return JobTopology(
            str(self.given),
            str(self.folder),
            selector=self.selector,
            log=lambda name, fields: self.log.append((name, fields)),
            say=self.said.append,
        )

    def wait(self) -> dict[str, Any]:
        return answer(self.selector, self.log, "topology-kept")


def test_it_is_asked_once_for_a_file_and_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FILE)
    topology = bench.begin()
    assert topology.path == str(bench.given)
    assert topology.deadline_ns() is not None
    fields = bench.wait()
    assert fields["reason"] is None
    assert fields["path"] == topology.path != str(bench.given)
    kept = json.loads(Path(str(topology.path)).read_text())
    assert kept["doubtful"] == {
        "h2": "where the cable of host h2 (eth0) ends is not known: LLDP did not say it"
    }
    assert os.stat(str(topology.path)).st_mode & 0o077 == 0
    assert topology.deadline_ns() is None

    again = bench.begin()  # the job goes on elsewhere
    assert again.deadline_ns() is None
    assert again.path == topology.path

    bench.given.write_text(FILE + "# changed\n")
    changed = bench.begin()
    assert changed.deadline_ns() is not None
    changed.close()
    assert changed.path == str(bench.given)


@pytest.mark.parametrize("text", [FILE.replace("lldp = true", ""), "lldp = [", "lldp = 1\n", None])
def test_a_file_that_does_not_ask_for_it_costs_nothing(text: str | None, tmp_path: Path) -> None:
    bench = Bench(tmp_path, text)
    topology = bench.begin()
    assert topology.deadline_ns() is None
    assert topology.path == str(bench.given)
    assert bench.log == []


def test_a_file_that_is_wrong_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FILE + "[switch.sw2]\nports = 3\n")
    bench.begin()
    assert "switch.sw2.ports" in bench.wait()["reason"]
    assert bench.said[0].startswith("topology: LLDP was not asked, or what it says is not kept: ")


def test_a_process_that_is_killed_is_said_and_the_file_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FILE)
    topology = bench.begin()
    assert topology._child is not None
    os.kill(topology._child.process.pid, signal.SIGKILL)
    assert bench.wait()["reason"] == "the process that asks has failed"
    assert topology.path == str(bench.given)


def test_a_process_that_does_not_end_is_ended(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FILE)
    topology = bench.begin()
    assert topology._child is not None
    child = topology._child.process
    os.kill(child.pid, signal.SIGSTOP)
    due_ns = topology.deadline_ns()
    assert due_ns is not None
    topology.tick(due_ns)
    assert bench.wait()["reason"] == "no answer within 30 s"
    assert child.returncode == -signal.SIGKILL


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FILE)
    topology = bench.begin()
    os.mkdir(topology._kept)
    fields = bench.wait()
    assert ".json" in fields["reason"] and fields["path"] is None
    assert topology.path == str(bench.given)

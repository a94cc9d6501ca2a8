"""Counters at the start of a job: read once for a topology that asks for it, and kept."""

from __future__ import annotations

import json
import os
import selectors
import signal
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.faults.baseline import JobBaseline
from tests.unit.controller.faults.asked import answer

FILE = """\
counters = true
[host.h1]
address = "10.0.0.1"
interface = "lo"
shell = ["env"]
[host.h2]
address = "10.0.0.2"
interface = "lo"
"""


class Bench:
    def __init__(self, folder: Path, text: str) -> None:
        self.given = folder / "given.toml"
        self.given.write_text(text)
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.selector = selectors.DefaultSelector()
        self.folder = folder

    def begin(self) -> JobBaseline:
        found = JobBaseline(
            str(self.folder), self.selector, lambda name, fields: self.log.append((name, fields))
        )
        found.begin(str(self.given))
        return found

    def wait(self) -> dict[str, Any]:
        return answer(self.selector, self.log, "counters-kept")


def test_they_are_read_once_and_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FILE)
    baseline = bench.begin()
    assert baseline.path is None and baseline.deadline_ns() is not None
    fields = bench.wait()
    assert fields["reason"] is None and fields["path"] == baseline.path
    kept = json.loads(Path(str(baseline.path)).read_text())
    [(question, values)] = kept.items()
    assert question == 'h1 netlink {"device": "lo"}'
    assert {"rx_packets", "rx_errors", "tx_dropped", "carrier_changes"} <= values.keys()
    again = bench.begin()
    assert again.path == baseline.path and again.deadline_ns() is None


@pytest.mark.parametrize("text", [FILE.replace("counters = true", ""), "counters = [", "counters = 1"])
def test_a_topology_that_does_not_ask_for_it_costs_nothing(text: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path, text)
    baseline = bench.begin()
    assert baseline.deadline_ns() is None and baseline.path is None and bench.log == []


def test_a_process_that_is_killed_and_one_that_does_not_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FILE)
    baseline = bench.begin()
    assert baseline._child is not None
    os.kill(baseline._child.process.pid, signal.SIGKILL)
    assert bench.wait()["reason"] == "the process that reads them has failed"
    bench.log.clear()
    baseline = bench.begin()
    assert baseline._child is not None
    os.kill(baseline._child.process.pid, signal.SIGSTOP)
    due_ns = baseline.deadline_ns()
    assert due_ns is not None
    baseline.tick(due_ns)
    assert bench.wait()["reason"] == "no answer within 600 s"
    assert baseline.path is None


def test_a_wrong_file_and_a_full_disk_are_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FILE + "[switch.sw1]\nports = 1\n")
    bench.begin()
    assert "switch.sw1.ports" in bench.wait()["reason"]
    bench = Bench(tmp_path, FILE)
    baseline = bench.begin()
    os.mkdir(str(baseline._kept))
    assert "counters-" in bench.wait()["reason"]

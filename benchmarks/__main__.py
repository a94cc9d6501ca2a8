"""Runs every benchmark in turn and ends with one table: figure, measured, goal, met.

    python -m benchmarks [--quick] [--only NAME …] [--json FILE]

Each benchmark is a process of its own (`python -m benchmarks.NAME`), so that none inherits another's memory, sockets or
threads, and none runs beside another. Exit status 1 when a goal is missed or a benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.spine_jobs import ROOT


@dataclass(frozen=True)
class Suite:
    """A benchmark's module, and its options when it has to be quick."""

    module: str
    quick: tuple[str, ...]
    has_json: bool = True


SUITES = (
    Suite("transport_pair", ("--rounds", "1")),
    Suite("transport_port", ("--samples", "50")),
    Suite("transport_curve", ("--rounds", "1")),
    Suite("mpi_comm", ("--rounds", "1")),
    Suite("windows", ("--quick",)),
    Suite("reduction", ("--quick",)),
    Suite("peers", ("--quick",)),
    Suite("store_image", ("--rounds", "1", "--quick")),
    Suite("image_objects", ("--rounds", "1", "--quick")),
    Suite("image_peers", ("--rounds", "1", "--quick")),
    Suite("refusals", ("--quick",)),
    Suite("spine_pause", ("--quick",)),
    Suite("spine_commit", ("--quick",)),
    Suite("spine_recovery", ("--quick",)),
    Suite("spine_start", ("--quick",)),
    Suite("fault_peers", ("--quick",)),
    Suite("diagnosis_cost", ("--quick",)),
    Suite("hosts_cost", ("--quick",)),
    Suite("files", ("--quick",)),
    Suite("overhead", ("--quick",)),
    Suite("overhead_refused", ("--quick",)),
    Suite("spine_overhead", ("--quick",)),
    Suite("abft", ("--quick",)),
    Suite("abft_peers", ("--quick",)),
    Suite("abft_products", ("--quick",)),
)

# What the benchmarks without figures of their own print: a limit of `common.gate`, a goal of `store_image`.
_GATE = re.compile(r"^  (?:reached|MISSED ): (.*): ([\d.]+)x, to be (at least|at most) ([\d.]+)x$")
_TITLE = re.compile(r"^(\S.*?) \(")
_GOAL = re.compile(r"^(.*?) \(goal (< ?)?([\d.]+)\)\s+([\d.]+)")


@dataclass
class Result:
    """What one benchmark has found. `goals`: {name, measured, unit, goal, at_least, met}."""

    suite: str
    exit_code: int = 0
    goals: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)


def run(suite: Suite, quick: bool) -> Result:
    """Run one, its output passed through."""
    result = Result(suite.module)
    print(f"\n=== {suite.module}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"benchmarks.{suite.module}", *(suite.quick if quick else ())]
        command += ["--json", str(path)] if suite.has_json else []
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace")
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
        result.exit_code = process.wait()
        if path.exists():
            result.rows = json.loads(path.read_text())
    result.goals = [*printed_goals(lines), *figure_goals(result.rows)]
    result.skipped = [f"{row['name']}: {row['skipped']}" for row in result.rows if "skipped" in row]
    return result


def figure_goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `spine_jobs.Figure` that have a goal."""
    names = ("name", "unit", "goal", "at_least", "met")
    found = [row for row in rows if row.get("goal") is not None]
    return [{**{name: row[name] for name in names}, "measured": row["median"]} for row in found]


def printed_goals(lines: list[str]) -> list[dict[str, Any]]:
    """The limits that a benchmark has only printed, with the title they stand under."""
    found, title = [], ""
    for line in lines:
        if heading := _TITLE.match(line):
            title = heading[1]
        if gate := _GATE.match(line):
            value, goal, at_least = float(gate[2]), float(gate[4]), gate[3] == "at least"
            found.append(_goal(f"{title}: {gate[1]}", value, goal, "x", at_least))
        elif goal_line := _GOAL.match(line):
            value, goal, at_least = float(goal_line[4]), float(goal_line[3]), not goal_line[2]
            found.append(_goal(goal_line[1], value, goal, "", at_least))
    return found


def _goal(name: str, measured: float, goal: float, unit: str, at_least: bool) -> dict[str, Any]:
    met = measured >= goal if at_least else measured <= goal
    return {
        "name": name,
        "measured": measured,
        "unit": unit,
        "goal": goal,
        "at_least": at_least,
        "met": met,
    }


def summary(results: list[Result]) -> bool:
    """Print the table; whether everything is as it should be."""
    print(f"\n{'figure':74s} {'measured':>12s}  {'goal':>9s}")
    good = True
    for result in results:
        for goal in result.goals:
            sign = "≥" if goal["at_least"] else "≤"
            name = f"{result.suite}: {goal['name']}"
            met = "reached" if goal["met"] else "MISSED"
            print(f"{name:74s} {goal['measured']:9.4g} {goal['unit']:2s}  {sign} {goal['goal']:<8g} {met}")
            good &= bool(goal["met"])
        for reason in result.skipped:
            print(f"{result.suite}: skipped: {reason}")
        if result.exit_code and not any(goal["met"] is False for goal in result.goals):
            print(f"{result.suite}: FAILED with exit status {result.exit_code}")
            good = False
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, small sizes: to see that it works")
    names = [suite.module for suite in SUITES]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    options = parser.parse_args()
    chosen = [suite for suite in SUITES if options.only is None or suite.module in options.only]
    results = [run(suite, options.quick) for suite in chosen]
    good = summary(results)
    if options.json:
        Path(options.json).write_text(json.dumps([vars(result) for result in results], indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

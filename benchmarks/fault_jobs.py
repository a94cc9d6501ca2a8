"""Faults of a real network, done to jobs of eight ranks: what a job says, after how long, and what is said by hand.

    python -m benchmarks.fault_jobs [--quick] [--only CASE …] [--json FILE]      as root

to error      from the fault until a rank has said that a link is down, or a host was given up
to answer     from there to `fault-located`
by hand       `ckpt diagnose n1 n3`, afterwards, with how long it took

Four hosts on two switches, with all that can be asked: tests/system/diagnosis/plant.py. Where no rank gets an error of the
network, the job is to say nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.common import write_json
from tests.system.diagnosis import devices, services
from tests.system.diagnosis.faults_of_jobs import CASES, components, world
from tests.system.diagnosis.plant import NEEDED, Plant

QUICK = ("cable of the peer", "disk")


def row(case: str, number: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        plant = Plant(Path(folder))
        try:
            plant.start()
            found = world(plant, Path(folder), [case], Random(number))
        finally:
            plant.end()
    located, by_hand = found["located"], found["by_hand"]
    return {
        "fault": case,
        "to error": found["error_s"],
        "to answer": found["answer_s"],
        "diagnosis": None if located is None else located["seconds"],
        "in the job": None if located is None else sorted(components(located)),
        "hosts": None if located is None else located["hosts"],
        "said": None if located is None else located["text"],
        "consequences": [] if located is None else sorted(components(located, "consequences")),
        "by hand": sorted(components(by_hand)),
        "by hand after": by_hand["seconds"],
        "by hand consequences": sorted(components(by_hand, "consequences")),
        "by hand suspected": sorted(components(by_hand, "suspects")),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two of the faults")
    parser.add_argument("--only", nargs="+", choices=list(CASES), metavar="CASE", default=list(CASES))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    missing = [*(each for each in NEEDED if devices.program(each) is None), *services.missing()]
    if os.geteuid() != 0 or missing:
        print(f"skipped: needs root, for network namespaces, and {', '.join(missing) or 'nothing else'}")
        return 0
    rows: list[dict[str, Any]] = []
    for number, case in enumerate(QUICK if options.quick else options.only):
        rows.append(row(case, number))
        shown = [", ".join(each) if isinstance(each, list) else str(each) for each in rows[-1].values()]
        print(f"| {' | '.join(shown)} |", flush=True)
        write_json(options.json, rows)
    for name in ("to error", "to answer", "diagnosis", "by hand after"):
        if times := [each[name] for each in rows if each[name] is not None]:
            print(f"{name}: median {statistics.median(times):.1f} s, longest {max(times):.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

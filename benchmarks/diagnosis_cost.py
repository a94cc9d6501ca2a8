"""What `ckpt diagnose` costs a job while nothing fails.

    python -m benchmarks.diagnosis_cost [--quick] [--seconds N] [--rounds N] [--json FILE]      as root

packets     on the network of management, in N seconds (3600) of a job of 8 ranks on 4 hosts, with all that a diagnosis asks:
            switches with snmpd, management controllers, shells. Counted at every machine's interface there; then a cable
            is pulled, and they are counted again: that the counters count
pairs       round trip of 8 bytes and MB/s of 1 MiB between two hosts, with `ckpt.diagnosis` installed and without it (a
            directory with everything of ckpt but this package), in turn

Hosts are network namespaces (tests/system/diagnosis/plant.py). The seconds are 20 with --quick.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import report, write_json
from tests.system.diagnosis import devices
from tests.system.diagnosis.cluster import shell
from tests.system.diagnosis.plant import NEEDED, Plant
from tests.system.support import Job

ROOT = Path(__file__).resolve().parent.parent
BEATS = """
import sys, time
import ckpt

comm = ckpt.enable()
end, n = time.time() + float(sys.argv[1]), 0
while comm.bcast(time.time() < end):
    n = comm.sendrecv(n, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size) + 1
    time.sleep(0.2)
print(n)
"""
PAIR = """
import sys, time
import ckpt

comm = ckpt.enable()
peer, big = 1 - comm.rank, bytes(1 << 20)

def trip():
    if comm.rank == 0:
        comm.send(b"8 bytes.", peer)
        comm.recv(source=peer)
    else:
        comm.recv(source=peer)
        comm.send(b"8 bytes.", peer)

def flood():
    for _ in range(100):
        if comm.rank == 0:
            comm.send(big, peer)
        else:
            comm.recv(source=peer)
    if comm.rank:
        comm.send(b"", peer)
    else:
        comm.recv(source=peer)

for _ in range(200):
    trip()
times = []
for _ in range(3000):
    began = time.perf_counter()
    trip()
    times.append(time.perf_counter() - began)
rates = []
for _ in range(3):
    began = time.perf_counter()
    flood()
    rates.append(100 * len(big) / 1e6 / (time.perf_counter() - began))
if comm.rank == 0:
    print(sorted(times)[len(times) // 2] * 1e6, sorted(rates)[1])
"""


def packets(plant: Plant) -> dict[str, int]:
    """Packets at each interface of the network of management, both ways."""
    found = {}
    for owner in plant.cluster.managed:
        words = (*shell(plant.cluster.namespace(owner)), "ip", "-s", "-j", "link", "show", "dev", "mgmt0")
        said = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)[0]
        found[owner] = said["stats64"]["rx"]["packets"] + said["stats64"]["tx"]["packets"]
    return found


def quiet(plant: Plant, seconds: float) -> list[dict[str, Any]]:
    """What was counted while the job ran, and after a cable was pulled."""
    app = plant.folder / "beats.py"
    app.write_text(BEATS)
    job: Job = plant.job(plant.folder / "job", app, seconds + 60, every=30)
    try:
        job.wait_event("committed", timeout_s=300)
        kept = job.wait_event("topology-kept", timeout_s=300)  # asked for once, at the start
        before, began = packets(plant), time.monotonic()
        asked = len(plant.asked())
        while time.monotonic() - began < seconds:
            assert job.process.poll() is None, job.report()
            time.sleep(1)
        after, spent = packets(plant), time.monotonic() - began
        shells = len(plant.asked()) - asked
        wrong = [
            each["event"]
            for each in job.events()
            if each["event"] in ("link-down", "fault-located", "host-lost")
        ]
        plant.cluster.pull("c3")
        located = job.wait_event("fault-located", timeout_s=300)
        then = packets(plant)
    finally:
        job.close()
    return [
        {
            "benchmark": "packets on the network of management",
            "seconds": round(spent),
            "packets": {owner: after[owner] - before[owner] for owner in before},
            "shells": shells,
            "named": wrong,
            "checkpoints": len(job.events("committed")),
            "topology": kept["reason"],
            "after a cable was pulled": {owner: then[owner] - after[owner] for owner in before},
            "located": located["text"],
        }
    ]


def without_the_package(folder: Path) -> Path:
    """A directory for PYTHONPATH with a `ckpt` that has everything but `diagnosis`."""
    (folder / "ckpt").mkdir()
    for each in (ROOT / "ckpt").iterdir():
        if each.name != "diagnosis":
            (folder / "ckpt" / each.name).symlink_to(each)
    return folder


def pair(plant: Plant, number: int, path: Path | None) -> tuple[float, float]:
    """Round trip (microseconds) and MB/s."""
    app = plant.folder / "pair.py"
    app.write_text(PAIR)
    env = {"PYTHONPATH": "" if path is None else str(path)}
    job: Job = plant.job(
        plant.folder / f"pair-{number}", app, ranks=2, hosts="n1:1,n3:1", env=env, every=1000
    )
    try:
        assert job.finish(300) == 0, job.report()
        trip, rate = job.output(0).split()
    finally:
        job.close()
    return float(trip), float(rate)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    missing = [each for each in NEEDED if devices.program(each) is None]
    if os.geteuid() != 0 or missing:
        print(f"skipped: needs root, for network namespaces, and {', '.join(missing) or 'nothing else'}")
        return 0
    seconds, rounds = (20.0, 1) if options.quick else (options.seconds, options.rounds)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        plant = Plant(Path(name))
        try:
            plant.start()
            if rounds:
                folder = Path(name, "without")
                folder.mkdir()
                bare = without_the_package(folder)
                found: dict[str, list[tuple[float, float]]] = {"installed": [], "not installed": []}
                for number in range(rounds):
                    for which, path in (("installed", None), ("not installed", bare)):
                        found[which].append(pair(plant, 2 * number + (path is None), path))
                for at, title, unit in ((0, "round trip of 8 bytes", "µs"), (1, "messages of 1 MiB", "MB/s")):
                    figures = {which: [each[at] for each in pairs] for which, pairs in found.items()}
                    rows += report(title, unit, figures, "not installed")
            if seconds:
                rows += quiet(plant, seconds)
                print(json.dumps(rows[-1], indent=1), flush=True)
        finally:
            plant.end()
    write_json(options.json, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

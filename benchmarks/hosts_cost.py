"""What it costs that a job is on several hosts: its leases, and tcp between ranks.

    python -m benchmarks.hosts_cost [--quick] [--seconds N] [--rounds N] [--only lease|tcp] [--json FILE]      as root

lease       two jobs at the same time, whose ranks wait: one with the lease that is usual, and one with a lease so long that
            none is renewed meanwhile. Processor time of controller and of agents (all threads, as the scheduler counts it),
            and packets at the interfaces of all hosts, both ways, in N seconds
tcp         round trip of 8 bytes between two hosts beside raw pyzmq (PAIR over tcp), in the clear and with CURVE, in turn

Hosts are network namespaces (tests/system/hosts/bed.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common import report, write_json
from tests.system.hosts.bed import Hosts
from tests.system.support import Job, write_app

USUAL_S, LONG_S = 15, 3600
WAITING = """
import ckpt
from time import sleep

comm = ckpt.enable()
comm.barrier()
print("ready", flush=True)
sleep(10_000)
"""
TRIPS = """
import sys, time
{setup}
def trip():
    if first:
        send(b"8 bytes.")
        recv()
    else:
        recv()
        send(b"8 bytes.")

for _ in range(500):
    trip()
times = []
for _ in range({count}):
    began = time.perf_counter()
    trip()
    times.append(time.perf_counter() - began)
if first:
    print(sorted(times)[len(times) // 2] * 1e6)
"""
OURS = """
import ckpt
comm = ckpt.enable()
first, peer = comm.rank == 0, 1 - comm.rank
def send(data): comm.send(data, peer)
def recv(): return comm.recv(source=peer)
"""
RAW = """
import zmq
first = sys.argv[1] == "connect"
socket = zmq.Context().socket(zmq.PAIR)
(socket.connect if first else socket.bind)("tcp://" + sys.argv[2])
send, recv = socket.send, socket.recv
"""
CURVE = """
public = zmq.curve_public(b"k" * 40)
socket.curve_publickey, socket.curve_secretkey = public, b"k" * 40
if first:
    socket.curve_serverkey = public
else:
    socket.curve_server = True
"""


@contextmanager
def bed(count: int) -> Iterator[Hosts]:
    hosts = Hosts(count)
    try:
        hosts.lay()
        yield hosts
    finally:
        hosts.remove()


def job_on(hosts: Hosts, folder: Path, app: Path, slots: str, ranks: int, lease: int, name: str) -> Job:
    words = ["--hosts", slots, "--engine-command", hosts.engine(), "--interface", hosts.network]
    return Job(folder / name, "-n", ranks, *words, "--lease", lease, "--", app, within=hosts.on("h1"))


def used_ns(hosts: Hosts) -> dict[str, int]:
    """Processor time of the processes of a job, by kind."""
    found = {"controller": 0, "agents": 0}
    for name in hosts.names:
        for pid in hosts.processes(name):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            kind = "agents" if b"agent" in words else "controller" if b"run" in words else ""
            if kind and b"ckpt" in words:
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found[kind] += int((task / "schedstat").read_text().split()[0])
    return found


def packets(hosts: Hosts) -> int:
    total = 0
    for name in hosts.names:
        words = (*hosts.on(name), "ip", "-s", "-j", "link", "show", "dev", "eth0")
        said = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)[0]
        total += said["stats64"]["rx"]["packets"] + said["stats64"]["tx"]["packets"]
    return total


def leases(seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Each round: what both jobs have used in the same seconds."""
    kinds = ("controller", "agents", "packets")
    figures: dict[str, dict[str, list[float]]] = {kind: {"usual": [], "long": []} for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, bed(3) as first, bed(3) as second:
        beds = {"usual": first, "long": second}
        app = write_app(Path(folder), WAITING)
        jobs = [
            job_on(hosts, Path(folder), app, "h2:2,h3:2", 4, USUAL_S if name == "usual" else LONG_S, name)
            for name, hosts in beds.items()
        ]
        try:
            for job in jobs:
                job.wait_for(lambda job=job: "ready" in job.output(0), "ranks wait")
            time.sleep(3)
            for _ in range(rounds):
                before = {name: {**used_ns(hosts), "packets": packets(hosts)} for name, hosts in beds.items()}
                time.sleep(seconds)
                for name, hosts in beds.items():
                    after = {**used_ns(hosts), "packets": packets(hosts)}
                    for kind in kinds:
                        scale = 1.0 if kind == "packets" else 1e-3
                        figures[kind][name].append((after[kind] - before[name][kind]) * scale / seconds)
        finally:
            for job in jobs:
                job.process.terminate()
                job.process.wait(60)
                job.close()
    rows = []
    for kind in kinds:
        unit = "packets a second" if kind == "packets" else "µs of processor a second"
        rows += report(f"lease of {USUAL_S} s, {kind}", unit, figures[kind], "long")
        extra = [a - b for a, b in zip(figures[kind]["usual"], figures[kind]["long"], strict=True)]
        print(f"  difference, each pair: {[round(each, 1) for each in extra]}", flush=True)
        rows.append({"benchmark": f"lease, {kind}", "unit": unit, "difference": statistics.median(extra)})
    return rows


def ours(hosts: Hosts, folder: Path, count: int, number: int) -> float:
    app = write_app(folder, TRIPS.format(setup=OURS, count=count), "ours.py")
    job = job_on(hosts, folder, app, "h2:1,h3:1", 2, USUAL_S, f"job-{number}")
    try:
        assert job.finish(300) == 0, job.report()
        return float(job.output(0))
    finally:
        job.close()


def raw(hosts: Hosts, folder: Path, count: int, setup: str = "") -> float:
    setup = RAW.replace("(socket.connect", f"{setup}(socket.connect")
    app = write_app(folder, TRIPS.format(setup=setup, count=count), "raw.py")
    place = f"{hosts.address('h2')}:5555"
    words = [(*hosts.on(name), sys.executable, str(app), how, place) for name, how in _ROLES]
    bound, connected = (subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in words)
    said, _ = connected.communicate(timeout=300)
    bound.communicate(timeout=60)
    return float(said)


_ROLES = (("h2", "bind"), ("h3", "connect"))


def trips(count: int, rounds: int) -> list[dict[str, Any]]:
    figures: dict[str, list[float]] = {"ours": [], "raw pyzmq, CURVE": [], "raw pyzmq": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, bed(3) as hosts:
        for number in range(rounds):
            figures["ours"].append(ours(hosts, Path(folder), count, number))
            figures["raw pyzmq, CURVE"].append(raw(hosts, Path(folder), count, CURVE))
            figures["raw pyzmq"].append(raw(hosts, Path(folder), count))
    return report("round trip of 8 bytes between hosts", "µs", figures, "raw pyzmq")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("lease", "tcp"))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: needs root, for network namespaces")
        return 0
    seconds, rounds, count = (6.0, 1, 500) if options.quick else (options.seconds, options.rounds, 4000)
    rows: list[dict[str, Any]] = []
    if options.only != "tcp":
        rows += leases(seconds, rounds)
    if options.only != "lease":
        rows += trips(count, rounds)
    write_json(options.json, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

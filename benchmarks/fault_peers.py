"""The same faults of a real network, and what each of several ways to look for them says, after how long, at what cost.

    python -m benchmarks.fault_peers [--quick] [--json FILE]      as root

node checks     what a health check of Slurm runs on each node by period (in the manner of NHC: interface up, link there,
                address there, process there); none looks between two nodes
kernel log      what node-problem-detector's rules for the kernel's log would match, on each node
pairs           two rounds of connections between pairs of nodes, in the manner of DLRover: who fails in the first round is
                paired with somebody who has not; who fails twice is faulty
ckpt            `ckpt diagnose` between the two hosts that have lost each other

All four are ours, written from what those programs do; none of their code is here. With NHC=DIR, NHC's sources (`nhc`,
`scripts`), that program itself runs on each node, too, with its check of a network device. With NPD=FILE,
rules of node-problem-detector (`config/kernel-monitor.json`), the kernel's log is searched with these.

Four hosts in network namespaces on two switches, nobody mute. All but the last need to be run when the fault is there: by
period, or before a start.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import write_json
from ckpt.diagnosis import Request, library
from ckpt.diagnosis.asking import Question, ask
from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.handlers.kernel_log import ask as kernel_log
from tests.system.diagnosis.cluster import PORT, Cluster, shell
from tests.system.diagnosis.test_namespaces import CASES

HOSTS = {"n1": "sw1", "n2": "sw1", "n3": "sw2", "n4": "sw2"}
QUICK = ("peer's cable pulled", "nothing")
_RULES = "Link is Down|NETDEV WATCHDOG|I/O error|Hardware Error|task .* blocked for more than"
_WELL = {"present": "yes", "admin": "up", "carrier": "up", "address": "present", "listening": "yes"}
_TRY_S, _LONG_S = 3.0, 20.0


def question(cluster: Cluster, host: str, handler: str, **arguments: Any) -> Question:
    shell = ("nsenter", f"--net=/run/netns/{cluster.namespace(host)}")
    return Question(host, shell, sys.executable, handler, json.dumps(arguments, sort_keys=True))


def of_nodes(cluster: Cluster) -> str:
    """All nodes at once."""
    asked = {
        host: (
            question(cluster, host, "netlink", device="eth0", address=cluster.address(host)),
            question(cluster, host, "sockets", port=PORT),
        )
        for host in HOSTS
    }
    replies = ask([each for pair in asked.values() for each in pair], Credentials(), _LONG_S)
    found = []
    for host, pair in asked.items():
        seen = {name: value for each in pair for name, value in replies[each].values.items()}
        bad = [name for name, well in _WELL.items() if seen.get(name, well) != well]
        found += [f"{host}: {' '.join(bad)}"] if bad else []
    return ", ".join(found)


def of_the_log(_: Cluster) -> str:
    pattern = _RULES
    if npd := os.environ.get("NPD"):
        pattern = "|".join(f"(?:{each['pattern']})" for each in json.loads(Path(npd).read_text())["rules"])
    return "a message" if kernel_log({"pattern": pattern, "seconds": 10}, None, 5.0)["matches"] else ""


def of_nhc(cluster: Cluster, sources: str, folder: str) -> str:
    """NHC itself, on all nodes at once."""
    settings = Path(folder, "nhc")
    settings.mkdir(exist_ok=True)
    if not (settings / "scripts").exists():
        (settings / "scripts").symlink_to(Path(sources, "scripts").resolve())
    (settings / "nhc.conf").write_text("* || check_hw_eth eth0\n")
    environment = {**os.environ, "MARK_OFFLINE": "0", "NHC_RM": "slurm"}
    running = {
        host: subprocess.Popen(
            (*shell(cluster.namespace(host)), "bash", f"{sources}/nhc", "-D", str(settings), "-l", "-"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for host in HOSTS
    }
    said = {host: child.communicate(timeout=60)[0] for host, child in running.items()}
    return ", ".join(
        f"{host}: {text.strip().splitlines()[-1]}" for host, text in said.items() if running[host].returncode
    )


def of_pairs(cluster: Cluster) -> str:
    """The pairs of a round at once, and both ways, since either end may be the one that waits."""

    def failing(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        asked = {
            pair: [
                question(cluster, a, "tcp", address=cluster.address(b), port=PORT)
                for a, b in (pair, pair[::-1])
            ]
            for pair in pairs
        }
        replies = ask([each for both in asked.values() for each in both], Credentials(), _TRY_S)
        return [
            pair
            for pair, both in asked.items()
            if any(replies[each].values.get("answer") != "accepted" for each in both)
        ]

    names = list(HOSTS)
    first = [(names[at], names[at + 1]) for at in range(0, len(names), 2)]
    failed = failing(first)
    well = [host for pair in first if pair not in failed for host in pair]
    if failed and not well:
        return "all nodes"
    again = [pairing for pair in failed for pairing in zip(pair, well, strict=False)]
    return ", ".join(host for host, _ in failing(again)) if again else ""


def of_ckpt(cluster: Cluster, there: str, folder: str) -> str:
    topology = library.topology(str(cluster.topology(Path(folder, "topology.toml"))))
    request = Request(
        "silent", "n1", there, topology=topology, models=library.load(), credentials=Credentials(), port=PORT
    )
    request.query()
    return ", ".join(dict.fromkeys(request.graph.candidates[each.id].component for each in request.faults))


def row(case: str, folder: str) -> dict[str, Any]:
    there, do, expected = CASES[case]
    nhc = os.environ.get("NHC", "")
    found: dict[str, Any] = {"fault": case, "done": ", ".join(expected)}
    cluster = Cluster(HOSTS, [("sw1", "sw2")])
    try:
        cluster.lay()
        do(cluster)
        ways = {
            "node checks": lambda: of_nodes(cluster),
            "kernel log": lambda: of_the_log(cluster),
            **({"NHC": lambda: of_nhc(cluster, nhc, folder)} if nhc else {}),
            "pairs": lambda: of_pairs(cluster),
            "ckpt": lambda: of_ckpt(cluster, there, folder),
        }
        for name, way in ways.items():
            began, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            said = way() or "nothing"
            spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - cpu
            found[name] = {
                "said": said,
                "seconds": round(time.monotonic() - began, 2),
                "cpu": round(spent, 2),
            }
    finally:
        cluster.remove()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two of the faults")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: needs root, for network namespaces")
        return 0
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        for case in QUICK if options.quick else CASES:
            rows.append(row(case, folder))
            told = " | ".join(
                f"{each['said']} ({each['seconds']} s)"
                for each in rows[-1].values()
                if isinstance(each, dict)
            )
            print(f"| {case} | {told} |", flush=True)
    write_json(options.json, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What checksums cost in a solve (ckpt.abft), and what a death costs.

    python -m benchmarks.abft [--order 1024] [--block 32] [--rounds 3]

On 2 × 2 processes, each contestant a job of its own, in turn: without checksums (4 ranks), with (6 ranks), with a look for
wrong numbers at every step, and with rank 1 killed half-way: replaced (hot), or computed back at once (recovery). CPU
time is the sum over the ranks that are left, in the solve; after a death there are fewer of them, so compare hot with
recovery.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("programs") / "abft.py"
CONTESTANTS: dict[str, dict[str, Any]] = {
    "without checksums": {"redundant": 0},
    "with checksums": {},
    "verify=1": {"verify": 1},
    "death, hot": {"victim": 1},
    "death, recovery": {"victim": 1, "on_loss": "recover"},
}
DEFAULTS: dict[str, Any] = {"redundant": 1, "on_loss": "hot", "verify": 0, "victim": None}


def solve(ranks: int, given: dict[str, Any]) -> dict[str, float]:
    """One job; sums of CPU, else the largest of all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ckpt", "run", "-n", str(ranks), "--on-failure", "continue"]
        command += ["--job", f"{folder}/job", str(PROGRAM), json.dumps(given)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    found = {name: max(each[name] for each in told) for name in told[0]}
    return {**found, "cpu": sum(each["cpu"] for each in told)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", type=int, default=1024)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    calls = options.order // options.block * 6  # of rank 1: about half of them
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(options.rounds):
        for name, chosen in CONTESTANTS.items():
            given = {**DEFAULTS, **chosen, "order": options.order, "block": options.block, "call": calls}
            found[name].append(solve(4 if name == "without checksums" else 6, given))
    plain = statistics.median(each["cpu"] for each in found["without checksums"])
    print(f"order {options.order}, blocks of {options.block}, 2 × 2 processes; medians of {options.rounds}")
    for name, rounds in found.items():
        middle = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        print(
            f"{name:20} {middle['cpu']:7.3f} s CPU ({middle['cpu'] / plain:.2f} x) {middle['seconds']:7.3f} s"
            f"  residual {middle['residual']:.4f}  handling {middle['handling_ms']:6.1f} ms at step {middle['step']:.0f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

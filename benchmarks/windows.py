"""One-sided communication with a target whose program does something else: asleep, a loop in Python, products of matrices.

    python -m benchmarks.windows [--rounds 5] [--quick]

A Get (direct, if the host allows it), the same by message (a Get_accumulate with NO_OP), and a Put with its Flush, of 8
bytes and of 8 MB, in turn, all in one job for each kind of target.

Limit: a Get of 8 MB from a target that computes in Python takes at most 1.5 x what it takes from one that sleeps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import gate, report, write_json
from benchmarks.spine_jobs import PROGRAMS, ROOT, environment

KINDS = ("asleep", "Python", "numpy")


def job(folder: Path, kind: str, nbytes: int, repeats: int) -> dict[str, float]:
    """Median microseconds of each operation in one job."""
    out = folder / "figures"
    command = [sys.executable, "-m", "ckpt", "run", "-n", "2", "--job", str(folder / "job"), "--"]
    command += [str(PROGRAMS / "windows.py"), str(out), kind, str(nbytes), str(repeats)]
    subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        check=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return {name: statistics.median(times) for name, times in json.loads(out.read_text()).items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, fewer repeats")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    rows = []
    for nbytes in (8, 8_000_000):
        figures: dict[str, list[float]] = {}
        for _ in range(1 if options.quick else options.rounds):
            for kind in KINDS:
                with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                    found = job(Path(folder), kind, nbytes, 5 if options.quick else 30)
                for name, value in found.items():
                    figures.setdefault(f"{name}, target {kind}", []).append(value)
        rows += report(f"{nbytes} bytes of a window", "µs", figures, "Get, target asleep")
    kept = gate(rows[len(rows) // 2 :], "Get, target Python", 1.5, at_least=False)
    write_json(options.json, rows)
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())

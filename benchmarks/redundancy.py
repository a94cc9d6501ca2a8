"""Redundant ranks: the paper's model, and what the comparison costs here.

    python -m benchmarks.redundancy model                        figure 13 of the paper, four panels
    python -m benchmarks.redundancy cost [--rounds 3] [--quick]  CPU against three independent jobs, in the same run
    python -m benchmarks.redundancy detection [--rounds 5]       from a flipped bit to its name in the event log

`cost`: CPU time of all processes of a job, start and end taken off (a run of no steps), medians of rounds in turn; beside it
what one job needs, and the median of the ratios to three independent jobs of the same round. Wall times say little where
cores are shared, so none are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ckpt.redundancy.model import PANELS, Model, limit_of_tmr

PROGRAM = Path(__file__).with_name("programs") / "redundant.py"
WAYS = ("late", "sender", "receiver")
CASES = {
    "jacobi, halos of 8 KiB, 4 ranks": (4, ["jacobi", "400"], ["jacobi", "0"]),
    "messages of 8 B, 4 ranks": (4, ["small", "3000"], ["small", "0"]),
    "to and fro, 8 B, 2 ranks": (2, ["trip", "4000", "8"], ["trip", "0", "8"]),
    "to and fro, 8 KiB, 2 ranks": (2, ["trip", "4000", "8192"], ["trip", "0", "8192"]),
    "to and fro, 1 MiB, 2 ranks": (2, ["trip", "200", "1048576"], ["trip", "0", "1048576"]),
}


def model() -> int:
    used = Model()
    print(
        f"T'_P = {used.work_s:g} s, T = {used.communication_s:g} s, M = F = 1, K = {used.sends} sends of 1 Mb"
    )
    print(f"limit of TMR in a and c, 3·b·T'_P/(2·d·M): {limit_of_tmr(used):.0f}")
    for panel in PANELS:
        print(f"panel {panel}\n{'P':>10} {'S':>12} {'TMR':>12} {'STMR':>12} {'STMR, D grows':>14}")
        for processes in (1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 2e9):
            row = used.row(panel, processes)
            print(
                f"{processes:10.3g} {row.plain:12.5g} {row.tmr:12.5g} {row.stmr:12.5g} {row.stmr_d_grows:14.5g}"
            )
    print(
        "The paper says that STMR follows S in all panels. So it does with messages of constant size (STMR), and not with\n"
        "messages that grow like the volume, as its section 4.1 has them (D grows). Its T_R leaves out how a receiving\n"
        "meta process hands data on to its shadows, which would double it. Here every replica receives from its own\n"
        "kind, and only digests are compared.",
    )
    return 0


def cpu_s(ranks: int, words: list[str], redundancy: int, way: str = "late") -> float:
    """CPU seconds of all processes of one job. `way`: of comparing messages."""
    compare = ["--compare", way] if redundancy > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ckpt", "run", "-n", str(ranks), "--job", f"{folder}/job"]
        command += ["--redundancy", str(redundancy), *compare, "--", str(PROGRAM), *words]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ))
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def cost(rounds: int, quick: bool, ways: tuple[str, ...]) -> int:
    for name, (ranks, words, none) in CASES.items():
        if quick:
            words = [words[0], str(int(words[1]) // 10), *words[2:]]
        spent: dict[str, list[float]] = {way: [] for way in ("", *ways)}
        for _ in range(rounds):
            for way, found in spent.items():
                kind = (3, way) if way else (1, "late")
                began = cpu_s(ranks, none, *kind)
                found.append(cpu_s(ranks, words, *kind) - began)
        one = statistics.median(spent[""])
        for way in ways:
            three = statistics.median(spent[way])
            ratio = statistics.median(
                many / (3 * single) for many, single in zip(spent[way], spent[""], strict=True)
            )
            print(
                f"{name:34} one job {one:7.3f} s CPU, --redundancy 3 --compare {way:8} {three:7.3f} s: "
                f"{ratio:5.2f} of three independent jobs",
                flush=True,
            )
    return 0


def detection(rounds: int) -> int:
    found = []
    for round_ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "ckpt",
                "run",
                "-n",
                "4",
                "--job",
                f"{folder}/job",
                "--redundancy",
                "3",
            ]
            flips = f"rank={round_ % 4},replica={round_ % 3},message={300 + 7 * round_}"
            env = {**os.environ, "CKPT_FLIPS": flips, "CKPT_FLIPS_SAY": f"{folder}/flip"}
            subprocess.run(
                [*command, "--", str(PROGRAM), "small", "2000"],
                env=env,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            log = Path(f"{folder}/job/events.jsonl").read_text(encoding="utf-8")
            events = [json.loads(line) for line in log.splitlines()]
            (named,) = [each for each in events if each["event"] == "replica-differs"]
            flipped_ns = int(Path(f"{folder}/flip").read_text(encoding="utf-8"))
            found.append((named["ns"] - flipped_ns) / 1e6)
    print(
        f"from the flip to its name: median {statistics.median(found):.0f} ms, worst {max(found):.0f} ms of {rounds}"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("model", "cost", "detection"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--compare", nargs="+", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    if options.what == "model":
        return model()
    return (
        cost(options.rounds, options.quick, tuple(options.compare))
        if options.what == "cost"
        else detection(options.rounds)
    )


if __name__ == "__main__":
    sys.exit(main())

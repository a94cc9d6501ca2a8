"""What checksums cost in a solve (ckpt.abft), and what deaths cost, beside a job that is set back to a checkpoint.

    python -m benchmarks.abft [--quick] [--orders 1024 2048 …] [--block 64] [--rounds 3] [--only costs times …]

    costs       for every order, on 2 × 2 processes: plain (no checksums, 4 ranks), protected (6 ranks), verify=1, one rank
                that dies half-way (of the checksums; of the data: hot, recovery, rollback to a checkpoint), scipy.
                Tables I and II of the paper (Wang, Yao, Chen and others), and its fig. 8: residuals
    times       a death at 20 moments, hot and recovery: fig. 9
    sequence    the residual after 1, 2, 4, 8, 16 deaths in one solve

Each contestant is a job of its own, in turn. On few processors a run that has lost a column is shorter than one without
a failure, since it has fewer processes. So what a death costs is CPU time, of all ranks and the dead one too, over that of
a run in which a rank of the checksums dies at the same step: it has as many processes, and nothing to repair. With a
rollback no process is lost, and it is over a run without a death. "extra": in parts of the protected run.

An extra of a few hundredths is less than what two runs differ by on a machine with other work. So hot replacement and
recovery are compared by "repair": the CPU time, of all ranks, of taking what was decided after the death, and of
computing back, with its messages.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("programs") / "abft.py"
DEFAULTS: dict[str, Any] = {
    "P": 2,
    "Q": 2,
    "redundant": 1,
    "on_loss": "hot",
    "verify": 0,
    "deaths": [],
    "seed": 1,
}
Cost = Mapping[str, float]


def job(given: Mapping[str, Any], spares: int = 0, every_s: float | None = None) -> Cost:
    """One job: `cpu` of the solve at all ranks, dead ones too; `repair` at all that are left; `job_cpu` of all that the job
    was; else the largest of all ranks. `every_s`: a checkpoint every so often, and a death sets all back."""
    given = {**DEFAULTS, **given}
    ranks = 1 if given.get("peer") else given["P"] * (given["Q"] + given["redundant"]) + spares
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder) / "marks"
        marks.mkdir()
        command = [sys.executable, "-m", "ckpt", "run", "-n", str(ranks), "--job", f"{folder}/job"]
        command += ["--on-failure", "continue"] if every_s is None else ["--every", str(every_s)]
        command += [str(PROGRAM), json.dumps({**given, "marks": str(marks), "ask": every_s is not None})]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code, lines, killed = _watched(command, Path(folder) / "errors")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        dead = [float(mark.read_text()) for mark in marks.iterdir()]
        if code or len(dead) + killed != len(given["deaths"]):
            errors = (Path(folder) / "errors").read_text()[-2000:]
            raise RuntimeError(f"{given}: exit code {code}, {len(dead) + killed} dead: {lines[-9:]}{errors}")
    told = [json.loads(line) for line in lines if line.startswith("{")]
    found = {name: max(each[name] for each in told) for name in told[0]}
    used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    sums = {name: sum(each.get(name, 0.0) for each in told) for name in ("cpu", "repair")}
    return {**found, **sums, "cpu": sums["cpu"] + sum(dead), "job_cpu": used}


def _watched(command: list[str], errors: Path) -> tuple[int, list[str], int]:
    """Exit code, lines, and how many ranks were killed: the first one that has asked for it."""
    lines, killed = [], 0
    with (
        errors.open("w") as to,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=to, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith("kill ") and not killed:
                os.kill(int(line.split()[1]), signal.SIGKILL)
                killed = 1
    return process.returncode, lines, killed


def medians(contestants: Mapping[str, Callable[[], Cost]], rounds: int) -> dict[str, Cost]:
    """Every contestant once a round, in turn."""
    found: dict[str, list[Cost]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            found[name].append(run())
    return {
        name: {key: statistics.median(each[key] for each in of) for key in of[0]}
        for name, of in found.items()
    }


class Figures:
    """What was found, beside the goals; for `python -m benchmarks` too."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def goal(self, name: str, measured: float, goal: float, unit: str = "x") -> None:
        met = measured <= goal
        row = {"name": name, "unit": unit, "median": measured, "goal": goal, "at_least": False, "met": met}
        self.rows.append(row)
        print(
            f"  {'reached' if met else 'MISSED '}: {name}: {measured:.3g} {unit}, to be at most {goal:g} {unit}"
        )

    def note(self, name: str, value: float, unit: str = "x") -> None:
        self.rows.append({"name": name, "unit": unit, "median": value})


def steps(order: int, block: int) -> int:
    return -(-order // (block * DEFAULTS["Q"])) * int(DEFAULTS["Q"])


def costs(options: argparse.Namespace, figures: Figures) -> None:
    """Tables I and II, fig. 8."""
    for order in options.orders:
        size = {"order": order, "block": options.block}
        half = steps(order, options.block) // 2
        of_data, of_checks = [[1, 1, half]], [[1, DEFAULTS["Q"], half]]
        given: dict[str, dict[str, Any]] = {
            "plain": {"redundant": 0},
            "protected": {},
            "verify=1": {"verify": 1},
            "death of checksums": {"deaths": of_checks},
            "death, hot": {"deaths": of_data},
            "death, recovery": {"deaths": of_data, "on_loss": "recover"},
            "scipy, one process": {"peer": True},
        }
        runs: dict[str, Callable[[], Cost]] = {
            name: (lambda size=size, more=more: job({**size, **more})) for name, more in given.items()
        }
        runs["death, rollback"] = lambda size=size, of_data=of_data: job(
            {**size, "deaths": of_data}, every_s=options.every
        )
        _tell_costs(order, options, medians(runs, options.rounds), figures)


def _tell_costs(order: int, options: argparse.Namespace, found: Mapping[str, Cost], figures: Figures) -> None:
    plain, protected, spoilt = (found[name] for name in ("plain", "protected", "death of checksums"))
    print(f"\norder {order}, blocks of {options.block}, 2 x 2 processes; medians of {options.rounds}")
    extra = {}
    for name, each in found.items():
        line = f"  {name:20} {each['cpu'] / plain['cpu']:6.2f} x CPU {each['seconds'] / plain['seconds']:6.2f} x wall"
        if name == "death, rollback":  # what was used before the rollback is known of the whole job only
            line = f"  {name:20} {'':12} {each['seconds'] / plain['seconds']:6.2f} x wall"
            extra[name] = (each["job_cpu"] - protected["job_cpu"]) / protected["cpu"]
        elif name in ("death, hot", "death, recovery"):
            extra[name] = (each["cpu"] - spoilt["cpu"]) / protected["cpu"]
        line += f"  residual {each['residual']:.4f} ({each['residual'] / plain['residual']:.2f} x)"
        if name in extra:
            line += f"  extra {100 * extra[name]:5.1f} %"
            line += f"  repair {1e3 * each['repair']:.1f} ms" if name != "death, rollback" else ""
        if each.get("handling_ms"):
            line += f"  handling {each['handling_ms']:.1f} ms"
        print(line, flush=True)
    hot, recovery = found["death, hot"]["repair"], found["death, recovery"]["repair"]
    name = f"order {order}: "
    limit = 1 + 1 / DEFAULTS["Q"] + 0.02
    figures.goal(name + "protected to plain, CPU", protected["cpu"] / plain["cpu"], limit)
    figures.goal(name + "verify=1 to protected, CPU", found["verify=1"]["cpu"] / protected["cpu"], 1.05)
    figures.goal(name + "repair of hot to that of recovery, CPU", hot / recovery, 0.5)
    figures.goal(name + "residual, hot to plain", found["death, hot"]["residual"] / plain["residual"], 2.5)
    figures.goal(name + "from the notice on, hot", found["death, hot"]["handling_ms"], 10, "ms")
    figures.note(name + "scipy to plain, CPU", found["scipy, one process"]["cpu"] / plain["cpu"])
    figures.note(name + "extra of rollback", extra["death, rollback"])


def times(options: argparse.Namespace, figures: Figures) -> None:
    """Fig. 9: the total against the time of the death."""
    order, block = options.order, options.block
    last = steps(order, block) - 1
    moments = sorted({1 + (last - 1) * i // (options.points - 1) for i in range(options.points)})
    size = {"order": order, "block": block}
    whole = medians({"protected": lambda: job(size)}, options.rounds)["protected"]["cpu"]
    print(
        f"\norder {order}, blocks of {block}: CPU over the run without a death, extra over the death of checksums"
    )
    worst = {"hot": 0.0, "recover": 0.0}
    for step in moments:
        runs: dict[str, Callable[[], Cost]] = {
            "checksums": lambda step=step: job({**size, "deaths": [[1, 2, step]]}),
            "hot": lambda step=step: job({**size, "deaths": [[1, 1, step]]}),
            "recover": lambda step=step: job({**size, "deaths": [[1, 1, step]], "on_loss": "recover"}),
        }
        found = medians(runs, options.rounds)
        line = f"  step {step:4} of {last + 1}"
        for name, each in found.items():
            line += f"  {name} {each['cpu'] / whole:.2f} x"
            if name in worst:
                over = (each["cpu"] - found["checksums"]["cpu"]) / whole
                worst[name] = max(worst[name], over)
                line += f" (extra {100 * over:5.1f} %, {each['handling_ms']:.0f} ms)"
        print(line, flush=True)
    figures.note("largest extra of hot, of all moments", 100 * worst["hot"], "%")
    figures.note("largest extra of recovery, of all moments", 100 * worst["recover"], "%")


def sequence(options: argparse.Namespace, figures: Figures) -> None:
    """Residuals after several deaths. Each is of a rank that all wait for, since the next panel is its own, a while later:
    so all are at its step, and the checksums are complete again."""
    Q, block, groups = 10, 8, 10
    blocks = Q * groups
    counts = [count for count in (1, 2, 4, 8, 16) if count <= options.failures]
    ratios: dict[int, list[float]] = {count: [] for count in counts}
    for seed in range(options.rounds):
        size = {"P": 1, "Q": Q, "order": blocks * block, "block": block, "seed": seed}
        without = job(size, spares=1)["residual"]
        for count in counts:
            moments = [1 + (blocks - 2) * i // count for i in range(count)]
            deaths = [[0, step % Q, step] for step in moments]
            found = job({**size, "deaths": deaths, "pause_s": options.pause}, spares=count)
            ratios[count].append(found["residual"] / without)
            print(f"  matrix {seed}, {count:2} deaths: {ratios[count][-1]:.2f} x", flush=True)
    print(f"\nresiduals after deaths, 1 x {Q} processes, order {blocks * block}, {options.rounds} matrices")
    for count, each in ratios.items():
        print(f"  {count:2} deaths: {statistics.median(each):.2f} x, largest {max(each):.2f} x", flush=True)
    most = max(counts)
    figures.goal(f"residual after {most} deaths", statistics.median(ratios[most]), 3.0)


SECTIONS = {"costs": costs, "times": times, "sequence": sequence}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small orders, one round: to see that it works")
    parser.add_argument("--orders", type=int, nargs="+", default=[1024, 2048, 4096], help="of costs")
    parser.add_argument("--order", type=int, default=1536, help="of times")
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--points", type=int, default=20, help="of times")
    parser.add_argument("--failures", type=int, default=16, help="of sequence")
    parser.add_argument(
        "--every", type=float, default=1.0, help="seconds between checkpoints, of the rollback"
    )
    parser.add_argument("--pause", type=float, default=2.0, help="seconds before a death, of sequence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    options = parser.parse_args(arguments)
    if options.quick:
        options.orders, options.order, options.block, options.rounds = [512], 512, 32, 1
        options.points, options.failures = 4, 4
    figures = Figures()
    for name in options.only:
        SECTIONS[name](options, figures)
    if options.json:
        Path(options.json).write_text(json.dumps(figures.rows, indent=1))
    return 0 if all(row.get("met", True) for row in figures.rows) else 1


if __name__ == "__main__":
    sys.exit(main())

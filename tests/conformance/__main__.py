"""mpi4py's own test suite, under `ckpt run`: passed of applicable, by area.

    python -m tests.conformance [-n 1,2,3,4] [-m MODULE,…] [--sources DIR] [--redundancy 3 [--compare late]]

The suite is fetched from the package index into a cache (`tests.fetching`). A test counts
as passed if it passed at every rank, and as applicable unless plan.py leaves it out or the suite itself
skips it (for one rank, a missing library, …) at every rank. With ``--redundancy`` every rank is computed by several
processes: what came out is what most of them have printed, and a replica that is called wrong is a failed test.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.conformance import plan
from tests.fetching import filled, sources

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = "mpi4py==4.1.2"
MODULE_LIMIT_S = 900


def fetch() -> str:
    """Directory of mpi4py's sources, in the cache. Raises Unavailable."""
    root = filled("conformance", [PACKAGE.encode()], _fill)
    return str(next(root.glob("mpi4py-*")))


def _fill(root: Path) -> None:
    sources(PACKAGE, root)


def run_modules(
    sources: str,
    modules: Sequence[str],
    size: int,
    replicas: Sequence[str] = (),
    during: Callable[[str, subprocess.Popen[str]], None] | None = None,
) -> dict[str, tuple[str, str]]:
    """Outcome and reason of every test of some modules at `size` ranks, in one job. `replicas`: options of `ckpt run`, such
    as ``--redundancy 3``. `during` is called with the job's directory once it has been started, and its process; then
    replicas may be lost, and else not."""
    with tempfile.TemporaryDirectory() as results:
        command = [
            sys.executable,
            "-m",
            "ckpt",
            "run",
            "-n",
            str(size),
            "--job",
            f"{results}/job",
            *spares(modules),
            *replicas,
            "--",
        ]
        paths = f"{ROOT}:{sources}/src:{sources}/test" if plan.SPAWNING.issuperset(modules) else ROOT
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [*command, os.path.join(HERE, "rank.py"), sources, "-" if replicas else results, *modules],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            if during is not None:
                during(f"{results}/job", process)
            _, errors = process.communicate(timeout=MODULE_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            _, errors = process.communicate()
        output = f"{results}/job/output/rank-%d.out" if replicas else f"{results}/rank-%d.jsonl"
        ranks = [read(output % rank) for rank in range(size)]
        unwanted = {"replica-differs"} if during else {"replica-differs", "replica-lost"}
        differences = logged(f"{results}/job/events.jsonl", unwanted) if replicas else []
    outcome = merge(ranks)
    for number, event in enumerate(differences):
        outcome[f"{modules[0]} difference {number}"] = ("failed", event)
    if not outcome:
        outcome[modules[0]] = ("failed", f"nothing came out: {errors.strip()[-300:]}")
    return outcome


def spares(modules: Sequence[str]) -> list[str]:
    """Options for the modules that start processes: as many as they start in all."""
    return ["--spares", "400", "--on-failure", "continue"] if plan.SPAWNING.issuperset(modules) else []


def logged(events: str, names: set[str]) -> list[str]:
    """All events with these names."""
    with open(events, encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines]
    return [str(entry) for entry in entries if entry["event"] in names]


def read(path: str) -> dict[str, tuple[str, str]]:
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                if not line.startswith('{"test"'):  # printed by a test
                    continue
                entry = json.loads(line)
                found[entry["test"]] = (entry["state"], entry.get("why", ""))
    return found


def merge(ranks: list[dict[str, tuple[str, str]]]) -> dict[str, tuple[str, str]]:
    """One outcome per test: failed at any rank is failed, skipped at all is skipped."""
    merged = {}
    for test in {name for rank in ranks for name in rank}:
        states = [rank.get(test, ("failed", "this rank did not get there")) for rank in ranks]
        bad = [
            f"rank {at}: {why or state}"
            for at, (state, why) in enumerate(states)
            if state in ("failed", "started", "planned")
        ]
        if bad:
            merged[test] = (
                "failed",
                bad[0].replace("started", "did not end").replace("planned", "an earlier test ended the run"),
            )
        elif any(state == "passed" for state, _ in states):
            merged[test] = ("passed", "")
        else:
            merged[test] = states[0]
    return merged


def report(results: dict[int, dict[str, dict[str, tuple[str, str]]]], *, verbose: bool) -> tuple[int, int]:
    """Print the tables; (passed, applicable) over everything."""
    total = [0, 0]
    sizes = sorted(results)
    print(f"{'area':24}" + "".join(f"{f'{size} ranks':>16}" for size in sizes))
    for area in plan.AREAS:
        row = ""
        for size in sizes:
            states = Counter(state for state, _ in results[size].get(area, {}).values())
            passed, applicable = states["passed"], states["passed"] + states["failed"]
            total[0] += passed
            total[1] += applicable
            row += f"{f'{passed} of {applicable}':>16}"
        print(f"{area:24}{row}")
    print(f"passed {total[0]} of {total[1]} applicable ({100 * total[0] / max(1, total[1]):.1f} %)")
    reasons: Counter[str] = Counter()
    for size in sizes:
        for tests in results[size].values():
            failures: dict[str, list[str]] = defaultdict(list)
            for test, (state, why) in sorted(tests.items()):
                if state == "failed":
                    failures[why].append(test)
                elif state == "left out":
                    reasons[why] += 1
            for why, names in failures.items():
                print(
                    f"  failed at {size}: {names[0]}"
                    + (f" and {len(names) - 1} more" if names[1:] else "")
                    + f": {why}"
                )
                if verbose:
                    print("".join(f"      {name}\n" for name in names), end="")
    for why, count in reasons.most_common():
        print(f"  left out {count} times: {why}")
    for module, why in plan.MODULES_LEFT_OUT.items():
        print(f"  left out {module}: {why}")
    return total[0], total[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("-n", default="1,2,3,4", help="numbers of ranks (default 1,2,3,4)")
    parser.add_argument("-m", default="", help="only these modules of the suite, comma-separated")
    parser.add_argument("--sources", help="mpi4py's unpacked source distribution (default: fetched)")
    parser.add_argument("--floor", type=float, default=95.0, help="fail below this percentage (default 95)")
    parser.add_argument("--redundancy", help="replicas of each rank")
    parser.add_argument("--compare", help="with --redundancy: as of ckpt run")
    parser.add_argument("-v", action="store_true", help="name every failed test")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.m.split(",") if name]
    results: dict[int, dict[str, dict[str, tuple[str, str]]]] = {}
    directory = arguments.sources or fetch()
    replicas = [
        *(["--redundancy", arguments.redundancy] if arguments.redundancy else []),
        *(["--compare", arguments.compare] if arguments.compare else []),
    ]
    for size in [int(number) for number in arguments.n.split(",")]:
        results[size] = defaultdict(dict)
        for area, modules in plan.AREAS.items():
            for module in modules:
                if replicas and module in plan.MODULES_LEFT_OUT_OF_REPLICAS:
                    continue
                if not wanted or module in wanted:
                    outcome = run_modules(os.path.abspath(directory), [module], size, replicas)
                    results[size][area].update(outcome)
    passed, applicable = report(results, verbose=arguments.v)
    for module, why in plan.MODULES_LEFT_OUT_OF_REPLICAS.items() if replicas else ():
        print(f"  left out {module}: {why}")
    return 0 if applicable and 100 * passed / applicable >= arguments.floor else 1


if __name__ == "__main__":
    sys.exit(main())

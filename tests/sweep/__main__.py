"""Runs the sweep, or a part of it, by hand.

python -m tests.sweep                                     every program, 4 restores each
python -m tests.sweep go mako --restores 100 --exact      two programs, at checks drawn by number
python -m tests.sweep go --again DIRECTORY EPOCH          resume one image that was kept
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.sweep.catalogue import PROGRAMS, Program
from tests.sweep.driver import Bench, Outcome, sweep
from tests.sweep.fetch import Unavailable, fetched


def again(program: Program, directory: Path, epoch: int) -> int:
    """Resume a kept image; 0 when its output is what was expected."""
    code, out, err = json.loads((directory / "expected.json").read_text())
    with Bench(program, fetched(), directory, puts_back=True) as bench:
        differs = bench.difference(bench.resume(epoch), (code, ast.literal_eval(out), ast.literal_eval(err)))
    print(differs or "equal")
    return bool(differs)


def table(outcomes: list[Outcome]) -> None:
    print(
        f"{'program':24s} {'images':>7s} {'equal':>7s} {'burnt':>6s} {'refused':>8s} {'waited ms':>10s} {'s':>7s}"
    )
    for one in outcomes:
        print(
            f"{one.program:24s} {one.images:7d} {one.equal:7d} {one.burnt:6d} {sum(one.refused.values()):8d} "
            f"{one.waited_ms:10.1f} {one.seconds:7.1f}"
        )
    images, equal = sum(one.images for one in outcomes), sum(one.equal for one in outcomes)
    print(f"{len(outcomes)} programs, {images} restores, {equal} equal")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all")
    parser.add_argument("--restores", type=int, default=4, help="of each program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--exact", action="store_true", help="at checks drawn by number; slower, the same every time"
    )
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument(
        "--keep", metavar="DIRECTORY", type=Path, help="where images go, and stay when one fails"
    )
    parser.add_argument("--again", nargs=2, metavar=("DIRECTORY", "EPOCH"), help="resume one kept image")
    parser.add_argument("--slow", action="store_true", help="also the programs that take seconds")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    unknown = set(options.programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    chosen = [PROGRAMS[name] for name in options.programs] or [
        one for one in PROGRAMS.values() if not one.limit and (options.slow or not one.slow)
    ]
    if options.list:
        print("\n".join(f"{one.name:26s} {one.limit}".rstrip() for one in PROGRAMS.values()))
        return 0
    if options.again:
        return again(chosen[0], Path(options.again[0]), int(options.again[1]))
    try:
        place = fetched()
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 1
    base = options.keep or Path(tempfile.mkdtemp(prefix="sweep-"))

    def one(program: Program) -> Outcome:
        directory = base if len(chosen) == 1 else base / program.name
        outcome = sweep(
            program, place, directory, seed=options.seed, restores=options.restores, exact=options.exact
        )
        line = f"{program.name}: {outcome.equal} of {outcome.images}, {outcome.seconds:.1f} s"
        print(line, *outcome.failures, *outcome.surprises, sep="\n  ", file=sys.stderr, flush=True)
        return outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(one, chosen))
    table(outcomes)
    return int(any(outcome.failures for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

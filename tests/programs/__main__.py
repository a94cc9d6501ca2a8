"""python -m tests.programs [-k PART] [--seed N] [--keep DIR] [--redundancy 3 [--compare late]]: every program three ways."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.programs.catalogue import PROGRAMS
from tests.programs.driver import Bench, Outcome, RealMpiFailed
from tests.programs.fetch import Unavailable, fetched
from tests.seeds import seed_of_the_commit


def line(outcome: Outcome) -> str:
    resumed = ", ".join(f"epoch {epoch}" if epoch else "the start" for epoch in outcome.resumed)
    state = "FAILED" if outcome.failures else "equal"
    times = f"{outcome.real_s:6.1f} s {outcome.ours_s:6.1f} s"
    return f"{outcome.program:46s} {state:7s} {times}   {outcome.kills} kills, went on from {resumed or '-'}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("-k", default="", help="only programs with this in their name")
    parser.add_argument("--seed", type=int, default=seed_of_the_commit(), help="of the kills")
    parser.add_argument("--keep", help="leave everything in this directory")
    parser.add_argument("--redundancy", help="replicas of each rank")
    parser.add_argument("--compare", help="with --redundancy: as of ckpt run")
    options = parser.parse_args()
    replicas = [
        *(["--redundancy", options.redundancy] if options.redundancy else []),
        *(["--compare", options.compare] if options.compare else []),
    ]
    try:
        place = fetched()
    except Unavailable as reason:
        print(f"programs: skipped: {reason}")
        return 0
    print(f"beside {place.library}; seed {options.seed}, again with --seed {options.seed}")
    print(f"{'program':46s} {'output':7s} {'mpiexec':>8s} {'ckpt run':>8s}")
    good = True
    with tempfile.TemporaryDirectory(prefix="programs-") as scratch:
        base = Path(options.keep or scratch) / time.strftime("%H%M%S")
        for number, program in enumerate(PROGRAMS):
            if options.k not in program.name:
                continue
            if replicas and program.unlike:
                print(f"{program.name:46s} left out: {program.unlike}")
                continue
            try:
                outcome = Bench(program, place, base / str(number), options.seed, replicas).run()
            except (AssertionError, RealMpiFailed) as failure:
                outcome = Outcome(program.name, failures=[str(failure)])
            print(line(outcome), flush=True)
            for failure in outcome.failures:
                print(f"    {failure}")
            good &= not outcome.failures
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

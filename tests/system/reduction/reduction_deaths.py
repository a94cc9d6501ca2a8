"""Real reductions of which a rank is killed at a random moment, as for table 2 of the paper.

A job: four ranks, three reductions to learn how long one takes (t), then one in which a rank is killed at a moment drawn
from [0, t], counted from its call, by another process: a thread of its own would wait for the interpreter's lock until the
copy is out. Every job ends; it is whole (the right result, with every contribution), or all that live
have the same loss; anything else is an AssertionError.

    python -m tests.system.reduction.reduction_deaths [--jobs 200] [--mb 8] [--copies 2] [--victim 1] [--parts 1]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.system.support import Job, write_app

APP = """
    import os, random, struct, subprocess, sys, time
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    import ckpt.reduction as R

    KILLER = (
        "import os, struct, sys, time;"
        "began, = struct.unpack('d', sys.stdin.buffer.read(8));"
        "time.sleep(max(0, began + float(sys.argv[1]) - time.monotonic()));"
        "os.kill(os.getppid(), 9)"
    )

    rank, size = comm.rank, comm.size
    victim, nbytes, copies, parts = map(int, sys.argv[1:5])
    chance = random.Random(sys.argv[5])
    x, spans = np.full(nbytes // 8, float(rank + 1)), []
    for step in range(5):
        comm.barrier()
        began = time.perf_counter()
        assert R.allreduce(x, copies=copies, parts=parts).result()[0] == size * (size + 1) / 2
        spans.append(time.perf_counter() - began)
    span = sorted(spans[1:])[2]
    moment = chance.random() * span
    killer = None
    if rank == victim:
        killer = subprocess.Popen([sys.executable, "-S", "-c", KILLER, str(moment)], stdin=subprocess.PIPE, bufsize=0)
    try:
        comm.barrier()
    except MPI.Exception:
        pass
    began = time.perf_counter()
    if killer:
        killer.stdin.write(struct.pack("d", time.monotonic()))
    f = R.allreduce(x, copies=copies, parts=parts)
    try:
        result = f.result(100)
        assert f.contributors == tuple(range(size)), f.contributors
        assert (result == size * (size + 1) / 2).all(), result
        how = "whole"
    except R.ReductionError as error:
        assert error.ranks == (victim,), error
        how = type(error).__name__
    took = time.perf_counter() - began
    if rank == victim:
        time.sleep(1000)
    print(how)
    print(f"{rank} {moment / span:.3f} {took / span:.2f}", file=sys.stderr)
"""


def death(
    place: Path,
    number: int,
    *,
    nbytes: int,
    copies: int = 2,
    victim: int = 1,
    ranks: int = 4,
    parts: int = 1,
    env: dict[str, str] | None = None,
) -> str:
    """One job; how it ended for all that live, with the moment of the kill and the time to the result, in units of t."""
    app = write_app(place, APP)
    options: list[Any] = ["-n", ranks, "--every", 1000, "--on-failure", "continue"]
    job = Job(place / f"job{number}", *options, "--", app, victim, nbytes, copies, parts, number, env=env)
    try:
        assert job.finish(120) == 0, job.report()
        living = [rank for rank in range(ranks) if rank != victim]
        outputs = {job.output(rank) for rank in living}
        assert len(outputs) == 1, job.report()
        (said,) = outputs
        errors = (job.directory / "output" / f"rank-{living[0]}.err").read_text()
    finally:
        job.close()
    return f"{said.strip()} {errors.strip()}"


def deaths(first: int, count: int, *, nbytes: int, **options: Any) -> Counter[str]:
    """So many jobs; how many ended how."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="deaths-") as place:
        for number in range(first, first + count):
            how, _, moment, took = death(Path(place), number, nbytes=nbytes, **options).split()
            found[how] += 1
            found["times of t, hundredths"] += int(float(took) * 100)
            if how != "whole":
                print(f"job {number}: {how}, killed at {moment} t", flush=True)
    return found


def main() -> None:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.reduction.reduction_deaths")
    for name, default in (("jobs", 200), ("mb", 8), ("copies", 2), ("victim", 1), ("parts", 1), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    options = {"copies": given.copies, "victim": given.victim, "parts": given.parts}
    print(deaths(given.first, given.jobs, nbytes=given.mb << 20, **options))


if __name__ == "__main__":
    main()

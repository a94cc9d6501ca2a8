"""Hours of checkpoints and kills: the result is the same, and neither memory nor descriptors grow.

CKPT_SOAK_S=7200 CKPT_KILL_EVERY_S=30 python -m pytest -s -m soak tests/system/kills/test_long_run.py
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.soak]

Start = Callable[..., Job]
SOAK_S = float(os.environ.get("CKPT_SOAK_S", "7200"))
KILL_EVERY_S = float(os.environ.get("CKPT_KILL_EVERY_S", "30"))
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

APP = """
    import hashlib, os, sys, time
    import numpy as np
    import ckpt

    comm = ckpt.enable()
    field = np.full(250_000, float(comm.rank))           # 2 MB that change, 8 MB that do not
    constant = np.random.default_rng(comm.rank).random(1_000_000)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    inbox = np.empty_like(field)
    step = 0
    while True:
        request = comm.Irecv(inbox, source=left, tag=1)
        comm.Send(field, right, tag=1)
        request.Wait()
        field = 0.5 * (field + inbox) + constant[step % 1000]
        step += 1
        if step % 100 == 0:
            going = comm.bcast(not os.path.exists(sys.argv[1]), root=0)
            digest = hashlib.sha256(field.tobytes()).hexdigest()
            if comm.rank == 0 and step % 500 == 0:
                print(step, digest, flush=True)
            if not going:
                break
        time.sleep(0.002)
"""


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def sample(pids: list[int]) -> list[tuple[int, int]]:
    return [(memory_bytes(pid), descriptors(pid)) for pid in pids]


@pytest.mark.timeout(int(SOAK_S) + 900)
def test_memory_and_descriptors_stay_flat(start: Start, tmp_path: Path, soaked: Callable[..., None]) -> None:
    choose = random.Random(seed_of_the_commit())
    stop = tmp_path / "stop"
    job = start(write_app(tmp_path, APP), stop, ranks=3, every=2, keep=3, max_restarts=1_000_000)
    job.wait_event("committed", 2)
    lasting = [job.process.pid, int(job.events("agent-started")[-1]["pid"])]
    seen: list[list[tuple[int, int]]] = []
    largest_rank_bytes = 0  # ranks do not last: at the end of each of their lives
    kills, until = 0, time.monotonic() + SOAK_S
    while time.monotonic() < until:
        time.sleep(min(KILL_EVERY_S, max(0.0, until - time.monotonic())))
        largest_rank_bytes = max(largest_rank_bytes, *(memory_bytes(job.pid(rank)) for rank in range(3)))
        if time.monotonic() < until:
            job.kill_rank(choose.randrange(3))
            kills += 1
            job.wait_event("restarted", kills)
            job.wait_event("committed", len(job.events("committed")) + 1)
        seen.append(sample(lasting))
    stop.touch()
    assert job.finish(timeout_s=300) == 0, job.report()
    # Every printed line is that of a run without any fault: each step has one digest, whatever was repeated.
    lines = job.output(0).splitlines()
    steps = [int(line.split()[0]) for line in lines]
    assert steps == sorted(set(steps)), "a step was printed twice, or out of order"
    check = start(write_app(tmp_path, APP, "again.py"), tmp_path / "stop-again", ranks=3, name="again")
    check.wait_for(lambda: len(check.output(0).splitlines()) >= min(len(lines), 20), "the same again", 600)
    assert check.output(0).splitlines()[:20] == lines[:20]
    early, late = seen[len(seen) // 4 : len(seen) // 2], seen[-len(seen) // 4 :]
    for index, name in enumerate(("controller", "agent")):
        memory = [max(row[index][0] for row in part) for part in (early, late)]
        files = [max(row[index][1] for row in part) for part in (early, late)]
        print(
            f"{name}: {memory[0] >> 10} → {memory[1] >> 10} KiB, {files[0]} → {files[1]} descriptors; {kills} kills"
        )
        assert memory[1] <= memory[0] * 1.1 + (4 << 20), f"the {name} grows"
        assert files[1] <= files[0] + 4, f"the {name} keeps descriptors"
    print(f"ranks: at most {largest_rank_bytes >> 20} MiB")
    assert largest_rank_bytes < 300 << 20, "a rank grows: its state is 16 MiB, its interpreter as much again"
    images = sum(path.stat().st_size for path in (job.directory / "images").rglob("*") if path.is_file())
    print(f"images {images >> 20} MiB after {len(job.events('committed'))} commits")
    assert images < 3 * 60 << 20, "old images are not removed"
    soaked("long", int(SOAK_S), kills=kills, commits=len(job.events("committed")))

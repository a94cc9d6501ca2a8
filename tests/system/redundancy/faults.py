"""Jobs under ``--redundancy`` in which a bit flips, or processes are killed or stopped: the row `redundant` of `tests.soak`.

Every case draws a program, two or three replicas, a way to compare messages, and either flips (in messages, arrays, single
values or descriptions of one-sided operations) or one to three kills and stops after random numbers of events in the log,
not at times. The output must be that of a run without replicas, byte for byte (what is in parallel files is part of it), and
no replica may be called wrong in a case without flips.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tests.system.support import Job, write_app

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

GRID = """
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size

    class Grid:
        def __init__(self):
            self.u = np.random.default_rng(comm.rank).random((66, 512))
            self.weights = np.linspace(0.2, 0.3, 512)

    grid = Grid()
    for step in range(600):
        u = grid.u
        requests = [comm.Irecv(u[0], source=left, tag=1), comm.Irecv(u[-1], source=right, tag=2)]
        comm.Send(u[1].copy(), right, tag=2), comm.Send(u[-2].copy(), left, tag=1)
        MPI.Request.Waitall(requests)
        u[1:-1] += grid.weights * (u[2:] - 2 * u[1:-1] + u[:-2])
        if step % 50 == 0:
            print(step, comm.allreduce(float(u[1:-1].sum())))
"""

WINDOWS = """
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    memory, got = np.zeros(64), np.zeros(4)
    win = MPI.Win.Create(memory, 8, comm=comm)
    for step in range(150):
        target = (rank + 1 + step) % size
        win.Lock(target, MPI.LOCK_EXCLUSIVE)
        win.Put(np.full(4, float(step + rank)), target, [4 * rank, 4, MPI.DOUBLE])
        win.Accumulate(np.full(2, 0.5), target, [32 + 2 * rank, 2, MPI.DOUBLE])
        win.Get_accumulate(np.full(4, 1.0), got, target, [48, 4, MPI.DOUBLE])
        win.Get(got, target, [4 * rank, 4, MPI.DOUBLE])
        win.Unlock(target)
        comm.allreduce(float(got.sum()))
        if step % 5 == 0:
            win.Fence()
            win.Put(got, target, [16 + 4 * rank, 4, MPI.DOUBLE])
            win.Fence()
    print(rank, memory.tolist())
    win.Free()
"""

FILES = """
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    file = MPI.File.Open(comm, "field.bin", MPI.MODE_RDWR | MPI.MODE_CREATE)
    log = MPI.File.Open(comm, "log.bin", MPI.MODE_WRONLY | MPI.MODE_CREATE | MPI.MODE_APPEND)
    file.Set_view(8 * rank, MPI.DOUBLE, MPI.DOUBLE.Create_resized(0, 8 * size).Commit())
    mine = np.zeros(100)
    file.Write_at_all(0, np.full(100, float(rank)))
    for step in range(150):
        file.Read_at(0, mine)  # what was there before: a file that has not gone back would have it twice
        request = file.Iwrite_at(0, mine * 1.25 % 1000 + step)
        comm.allreduce(float(mine.sum()))
        request.Wait()
        log.Write_shared(np.full(1, step, "q"))
        if step % 5 == 0:
            log.Write_ordered(np.full(2, rank + 10 * step, "q"))
    comm.Barrier()
    file.Close(), log.Close()
    print(rank, np.fromfile("field.bin").tolist(), sorted(np.fromfile("log.bin", "q").tolist()))
"""

PROGRAMS: dict[str, tuple[int, str | tuple[object, ...]]] = {
    "files": (3, FILES),
    "grid": (2, GRID),
    "windows": (3, WINDOWS),
    "heat": (2, (EXAMPLES / "heat.py", "--steps", 4000)),
    "pi": (3, (EXAMPLES / "pi_montecarlo.py", "--tasks", 300)),
}


def faults(first: int, count: int) -> Counter[str]:
    """The cases of these numbers: how many there were of each outcome. Raises AssertionError with the number of the case."""
    found: Counter[str] = Counter()
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory(prefix="soak-") as place:
            found.update(_case(number, Path(place)))
    return found


@cache
def _expected(name: str) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        job = _job(Path(place), name)
        assert job.finish() == 0, job.report()
        return _outputs(job, name)


def _job(place: Path, name: str, *options: object, env: dict[str, str] | None = None) -> Job:
    ranks, command = PROGRAMS[name]
    if isinstance(command, str):
        command = (write_app(place, command),)
    return Job(place / "job", "-n", ranks, *options, *command, env=env)


def _outputs(job: Job, name: str) -> tuple[str, ...]:
    return tuple(job.output(rank) for rank in range(PROGRAMS[name][0]))


def _case(number: int, place: Path) -> Counter[str]:
    chance = random.Random(number)
    name, replicas = chance.choice(sorted(PROGRAMS)), chance.choice((2, 3, 3))
    places = ("message", "array", "scalar", "object", None)
    where = chance.choice((*places, *("description",) * 3) if name == "windows" else places)
    way = random.Random(f"way {number}").choice(("late", "sender", "receiver"))
    said, env = place / "said", {}
    if where is not None:
        env = {"CKPT_FLIPS": f"seed={number},rate=0.002,where={where}", "CKPT_FLIPS_SAY": str(said)}
    job = _job(place, name, "--redundancy", replicas, "--compare", way, "--every", 0.5, env=env)
    what = f"case {number}: {name}, {replicas} replicas, compared {way}, flips in {where}"
    try:
        killed = 0 if where is not None else _disturb(job, chance)
        assert job.finish(600) == 0, f"{what}\n{job.report()}"
        assert _outputs(job, name) == _expected(name), f"{what}\n{job.report()}"
        return _outcome(job, what, said.exists(), killed)
    finally:
        job.close()


def _outcome(job: Job, what: str, has_flipped: bool, killed: int) -> Counter[str]:
    differ = job.events("replica-differs")
    assert has_flipped or not differ, f"{what}: a false alarm {json.dumps(differ)}\n{job.report()}"
    found = Counter({"kills and stops": killed, "copies": len(job.events("replica-cloned"))})
    found["ranks whose memory was the same"] = sum(event["same"] for event in job.events("memory-compared"))
    if has_flipped:
        named = any(event["replica"] is not None for event in differ)
        found["flips found and named" if named else "flips found" if differ else "flips without effect"] = 1
    return found


def _disturb(job: Job, chance: random.Random) -> int:
    """Kill or stop (and let go on) some processes, each after a random number of events in the log; returns how many."""
    done = 0
    for _ in range(chance.randint(1, 3)):
        after = len(job.events()) + chance.randint(1, 25)
        while len(job.events()) < after and job.process.poll() is None:
            time.sleep(0.01)
        pids = _pids(job)
        if job.process.poll() is not None or not pids:
            break
        pid = chance.choice(pids)
        try:
            if chance.random() < 0.3:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(chance.random())
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.SIGKILL)
            done += 1
        except ProcessLookupError:
            continue
    return done


def kill(pids: Iterable[int]) -> None:
    """End these. One that is not there has ended since the log was read: a plane is ended when one of it has died."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _pids(job: Job) -> list[int]:
    """Processes of the job that live, as far as the log says."""
    found: dict[Any, int] = {}
    for event in job.events():
        if event["event"] == "rank-started":
            found[event["rank"]] = event["pid"]
        elif event["event"] in ("rank-left", "rank-died", "rank-finished"):
            found.pop(event["rank"], None)
        elif event["event"] == "replica-lost":
            found.pop(event.get("process"), None)
    return sorted(found.values())

"""Libraries that keep communicators, make them or talk to other ranks when they are imported, which a restart does anew."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]


def installed(directory: Path, name: str, source: str) -> dict[str, str]:
    """Make an installed package of this source. The environment in which programs find it."""
    package = directory / "site-packages" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(source))
    places = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(places)}


def test_a_library_that_keeps_or_duplicates_the_world_when_it_is_imported_has_it_after_a_restart(
    start: Start, tmp_path: Path
) -> None:
    """PTMCMCSampler has COMM_WORLD as a default argument; it is imported anew when an image is loaded. Others keep a
    duplicate, so that their messages and the program's cannot meet."""
    path = installed(
        tmp_path,
        "keeper",
        """
        from mpi4py import MPI
        WORLD, SELF, RANK = MPI.COMM_WORLD, MPI.COMM_SELF, MPI.COMM_WORLD.Get_rank()
        OWN, OTHER = MPI.COMM_WORLD.Dup(), MPI.Intracomm(MPI.COMM_WORLD)
        FREED = MPI.COMM_WORLD.Dup()
        late = None
        def total(value, comm=MPI.COMM_WORLD):
            return comm.allreduce(value)
        def own_total(value):
            return OWN.allreduce(value) + OTHER.allreduce(value)
        def find():
            global late
            from mpi4py import MPI as late
        """,
    )
    app = write_app(
        tmp_path,
        """
        import time
        from mpi4py import MPI
        import keeper
        keeper.find()
        mine = MPI.COMM_WORLD
        own, sum_, others = keeper.OWN, 0, 0
        keeper.FREED.Free()
        own.isend(mine.rank, 1 - mine.rank)      # received after the restart
        for step in range(300):
            sum_ += keeper.total(step * (mine.rank + 1))
            others += keeper.own_total(1)
            time.sleep(0.005)
        same = keeper.WORLD is MPI.COMM_WORLD is mine, keeper.SELF is MPI.COMM_SELF, keeper.RANK == mine.rank
        assert keeper.late is MPI      # schwimmbad looks for it late, and keeps it in a global
        assert keeper.OWN is own and own.recv(source=1 - own.rank) == 1 - mine.rank and own != mine
        assert keeper.OTHER == mine and not keeper.FREED and own.Dup().allreduce(1) == 2 and others == 4 * 300
        print(sum_, same, keeper.SELF.allreduce(1))
        """,
    )
    job = start(app, ranks=2, every=0.2, env=path)
    job.wait_event("committed")
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert job.events("restarting")[0]["from_epoch"], job.report()
    assert job.output(0) == f"{3 * 300 * 299 // 2} (True, True, True) 1\n"


def test_a_library_that_talks_to_other_ranks_when_it_is_imported_has_heard_the_same_after_a_restart(
    start: Start, tmp_path: Path
) -> None:
    """heat spreads a seed made of the time when it is imported: no restart was possible, and the job was lost."""
    path = installed(
        tmp_path,
        "seeded",
        """
        import time
        from mpi4py import MPI
        WORLD = MPI.COMM_WORLD.Dup()
        SEED = WORLD.bcast(time.time_ns() if WORLD.rank == 0 else None)
        HALF = WORLD.Split(WORLD.rank % 2, -WORLD.rank)
        GRID = WORLD.Create_cart([3], [True])
        NAMES = HALF.allgather(f"{WORLD.rank}: {SEED}")
        """,
    )
    app = write_app(
        tmp_path,
        """
        import time
        from mpi4py import MPI
        own = MPI.COMM_WORLD.Dup()
        import seeded
        seed, names, ring, sum_ = seeded.SEED, list(seeded.NAMES), seeded.GRID, 0
        for step in range(300):
            left, right = ring.Shift(0, 1)
            sum_ += ring.sendrecv(step * (own.rank + 1), right, source=left) + seeded.HALF.allreduce(1)
            time.sleep(0.005)
        assert seeded.SEED == seed and seeded.NAMES == names and seeded.GRID is ring
        print(sum_, own.allgather(seed) == [seed] * 3, names == [f"{r}: {seed}" for r in seeded.HALF.allgather(own.rank)])
        """,
    )
    job = start(app, ranks=3, every=0.2, env=path)
    for count in (1, 2):
        job.wait_event("committed", len(job.events("committed")) + 1)
        job.kill_rank(count)
        job.wait_event("restarted", count)
    assert job.finish() == 0, job.report()
    assert all(event["from_epoch"] for event in job.events("restarting")), job.report()
    total = 300 * 299 // 2
    assert [job.output(rank) for rank in range(3)] == [
        f"{total * left + 300 * half} True True\n" for left, half in ((3, 2), (1, 1), (2, 2))
    ]


def test_a_library_that_hears_what_cannot_be_kept_when_it_is_imported_is_named_at_the_checkpoint(
    start: Start, tmp_path: Path
) -> None:
    """Checkpoints were made that no restart could go on from."""
    path = installed(
        tmp_path,
        "noted",
        """
        from mpi4py import MPI
        BLOCK = MPI.COMM_WORLD.bcast(bytes(2 << 20))
        """,
    )
    app = write_app(
        tmp_path, "import noted, time\nfor _ in range(300):\n    time.sleep(0.005)\nprint('end')\n"
    )
    job = start(app, ranks=1, every=0.2, env=path)
    failed = job.wait_event("failed")
    assert "module noted calls bcast while it is imported" in failed["reason"], failed
    assert job.finish() == 0 and not job.events("committed"), job.report()
    assert job.output(0) == "end\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_is_started_anew_and_imports_the_program_finds_mpi4py(
    start: Start, tmp_path: Path, method: str
) -> None:
    """Each worker ended with "No module named 'mpi4py'", and the pool went on to start others, for ever."""
    app = write_app(
        tmp_path,
        f"""
        import multiprocessing, time
        from mpi4py import MPI

        def alone(number):
            time.sleep(0.01)
            return MPI.COMM_WORLD.size, number

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(MPI.COMM_WORLD.size, [pool.map(alone, [1, 2]) for _ in range(100)][-1])
        """,
    )
    job = start(app, ranks=2, every=0.1, max_restarts=1)
    job.wait_event("committed")
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["2 [(1, 1), (1, 2)]\n"] * 2, job.report()

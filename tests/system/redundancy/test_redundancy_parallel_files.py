"""Parallel files (`MPI.File`) under `--redundancy`: they are written once, with what most replicas mean, whoever is wrong or
killed, and go back with the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.seeds import seed_of_the_commit
from tests.system.redundancy.test_redundancy import END, named
from tests.system.redundancy.test_redundancy_windows import with_copies
from tests.system.support import Job, run_ckpt, write_app

__all__ = ["with_copies"]

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

STEPS, RANKS = 24, 3

APP = (
    """
    import os, time
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    rank, size = comm.rank, comm.size
    """
    + END
    + """
    def gate(step):
        if step == 9 and "GATE" in os.environ:
            print("half", flush=True) if rank == 0 else None
            while not os.path.exists(os.environ["CKPT_TEST_GO"]):
                time.sleep(0.01)

    file = MPI.File.Open(comm, "field.bin", MPI.MODE_RDWR | MPI.MODE_CREATE)
    log = MPI.File.Open(comm, "log.bin", MPI.MODE_WRONLY | MPI.MODE_CREATE | MPI.MODE_APPEND)
    column = MPI.DOUBLE.Create_vector(100, 1, size).Commit()
    file.Set_view(8 * rank, MPI.DOUBLE, MPI.DOUBLE.Create_resized(0, 8 * size).Commit())
    mine, theirs = np.zeros(100), np.zeros(100)
    file.Write_at_all(0, np.full(100, float(rank)))
    for step in range(24):
        end(step)
        gate(step)
        file.Read_at(0, mine)  # what was there before: a file that has not gone back would have it twice
        request = file.Iwrite_at(0, mine * 1.25 + step)
        comm.allreduce(float(mine.sum()))
        request.Wait()
        log.Write_shared(np.full(1, rank, "q"))
        if step % 5 == 0:
            log.Write_ordered(np.full(2, rank + 10 * step, "q"))
            file.Sync()
    log.Sync()
    comm.Barrier()
    print(rank, float(mine.sum()), file.Get_size(), log.Get_size())
    file.Close()
    log.Close()
    print(rank, float(np.fromfile("field.bin").sum()))
    """
)


def expected() -> np.ndarray[Any, Any]:
    field = np.tile(np.arange(float(RANKS)), 100)
    for step in range(STEPS):
        field = field * 1.25 + step
    return field


def check(job: Job) -> None:
    place = job.directory.parent
    assert (np.fromfile(place / "field.bin") == expected()).all()
    log = np.fromfile(place / "log.bin", "q")
    assert len(log) == STEPS * RANKS + 2 * RANKS * 5
    ordered = log[log >= 10].tolist()
    assert ordered == [
        rank + 10 * step for step in (5, 10, 15, 20) for rank in range(RANKS) for _ in range(2)
    ]
    assert sorted(log[log < 10].tolist()) == sorted(list(range(RANKS)) * STEPS + [0, 0, 1, 1, 2, 2])


def app_of(directory: Path) -> Path:
    return write_app(directory, APP)


@pytest.mark.rotate(4)
@pytest.mark.parametrize("way", ["late", "sender", "receiver"])
def test_each_replica_finds_in_parallel_files_what_is_there_without_replicas(
    start: Start, tmp_path: Path, way: str
) -> None:
    job = start(app_of(tmp_path), ranks=RANKS, redundancy=3, compare=way)
    assert job.finish() == 0, job.report()
    check(job)
    assert not named(job) and job.events("result-compared")[0]["verified"]


HALF = """
    from ckpt.redundancy.files import parallel
    genuine, count = parallel.ReplicaDisk.write, [0]

    def write(self, path, ranges, data):
        count[0] += 1
        if count[0] == int(os.environ["WRITE"]):  # it dies in the middle of this one
            ranges = list(ranges)
            genuine(self, path, ranges[: len(ranges) // 2], data[: sum(each[1] for each in ranges[: len(ranges) // 2])])
            os.kill(int(os.readlink("/proc/self")), 9)
        genuine(self, path, ranges, data)

    from ckpt.redundancy import status
    if status()["replica"] == 0 and rank == 0:
        parallel.ReplicaDisk.write = write
"""


@pytest.mark.rotate(4)
@pytest.mark.parametrize("way", ["late", "sender", "receiver"])
def test_a_leader_that_dies_in_the_middle_of_a_collective_write_changes_nothing(
    start: Start, tmp_path: Path, way: str
) -> None:
    write = Random(seed_of_the_commit()).randrange(1, 90)
    marker = "    file = MPI.File.Open"
    app = write_app(tmp_path, APP.replace(marker, HALF + marker, 1))
    job = start(app, ranks=RANKS, redundancy=3, compare=way, env={"WRITE": str(write)})
    assert job.finish() == 0, (write, job.report())
    check(job)
    assert [each["replica"] for each in job.events("replica-lost")] == [0] and not named(job)


@pytest.mark.rotate(6)
@pytest.mark.parametrize("replica", [0, 1, 2])
def test_a_killed_replica_is_replaced_while_others_write(
    with_copies: Start, tmp_path: Path, replica: int
) -> None:
    chance = Random(seed_of_the_commit())
    kill = f"{chance.randrange(RANKS)}.{replica}.{chance.randrange(2, 20)}"
    job = with_copies(app_of(tmp_path), ranks=RANKS, redundancy=3, env={"KILL": kill})
    assert job.finish() == 0, (kill, job.report())
    check(job)
    assert replica in [each["replica"] for each in job.events("replica-lost")] and not named(job), kill


@pytest.mark.rotate(6)
@pytest.mark.parametrize("way", ["late", "sender", "receiver"])
def test_a_bit_flipped_in_the_data_of_a_write_is_in_no_file_and_the_replica_is_named(
    start: Start, tmp_path: Path, way: str
) -> None:
    chance = Random(seed_of_the_commit())
    replica, message = chance.randrange(3), chance.randrange(4, 90)
    flips = {"CKPT_FLIPS": f"rank=2,replica={replica},message={message}"}
    job = start(app_of(tmp_path), ranks=RANKS, redundancy=3, compare=way, env=flips)
    assert job.finish() == 0, (flips, job.report())
    check(job)
    assert named(job) == [(2, replica)], (flips, job.report())


@pytest.mark.rotate(4)
def test_what_the_rank_that_writes_means_wrongly_itself_is_in_no_file(start: Start, tmp_path: Path) -> None:
    wrong = '        mine[17] += step == 11 and rank == 0 and status()["replica"] == 1\n'
    marker = "        request = file.Iwrite_at"
    text = APP.replace(marker, wrong + marker, 1).replace(
        "import ckpt\n", "import ckpt\n    from ckpt.redundancy import status\n", 1
    )
    app = write_app(tmp_path, text)
    job = start(app, ranks=RANKS, redundancy=3)
    assert job.finish() == 0, job.report()
    check(job)
    assert named(job) == [(0, 1)]


@pytest.mark.rotate(4)
def test_two_replicas_that_differ_go_back_and_so_do_their_parallel_files(
    start: Start, tmp_path: Path
) -> None:
    flips = {"CKPT_FLIPS": f"rank=1,replica=0,message={Random(seed_of_the_commit()).randrange(40, 100)}"}
    job = start(app_of(tmp_path), ranks=RANKS, redundancy=2, env=flips)
    assert job.finish() == 0, (flips, job.report())
    check(job)
    assert job.events("replica-differs"), flips


@pytest.mark.rotate(8)
@pytest.mark.parametrize(("taken", "then"), [(3, 3), (3, 2), (3, 1), (2, 3)])
def test_an_open_parallel_file_in_a_checkpoint_is_gone_on_with_by_any_number_of_replicas(
    start: Start, tmp_path: Path, taken: int, then: int
) -> None:
    job = start(app_of(tmp_path), ranks=RANKS, redundancy=taken, env={"GATE": "1"})
    job.wait_for(lambda: "half" in job.output(0), "the middle of the program")
    done = run_ckpt("checkpoint", job.directory)
    assert done.returncode == 0, done.stderr
    job.go()
    assert job.finish() == 0, job.report()
    check(job)
    again = Job(job.directory, "--redundancy", then, f"{job.directory}@1", verb="restart")
    try:
        assert again.finish() == 0, again.report()
        check(again)
        assert not again.events("replica-differs")
    finally:
        again.close()


@pytest.mark.rotate(4)
def test_a_file_that_is_open_in_an_image_without_replicas_is_gone_on_with_without_them_only(
    start: Start, tmp_path: Path
) -> None:
    job = start(app_of(tmp_path), ranks=RANKS, env={"GATE": "1"})
    job.wait_for(lambda: "half" in job.output(0), "the middle of the program")
    done = run_ckpt("checkpoint", "--stop", job.directory)
    assert done.returncode == 0 and job.finish() == 75, done.stderr
    again = run_ckpt("restart", "--redundancy", 3, job.directory)
    assert again.returncode != 0
    assert "open for writing" in again.stderr and "--redundancy 1" in again.stderr, again.stderr


@pytest.mark.rotate(4)
def test_a_file_that_is_replaced_while_it_is_open_is_not_written_and_one_that_is_gone_is_not_made(
    start: Start, tmp_path: Path
) -> None:
    app = write_app(
        tmp_path,
        """
        import os
        import ckpt
        from ckpt import MPI

        comm = ckpt.enable()
        file = MPI.File.Open(comm, "a", MPI.MODE_WRONLY | MPI.MODE_CREATE)
        file.Write_at(comm.rank, b"x")
        for change in ("replaced", "removed"):
            comm.Barrier()
            if comm.rank == 1 and change == "replaced":
                with open("b", "w") as other:
                    other.write("other")
                os.rename("b", "a")
            elif comm.rank == 1:
                os.remove("a")
            comm.Barrier()
            try:
                file.Write_at(comm.rank, b"y")
            except MPI.Exception as error:
                print(comm.rank, change, error.Get_error_class() in (MPI.ERR_IO, MPI.ERR_NO_SUCH_FILE))
            if comm.rank == 1 and change == "replaced":
                print(open("a").read())
        file.Close()
        print(os.path.exists("a"))
        """,
    )
    job = start(app, ranks=2, redundancy=3)
    assert job.finish() == 0, job.report()
    found = sorted(job.stdout.splitlines())
    assert found == [
        "0 removed True",
        "0 replaced True",
        "1 removed True",
        "1 replaced True",
        "False",
        "False",
        "other",
    ]
    assert not named(job)

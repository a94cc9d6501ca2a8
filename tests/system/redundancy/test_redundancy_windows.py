"""One-sided communication and `Request.Cancel` of a receive under `--redundancy`: all replicas find the same, and the result
is that of a job without, whoever is wrong or killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.redundancy.test_redundancy import END, named
from tests.system.support import Job, jobs_fixture, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

BEGIN = (
    """
    import os, random, time
    import numpy as np
    import ckpt
    from ckpt import MPI

    comm = ckpt.enable()
    rank, size = comm.rank, comm.size
    others = [each for each in range(size) if each != rank]
    """
    + END
)

FENCE = """
    memory = np.zeros(2 * size + 1)
    win = MPI.Win.Create(memory, 8, comm=comm)
    for step in range(30):
        end(step)
        win.Fence()
        for target in range(size):
            win.Put(np.full(2, step + rank * 0.1), target, [2 * rank, 2, MPI.DOUBLE])
            win.Accumulate(np.full(1, 0.1 / (rank + 3)), target, [2 * size, 1, MPI.DOUBLE])
        win.Fence()
        right = np.zeros(2)
        win.Get(right, (rank + 1) % size, [2 * rank, 2, MPI.DOUBLE])
        win.Fence()
        comm.allreduce(float(memory.sum() + right.sum()))
    print(rank, memory[:-1].tolist(), right.tolist(), round(float(memory[-1]), 9))
    win.Free()
"""

POSTED = """
    memory = np.zeros(size, "q")
    win = MPI.Win.Create(memory, 8, comm=comm)
    group = win.group.Incl(others)
    for step in range(30):
        end(step)
        win.Post(group)
        win.Start(group)
        for target in others:
            win.Put(np.full(1, memory[rank] + target), target, rank)
        win.Complete()
        if step % 2:
            win.Wait()
        else:
            while not win.Test():
                pass
        memory[rank] += memory[others].sum()
        comm.send(int(memory.sum()), (rank + 1) % size)
        memory[rank] ^= comm.recv(source=(rank - 1) % size)
    print(rank, memory.tolist())
    win.Free()
"""

COUNTERS = """
    win = MPI.Win.Allocate(16, 8, comm=comm)
    one, drawn, mine = np.ones(1, "q"), np.zeros(1, "q"), []
    for step in range(40):
        end(step)
        for target in range(size):
            win.Lock(target, MPI.LOCK_SHARED)
            win.Fetch_and_op(one, drawn, target)
            win.Unlock(target)
            mine.append(int(drawn[0]))
        win.Lock(0)  # nobody changes this number in between
        win.Get(drawn, 0, 1)
        win.Flush(0)
        win.Put(drawn * 3 + 1 & 0xFFFF, 0, 1)
        win.Unlock(0)
        comm.send(mine[-size:], (rank + 1) % size)  # replicas that have drawn others would send others
        comm.recv(source=(rank - 1) % size)
    drawn_by_all = comm.gather(mine)
    comm.Barrier()  # all have changed the number
    win.Lock(0)
    win.Get(drawn, 0, 1)
    win.Unlock(0)
    if rank == 0:
        numbers = sorted(sum(drawn_by_all, []))
        print(numbers == sorted(list(range(40 * size)) * size))
    print(rank, int(drawn[0]))
    win.Free()
"""

POLLED = """
    import random
    win = MPI.Win.Allocate(8 * size, 8, comm=comm)
    memory = np.frombuffer(win.tomemory(), "q")
    looks = 0
    win.Lock_all()
    for step in range(1, 21):
        end(step)
        time.sleep(random.random() * 0.004)
        win.Accumulate(np.full(1, step), (rank + 1) % size, rank, op=MPI.REPLACE)
        win.Flush((rank + 1) % size)
        win.Sync()
        while memory[(rank - 1) % size] < step:
            looks += 1
            win.Flush(rank)
            win.Sync()
        comm.send(looks, (rank + 1) % size)  # how often it has looked is the same in all replicas
        comm.recv(source=(rank - 1) % size)
    win.Unlock_all()
    print(rank, memory[(rank - 1) % size])
    win.Free()
"""

LINKED = """
    # each rank appends to lists whose elements (a number, and where the next one is) are in memory of all ranks
    win = MPI.Win.Create_dynamic(comm=comm)
    kept, scrap = [], bytearray(8)
    def new(value):
        element = np.array([value, -1, 0], "q")
        kept.append(element)
        before = MPI.Get_address(element) if len(kept) % 2 else None
        win.Attach(element)
        address = MPI.Get_address(element)
        assert before in (None, address) and MPI.Get_address(element[1:]) == address + 8
        assert MPI.buffer.fromaddress(address, 8).tobytes() == element[:1].tobytes()
        return address
    tails = comm.allgather((rank, new(0)))
    heads, found = tuple(tails), np.zeros(3, "q")
    for step in range(20):
        end(step)
        win.Attach(scrap)
        target, at = tails[(rank + step) % size]
        mine = new(100 * rank + step)
        win.Lock(target, MPI.LOCK_EXCLUSIVE)
        win.Put(np.array([rank, mine], "q"), target, MPI.Aint_add(at, 8))
        win.Unlock(target)
        where = comm.allgather((rank, mine))
        tails = [where[(each - step) % size] for each in range(size)]
        win.Detach(scrap)
    comm.Barrier()
    for target, at in heads:
        values = []
        while target >= 0:
            win.Lock(target, MPI.LOCK_SHARED)
            win.Get(found, target, at)
            win.Unlock(target)
            values.append(int(found[0]))
            target, at = int(found[1]), int(found[2])
        print(rank, values)
        comm.allreduce(sum(values))
    places = [MPI.Aint_diff(MPI.Get_address(each), MPI.BOTTOM) for each in kept[1:3]]
    both = MPI.INT64_T.Create_hindexed([1, 1], places).Commit()
    comm.Sendrecv([MPI.BOTTOM, 1, both], (rank + 1) % size, 0, found, (rank - 1) % size)
    print(rank, found[:2].tolist())
    comm.Barrier()
    for element in kept:
        win.Detach(element)
    win.Free()
"""

CANCELLED = """
    cancelled = 0
    for step in range(40):
        end(step)
        if rank:
            if random.random() < 0.5:
                time.sleep(0.002)
            comm.send((rank, step), 0, tag=step)
        else:
            requests = [comm.irecv(source=each, tag=step) for each in others]
            requests.append(comm.irecv(source=MPI.ANY_SOURCE, tag=1000))
            time.sleep(0.001)
            found, status = [], MPI.Status()
            for request in requests:
                request.Cancel()
                found.append(request.wait(status))
                found[-1] = "cancelled" if status.Is_cancelled() else found[-1]
            cancelled += found.count("cancelled")
            for each, what in zip(others, found):
                if what == "cancelled":
                    assert comm.recv(source=each, tag=step) == (each, step)
                else:
                    assert what == (each, step)
            assert found[-1] == "cancelled"
        comm.bcast(cancelled)  # how many is the same in all replicas
    print(rank, "ends")
"""

PROGRAMS = {
    "fence": FENCE,
    "posted": POSTED,
    "counters": COUNTERS,
    "polled": POLLED,
    "linked": LINKED,
    "cancelled": CANCELLED,
}


def app_of(directory: Path, name: str) -> Path:
    return write_app(directory, BEGIN + PROGRAMS[name])


def lines(job: Job) -> list[str]:
    return sorted(job.stdout.splitlines())


@pytest.fixture(params=list(PROGRAMS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


_plain: dict[str, list[str]] = {}


@pytest.fixture
def plain(tmp_path_factory: pytest.TempPathFactory, name: str) -> list[str]:
    """What the program prints without replicas."""
    if name not in _plain:
        directory = tmp_path_factory.mktemp(name)
        done = run_ckpt("run", "-n", 3, "--job", directory / "job", app_of(directory, name))
        assert done.returncode == 0, done.stderr
        _plain[name] = sorted(done.stdout.splitlines())
    return _plain[name]


@pytest.fixture
def with_copies(tmp_path: Path) -> Iterator[Start]:
    yield from jobs_fixture(tmp_path)


@pytest.mark.rotate(5)
def test_three_replicas_find_the_same_in_their_windows(
    start: Start, tmp_path: Path, name: str, plain: list[str]
) -> None:
    job = start(app_of(tmp_path, name), ranks=3, redundancy=3)
    assert job.finish() == 0, job.report()
    assert lines(job) == plain
    assert not named(job) and job.events("result-compared")[0]["verified"]


@pytest.mark.rotate(10)
@pytest.mark.parametrize("way", ["sender", "receiver"])
def test_so_they_do_where_messages_wait_for_the_comparison(
    start: Start, tmp_path: Path, name: str, plain: list[str], way: str
) -> None:
    job = partial(start, compare=way)(app_of(tmp_path, name), ranks=3, redundancy=3)
    assert job.finish() == 0, job.report()
    assert lines(job) == plain and not named(job)


@pytest.mark.rotate(10)
@pytest.mark.parametrize("replica", [0, 1])
def test_a_killed_replica_changes_nothing_also_where_it_decides_the_order(
    with_copies: Start, tmp_path: Path, name: str, plain: list[str], replica: int
) -> None:
    chance = Random(seed_of_the_commit())
    kill = f"{chance.randrange(3)}.{replica}.{chance.randrange(2, 20)}"
    job = with_copies(app_of(tmp_path, name), ranks=3, redundancy=3, env={"KILL": kill})
    assert job.finish() == 0, (kill, job.report())
    assert lines(job) == plain, kill
    assert [each["replica"] for each in job.events("replica-lost")] == [replica]
    assert not named(job)


PUTS = """
    memory = np.zeros(1024 * size)
    win = MPI.Win.Create(memory, 8, comm=comm)
    win.Fence()
    for step in range(20):
        mine = np.full(1024, step + memory.sum() / 1024)
        comm.Barrier()  # all have looked
        for target in range(size):
            win.Put(mine, target, [1024 * rank, 1024, MPI.DOUBLE])
        win.Fence()
    print(rank, memory.sum())
    win.Free()
"""


@pytest.mark.rotate(3)
@pytest.mark.parametrize("replica", [0, 1, 2])
def test_a_bit_flipped_in_a_put_is_found_and_the_replica_is_named(
    start: Start, tmp_path: Path, replica: int
) -> None:
    message = Random(seed_of_the_commit()).randrange(10, 60)
    flips = f"rank=1,replica={replica},message={message}"
    job = start(write_app(tmp_path, BEGIN + PUTS), ranks=3, redundancy=3, env={"CKPT_FLIPS": flips})
    assert job.finish() == 0, (flips, job.report())
    assert len({line.split()[1] for line in lines(job)}) == 1, flips
    assert named(job) == [(1, replica)], flips


DESCRIBED = """
    memory = np.zeros(64)
    win = MPI.Win.Create(memory, 8, comm=comm)
    got = np.zeros(4)
    target = (rank + 1) % size
    for step in range(30):
        win.Lock(target, MPI.LOCK_EXCLUSIVE)
        win.Put(np.full(4, step + rank), target, [4 * rank, 4, MPI.DOUBLE])
        win.Accumulate(np.full(2, 0.5), target, [32 + 2 * rank, 2, MPI.DOUBLE])
        win.Get_accumulate(np.full(4, 1.0), got, target, [48, 4, MPI.DOUBLE])
        win.Get(got, target, [4 * rank, 4, MPI.DOUBLE])
        win.Unlock(target)
        comm.allreduce(float(got.sum()))
    print("sum", memory.sum())
    win.Free()
"""


@pytest.mark.rotate(3)
@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.nightly) for turn in (1, 2, 3))])
@pytest.mark.parametrize("way", ["late", "sender", "receiver"])
def test_who_describes_a_one_sided_operation_wrongly_is_named_and_never_its_target(
    start: Start, tmp_path: Path, way: str, turn: int
) -> None:
    chance, app = Random(seed_of_the_commit() + turn), write_app(tmp_path, BEGIN + DESCRIBED)
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        rank, replica = chance.randrange(3), chance.randrange(3)
        place = f"seed={chance.randrange(1 << 20)},rank={rank},replica={replica},message={chance.randrange(1, 110)}"
        flips = {"CKPT_FLIPS": f"{place},where=description"}
        options = "-n", 3, "--redundancy", 3, "--clones", 0, "--compare", way
        job = Job(tmp_path / str(number) / "job", *options, app, env=flips)
        try:
            assert job.finish() == 0, (flips, job.report())
            assert lines(job) == ["sum 150.0"] * 3, flips
            assert named(job) == [(rank, replica)], (flips, job.report())
        finally:
            job.close()


@pytest.mark.rotate(6)
@pytest.mark.parametrize("name", ["fence", "counters", "polled", "linked"])
@pytest.mark.parametrize(("taken", "then"), [(3, 3), (3, 1), (1, 3)])
def test_a_window_in_a_checkpoint_is_gone_on_with_by_any_number_of_replicas(
    start: Start, tmp_path: Path, name: str, plain: list[str], taken: int, then: int
) -> None:
    gate = """
    def end(step):
        if step == 7:
            print("half", flush=True) if rank == 0 else None
            while not os.path.exists(os.environ["CKPT_TEST_GO"]):
                time.sleep(0.01)
    """
    app = write_app(tmp_path, BEGIN + gate + PROGRAMS[name])
    job = start(app, ranks=3, redundancy=taken)
    job.wait_for(lambda: "half" in job.output(0), "the middle of the program")
    done = run_ckpt("checkpoint", "--stop", job.directory)
    assert done.returncode == 0 and job.finish() == 75, job.report()
    again = Job(job.directory, "--redundancy", then, job.directory, verb="restart")
    try:
        assert again.finish() == 0, again.report()
        found = [line for rank in range(3) for line in again.output(rank).splitlines() if line != "half"]
        assert sorted(found) == plain
        assert not again.events("replica-differs")
    finally:
        again.close()


def test_an_address_from_before_the_dynamic_window_is_refused_by_name(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        BEGIN
        + """
    memory = np.zeros(1, "q")
    early = MPI.Get_address(memory)  # another one in each replica
    win = MPI.Win.Create_dynamic(comm=comm)
    win.Attach(memory)
    win.Fence()
    win.Put(np.ones(1, "q"), rank, MPI.Get_address(memory))
    win.Fence()
    win.Put(np.full(1, 2), rank, early)
    try:
        win.Fence()
    except MPI.Exception as error:
        print("refused", error.Get_error_class() == MPI.ERR_RMA_RANGE, memory)
    win.Detach(memory)
    win.Free()
    """,
    )
    job = start(app, ranks=1, redundancy=3)
    assert job.finish() == 0, job.report()
    assert lines(job) == ["refused True [1]"] and not named(job)

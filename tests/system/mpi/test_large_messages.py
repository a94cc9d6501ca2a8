"""Large messages and collectives in real jobs: read from the sender's memory into the receiver's, ranks killed meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import Job, long_enough, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(4)]

Start = Callable[..., Job]

EXCHANGE = """
    import sys, zlib
    import numpy as np
    from ckpt import MPI

    comm = MPI.COMM_WORLD
    rank, size, turns = comm.rank, comm.size, int(sys.argv[1])
    COUNT = 81 << 10                                    # doubles: 648 KiB, a long broadcast
    mine, into, sums = np.arange(COUNT) + rank, np.zeros(COUNT), np.zeros(COUNT)
    spread, table, late = np.zeros(COUNT), np.zeros(COUNT), np.zeros(COUNT)
    crc, PART = 0, COUNT // size
    for turn in range(turns):
        mine += turn
        other, before = (rank + 1) % size, (rank - 1) % size
        if rank % 2:
            comm.Recv(into, before)                     # a receive that waits
            comm.Send(mine, other)                      # returns when the memory may be used again
        else:
            comm.Send(mine, other)
            comm.Recv(into, before)
        mine += 1
        requests = [comm.Isend(mine, other, 2), comm.Irecv(late, MPI.ANY_SOURCE, 2)]
        comm.Allreduce(into, sums)
        spread[:] = mine if rank == turn % size else 0
        comm.Bcast(spread, turn % size)
        comm.Alltoall(spread + rank, table)             # read from the others' memory, as the next one
        table[rank * PART : (rank + 1) * PART] += turn
        comm.Allgather(MPI.IN_PLACE, table)
        MPI.Request.Waitall(requests)
        for array in (into, sums, spread, table, late):
            crc = zlib.crc32(array, crc)
    print(crc, mine.sum())
"""


@pytest.mark.rotate(4)
@pytest.mark.parametrize("turn", range(4))
def test_killed_at_random_moments_large_messages_have_the_same_bytes(
    start: Start, tmp_path: Path, turn: int
) -> None:
    choose = random.Random(seed_of_the_commit() * 10 + turn)
    program, ranks = write_app(tmp_path, EXCHANGE), 3

    def attempt(turns: int) -> None:
        plain = start(program, turns, ranks=ranks, name=f"plain-{turns}")
        job = start(program, turns, ranks=ranks, every=0.1, name=f"job-{turns}")
        job.wait_event("committed", 1)
        time.sleep(choose.random() * 0.1)  # a random moment, not a wait for something
        job.kill_rank(choose.randrange(ranks))
        job.wait_event("restarted", 1)
        assert job.finish() == 0, job.report()
        assert plain.finish() == 0, plain.report()
        for rank in range(ranks):
            assert job.output(rank) == plain.output(rank)
        assert all(event["from_epoch"] for event in job.events("restarting")), job.report()

    long_enough(30, attempt)


COPIED_BY_BOTH = """
    import random, sys, zlib
    import numpy as np
    from ckpt import MPI

    comm, chance, crc = MPI.COMM_WORLD, random.Random(5), 0
    content = np.random.default_rng(0).integers(0, 255, 6 << 20, dtype="B")
    mine, into = np.zeros_like(content), np.zeros_like(content)
    for turn in range(int(sys.argv[1])):
        size, begin = chance.randrange(200 << 10, 3 << 20), chance.randrange(3 << 20)
        mine[:size] = content[begin : begin + size] ^ turn % 256
        if comm.rank == turn % 2:
            comm.Send(mine[:size], 1 - comm.rank)  # waits, and writes into the other's memory meanwhile
        else:
            into[:] = 1
            comm.Recv(into[:size], 1 - comm.rank)
            crc = zlib.crc32(into[: size + 100], crc)
            assert np.array_equal(into[:size], mine[:size]), turn
            into[:] = 7
            assert (into == 7).all(), turn
        mine[:size] = 0
    print(crc)
"""


@pytest.mark.rotate(2)
@pytest.mark.parametrize("victim", [0, 1])
def test_killed_while_both_ranks_copy_a_message_it_has_the_same_bytes(
    start: Start, tmp_path: Path, victim: int
) -> None:
    choose, program = random.Random(seed_of_the_commit() * 10 + victim), write_app(tmp_path, COPIED_BY_BOTH)

    def attempt(turns: int) -> None:
        plain = start(program, turns, ranks=2, name=f"plain-{turns}")
        assert plain.finish() == 0, plain.report()
        job = start(program, turns, ranks=2, every=0.2, name=f"job-{turns}")
        job.wait_event("committed", 1)
        time.sleep(choose.random() * 0.2)  # a random moment, not a wait for something
        job.kill_rank(victim)
        job.wait_event("restarted", 1)
        assert job.finish() == 0, job.report()
        assert [job.output(rank) for rank in range(2)] == [plain.output(rank) for rank in range(2)]

    long_enough(60, attempt)


PLACED = """
    import numpy as np
    from ckpt import MPI
    from ckpt.rank.runtime import current

    comm = MPI.COMM_WORLD
    port = current().port
    there = np.zeros(1 << 18)
    if comm.rank == 0:
        comm.recv(source=1)                             # the receive of rank 1 is posted
        comm.Send(there + 1, 1)
        print(len(port.direct))
    else:
        posted = comm.Irecv(there, 0, 0)
        comm.send(None, 0)
        posted.Wait()
        print(there.min(), there.max(), port.counts["messages_placed"])
"""


def test_a_receive_that_waits_gets_the_payload_without_a_copy_between(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, PLACED), ranks=2)
    assert job.finish() == 0, job.report()
    if job.output(0) == "0\n":
        pytest.skip("processes may not read each other's memory here")
    assert job.output(1) == "1.0 1.0 1\n"


REFUSED = """
    import errno
    import numpy as np
    from ckpt import MPI
    from ckpt.rank.runtime import current
    from ckpt.transport.wires import crossmemory

    comm = MPI.COMM_WORLD
    port = current().port
    size = 40 << 20                                     # longer than a frame of the wire below may be
    if comm.rank == 0:
        comm.recv(source=1)
        data = np.arange(size, dtype=np.uint8)
        comm.Send(data, 1)
        print(len(port.direct))
    else:
        def forbidden(*_):
            raise PermissionError(errno.EPERM, "not permitted any more")
        crossmemory.Reader.read = forbidden
        into = np.zeros(size, np.uint8)
        comm.send(None, 0)
        comm.Recv(into, 0)
        print((into == np.arange(size, dtype=np.uint8)).all(), port.counts["messages_placed"])
"""


@pytest.mark.nightly
def test_a_receiver_that_may_not_read_any_more_gets_the_message_in_pieces(
    start: Start, tmp_path: Path
) -> None:
    job = start(write_app(tmp_path, REFUSED), ranks=2)
    assert job.finish() == 0, job.report()
    assert (job.output(0), job.output(1)) == ("0\n", "True 0\n")

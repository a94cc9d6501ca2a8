"""Active messages in real jobs: handlers run while the program computes, and survive kill -9 with all that is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = pytest.mark.system

Start = Callable[..., Job]

COUNTS = """
    import hashlib, os, sys, time
    import ckpt

    comm = ckpt.enable()
    rank, size, steps = comm.rank, comm.size, int(sys.argv[1])

    def held():
        return not os.path.exists(os.environ["CKPT_TEST_GO"])

    class Service:
        def __init__(self):
            self.trail = {source: [] for source in range(size)}
            self.passed = 0
            self.channel = ckpt.ActiveMessages(comm, self.receive)

        def receive(self, source, obj):
            step, hops, value = obj
            if hops == 0:
                assert not self.trail[source] or self.trail[source][-1][0] <= step, (source, obj)
                self.trail[source].append((step, value))
            else:
                self.passed += 1
                self.channel.send((rank + hops) % size, (step, hops - 1, value * 31 % 1000003))

    service = Service()
    late_trail = []
    late = None if rank == 0 else ckpt.ActiveMessages(comm, lambda source, obj: late_trail.append((source, obj)))
    for step in range(steps):
        while step == steps // 2 and held():
            sum(range(1000))
        service.channel.send((rank + 1) % size, (step, 3, step + rank))
        if rank and step % 10 == 0:
            late.send(0, "x" * (step * 1000))
        with service.channel.lock:
            service.passed += 1000000
        sum(range(20000))
        time.sleep(0.002)
    if rank == 0:
        late = ckpt.ActiveMessages(comm, lambda source, obj: late_trail.append((source, len(obj))))
        late.wait(lambda: len(late_trail) == (size - 1) * -(-steps // 10))
        for source in range(1, size):
            assert [n for each, n in late_trail if each == source] == [1000 * s for s in range(0, steps, 10)], late_trail
    service.channel.wait(lambda: sum(map(len, service.trail.values())) == steps)
    comm.barrier()  # nobody has anything left to pass on
    service.channel.free()
    late.free()
    digest = hashlib.sha256(repr([service.trail[source] for source in range(size)]).encode()).hexdigest()
    print("rank", rank, service.passed, len(late_trail), digest)
"""


def test_handlers_their_state_and_kept_messages_survive_kills(start: Start, tmp_path: Path) -> None:
    """Each rank is killed once, half-way, with messages of a channel that rank 0 has not made yet."""
    app = write_app(tmp_path, COUNTS)
    quiet = start(app, 60, ranks=3, every=100, name="quiet")
    assert quiet.finish() == 0, quiet.report()
    job = start(app, 60, ranks=3, every=0.2, name="killed")
    for restarts, rank in enumerate((0, 2, 1)):
        job.wait_event("committed", 2 * (restarts + 1))
        job.kill_rank(rank)
        job.wait_event("restarting", restarts + 1)
    assert job.finish() == 0, job.report()
    assert all(event["from_epoch"] for event in job.events("restarting")), job.report()
    for rank in range(3):
        assert job.output(rank) == quiet.output(rank) != ""

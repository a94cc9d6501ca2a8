"""Rings of shared memory in real jobs: they are used, may be left out, give way to sockets, and are in no image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.transport.rings import ring
from tests.system.support import Job, long_enough, write_app

Start = Callable[..., Job]

pytestmark = [
    pytest.mark.turns(3),
    pytest.mark.system,
    pytest.mark.skipif(not ring.available(), reason="the C module of rings is not built"),
]

COUNTS = """
    import ckpt
    from ckpt.rank.runtime import current

    comm = ckpt.enable()
    for number in range(300):
        if comm.rank == 0:
            comm.send(number, 1)
            assert comm.recv(source=1) == number
        else:
            comm.send(comm.recv(source=0), 0)
    with current().port.lock:
        counters = current().port.counters()
    print(counters.get("ring_sent", 0) > 200, counters.get("express_sent", 0) > 100)
"""


@pytest.mark.parametrize("wait", ["auto", "spin", "yield", "sleep"])
def test_messages_take_the_ring_however_a_rank_waits(start: Start, tmp_path: Path, wait: str) -> None:
    job = start(write_app(tmp_path, COUNTS), ranks=2, every=100, wait=wait)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in (0, 1)] == ["True True\n"] * 2, job.report()


def test_with_wire_socket_there_is_no_ring(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, COUNTS), ranks=2, every=100, wire="socket")
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in (0, 1)] == ["False False\n"] * 2, job.report()


FULL = """
    import contextlib, os, resource, ckpt
    from ckpt.rank.runtime import current

    comm = ckpt.enable()
    if comm.rank == 0:
        rings = current().port._ring_wire
        for peer in 1, 2:
            comm.send("to and fro", peer)
            comm.recv(source=peer)
            rings._inner.send(peer, (b"no frame",))  # connects the socket
        rings._close_writer(2, rings._peers[2])  # the next message finds no ring, and makes one
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, before[1]))
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for number in range(100):
            comm.send(number, 2)
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    else:
        comm.send(comm.recv(source=0), 0)
    if comm.rank == 2:
        print([comm.recv(source=0) for _ in range(100)] == list(range(100)))
    comm.barrier()
"""


def test_a_rank_without_a_free_descriptor_uses_the_socket_and_says_so(start: Start, tmp_path: Path) -> None:
    job = start(write_app(tmp_path, FULL), ranks=3, every=100)
    said = job.wait_event("wire-fallback")
    assert (said["rank"], said["peer"]) == (0, 2) and "no ring can be made" in said["reason"]
    assert job.finish() == 0, job.report()
    assert job.output(2) == "True\n"


NO_SOCKETS = """
    import os, ckpt
    from ckpt.transport.rings import ringwire

    ringwire.EARLY_NS = 1 << 60  # however busy the machine is
    comm = ckpt.enable()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert comm.alltoall(list(range(comm.size))) == [comm.rank] * comm.size
    for peer in range(comm.size):
        comm.sendrecv("x", (comm.rank + peer) % comm.size, source=(comm.rank - peer) % comm.size)
    print(len(os.listdir("/proc/self/fd")) - before)
"""


def test_between_ranks_with_rings_no_socket_is_connected(start: Start, tmp_path: Path) -> None:
    """So a job may have more ranks than a rank has descriptors."""
    job = start(write_app(tmp_path, NO_SOCKETS), ranks=4, every=100)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(4)] == ["0\n"] * 4, job.report()


GOES_ON = """
    import hashlib, sys, ckpt

    comm = ckpt.enable()
    digest, peer = b"", 1 - comm.rank
    for number in range(int(sys.argv[1])):
        comm.send((number, digest), peer)
        digest = hashlib.blake2b(digest + repr(comm.recv(source=peer)).encode(), digest_size=16).digest()
    print(digest.hex())
"""


def test_a_kill_while_messages_are_in_rings_changes_no_byte(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, GOES_ON)

    def killed(messages: int) -> None:
        name = f"undisturbed-{messages}"
        undisturbed = start(app, messages, ranks=2, every=100, wire="socket", name=name)
        assert undisturbed.finish() == 0, undisturbed.report()
        job = start(app, messages, ranks=2, every=0.1, name=f"job-{messages}")
        job.wait_event("committed")
        job.kill_rank(1)
        assert job.finish() == 0, job.report()
        assert [job.output(rank) for rank in (0, 1)] == [undisturbed.output(rank) for rank in (0, 1)]

    long_enough(20_000, killed)

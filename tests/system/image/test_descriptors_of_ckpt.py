"""Programs that close descriptors which are not theirs, as daemons do, or put others into their place: ckpt's are spared,
and the program gets its checkpoints and its restart, with everything that it opens afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

Start = Callable[..., Job]

GOES_ON = """
    held = os.open(os.devnull, os.O_WRONLY), open("notes.txt" + os.environ["RANK"], "w+")
    held[1].write("kept")
    before = comm.allreduce(numpy.arange(200_000))
    while comm.allreduce(int(os.environ["CKPT_RESTARTS"])) < 2:
        time.sleep(0.001)
    held[1].seek(0)
    print((comm.allreduce(numpy.arange(200_000)) == before).all(), os.write(held[0], b"1234"), held[1].read())
"""
"""Opens files, under ckpt's numbers if those are free, and waits for a restart."""


@pytest.mark.parametrize(
    "closes",
    [
        "os.closerange(3, 256)",
        "os.closerange(3, 1 << 30)",
        """
    for fd in range(3, 1024):
        try:
            os.close(fd)
        except OSError as error:
            assert error.errno == errno.EBADF""",
        """
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(fd=int(name))
            except OSError:
                pass""",
        """
    for fd in range(3, 40):
        try:
            os.dup2(1, fd, inheritable=False)
        except OSError as error:
            assert error.errno == errno.EBUSY and "ckpt" in str(error)
        else:
            os.close(fd)""",
    ],
)
@pytest.mark.turns(5)
def test_a_program_that_closes_all_descriptors_goes_on(tmp_path: Path, start: Start, closes: str) -> None:
    app = write_app(
        tmp_path,
        f"""
    import errno, os, time, numpy
    import ckpt
    comm = ckpt.enable()
    comm.barrier()
    number = os.open(os.devnull, os.O_RDONLY)
    {closes.strip()}
    try:
        os.fstat(number)
    except OSError:
        print("closed")
    {GOES_ON.strip()}
    """,
    )
    job = start(app, ranks=2, every=0.2)
    job.wait_event("committed")
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert job.output(0) == job.output(1) == "closed\nTrue 4 kept\n"


def test_a_forked_child_closes_them(tmp_path: Path, start: Start) -> None:
    """It is no rank; a daemon must not keep the sockets of a job open."""
    app = write_app(
        tmp_path,
        """
    import os
    if not (child := os.fork()):
        os.closerange(3, 1 << 20)
        os._exit(len(os.listdir("/proc/self/fd")))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "4\n"


@pytest.mark.parametrize("free", [0, 1])
def test_a_program_without_free_descriptors_is_told_why_it_gets_no_checkpoint(
    tmp_path: Path, start: Start, free: int
) -> None:
    """The process that writes the image could not even import what it says such things with: nothing was said."""
    app = write_app(
        tmp_path,
        f"""
    import os, resource, time
    limit = len(os.listdir("/proc/self/fd")) - 1 + {free}  # one of them lists
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    while True:
        time.sleep(0.01)
    """,
    )
    job = start(app, ranks=1, every=0.2)
    reason = job.wait_event("failed")["reason"]
    assert "no descriptor is free" in reason and "ulimit -n" in reason, job.report()

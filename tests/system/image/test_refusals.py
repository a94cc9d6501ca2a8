"""Programs that cannot be captured: they run on as if nobody had asked, and are told once why nothing is committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]
Start = Callable[..., Job]

LOG = """
    import array, os, time
    import ckpt
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    ckpt.enable()

    def seen(event):
        # By calls in C alone: a look while one of them runs Python code would name that call.
        log = os.open(os.environ["CKPT_JOB"] + "/events.jsonl", os.O_RDONLY)
        try:
            return f'"{event}"'.encode() in os.read(log, 1 << 20)
        finally:
            os.close(log)

    def all_have_seen(event):
        return comm.allreduce(seen(event), MPI.MIN)

    def ask():
        comm.barrier()
        if comm.rank == 0:
            ckpt.checkpoint(wait=False)
"""


def test_a_rank_that_can_never_be_captured_stops_nobody(start: Start, tmp_path: Path) -> None:
    """A monitor thread on one rank: the others took images, went on with messages that this one had to wait for until it
    gave its image up, 81 times, and 3.4 s became 89."""
    app = write_app(
        tmp_path,
        LOG
        + """
    import threading
    reading, writing = os.pipe()
    if comm.rank == 1:
        threading.Thread(target=os.read, args=(reading, 1), name="monitor").start()
    ask()
    number = comm.rank
    while not all_have_seen("refused"):
        number = comm.sendrecv(number + 1, dest=1 - comm.rank, source=1 - comm.rank)
    os.write(writing, b"-")
    print("done", seen("captured"))
    """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert job.output(0) == job.output(1) == "done False\n"
    refused = job.events("refused")[0]
    assert refused["rank"] == 1 and "'monitor'" in refused["reason"]
    assert len(job.events("round-started")) == 1, job.report()


def test_at_the_end_it_is_said_that_nothing_was_committed_and_why(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        LOG
        + """
    def until_refused():
        while not seen("refused"):
            yield time.sleep(0.001) or 1

    ask()
    print(min(sum(array.array("d", until_refused())), 1))
    os._exit(0)
    """,
    )
    job = start(app, ranks=1)
    job.finish()
    [said] = [line for line in job.stderr.splitlines() if "nothing was committed" in line]
    reason = "rank 0 cannot be captured: array() is running until_refused ("
    assert said.startswith(f"ckpt: nothing was committed, because {reason}"), job.report()
    line = app.read_text().splitlines().index('print(min(sum(array.array("d", until_refused())), 1))') + 1
    assert f"{app}:{line} <module>). What to do: write the loop out" in said, job.report()


def test_a_wait_of_the_main_thread_that_cannot_be_captured_is_named(start: Start, tmp_path: Path) -> None:
    """It was said that the program had not come to a place between two instructions."""
    app = write_app(
        tmp_path,
        LOG
        + """
    import fcntl, threading

    held, wanted = open("held", "w"), open("held", "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    threading.Timer(1.5, fcntl.flock, (held, fcntl.LOCK_UN)).start()
    ask()
    fcntl.flock(wanted, fcntl.LOCK_EX)
    while not seen("committed"):
        time.sleep(0.001)
    print("done")
    """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    [refused] = job.events("refused")
    assert refused["reason"].startswith("flock() is running"), job.report()
    assert len(job.events("committed")) >= 1


def test_an_image_is_taken_when_the_frame_in_the_way_is_left(start: Start, tmp_path: Path) -> None:
    """`array.array("d", generator)` around the messages of all ranks: the round was open, every message waited for it."""
    app = write_app(
        tmp_path,
        LOG
        + """
    def until_refused():
        ask()
        while not all_have_seen("refused"):
            yield 1

    sum(array.array("d", until_refused()))
    while not all_have_seen("committed"):
        time.sleep(0.001)
    print("done")
    """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert job.events("round-aborted") == [], job.report()
    assert job.output(0) == job.output(1) == "done\n"


def test_a_rank_that_is_held_up_gives_its_image_up_and_says_for_how_long(
    start: Start, tmp_path: Path
) -> None:
    """It is inside of C when it is asked, and of `array.array` when the round is there."""
    app = write_app(
        tmp_path,
        LOG
        + """
    there = os.environ["CKPT_JOB"] + "/there"

    def until_aborted(command):
        os.system(command)  # no place between two instructions, and none in the library
        while not all_have_seen("round-aborted"):
            yield 1

    if comm.rank == 1:
        command = f"touch {there}; until grep -q captured $CKPT_JOB/events.jsonl; do sleep 0.01; done"
        sum(array.array("d", until_aborted(command)))
    else:
        while not os.path.exists(there):
            time.sleep(0.001)
        ckpt.checkpoint(wait=False)
        for _ in until_aborted("true"):
            pass
    print("done")
    """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    [failed] = job.events("failed")
    assert failed["rank"] == 1 and failed["held_ns"] > 0, job.report()
    assert "it waits for what was sent after another rank's image" in failed["reason"]
    assert job.output(0) == job.output(1) == "done\n"


def test_a_program_that_waits_for_its_checkpoint_where_there_can_be_none_is_told(
    start: Start, tmp_path: Path
) -> None:
    """`ckpt.checkpoint()` inside of `array.array` waited until the round was given up, after two minutes."""
    app = write_app(
        tmp_path,
        """
        import array
        import ckpt
        ckpt.enable()
        print(sum(array.array("d", (ckpt.checkpoint() is None for _ in range(2)))))
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    failed = job.events("failed")
    assert len(failed) == 2, job.report()
    assert all(
        "the program waits for its checkpoint where array() is running" in each["reason"] for each in failed
    )


@pytest.mark.parametrize("how", ["waits", "polls", "thread"])
def test_who_waits_for_a_program_that_waits_for_the_checkpoint_gives_it_up(
    start: Start, tmp_path: Path, how: str
) -> None:
    """Rank 2 was refused for ever, where it waited for what rank 0 sends after its `ckpt.checkpoint()`."""
    app = write_app(
        tmp_path,
        LOG
        + f"""
    import threading

    def received():
        comm.send("inside", 0)
        while {how == "polls"} and not comm.iprobe(source=0):
            time.sleep(0.001)
        yield comm.recv(source=0)

    reading, writing = os.pipe()
    if comm.rank == 0:
        comm.recv(source=2)
        comm.send(int(ckpt.checkpoint() is None), 2)
    elif comm.rank == 1:
        while not seen("round-aborted"):
            time.sleep(0.001)
    elif {how == "thread"}:
        threading.Thread(target=os.read, args=(reading, 1)).start()
        for number in received():
            print(number)
        os.write(writing, b"-")
    else:
        print(int(sum(array.array("d", received()))))
    """,
    )
    job = start(app, ranks=3, timeout=86400)
    assert job.finish() == 0, job.report()
    [failed] = job.events("failed")
    assert failed["rank"] == 2 and "sent after another rank's image" in failed["reason"], job.report()
    # Where rank 2 was slow to see its obstacle
    is_captured = any(each["rank"] == 0 for each in job.events("captured"))
    assert job.output(2) == ("0\n" if is_captured else "1\n"), job.report()


STENCIL = """
    import sys
    import numpy as np
    from mpi4py import MPI
    import ckpt

    comm = MPI.COMM_WORLD
    rows, steps = 16, 100
    field = np.zeros((rows + 2, 34))
    field[1:-1, 1:-1] = np.sin(np.arange(rows * 32).reshape(rows, 32) + comm.rank * rows * 32)
    up, down = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    for step in range(steps):
        comm.Sendrecv(field[1], up, recvbuf=field[-1], source=down)
        comm.Sendrecv(field[-2], down, recvbuf=field[0], source=up)
        new = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
        change = comm.allreduce(float(np.abs(new - field[1:-1, 1:-1]).max()), MPI.MAX)
        field[1:-1, 1:-1] = new
        while comm.allreduce(ckpt.restarts(), MPI.MIN) < step // 30:
            pass  # until it has been killed once more
    print(repr((change, field[1:-1, 1:-1].tobytes().hex())))
"""


def test_a_stencil_code_started_through_runpy_is_killed_three_times(start: Start, tmp_path: Path) -> None:
    """Nothing was ever committed below `runpy`, and 4.3 s became 32 meanwhile."""
    numpy = pytest.importorskip("numpy")
    write_app(tmp_path, STENCIL, "stencil.py")
    app = write_app(tmp_path, "import runpy\nrunpy.run_path('stencil.py', run_name='__main__')\n")
    job = start(app, ranks=2, every=0.05)
    for kill in range(3):
        job.wait_event("rank-started", 2, incarnation=kill)
        committed = len(job.events("committed"))
        job.wait_for(lambda least=committed: len(job.events("committed")) > least, "a commit")
        job.kill_rank(kill % 2)
        job.wait_event("restarted", kill + 1)
    assert job.finish() == 0, job.report()
    whole = numpy.zeros((34, 34))
    whole[1:-1, 1:-1] = numpy.sin(numpy.arange(32 * 32).reshape(32, 32))
    for _ in range(100):
        whole[0], whole[-1] = whole[-2], whole[1]
        before = whole[1:-1, 1:-1].copy()
        whole[1:-1, 1:-1] = 0.25 * (whole[:-2, 1:-1] + whole[2:, 1:-1] + whole[1:-1, :-2] + whole[1:-1, 2:])
    change = float(numpy.abs(whole[1:-1, 1:-1] - before).max())
    for rank in range(2):
        mine = whole[1 + 16 * rank : 17 + 16 * rank, 1:-1]
        assert job.output(rank) == repr((change, mine.tobytes().hex())) + "\n"

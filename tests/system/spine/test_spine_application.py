"""What an application sees: the world, checkpoints from inside, names, files, environment; the same script anywhere."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]


def test_the_same_script_runs_under_plain_python(tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import ckpt
        comm = ckpt.enable()
        assert comm is ckpt.comm is ckpt.enable()
        request = comm.isend({"to": "myself"}, 0, tag=4)
        assert comm.recv(source=0, tag=4) == {"to": "myself"}
        request.wait()
        assert ckpt.checkpoint() is None
        ckpt.register("state", [1])
        print(comm.rank, comm.size, comm.allreduce(5), comm.bcast("x"), ckpt.epoch(), ckpt.restarts())
        """,
    )
    done = subprocess.run([sys.executable, app], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "0 1 5 x 0 0\n", done.stderr


def test_waiting_for_nobody_is_an_error_not_a_hang(tmp_path: Path) -> None:
    app = write_app(tmp_path, "import ckpt\nckpt.enable().recv()\n")
    done = subprocess.run([sys.executable, app], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Deadlock" in done.stderr and "ckpt run -n N" in done.stderr


def test_ranks_see_who_they_are(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, sys
        names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE CKPT_RESTARTS".split()
        print([os.environ[name] for name in names], os.path.basename(os.environ["CKPT_JOB"]), sys.argv[1:], __name__)
        """,
    )
    job = start(app, "--own", "flag", ranks=2)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == [
        f"['{rank}', '2', '{rank}', '2', '0'] job ['--own', 'flag'] __main__\n" for rank in range(2)
    ]


def test_a_rank_that_is_alone_is_no_part_of_a_distributed_torch(start: Start, tmp_path: Path) -> None:
    """accelerate and transformers take LOCAL_RANK for the sign of one, and fail without MASTER_ADDR."""
    app = write_app(
        tmp_path, "import os\nprint(os.environ['WORLD_SIZE'], sorted({'LOCAL_RANK'} & {*os.environ}))\n"
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "1 []\n"


def test_a_module_is_run_with_m(start: Start, tmp_path: Path) -> None:
    package = tmp_path / "simulation"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("def value(): return 42\n")
    (package / "__main__.py").write_text(
        "import sys\nfrom .model import value\nprint(value(), sys.argv[1:])\n"
    )
    done = run_ckpt("run", "--job", tmp_path / "job", "-m", "simulation", "7", cwd=tmp_path)
    assert done.stdout == "42 ['7']\n", done.stderr


def test_output_is_prefixed_by_rank_when_asked(tmp_path: Path) -> None:
    app = write_app(tmp_path, "import ckpt\nprint('hello from', ckpt.enable().rank)\n")
    done = run_ckpt("run", "-n", 2, "--prefix", "--job", tmp_path / "job", app)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        before, after = line.split("hello from ")
        assert after in before, line


def test_a_checkpoint_from_inside_and_what_is_there_after_a_restart(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, random, signal, sys
        import ckpt

        comm = ckpt.enable()
        random.seed(comm.rank)
        notes = ckpt.register("notes", ["before"])
        log = open(f"log-{comm.rank}.txt", "w")
        source = open(__file__)
        first_line = source.readline()
        log.write("written before\\n")
        inbox = comm.irecv(source=(comm.rank - 1) % comm.size, tag=1)     # pending over the checkpoint
        epoch = ckpt.checkpoint()
        if ckpt.restarts() == 0:
            log.write("lost with the rank")
            log.flush()
            notes.append("lost")
            if comm.rank == 1:
                while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
                    pass
                os.kill(os.getpid(), signal.SIGKILL)
            comm.recv(source=1, tag=99)                        # never comes
        notes.append("after")
        log.write(f"written after, {random.random():.6f}\\n")
        comm.send(("mail", comm.rank), (comm.rank + 1) % comm.size, tag=1)
        print(inbox.wait(), notes, epoch, ckpt.restarts(), os.environ["CKPT_RESTARTS"], source.readline().strip())
        log.close()
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    for rank in range(2):
        # Two ranks ask at nearly the same time: that is one checkpoint or two, of whatever number.
        said = re.sub(r"\] \d+ 1 1 ", "] EPOCH 1 1 ", job.output(rank))
        assert said == f"('mail', {1 - rank}) ['before', 'after'] EPOCH 1 1 import os, random, signal, sys\n"
        number = random.Random(rank).random()
        assert (tmp_path / f"log-{rank}.txt").read_text() == f"written before\nwritten after, {number:.6f}\n"


def test_buffers_of_several_kinds_and_sizes_arrive_whole(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import hashlib
        import numpy as np
        import ckpt
        comm = ckpt.enable()
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        for size in (1, 1000, 70_000, 3_000_000, 40_000_000):
            mine = np.random.default_rng(comm.rank).integers(0, 255, size, dtype=np.uint8)
            got = np.empty_like(mine)
            request = comm.Isend(mine, dest=right)
            comm.Recv(got, source=left)
            request.Wait()
            want = np.random.default_rng(left).integers(0, 255, size, dtype=np.uint8)
            assert np.array_equal(got, want), size
        print("whole")
        """,
    )
    job = start(app, ranks=3, every=0.2)
    assert job.finish() == 0, job.report()
    assert job.output(2) == "whole\n"


@pytest.mark.parametrize(
    ("faults", "steps", "pause_s"),
    [
        ("seed=3,loss=0.1,dup=0.1,reorder=0.1,corrupt=0.05", 120, 0.02),
        ("seed=4,delay=2ms,reorder=0.3", 800, 0.002),
    ],
)
def test_a_bad_wire_changes_nothing(
    start: Start, tmp_path: Path, faults: str, steps: int, pause_s: float
) -> None:
    from tests.system.apps import RING

    app = write_app(tmp_path, RING)
    clean = start(app, steps, ranks=3, name="clean")
    assert clean.finish() == 0
    job = start(app, steps, pause_s, ranks=3, every=0.5, env={"CKPT_FAULTS": faults})
    job.wait_event("committed", 1)
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == clean.output(0)


def test_a_checkpoint_asked_for_without_a_controller_returns(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt
        comm = ckpt.enable()
        print("first", ckpt.checkpoint(), flush=True)
        while not os.path.exists("alone"):
            time.sleep(0.01)
        print("second", ckpt.checkpoint(), flush=True)
        """,
    )
    job = start(app, ranks=2)
    job.wait_event("committed", 1)
    job.process.kill()
    job.process.wait()
    (tmp_path / "alone").touch()
    deadline_s = time.monotonic() + 30
    while not job.events("job-finished") and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert [job.output(rank) for rank in range(2)] == ["first 1\nsecond None\n"] * 2, job.report()


def test_a_child_the_program_forks_does_not_speak_for_its_rank(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, sys, time
        import ckpt
        comm = ckpt.enable()
        if os.fork() == 0:
            print("child", flush=True)
            if comm.rank == 0:
                sys.exit(3)          # to the end of the script, as a rank would
            raise SystemExit
        time.sleep(0.5)
        os.wait()
        comm.barrier()
        print("parent")
        """,
    )
    job = start(app, ranks=2, every=0.2)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["child\nparent\n"] * 2


def test_status_counts_what_happened(start: Start, tmp_path: Path) -> None:
    from tests.system.apps import RING

    job = start(write_app(tmp_path, RING), 20000, 0.0005, ranks=2, every=0.3)
    job.wait_event("committed", 1)
    job.kill_rank(1)
    job.wait_event("committed", 3)
    text = run_ckpt("status", job.directory)
    assert text.returncode == 0, text.stderr
    for word in ("epoch", "incarnation", "retransmi", "duplicate", "pause", "bytes"):
        assert word in text.stdout.lower(), text.stdout


def test_a_job_with_a_very_long_path_runs(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(6):
        deep /= "a-directory-with-a-rather-long-name"
    deep.mkdir(parents=True)
    app = write_app(tmp_path, "import ckpt\nprint(ckpt.enable().allreduce(1))\n")
    done = run_ckpt("run", "-n", 2, "--job", deep / "job", app, cwd=tmp_path, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n2\n"


@pytest.mark.soak
def test_a_message_of_more_than_two_gib_passes(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import numpy as np
        import ckpt
        comm = ckpt.enable()
        size, stride = (2 << 30) + 12345, 1_000_003
        if comm.rank == 0:
            data = np.zeros(size, dtype=np.uint8)
            data[::stride], data[-1] = 7, 9
            comm.Send(data, dest=1)
        else:
            data = np.empty(size, dtype=np.uint8)
            comm.Recv(data, source=0)
            print(data[-1], int(data[::stride].sum()) == 7 * len(range(0, size, stride)), np.count_nonzero(data))
        """,
    )
    job = start(app, ranks=2)
    assert job.finish(600) == 0, job.report()
    assert job.output(1) == f"9 True {len(range(0, (2 << 30) + 12345, 1_000_003)) + 1}\n"


def test_a_wait_that_cannot_be_captured_for_what_comes_after_the_others_image_burns_the_round_and_not_the_time(
    start: Start, tmp_path: Path
) -> None:
    """Rank 1 waits inside `array.array`; that carries the epoch of rank 0's image, and is held until its own."""
    app = write_app(
        tmp_path,
        """
        import array
        import ckpt
        comm = ckpt.enable()
        if comm.rank == 0:
            comm.recv(source=1)
            ckpt.checkpoint()
            comm.send(42, 1)
        else:
            comm.send("inside", 0)
            print(int(sum(array.array("d", (comm.recv(source=0) for _ in range(1))))))
        """,
    )
    job = start(app, ranks=2, timeout=86400)
    assert job.finish() == 0, job.report()
    assert job.output(1) == "42\n"
    burnt = job.events("round-aborted")
    assert not burnt or "sent after another rank's image" in burnt[0]["reason"], job.report()

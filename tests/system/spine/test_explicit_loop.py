"""Programs that save themselves with ckpt.register and ckpt.loop: killed, restarted, compared byte by byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, long_enough, run_ckpt, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "explicit.py"

RING = """
    import hashlib, random, sys, time
    import ckpt

    comm = ckpt.enable(explicit=True)
    steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
    print("starts", comm.bcast(["configuration", comm.rank]))          # the beginning runs again after a restart
    pairs = comm.Split(comm.rank % 2)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    state = ckpt.register("state", {"x": comm.rank, "trail": []})
    shared = ckpt.register("shared", [])
    state["same"] = shared
    random.seed(comm.rank)
    for i in ckpt.loop(range(steps)):
        request = comm.isend((i, state["x"]), right, tag=3)
        j, y = comm.recv(source=left, tag=3)
        request.wait()
        assert i == j, (i, j)
        state["x"] = (state["x"] * 31 + y + random.randrange(100)) % 1000003
        state["trail"].append(state["x"])
        state["same"].append(i)
        if i % 7 == 0:
            state["x"] = comm.allreduce(state["x"]) % 1000003
        if i % 5 == 0:
            pairs.barrier()
        if i % 50 == 0:
            print("step", i, state["x"])
        if pause_s:
            time.sleep(pause_s)
    assert shared == list(range(steps)) and state["same"] is shared
    digest = hashlib.sha256(repr(state["trail"]).encode()).hexdigest()
    print("result", comm.gather(digest))
"""


def test_killed_ranks_change_nothing_in_result_and_output(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)

    def killed(steps: int) -> tuple[Job, int]:
        job = start(app, steps, 0.003, ranks=3, name=f"job-{steps}", explicit=True, every=0.1)
        for kill in range(3):
            committed = len(job.events("committed"))
            job.wait_event("committed", committed + 2)
            job.kill_rank(kill)
            job.wait_event("restarted", kill + 1)
        return job, steps

    job, steps = long_enough(300, killed)
    assert job.finish() == 0, job.report()
    clean = start(app, steps, 0, ranks=3, name="clean", explicit=True)
    assert clean.finish() == 0, clean.report()
    assert [job.output(rank) for rank in range(3)] == [clean.output(rank) for rank in range(3)], job.report()
    assert not job.events("round-aborted", reason="not possible within the limit")
    assert all(event["from_epoch"] for event in job.events("restarted"))


def test_checkpoint_stop_verify_and_restart_by_hand(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)
    clean = start(app, 500, 0, ranks=2, name="clean", explicit=True)
    assert clean.finish() == 0, clean.report()
    # Ten seconds for two commands: on a busy machine it once ended before the second.
    job = start(app, 500, 0.02, ranks=2, explicit=True)
    job.wait_for(lambda: "step 50" in job.output(0), "step 50")
    assert run_ckpt("checkpoint", job.directory).returncode == 0, job.report()
    assert run_ckpt("checkpoint", "--stop", job.directory).returncode == 0, job.report()
    assert job.finish() == 75
    assert run_ckpt("verify", job.directory).returncode == 0
    done = run_ckpt("restart", job.directory)
    assert done.returncode == 0, done.stderr
    assert [job.output(rank) for rank in range(2)] == [clean.output(rank) for rank in range(2)]


def test_the_example_gives_the_same_with_kills_and_without_a_job(start: Start, tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, EXAMPLE, "20"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    one = run_ckpt("run", "--explicit", "--job", tmp_path / "one", EXAMPLE, 20)
    assert one.stdout == alone, one.stderr

    def killed(steps: int) -> tuple[Job, int]:
        job = start(EXAMPLE, steps, ranks=3, name=f"job-{steps}", explicit=True, every=0.1)
        job.wait_event("committed", 2)
        job.kill_rank(1)
        return job, steps

    job, steps = long_enough(2500, killed)
    assert job.finish() == 0, job.report()
    clean = start(EXAMPLE, steps, ranks=3, name="clean", explicit=True)
    assert clean.finish() == 0, clean.report()
    assert job.output(0) == clean.output(0)


def test_nested_loops_of_several_kinds_go_on_where_they_were(start: Start, tmp_path: Path) -> None:
    text = """
        import os, signal, sys, time
        import ckpt

        comm = ckpt.enable()
        log = ckpt.register("log", [])
        total = ckpt.register("total", {"n": 0, "ticks": 0})
        points = [int(point) for point in sys.argv[1:]]

        def letters():
            yield from "abcdef"

        def tick():
            '''Ask for a checkpoint at the point whose turn it is; one step later await it and die.'''
            total["ticks"] += 1
            lives = ckpt.restarts()
            if lives < len(points) and total["ticks"] == points[lives]:
                ckpt.checkpoint()
            if lives < len(points) and total["ticks"] == points[lives] + 1:
                while open(os.environ["CKPT_JOB"] + "/events.jsonl").read().count('"committed"') <= lives:
                    time.sleep(0.002)
                os.kill(os.getpid(), signal.SIGKILL)

        for warm in ckpt.loop(range(3), name="warm"):
            log.append(("warm", warm))
            tick()
        for i in ckpt.loop([10, 20, 30], name="outer"):
            for j, letter in ckpt.loop(enumerate(letters()), name="inner"):
                if letter == "e":
                    break
                total["n"] += i * j
                log.append((i, letter))
                tick()
            for k in ckpt.loop(name="endless"):
                if k == 4:
                    break
                log.append((i, "k", k))
                tick()
        print(total, len(log), log)
        """
    app = write_app(tmp_path, text)
    plain = subprocess.run([sys.executable, app], capture_output=True, text=True, timeout=60, check=True)
    points = [2, 3, 5, 6, 7, 11, 18, 19]
    job = start(app, *points, ranks=1, explicit=True)
    assert job.finish() == 0, job.report()
    assert len(job.events("restarted")) == len(points)
    assert job.output(0) == plain.stdout, job.report()


def test_every_kind_of_registered_object_is_put_back(start: Start, tmp_path: Path) -> None:
    text = """
        import collections, os, random, signal, time
        import numpy as np
        import ckpt

        class Model:
            __slots__ = ("weight", "__dict__")
            def __init__(self): self.weight, self.bias = 1, [1]

        class Counted:
            def __init__(self): self.n = 0
            def __getstate__(self): return ("counted", self.n)
            def __setstate__(self, state): assert state[0] == "counted"; self.n = state[1]

        class Handle:                                              # not to be pickled
            def __init__(self, port): self.port = port
            def __reduce__(self): raise TypeError("a handle")

        comm = ckpt.enable(explicit=True)
        ckpt.register_type(Handle, lambda handle: handle.port, Handle)
        out = ckpt.register("out", open("out.txt", "a"))
        model, counted = ckpt.register("model", Model()), ckpt.register("counted", Counted())
        array, queue = ckpt.register("array", np.zeros((3, 50000))), ckpt.register("queue", collections.deque(maxlen=9))
        rng, bits = ckpt.register("rng", random.Random(5)), ckpt.register("bits", np.random.default_rng(5))
        members, table = ckpt.register("members", set()), ckpt.register("table", {})
        kept = array                                               # whoever holds an object sees what is put back
        calls = []
        ckpt.on_restart(lambda epoch: calls.append((epoch, model.weight)))
        for i in ckpt.loop(range(6)):
            model.weight += 1; model.bias.append(i); model.later = i
            counted.n += 1
            array[i % 3] += bits.random(50000)
            queue.append(rng.random()); members.add(i)
            table.setdefault("model", model); table["array"] = array; table["handle"] = Handle(i)
            print("line", i, file=out)
            if i == 3:
                ckpt.checkpoint()
            if i == 4 and ckpt.restarts() == 0:
                out.write("lost"); out.flush()
                while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
                    time.sleep(0.002)
                os.kill(os.getpid(), signal.SIGKILL)
        out.close()
        assert table["model"] is model and table["array"] is array is kept
        print(model.weight, model.bias, model.later, counted.n, array.sum(), list(queue), members, table["handle"].port)
        print(rng.random(), bits.random(), np.random.random() >= 0, open("out.txt").read().split())
        print("calls", calls)
        """
    directories = {name: tmp_path / name for name in ("plain", "killed")}
    for directory in directories.values():
        directory.mkdir()
        write_app(directory, text)
    clean = run_ckpt("run", "--explicit", "--job", "clean", "-m", "quiet", cwd=directories["plain"])
    assert clean.returncode != 0  # no such module: said, not hung
    script = (directories["plain"] / "app.py").read_text().replace("ckpt.restarts() == 0", "False")
    (directories["plain"] / "app.py").write_text(script)
    plain = run_ckpt("run", "--explicit", "--job", "plain-job", "app.py", cwd=directories["plain"])
    assert plain.returncode == 0, plain.stderr
    killed = run_ckpt("run", "--explicit", "--job", "killed-job", "app.py", cwd=directories["killed"])
    assert killed.returncode == 0, killed.stderr
    expected, found = plain.stdout.splitlines(), killed.stdout.splitlines()
    assert found[:2] == expected[:2]
    assert expected[2] == "calls []" and found[2] == "calls [(1, 5)]"


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ('ckpt.register("n", 5)', "RegistrationError", "keep it in a dict"),
        ("for i in ckpt.loop(range(2)): pass", "StateError", "nothing is registered"),
        (
            'ckpt.register("a", [])\nfor i in ckpt.loop(range(2)): ckpt.register(f"x{i}", [])',
            "RegistrationError",
            "inside a loop",
        ),
        (
            'ckpt.register("a", [])\nl = ckpt.loop(range(2))\nlist(l)\nlist(l)',
            "LoopError",
            "iterated over twice",
        ),
    ],
)
def test_wrong_use_is_said(tmp_path: Path, body: str, error: str, words: str) -> None:
    (tmp_path / "app.py").write_text("import ckpt\nckpt.enable()\n" + body + "\n")
    done = run_ckpt("run", "--explicit", "--job", tmp_path / "job", tmp_path / "app.py")
    assert done.returncode == 1, done.stderr
    assert error in done.stderr and words in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("again", "came to the loop second, where it had come to first"),
        ("none", "ended without coming to the loop first"),
        ("fewer", "gives 2 items only after the restart"),
        ("unregistered", "the state of 'b'"),
        ("other", "'a' is registered as list; the checkpoint has the state of a dict"),
    ],
)
def test_a_program_that_does_something_else_after_a_restart_is_told(
    start: Start, tmp_path: Path, second: str, words: str
) -> None:
    app = write_app(
        tmp_path,
        """
        import os, signal, sys, time
        import ckpt
        ckpt.enable()
        way = sys.argv[1] if ckpt.restarts() else ""
        print("this is shown when the new run fails")
        ckpt.register("a", [] if way == "other" else {})
        if way != "unregistered":
            ckpt.register("b", [])
        if way != "none":
            for i in ckpt.loop(range(2 if way == "fewer" else 9) if way != "fewer" else iter(range(2)),
                               name="second" if way == "again" else "first"):
                if i == 3: ckpt.checkpoint()
                if i == 5 and ckpt.restarts() == 0:
                    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
                        time.sleep(0.002)
                    os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    job = start(app, second, ranks=1, explicit=True)
    assert job.finish() == 12, job.report()
    assert words in job.stderr, job.stderr


def test_a_job_that_is_not_explicit_iterates_as_usual(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import ckpt
        from tools import die_once
        comm = ckpt.enable()
        n = ckpt.register("n", 5)
        seen = []
        for i in ckpt.loop(range(4)):
            seen.append(i)
            if i == 2:
                ckpt.checkpoint()
                die_once()
        print(seen, n)
        """,
    )
    from tests.system.libraries.test_hooks import UNTIL_COMMITTED

    write_app(tmp_path, UNTIL_COMMITTED, "tools.py")
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[0, 1, 2, 3] 5\n"


def test_the_program_may_insist_on_the_explicit_way(tmp_path: Path) -> None:
    app = write_app(tmp_path, "import ckpt\nckpt.enable(explicit=True)\n")
    done = run_ckpt("run", "--job", tmp_path / "job", app)
    assert done.returncode == 1
    assert "ckpt run --explicit" in done.stderr


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("comm.irecv(source=0, tag=99)", "a receive (source 0, tag 99) is pending"),
        ("comm.Ibarrier() if comm.rank == 0 else None", "a nonblocking collective is pending"),
        ("state.append(lambda: 0)", "registered 'state'"),
    ],
)
def test_what_cannot_be_saved_at_a_boundary_is_named(
    start: Start, tmp_path: Path, what: str, words: str
) -> None:
    app = write_app(
        tmp_path,
        f"""
        import os, time
        import ckpt
        comm = ckpt.enable()
        state = ckpt.register("state", [])
        for i in ckpt.loop():
            if i == 0:
                request = {what}
                ckpt.checkpoint()
            if '"round-aborted"' in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
                os._exit(0)
            time.sleep(0.002)
        """,
    )
    job = start(app, ranks=2, explicit=True)
    assert words in job.wait_event("failed")["reason"] + job.wait_event("failed")["where"], job.report()


def test_ranks_out_of_step_give_the_image_up_instead_of_hanging(start: Start, tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import ckpt
        comm = ckpt.enable()
        state = ckpt.register("state", [])
        if comm.rank == 0:                                      # a farm: one step of a worker needs several of the master
            for task in ckpt.loop(range(200), name="master"):
                comm.send(task, 1)
                state.append(comm.recv(source=1))
                if task == 50: ckpt.checkpoint()
            comm.send(None, 1)
        else:
            for batch in ckpt.loop(range(10), name="worker"):
                for _ in range(20):
                    comm.send(comm.recv(source=0) * 2, 0)
            assert comm.recv(source=0) is None
        print("done")
        """,
    )
    job = start(app, ranks=2, explicit=True)
    assert job.finish() == 0, job.report()
    assert job.output(0) == job.output(1) == "done\n"
    assert "ranks must loop in step" in job.events("round-aborted")[0]["reason"]


UNSUPPORTED = "tests.system.unsupported_rank:run_rank"
SEES_TESTS = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_an_interpreter_that_cannot_be_imaged_is_said_at_the_start(tmp_path: Path) -> None:
    app = write_app(tmp_path, "print('never')\n")
    done = run_ckpt("run", "-n", 2, "--entry", UNSUPPORTED, "--job", tmp_path / "job", app, env=SEES_TESTS)
    assert done.returncode == 13, done.stderr
    assert "this is 9.9.9" in done.stderr and "ckpt run --explicit" in done.stderr
    assert "Traceback" not in done.stderr and "never" not in done.stdout


def test_the_explicit_way_works_where_frames_cannot_be_captured(start: Start, tmp_path: Path) -> None:
    app = write_app(tmp_path, RING)

    def killed(steps: int) -> tuple[Job, int]:
        job = start(
            app, steps, 0.005, ranks=3, name=f"job-{steps}", explicit=True, every=0.1, entry=UNSUPPORTED, env=SEES_TESTS
        )  # fmt: skip
        job.wait_event("committed", 2)
        job.kill_rank(2)
        job.wait_event("restarted")
        return job, steps

    job, steps = long_enough(150, killed)
    assert job.finish() == 0, job.report()
    clean = start(app, steps, 0, ranks=3, name="clean", explicit=True)
    assert clean.finish() == 0, clean.report()
    assert [job.output(rank) for rank in range(3)] == [clean.output(rank) for rank in range(3)]

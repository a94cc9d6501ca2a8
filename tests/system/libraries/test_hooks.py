"""Hooks around checkpoints and types that the program saves in its own way, in jobs whose ranks are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]

Start = Callable[..., Job]

UNTIL_COMMITTED = """
    import os, signal, time
    import ckpt

    def await_commit():
        deadline_s = time.monotonic() + 30
        while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
            assert time.monotonic() < deadline_s, "nothing was committed"
            time.sleep(0.002)

    def die_once():
        '''Kill this rank once its checkpoint is committed; a restarted one goes on.'''
        if ckpt.restarts() == 0:
            await_commit()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def app_of(directory: Path, text: str) -> Path:
    write_app(directory, UNTIL_COMMITTED, "tools.py")
    return write_app(directory, text)


def test_hooks_are_called_in_order_with_the_epoch_and_survive_restarts(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import ckpt
        from tools import die_once

        ckpt.enable()
        calls = []

        @ckpt.on_checkpoint
        def first(epoch): calls.append(("before", "first", epoch))
        @ckpt.on_checkpoint
        def second(epoch): calls.append(("before", "second", epoch))
        ckpt.on_restart(lambda epoch: calls.append(("after", "first", epoch)))
        ckpt.on_restart(lambda epoch: calls.append(("after", "second", epoch)))
        ckpt.on_checkpoint(print)
        ckpt.remove_hook(print)
        ckpt.checkpoint()
        die_once()
        ckpt.checkpoint()                       # hooks are part of the image: the restarted program has them
        print(calls)
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == (
        "[('before', 'second', 1), ('before', 'first', 1), ('after', 'first', 1), ('after', 'second', 1), "
        "('before', 'second', 2), ('before', 'first', 2)]\n"
    )


def test_hooks_are_called_in_the_middle_of_computing(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import ckpt
        from tools import die_once
        ckpt.enable()
        seen = []
        ckpt.on_checkpoint(seen.append)
        ckpt.checkpoint(wait=False)
        total = 0
        while not seen or total % 1000:
            total += 1
        die_once()
        print(seen, ckpt.restarts())
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert job.output(0) == job.output(1) == "[1] 1\n"


def test_a_hook_that_raises_costs_the_checkpoint_and_is_named(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import ckpt
        from tools import await_commit
        ckpt.enable()

        @ckpt.on_checkpoint
        def flush_the_pump(epoch):
            if epoch == 1:
                raise OSError("the pump is stuck")
        ckpt.checkpoint()
        ckpt.checkpoint()
        await_commit()
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    reason = job.events("round-aborted")[0]["reason"]
    assert "flush_the_pump" in reason and "OSError: the pump is stuck" in reason, reason
    assert job.events("committed")[0]["epoch"] == 2


def test_a_hook_that_waits_for_messages_is_an_error_not_a_hang(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import ckpt
        comm = ckpt.enable()
        ckpt.on_checkpoint(lambda epoch: comm.recv(tag=9) if epoch == 1 else None)
        ckpt.checkpoint()
        comm.barrier()
        print("done")
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    assert "must not wait for messages" in job.events("round-aborted")[0]["reason"]


def test_a_restart_hook_that_raises_fails_the_job_with_that_error(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import ckpt
        from tools import die_once
        ckpt.enable()

        @ckpt.on_restart
        def connect_again(epoch):
            raise ConnectionError("no route to the instrument")
        ckpt.checkpoint()
        die_once()
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 1, job.report()
    assert "no route to the instrument" in job.stderr and "connect_again" in job.stderr
    assert len(job.events("restarted")) == 1


def test_a_registered_type_comes_back_once_and_shared(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import _thread, collections
        import ckpt
        from tools import die_once

        class Gauge:                                # holds what no image can save
            made = 0
            def __init__(self, port):
                Gauge.made += 1
                self.port, self.handle = port, iter(open("/dev/null").fileno, 7)
            def __reduce__(self): raise RuntimeError("must not be asked")

        ckpt.enable()
        ckpt.register_type(Gauge, lambda gauge: {"port": gauge.port}, lambda state: Gauge(**state))
        gauge = Gauge("tty7")
        table = {"a": gauge, "b": [gauge]}
        def reader(g=gauge):
            while True:
                yield g.port
        values = reader()
        next(values)
        ckpt.checkpoint()
        if ckpt.restarts() == 0:
            table["lost"] = True
        die_once()
        assert table["a"] is table["b"][0] is gauge and next(values) == "tty7"
        print(gauge.port, gauge.handle is not None, sorted(table), Gauge.made)
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "tty7 True ['a', 'b'] 2\n"


def test_a_registered_child_is_started_again_and_its_object_stands_for_it(
    start: Start, tmp_path: Path
) -> None:
    app = app_of(
        tmp_path,
        """
        import subprocess, sys
        import ckpt
        from tools import die_once

        SQUARES = "for line in open(0): print(int(line) ** 2, flush=True)"
        started = []

        def begin():
            started.append(subprocess.Popen(
                [sys.executable, "-c", SQUARES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            ))
            if asked:
                started[-1].stdin.write(asked)
            return started[-1]

        ckpt.enable()
        asked = ""
        solver = ckpt.register_child(begin(), begin)
        held = [solver]
        solver.stdin.write("7\\n")
        print(solver.stdout.readline().strip())
        asked = "8\\n"
        if ckpt.restarts() == 0:
            solver.stdin.write(asked)
        ckpt.checkpoint()
        die_once()
        print(held[0].stdout.readline().strip(), held[0] is solver, solver.pid == started[-1].pid, len(started))
        solver.stdin.close()
        print(solver.wait(), subprocess.run(["sh", "-c", "exit 3"]).returncode)
        ckpt.checkpoint()
        """,
    )
    job = start(app, ranks=1)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "49\n64 True True 2\n0 3\n"
    assert job.events("restarted")


def test_a_save_function_that_raises_is_named(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import os, time
        import ckpt
        class Gauge: pass
        def save_gauge(gauge): raise ValueError("no reading yet")
        ckpt.enable()
        ckpt.register_type(Gauge, save_gauge, lambda state: Gauge())
        devices = {"north": Gauge()}
        ckpt.checkpoint()
        while '"round-aborted"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
            time.sleep(0.002)
        """,
    )
    job = start(app, ranks=1)
    job.wait_event("round-aborted")
    assert job.finish() == 0, job.report()
    failed = job.events("failed")[0]
    assert "devices" in failed["where"] and "['north']" in failed["where"]
    assert "save_gauge" in failed["reason"] and "no reading yet" in failed["reason"], failed


def test_a_program_writes_lines_of_its_own_to_the_event_log(start: Start, tmp_path: Path) -> None:
    app = app_of(
        tmp_path,
        """
        import threading
        import ckpt
        from tools import die_once

        comm = ckpt.enable()
        ckpt.log_event("phase-ended", phase=1)
        ckpt.checkpoint()
        if comm.rank == 1:
            die_once()
        comm.barrier()
        thread = threading.Thread(target=ckpt.log_event, args=("phase-ended",), kwargs={"phase": 2})
        thread.start()
        thread.join()
        """,
    )
    job = start(app, ranks=2)
    assert job.finish() == 0, job.report()
    lines = job.events("phase-ended")
    assert {(line["rank"], line["incarnation"], line["phase"]) for line in lines} == {
        (0, 0, 1),
        (1, 0, 1),
        (0, 1, 2),
        (1, 1, 2),
    }

"""Programs that replace functions of the standard library, as mocks, frozen clocks and fake file systems do: the library of
a rank goes on with the genuine ones, takes images and restores them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.system.support import Job, write_app

PATCHED = """
    import builtins, os, time, types
    from ckpt import MPI

    class Replaced(Exception):
        pass

    def replaced(*args, **keywords):
        raise Replaced("a function that the program has replaced")

    def genuine(module):
        functions = (types.FunctionType, types.BuiltinFunctionType)
        return [n for n, f in vars(module).items() if isinstance(f, functions) and n not in SPARED]

    SPARED = ("fspath", "fsencode", "fsdecode", "_get_exports_list")  # the import system and pathlib of the program itself
    comm, exists, sleep = MPI.COMM_WORLD, os.path.exists, time.sleep
    go = os.environ["CKPT_TEST_GO"]
    with open(go + ".first") as file:
        text = file.read()
    kept = open("kept", "w") if comm.rank == 0 else None

    for module in (os, time):
        for name in genuine(module):
            setattr(module, name, replaced)
    builtins.open = replaced

    total = i = 0
    while not comm.allreduce(int(os.environ["CKPT_RESTARTS"]), max):
        total = comm.allreduce(comm.rank + i)
        comm.sendrecv(bytes(100_000), dest=(comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
        sleep(0.001)
        i += 1
    for call in (os.getpid, time.time, lambda: open("x")):
        try:
            call()
        except Replaced:
            continue
        print("the program's own replacement is lost")
    if kept is not None:
        kept.write(text)
    print("end", total == sum(range(comm.size)) + comm.size * (i - 1))
"""


def test_a_program_that_replaces_all_of_os_time_and_open_is_restored(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    (tmp_path / "job.go.first").write_text("text")
    job = start(write_app(tmp_path, PATCHED), ranks=2, every=0.2)
    job.wait_event("committed")
    job.kill_rank(1)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["end True\n"] * 2
    assert (tmp_path / "kept").read_text() == "text"


def test_a_clock_that_stands_still_stops_nobody(tmp_path: Path, start: Callable[..., Job]) -> None:
    app = write_app(
        tmp_path,
        """
        import os, sys, time
        from unittest import mock
        from ckpt import MPI

        comm = MPI.COMM_WORLD
        names = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
        with mock.patch.multiple(time, **{name: lambda: 0 for name in names}):
            while not comm.allreduce(int(os.environ["CKPT_RESTARTS"]), max):
                pass
            print(time.time(), comm.allreduce(1))
        """,
    )
    job = start(app, ranks=2, every=0.2)
    job.wait_event("committed")
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert [job.output(rank) for rank in range(2)] == ["0 2\n"] * 2

"""A rank ends as an interpreter ends: what ordinary programs leave open is written, said and called as by plain Python, from
their start and after a restart.

Many programs in one job: each rank runs one, in a directory of its own.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.system.ends import FAILING, MODULE, NOT_RESTORED, PROGRAMS, script
from tests.system.support import PATIENCE_S, Job, environment, run_ckpt, write_app

_HOLDING = """
import os, sys, time

def begin():
    if "CKPT_JOB" not in os.environ:
        sys.stdout.reconfigure(line_buffering=True)  # as a rank's
    here = sys.argv[2 + int(os.environ["RANK"])]
    os.chdir(os.path.join(sys.argv[1], here))
    return here

def hold():
    while os.environ.get("CKPT_TEST_HOLD") and os.environ["CKPT_RESTARTS"] == "0":
        time.sleep(0.001)
"""
_RANKS = 12
_READ: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "bz2": bz2.decompress,
    "lzma": lzma.decompress,
}
"""What is in such a file may be packed in more than one way."""

Result = tuple[str, str, dict[str, bytes]]
"""Output, errors, files."""


def _groups(names: Sequence[str]) -> list[list[str]]:
    return [list(names[at : at + _RANKS]) for at in range(0, len(names), _RANKS)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The modules that programs share."""
    (tmp_path / "holding.py").write_text(_HOLDING)
    (tmp_path / "mod.py").write_text(MODULE)
    return tmp_path


def _directories(place: Path, under: str, names: Sequence[str]) -> Path:
    for name in names:
        (place / under / name).mkdir(parents=True)
    return place / under


def _result(directory: Path, out: bytes, err: bytes) -> Result:
    files = {str(path.relative_to(directory)): path for path in directory.rglob("*")}
    contents = {
        name: _READ.get(directory.name, bytes)(path.read_bytes())
        for name, path in files.items()
        if path.is_file()
    }
    texts = (re.sub("0x[0-9a-f]+", "0x…", stream.decode(errors="replace")) for stream in (out, err))
    return (*texts, {**contents, **{name: b"" for name, path in files.items() if path.is_dir()}})  # type: ignore[return-value]


def _plainly(place: Path, names: Sequence[str]) -> tuple[dict[str, Result], dict[str, int]]:
    """By the interpreter itself."""
    (place / "main.py").write_text(script(names))
    top = _directories(place, "plain", names)

    def run(name: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, place / "main.py", top, *names],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**environment(), "RANK": str(names.index(name)), "PYTHONHASHSEED": "1"},
        )

    with ThreadPoolExecutor(2) as pool:
        done = dict(zip(names, pool.map(run, names), strict=True))
    results = {name: _result(top / name, run.stdout, run.stderr) for name, run in done.items()}
    return results, {name: run.returncode for name, run in done.items()}


def _output(job: Path, rank: int) -> tuple[bytes, bytes]:
    out, err = (job / "output" / f"rank-{rank}.{stream}" for stream in ("out", "err"))
    return out.read_bytes(), err.read_bytes()


def _alike(found: dict[str, Result], plain: dict[str, Result]) -> None:
    different = {n: f"{n}: {r}\n  where Python has\n  {plain[n]}" for n, r in found.items() if r != plain[n]}
    assert not different, "\n".join(different.values())


@pytest.mark.rotate(6)
@pytest.mark.parametrize("names", _groups(list(PROGRAMS)), ids=lambda names: names[0])
def test_what_a_program_leaves_open_is_written_at_its_end_as_by_python(place: Path, names: list[str]) -> None:
    plain, codes = _plainly(place, names)
    assert set(codes.values()) == {0}, codes
    top = _directories(place, "ranks", names)
    ran = run_ckpt("run", "-n", len(names), "--job", place / "job", place / "main.py", top, *names)
    assert ran.returncode == 0, ran.stderr
    _alike({n: _result(top / n, *_output(place / "job", r)) for r, n in enumerate(names)}, plain)


@pytest.mark.rotate(16)
@pytest.mark.parametrize(
    "names", _groups([name for name in PROGRAMS if name not in NOT_RESTORED]), ids=lambda names: names[0]
)
def test_a_restarted_rank_ends_as_python_does(
    place: Path, names: list[str], start: Callable[..., Job]
) -> None:
    plain, _ = _plainly(place, names)
    top = _directories(place, "ranks", names)
    job = start(place / "main.py", top, *names, ranks=len(names), every=0.2, env={"CKPT_TEST_HOLD": "1"})
    job.wait_event("committed")
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert job.events("restarted")
    _alike({n: _result(top / n, *_output(job.directory, r)) for r, n in enumerate(names)}, plain)


@pytest.mark.rotate(6)
@pytest.mark.parametrize("name", list(FAILING))
def test_what_a_program_leaves_open_is_written_when_it_fails(place: Path, name: str) -> None:
    plain, codes = _plainly(place, [name])
    assert codes[name] == FAILING[name][0]
    top = _directories(place, "ranks", [name])
    ran = run_ckpt("run", "-n", 1, "--job", place / "job", place / "main.py", top, name)
    assert ran.returncode == codes[name], ran.stderr
    _alike({name: _result(top / name, *_output(place / "job", 0))}, plain)


def test_messages_under_way_at_the_end_of_their_sender_arrive(tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os
        from mpi4py import MPI

        comm, buffer = MPI.COMM_WORLD, bytearray(60_000)
        if comm.rank == 0:
            for i in range(400):
                comm.Isend(bytes([i % 251]) * len(buffer), dest=1)
        else:
            for i in range(400):
                comm.Recv(buffer, source=0)
                assert buffer == bytes([i % 251]) * len(buffer)
            print("all there")
        """,
    )
    ran = run_ckpt("run", "-n", 2, "--job", tmp_path / "job", app)
    assert (ran.returncode, ran.stdout) == (0, "all there\n"), ran.stderr


SLOW = """
    import os, time, ckpt

    class Slow:
        def __del__(self, open=open, exists=os.path.exists, sleep=time.sleep, go=os.environ["CKPT_TEST_GO"]):
            open("ending", "w").close()
            while not exists(go):
                sleep(0.01)
            with open("written", "a") as file:
                file.write("x")

    comm = ckpt.enable()
    slow = Slow() if comm.rank == 0 else None
    comm.barrier()
"""


def _at_its_end(job: Job, where: Path) -> None:
    job.wait_for(lambda: (where / "ending").exists(), "the last rank takes itself apart")
    (where / "ending").unlink()


def test_a_rank_that_dies_while_it_takes_itself_apart_does_it_again(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    job = start(write_app(tmp_path, SLOW), ranks=2)
    _at_its_end(job, tmp_path)
    job.kill_rank(0)
    job.wait_event("restarting")
    assert job.finish() == 0, job.report()
    assert (tmp_path / "written").read_text() == "x"


def test_the_job_of_a_dead_controller_ends_with_the_exit_code_of_a_rank_that_left_badly(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    job = start(write_app(tmp_path, SLOW), ranks=2)
    _at_its_end(job, tmp_path)
    job.process.kill()
    job.process.wait()
    job.kill_rank(0)
    deadline = time.monotonic() + PATIENCE_S
    while not job.events("job-interrupted"):
        assert time.monotonic() < deadline, job.report()
        time.sleep(0.01)


@pytest.mark.parametrize(
    "code",
    [
        "import ckpt; ckpt.log_event('Not a name')",
        "from ckpt import abft; abft.Grid(9, 9)",
        "import ckpt.reduction; ckpt.reduction.allreduce('text').result()",
    ],
)
def test_a_program_that_raises_an_error_of_ckpt_ends_as_with_any_other(code: str, tmp_path: Path) -> None:
    """It ended with code 12, which says that no checkpoint can be read: batch scripts do not start such a job again."""
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    done = run_ckpt("run", "--job", tmp_path / "job", "-c", code)
    assert done.returncode == plain.returncode == 1, done.stderr
    assert plain.stderr.splitlines()[-1] in done.stderr


def test_who_does_not_want_to_wait_for_an_end_stops_it(tmp_path: Path, start: Callable[..., Job]) -> None:
    job = start(write_app(tmp_path, SLOW), ranks=2, grace=0.1)
    _at_its_end(job, tmp_path)
    job.process.send_signal(signal.SIGINT)
    assert job.process.wait(PATIENCE_S) == 130
    assert not (tmp_path / "written").exists()

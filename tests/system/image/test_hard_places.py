"""Places that are not as usual: closed and full standard streams, little stack, a sandbox, a directory that is gone. A job
works there, over a restart too, or says at the start why not; and what a program has set of its own process is set again.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.image import refusing
from tests.system.support import PATIENCE_S, Job, ckpt_command, environment, run_ckpt, write_app

pytestmark = pytest.mark.turns(3)

WAITS = """
    import os, sys, time

    def restarted():
        while os.environ["CKPT_RESTARTS"] == "0":
            time.sleep(0.001)
"""
PRINTS = (
    WAITS
    + """
    print("before")
    restarted()
    print("after")
"""
)


class Under(Job):
    """A job whose command is run by another one: `before`."""

    def __init__(self, directory: Path, app: Path, before: list[str], after: str = "") -> None:
        self.directory = directory
        self.stdout_path = directory.parent / "stdout"
        self.stderr_path = directory.parent / "stderr"
        self._go = directory.parent / "go"
        command = [*before, *ckpt_command("run", "--job", directory, "--every", "0.2", app)]
        with self.stdout_path.open("ab") as out, self.stderr_path.open("ab") as err:
            self.process = subprocess.Popen(
                ["sh", "-c", f"exec {shlex.join(command)} {after}"],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env=environment(),
                cwd=directory.parent,
            )


def _killed_once(job: Job) -> int:
    try:
        job.wait_event("committed")
        job.kill_rank(0)
        return job.finish()
    finally:
        job.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_of_the_command_are_given_to_no_file_of_the_job(tmp_path: Path, closed: str) -> None:
    job = Under(tmp_path / "job", write_app(tmp_path, PRINTS), [], closed)
    assert _killed_once(job) == 0, job.report()
    assert job.output(0) == "before\nafter\n"
    lines = (job.directory / "events.jsonl").read_text().splitlines()
    assert all(line.startswith('{"t"') for line in lines), "nothing was printed into the event log"
    assert job.stdout == ("" if ">&- " in f"{closed} ".replace("2>&-", "") else "before\nafter\n")


def test_output_that_cannot_be_written_is_said_and_gives_exit_code_120(tmp_path: Path) -> None:
    job = Under(tmp_path / "job", write_app(tmp_path, PRINTS), [], ">/dev/full")
    assert _killed_once(job) == 120, job.report()
    assert "standard output: No space left on device" in job.stderr
    assert job.output(0) == "before\nafter\n"


def test_a_reader_that_has_gone_is_said_by_exit_code_141(tmp_path: Path) -> None:
    """`ckpt run … | head` ended with 0 though its output was cut. `mpiexec` ends with 141, Python with 1."""
    app = write_app(
        tmp_path,
        """
        import os, time

        print("first", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.001)
        print("second", flush=True)
        """,
    )
    words = [sys.executable, "-m", "ckpt", "run", "--job", str(tmp_path / "job"), str(app)]
    with subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        (tmp_path / "go").touch()
        assert process.wait(PATIENCE_S) == 141
    assert (tmp_path / "job" / "output" / "rank-0.out").read_text() == "first\nsecond\n"


def test_half_a_megabyte_of_stack_is_enough_for_a_restart(tmp_path: Path) -> None:
    job = Under(tmp_path / "job", write_app(tmp_path, PRINTS), ["sh", "-c", 'ulimit -s 512; exec "$@"', "sh"])
    assert _killed_once(job) == 0, job.report()


def test_what_cannot_be_rebuilt_within_the_stack_is_refused_and_not_committed(tmp_path: Path) -> None:
    app = write_app(
        tmp_path,
        """
        import os, time

        def deep(n):
            if n:
                return deep(n - 1)
            while not os.path.exists("go"):
                time.sleep(0.001)

        deep(600)
        """,
    )
    job = Under(tmp_path / "job", app, ["sh", "-c", 'ulimit -s 512; exec "$@"', "sh"])
    try:
        assert "ulimit -s" in job.wait_event("refused")["reason"]
        assert job.finish() == 0
        assert not job.events("committed")
    finally:
        job.close()


@pytest.mark.skipif(platform.machine() not in refusing.NUMBERS, reason="numbers of system calls")
def test_a_sandbox_that_refuses_some_calls_is_no_obstacle(tmp_path: Path) -> None:
    numbers = ",".join(map(str, refusing.NUMBERS[platform.machine()].values()))
    before = [sys.executable, refusing.__file__, numbers]
    job = Under(tmp_path / "job", write_app(tmp_path, PRINTS), before)
    assert _killed_once(job) == 0, job.report()


def test_a_job_is_not_begun_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    app = write_app(tmp_path, "pass")
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ckpt_command("run", "--job", tmp_path / "job", app)
    ran = subprocess.run(
        ["sh", "-c", f"rmdir {gone}; exec {shlex.join(command)}"],
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 2 and "the working directory has been removed" in ran.stderr, ran.stderr


def test_a_working_directory_that_the_program_removes_or_that_is_temporary(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    app = write_app(
        tmp_path,
        WAITS
        + """
    import tempfile
    if os.environ["RANK"] == "0":
        os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
        restarted()
        try:
            os.getcwd()
        except FileNotFoundError:
            print("still gone")
    else:
        kept = tempfile.TemporaryDirectory()
        os.chdir(kept.name)
        restarted()
        print(os.getcwd() == os.path.realpath(kept.name))
    """,
    )
    job = start(app, ranks=2, every=0.2)
    job.wait_event("committed")
    job.kill_rank(0)  # both are started again
    assert job.finish() == 0, job.report()
    assert (job.output(0), job.output(1)) == ("still gone\n", "True\n")


SCRATCH = (
    WAITS
    + """
    os.makedirs("deep/scratch", mode=0o750)
    os.chdir("deep/scratch")
    notes = open("notes", "w+")
    notes.write("kept")
    for name in sys.argv[1:]:
        open(name, "w").close()
    print("waits")
    restarted()
    notes.seek(0)
    print(notes.read(), sorted(os.listdir()), os.getcwd(), oct(os.stat(".").st_mode))
"""
)


def _stopped(start: Callable[..., Job], app: Path, *arguments: str) -> Job:
    """Behind a checkpoint in the working directory that it has made."""
    job = start(app, *arguments, ranks=1)
    job.wait_for(lambda: job.output(0), "it waits")
    assert run_ckpt("checkpoint", "--stop", job.directory).returncode == 0
    assert job.process.wait(PATIENCE_S) == 75
    return job


def test_a_working_directory_that_was_empty_and_has_been_cleaned_up_is_made_again(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    """A scratch directory: the restart ended with code 12. What the program has open in it is made again as anywhere."""
    job = _stopped(start, write_app(tmp_path, SCRATCH))
    shutil.rmtree(tmp_path / "deep")
    again = run_ckpt("restart", job.directory)
    assert again.returncode == 0, again
    assert job.output(0) == f"waits\nkept ['notes'] {tmp_path}/deep/scratch 0o40750\n"


def test_a_working_directory_that_is_gone_with_other_files_is_named_and_nothing_is_given_up(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    """An input that is missing, and no damage: with it the job goes on. What was made on the way is gone again."""
    job = _stopped(start, write_app(tmp_path, SCRATCH), "other")
    (tmp_path / "deep").rename(tmp_path / "away")
    refused = run_ckpt("restart", job.directory)
    said = " ".join(refused.stderr.split())
    assert refused.returncode == 12 and "Traceback" not in said
    assert (
        f"the working directory '{tmp_path}/deep/scratch' of the program: No such file or directory." in said
    )
    assert "Put it back with what it held, which is not in the image, and run `ckpt restart`" in said
    assert not (tmp_path / "deep").exists()
    (tmp_path / "away").rename(tmp_path / "deep")
    again = run_ckpt("restart", job.directory)
    assert again.returncode == 0, again
    assert job.output(0) == f"waits\nkept ['notes', 'other'] {tmp_path}/deep/scratch 0o40750\n"


def _streams(directory: Path, names: str, **environment_: str) -> str:
    app = write_app(directory, f"import sys\nprint(*({names},), file=open('said', 'w'))", "streams.py")
    ran = run_ckpt(
        "run", "--job", directory / "job", app, env={**environment(), **environment_}, cwd=directory
    )
    assert ran.returncode == 0, ran.stderr
    return (directory / "said").read_text().strip()


def test_streams_are_set_up_as_the_interpreter_would(tmp_path: Path) -> None:
    out = "sys.stdout.encoding, sys.stdout.errors, sys.stdout.write_through, type(sys.stdout.buffer).__name__"
    names = f"sys.stdin.errors, {out}"
    settings = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "latin-1:surrogateescape"}
    said = _streams(tmp_path, names, **settings)
    assert said == "surrogateescape iso8859-1 surrogateescape True Output"


LIMITS = (
    WAITS
    + """
    import locale, resource, threading

    CATEGORIES = ("LC_CTYPE", "LC_COLLATE", "LC_TIME", "LC_MONETARY", "LC_MESSAGES", "LC_NUMERIC", "LC_ALL")
    DELETED = ("RANK", "WORLD_SIZE", "CKPT_JOB", "OMP_NUM_THREADS", "PATH")

    def state():
        stack = threading.stack_size()
        threading.stack_size(stack)
        return {
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)],
            "processors": os.sched_getaffinity(0),
            "digits": sys.get_int_max_str_digits(),
            "stack": stack,
            "environment": [name in os.environ for name in DELETED],
            "locale": [locale.setlocale(getattr(locale, name)) for name in CATEGORIES],
        }

    os.nice(3)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (4 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sys.set_int_max_str_digits(100_000)
    threading.stack_size(1 << 20)
    for name in DELETED:
        del os.environ[name]
    locale.setlocale(locale.LC_ALL, "C.UTF-8")  # also of what Python has no constant for: paper, names, addresses
    locale.setlocale(locale.LC_CTYPE, "C")
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
    before = state()
    assert before["environment"] == [False] * len(DELETED)
    restarted()
    after = state()
    print([(name, before[name], after[name]) for name in before if before[name] != after[name]])
"""
)


def test_what_a_program_has_set_of_its_process_is_set_again(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    job = start(write_app(tmp_path, LIMITS), ranks=1, every=0.2)
    job.wait_event("committed")
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[]\n"


WAITS_FOR_ANY = """
    import os, time

    foreign = []
    for turn in range(20):
        own = set()
        for k in range(2):
            child = os.fork()
            if not child:
                time.sleep(0.03)
                os._exit(k)
            own.add(child)
        ended = set()
        while len(ended) < 2:
            if turn % 4 == 0:
                ended.add(os.wait()[0])
            elif turn % 4 == 1:
                ended.add(os.waitpid(-1, os.WNOHANG)[0] or min(ended | own))
            elif turn % 4 == 2:
                ended.add(os.wait3(0)[0])
            else:
                ended.add(os.waitid(os.P_ALL, 0, os.WEXITED).si_pid)
        foreign += ended - own
        for left in own:  # that of the turn with WNOHANG
            try:
                os.waitpid(left, 0)
            except ChildProcessError:
                pass
    try:
        os.wait()
    except ChildProcessError:
        print(foreign)
"""


def test_a_program_that_waits_for_any_child_gets_no_process_that_writes_an_image(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    job = start(write_app(tmp_path, WAITS_FOR_ANY), ranks=1, every=0.02)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "[]\n"
    assert job.events("captured"), job.report()


def test_a_child_that_a_program_has_forked_keeps_images_off_until_it_was_waited_for(
    tmp_path: Path, start: Callable[..., Job]
) -> None:
    """After a restart ``waitpid`` found no child, and the program ended by ChildProcessError."""
    app = write_app(
        tmp_path,
        """
        import os, time
        import ckpt

        child = os.fork()
        if not child:
            os._exit(3)
        for step in range(200):
            time.sleep(0.002)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        ckpt.checkpoint()
        deadline = time.monotonic() + 30
        while not ckpt.restarts() and time.monotonic() < deadline:
            time.sleep(0.002)
        """,
    )
    job = start(app, ranks=1, every=0.05)
    job.wait_event("committed")
    assert any("has not waited for it" in str(event) for event in job.events()), job.report()
    job.kill_rank(0)
    assert job.finish() == 0, job.report()
    assert job.output(0) == "3\n"


@pytest.mark.root
def test_a_disk_that_is_full_for_a_moment_costs_no_output_and_no_job(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", small], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    app = write_app(
        tmp_path,
        """
        import os, sys
        from ckpt import MPI

        comm = MPI.COMM_WORLD
        filler = f"{os.path.dirname(os.environ['CKPT_JOB'])}/filler"
        if comm.rank == 0:
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
        comm.barrier()
        for i in range(300):
            print(comm.rank, i, "x" * 50)
            comm.barrier()
        if comm.rank == 0:
            os.unlink(filler)
        print("end")
        """,
    )
    try:
        ran = run_ckpt("run", "-n", 2, "--job", small / "job", app)
        assert ran.returncode == 0, ran.stderr
        for rank in range(2):
            lines = (small / "job" / "output" / f"rank-{rank}.out").read_text().splitlines()
            assert lines == [*(f"{rank} {i} {'x' * 50}" for i in range(300)), "end"]
            assert ran.stderr.count(f"rank {rank}: stdout cannot be written") == 1, ran.stderr
            assert ran.stderr.count(f"rank {rank}: stdout is written") == 1, ran.stderr
    finally:
        subprocess.run(["umount", "-l", small], check=True)

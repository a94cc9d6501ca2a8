"""The ways in which programs write files: after kills, each gives what an undisturbed run gives.

One job holds all the ways, so that one image has the bad moment of each: a temporary file that is half written, a log before
it is rotated, an input that is being read and will be removed. The first kill is before any checkpoint.
"""

from __future__ import annotations

import fnmatch
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.support import jobs_fixture, write_app
from tests.unit.ckpt.undo.test_sequences import Tree, tree_of, without_times

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("ways of writing files"), pytest.mark.turns(6)]

HEAD = """
    import contextlib, fcntl, logging, logging.handlers, mmap, os, signal, sqlite3, sys, time
    import ckpt
    from ckpt import MPI
    ckpt.enable()
    comm = MPI.COMM_WORLD
    job, out = os.environ["CKPT_JOB"], sys.argv[1]
    kills = [int(word) for word in sys.argv[2:]]

    def committed():
        with open(f"{job}/events.jsonl") as events:
            return events.read().count('"committed"')

    def line():
        before = committed()
        comm.Barrier()
        ckpt.checkpoint()
        while committed() == before:
            time.sleep(0.001)
        comm.Barrier()

    def killed(n):  # once for each n: what is in the job directory is not put back
        if comm.rank == 0 and n in kills:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(f"{job}/killed-{n}", os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)

    os.makedirs(f"{out}/{comm.rank}")
    os.chdir(f"{out}/{comm.rank}")
"""

TAIL = """
    for n in range(1, 9):
        ways = [way(n) for way in WAYS]
        for way in ways:
            next(way)
        if n in (3, 6):
            line()
        for way in ways:
            for _ in way:
                pass
        comm.Barrier()
        killed(n)
    print("results", results)
"""

# What a way does before its `yield` is before the image, the rest is after it.
WAYS = """
    results = []
    os.makedirs("inputs")
    for n in range(1, 9):
        with open(f"inputs/{n}", "w") as file:
            file.write(f"{n}\\n" * 3)
    with open("counter", "wb") as file:
        file.write(bytes(8))
    counter = open("counter", "r+b")
    shared = open(f"{out}/shared", "a")
    if comm.rank == 0:
        with open(f"{out}/places", "w") as file:
            file.write("....")
    comm.Barrier()
    logger = logging.getLogger("ways")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.handlers.RotatingFileHandler("rotated", maxBytes=60, backupCount=2))

    def replaced(n):
        with open("state.tmp", "w") as file:
            file.write(f"{n}\\n" * 3)
            file.flush()
            yield
            file.write(f"{n}\\n" * 3)
        os.replace("state.tmp", "state")

    def renamed(n):
        with open("part", "w") as fixed, open(f"part-{n}", "w") as numbered:
            fixed.write(f"fixed {n}")
            numbered.write(f"numbered {n}")
            yield
        os.rename("part", f"fixed-{n}")
        os.rename(f"part-{n}", f"numbered-{n}")

    def appended_by_all(n):
        for rank in range(comm.size):
            if rank == comm.rank:
                shared.write(f"rank {rank} line {n}\\n")
                shared.flush()
            comm.Barrier()
            if rank == 0:
                yield

    def counted(n):
        counter.seek(0)
        results.append(("counter", int.from_bytes(counter.read(8), "big")))
        counter.seek(0)
        yield
        counter.write(n.to_bytes(8, "big"))
        counter.flush()

    def written_anew(n):
        with open("settings", "w") as file:
            file.write(f"n = {n}\\n")
            file.flush()
            yield
            file.write("x" * (20 - n))

    def appended(n):
        with open("lines", "a") as file:
            file.write(f"line {n}\\n")
            file.flush()
            yield
        with open("lines", "a") as file:
            file.write(f"line {n}, again\\n")

    def consumed(n):
        with open(f"inputs/{n}") as file:
            results.append(file.readline())
            yield
            results.append(file.read())
        os.remove(f"inputs/{n}")

    def made(n):
        yield
        os.mkdir(f"made-{n}")
        with open(f"made-{n}/file", "w") as file:
            file.write(f"{n}")

    def rotated(n):
        for word in ("one", "two", "three"):
            logger.info("step %d, word %s", n, word)
        yield
        for word in ("four", "five", "six"):
            logger.info("step %d, word %s", n, word)

    def stored(n):
        with contextlib.closing(sqlite3.connect("database")) as database, database:
            database.execute("create table if not exists t (n)")
            database.execute("insert into t values (?)", (n,))
        yield
        with contextlib.closing(sqlite3.connect("database")) as database, database:
            database.execute("update t set n = n + 100 where n = ?", (n,))
            results.append(database.execute("select sum(n) from t").fetchall())

    def named_again(n):  # its first name is gone at the image, and another one is made later
        with open(f"first-{n}", "w") as file:
            file.write("first\\n")
            file.flush()
            os.link(f"first-{n}", f"second-{n}")
            os.remove(f"first-{n}")
            yield
            os.link(f"second-{n}", f"third-{n}")
            os.remove(f"second-{n}")
            file.write("second\\n")

    def written_in_place_by_all(n):
        with open(f"{out}/places", "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), b"%d" % n, 2 * comm.rank)
            comm.Barrier()
            yield
            os.pwrite(file.fileno(), b"%d" % n, 2 * comm.rank + 1)

    def no_longer_appended(n):
        with open("appended first", "ab", buffering=0) as file:
            file.write(b"line %d\\n" % n)
            yield
            fcntl.fcntl(file, fcntl.F_SETFL, 0)
            os.pwrite(file.fileno(), b"%d" % n, 0)

    WAYS = [replaced, renamed, appended_by_all, counted, written_anew, appended, consumed, made, rotated, stored]
    WAYS += [named_again, written_in_place_by_all, no_longer_appended]
"""

KILLS = (2, 4, 8)  # before the first image, and behind each of the two
OWN = {  # what belongs to each way, below the directory of a rank
    "replaced": ["state", "state.tmp"],
    "renamed": ["part*", "fixed-*", "numbered-*"],
    "appended_by_all": ["shared"],
    "counted": ["counter"],
    "written_anew": ["settings"],
    "appended": ["lines"],
    "consumed": ["inputs", "inputs/*"],
    "made": ["made-*"],
    "rotated": ["rotated*"],
    "stored": ["database*"],
    "named_again": ["first-*", "second-*", "third-*"],
    "written_in_place_by_all": ["places"],
    "no_longer_appended": ["appended first"],
}


class Left(NamedTuple):
    """What a job leaves: its files without their times, and what rank 0 has printed."""

    files: Tree
    printed: str


def run(where: Path, app: Path, *kills: int) -> Left:
    """The job, killed behind each of these steps once."""
    where.mkdir()
    jobs = jobs_fixture(where)
    try:
        job = next(jobs)(app, str(where / "out"), *kills, ranks=2, files="auto")
        assert job.finish() == 0, job.report()
        assert len(job.events("restarting")) == len(kills), job.report()
        assert not job.events("files-not-covered"), job.report()
        assert not job.events("files-not-put-back"), job.report()
        return Left(without_times(tree_of(str(where / "out"))), job.output(0))
    finally:
        assert not list(jobs)


def both(where: Path, ways: str) -> tuple[Left, Left]:
    app = write_app(where, textwrap.dedent(HEAD) + textwrap.dedent(ways) + textwrap.dedent(TAIL))
    return run(where / "undisturbed", app), run(where / "killed", app, *KILLS)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Left, Left]:
    """Of an undisturbed job and of a killed one."""
    return both(tmp_path_factory.mktemp("ways"), WAYS)


def of_the_way(files: Tree, way: str) -> Tree:
    return {
        path: value
        for path, value in files.items()
        if any(fnmatch.fnmatchcase(path.removeprefix("0/").removeprefix("1/"), each) for each in OWN[way])
    }


@pytest.mark.parametrize("way", OWN)
def test_the_files_are_those_of_an_undisturbed_run(left: tuple[Left, Left], way: str) -> None:
    undisturbed, killed = (of_the_way(each.files, way) for each in left)
    assert undisturbed
    assert killed == undisturbed


def test_there_is_nothing_else_and_the_results_are_equal(left: tuple[Left, Left]) -> None:
    undisturbed, killed = left
    assert killed.files == undisturbed.files
    assert sorted(killed.files) == sorted({"0", "1"}.union(*(of_the_way(killed.files, way) for way in OWN)))
    assert killed.printed == undisturbed.printed
    assert "results" in killed.printed

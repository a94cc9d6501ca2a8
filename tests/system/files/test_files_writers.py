"""Public libraries and modules that write files, each killed at random moments: the files are those of an undisturbed run.

Every writer has a directory of its own and writes a little in each step: files by name, one that grows, one that is
replaced.
`make test` takes one writer, another one for every commit, and kills it twice; `make nightly` all, twenty times.
"""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.libraries.test_ready_science import needs
from tests.system.support import Job
from tests.unit.ckpt.undo.test_sequences import Tree, tree_of, without_times

pytestmark = pytest.mark.system

Start = Callable[..., Job]

PROGRAM = """
    import os, sys, time
    import ckpt
    ckpt.enable()
    os.makedirs(sys.argv[1])
    os.chdir(sys.argv[1])
{writer}
    for n in range(int(sys.argv[2])):
        write(n)
        time.sleep(float(sys.argv[3]))
    while "CKPT_JOB" in os.environ and not os.path.exists(os.environ["CKPT_JOB"] + "/all-kills-done"):
        time.sleep(0.01)
    print("written", n)
"""

WRITERS = {
    "pandas.to_csv": """
    import pandas
    def write(n):
        frame = pandas.DataFrame({"n": [n, n + 1], "square": [n * n, 0.5]})
        frame.to_csv(f"frame-{n % 5}.csv")
        frame.to_csv("all.csv", mode="a", header=n == 0)
    """,
    "pandas.to_parquet": """
    import pandas
    def write(n):
        pandas.DataFrame({"n": [n, n + 1], "text": ["a", str(n)]}).to_parquet(f"frame-{n % 5}.parquet")
    """,
    "numpy.save": """
    import numpy
    def write(n):
        numpy.save(f"array-{n % 5}.npy", numpy.arange(n))
        numpy.savetxt("table.txt", numpy.full((3, 3), n))
    """,
    "h5py": """
    import h5py, numpy
    def write(n):
        with h5py.File(f"fields-{n % 5}.h5", "w") as file:
            file["n"] = numpy.arange(n % 50)
        with h5py.File("steps.h5", "a") as file:
            steps = file.require_dataset("steps", (1000,), "f8", chunks=(50,))
            steps[n % 1000] = n / 3
            file.attrs["n"] = n
    """,
    "h5py, held open": """
    import h5py, numpy
    file = h5py.File("open.h5", "w")
    steps = file.create_dataset("steps", (0,), "f8", maxshape=(None,), chunks=(50,))
    def write(n):
        steps.resize((n + 1,))
        steps[n] = n / 3
        file.flush()
    """,
    "sqlite3": """
    import contextlib, sqlite3
    def write(n):
        with contextlib.closing(sqlite3.connect("database")) as database, database:
            database.execute("create table if not exists t (n, text)")
            database.executemany("insert into t values (?, ?)", [(n, "x" * n), (n + 1, "y")])
            database.execute("delete from t where n < ?", (n - 20,))
    """,
    "zipfile": """
    import zipfile
    def write(n):
        with zipfile.ZipFile("growing.zip", "a") as archive:
            archive.writestr(zipfile.ZipInfo(f"{n}"), f"{n}" * 20)
        with zipfile.ZipFile(f"archive-{n % 5}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("n"), f"{n}" * 20)
    """,
    "logging": """
    import logging.handlers
    logger = logging.getLogger("writer")
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.handlers.RotatingFileHandler("log", maxBytes=300, backupCount=3))
    logger.addHandler(logging.FileHandler("whole"))
    def write(n):
        logger.info("step %d of the program", n)
        logger.warning("step %d again", n)
    """,
    "matplotlib": """
    import matplotlib
    matplotlib.use("agg")
    from matplotlib import pyplot
    def write(n):
        figure = pyplot.figure(figsize=(1, 1))
        figure.add_subplot().plot([n % 7, 1, 2])
        figure.savefig(f"figure-{n % 5}.png", metadata={"Software": None})
        figure.savefig("figure.pdf", metadata={"CreationDate": None})
        pyplot.close(figure)
    """,
    "joblib.dump": """
    import joblib
    def write(n):
        joblib.dump({"n": list(range(n % 50))}, f"dump-{n % 5}.joblib")
        joblib.dump([n], "latest.joblib", compress=3)
    """,
    "torch.save": """
    import torch
    def write(n):
        torch.save({"n": torch.arange(n % 50), "step": n}, f"state-{n % 5}.pt")
    """,
    "shelve": """
    import shelve
    def write(n):
        with shelve.open("shelf") as shelf:
            shelf[f"{n % 40}"] = list(range(n % 30))
            shelf.pop(f"{(n - 20) % 40}", None)
    """,
    "dbm.dumb": """
    import dbm.dumb
    def write(n):
        with dbm.dumb.open("names", "c") as database:
            database[f"{n % 40}"] = b"x" * n
    """,
    "dbm.gnu": """
    import dbm.gnu
    def write(n):
        with dbm.gnu.open("names", "c") as database:
            database[f"{n % 40}"] = b"x" * n
    """,
    "dbm.ndbm": """
    import dbm.ndbm
    def write(n):
        with dbm.ndbm.open("names", "c") as database:
            database[f"{n % 40}"] = b"x" * (n % 500)
    """,
}
MODULES = {
    "pandas.to_csv": ("pandas",),
    "pandas.to_parquet": ("pandas", "pyarrow"),
    "numpy.save": ("numpy",),
    "h5py": ("h5py",),
    "h5py, held open": ("h5py",),
    "matplotlib": ("matplotlib",),
    "joblib.dump": ("joblib",),
    "torch.save": ("torch",),
}
BUILT_IN = {"dbm.gnu": "_gdbm", "dbm.ndbm": "_dbm"}  # modules that Python is built with, or not

SLOW = {"matplotlib": 5}  # how many times longer a step takes


def comparable(out: Path, writer: str) -> Tree:
    """The files in the directory, without their times, byte for byte. Of some writers what is in each file, since two
    undisturbed runs do not leave the same bytes, or since a file is held open over an image (`IN_FILES`)."""
    found = without_times(tree_of(str(out)))
    if inside := IN_FILES.get(writer):
        for path, (kind, mode, content, *names) in found.items():
            if isinstance(content, bytes):
                found[path] = (kind, mode, inside(out / path), *names)
    return found


def members(path: Path) -> list[tuple[object, ...]]:
    """Of each member of a file of HDF5: name, type, shape, content, attributes."""
    import h5py

    found: list[tuple[object, ...]] = []

    def note(name: str, member: Any) -> None:
        attributes = {key: repr(value) for key, value in member.attrs.items()}
        if isinstance(member, h5py.Dataset):
            found.append((name, str(member.dtype), member.shape, member[()].tobytes(), attributes))
        else:
            found.append((name, attributes))

    with h5py.File(path, "r") as file:
        note("/", file)
        file.visititems(note)
    return found


def dbm_library() -> str:
    import dbm.ndbm

    return dbm.ndbm.library


def entries(path: Path) -> list[tuple[bytes, bytes]]:
    import dbm.ndbm

    with dbm.ndbm.open(str(path.with_suffix("")), "r") as database:
        return sorted((key, database[key]) for key in database.keys())  # noqa: SIM118 - it has no other iterator


# What is compared instead of bytes. An image flushes a file of HDF5 that is open, and then the library lays out what comes
# later in other places (docs/files.md). Berkeley DB writes into each new file a random identity, and what happened to be in
# memory (`test_berkeley_db_never_leaves_the_same_bytes`).
IN_FILES: dict[str, Callable[[Path], object]] = {"h5py": members, "h5py, held open": members}
if importlib.util.find_spec("_dbm") and dbm_library() == "Berkeley DB":
    IN_FILES["dbm.ndbm"] = entries


def undisturbed(app: Path, steps: int, writer: str, name: str = "out-undisturbed") -> Tree:
    """The files that the program leaves in plain Python."""
    out = app.parent / name
    subprocess.run(
        [sys.executable, app, out, str(steps), "0"], check=True, timeout=120, stdout=subprocess.DEVNULL
    )
    return comparable(out, writer)


def killed(start: Start, app: Path, steps: int, kills: int, writer: str) -> Tree:
    """The files that a job leaves that has been killed so often, each time from a checkpoint on."""
    choose = random.Random(f"{seed_of_the_commit()} {app.read_text()}")
    out = app.parent / "out-killed"
    job = start(app, out, steps, 0.01, ranks=1, files="auto", every=0.1, max_restarts=100)
    job.wait_event("committed")
    for count in range(kills):
        time.sleep(choose.uniform(0.0, 0.3))  # the moment is to be any
        job.kill_rank(0)
        job.wait_event("restarted", count=count + 1)
    (job.directory / "all-kills-done").touch()
    assert job.finish(timeout_s=240) == 0, job.report()  # what is left after the last kill may be most of it
    assert f"written {steps - 1}" in job.output(0)
    # A journal that SQLite has removed by itself may be named, though it is gone as it should be.
    assert all(each["path"].endswith("-journal") for each in job.events("files-not-put-back")), job.report()
    return comparable(out, writer)


def each_writer() -> Iterator[object]:
    for name in WRITERS:
        modules = MODULES.get(name, ())
        # What only `make nightly` installs
        marks = [pytest.mark.nightly] * bool({"pyarrow", "joblib", "torch"}.intersection(modules))
        built_in = BUILT_IN.get(name, "zlib")
        has_it = importlib.util.find_spec(built_in) is not None
        built = pytest.mark.skipif(
            not has_it, reason=f"another Python: this one was built without {built_in}"
        )
        yield pytest.param(name, marks=[needs(*modules), built, *marks], id=name)


def app_of(tmp_path: Path, writer: str) -> Path:
    app = tmp_path / "app.py"
    app.write_text(textwrap.dedent(PROGRAM.replace("{writer}", WRITERS[writer].rstrip())))
    return app


def killed_so_often(start: Start, tmp_path: Path, writer: str, kills: int) -> None:
    app = app_of(tmp_path, writer)
    steps = (30 + 25 * kills) // SLOW.get(writer, 1)
    assert killed(start, app, steps, kills, writer) == undisturbed(app, steps, writer)


@pytest.mark.rotate(8)
@pytest.mark.parametrize("writer", list(each_writer()))
def test_files_are_those_of_an_undisturbed_run(start: Start, tmp_path: Path, writer: str) -> None:
    killed_so_often(start, tmp_path, writer, 2)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("writer", list(each_writer()))
def test_twenty_kills(start: Start, tmp_path: Path, writer: str) -> None:
    killed_so_often(start, tmp_path, writer, 20)


@pytest.mark.nightly
@pytest.mark.skipif("dbm.ndbm" not in IN_FILES, reason="another Python: its ndbm is not Berkeley DB")
def test_berkeley_db_never_leaves_the_same_bytes(tmp_path: Path) -> None:
    """Two undisturbed runs differ, but not in their entries. Were they equal, killed ones would have to be, too."""
    app = app_of(tmp_path, "dbm.ndbm")
    first, second = (undisturbed(app, 60, "dbm.ndbm", name) for name in ("one", "two"))
    assert first == second
    assert (tmp_path / "one" / "names.db").read_bytes() != (tmp_path / "two" / "names.db").read_bytes()

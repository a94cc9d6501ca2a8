"""A restart changes no file of the program before every rank has loaded its image."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.support import PATIENCE_S, Job, ckpt_command, run_ckpt, write_app
from tests.unit.ckpt.undo.test_sequences import Tree, tree_of, without_times

pytestmark = [pytest.mark.system, pytest.mark.turns(3)]

Start = Callable[..., Job]

# All ways to change files, behind the only checkpoint; one file stays open, and one directory is left for another.
CHANGES = """
    import os, sys, time
    import ckpt
    from ckpt import MPI
    sys.path.append(sys.argv[2])
    import lent.module
    ckpt.enable()
    rank = MPI.COMM_WORLD.rank
    directory = f"{sys.argv[1]}/{rank}"
    os.makedirs(directory)
    os.chdir(directory)
    def write(name, text, mode="w"):
        with open(name, mode) as file:
            file.write(text)
    write("replaced", "then")
    write("in-place", "0" * 100)
    write("removed", "then")
    write("appended", "then")
    os.mkdir("old")
    write("old/inside", "then")
    held = open("held", "w")
    held.write("then")
    held.flush()
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    write("replaced.tmp", "now")
    os.replace("replaced.tmp", "replaced")
    write("in-place", "now", "r+")
    write("appended", "now", "a")
    write("made", "now")
    os.remove("removed")
    os.rename("old", "new")
    held.write("now")
    held.flush()
    MPI.COMM_WORLD.Barrier()
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os._exit(9)
    print(lent.module.value)
"""


def ended_job(start: Start, tmp_path: Path, program: str, module: str = "value = 7\n") -> Job:
    """A job of two ranks that has ended behind its only checkpoint. Its program gets the directory for its files, and
    that of a package ``lent`` that it needs, and that can be taken away."""
    package = tmp_path / "site-packages" / "lent"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "module.py").write_text(module)
    app = write_app(tmp_path, program)
    job = start(app, str(tmp_path / "out"), str(package.parent), ranks=2, files="auto", keep=9)
    assert job.finish() == 9, job.report()
    (job.directory / "through").touch()
    return job


@pytest.fixture
def ended(start: Start, tmp_path: Path) -> Job:
    """A job of two ranks that has ended behind its only checkpoint. It needs a package that can be taken away."""
    return ended_job(start, tmp_path, CHANGES)


def damaged_image(job: Path, rank: int = 1) -> Callable[[], None]:
    [pack] = [path for path in (job / "images").rglob("*.pack") if f"{rank:05}" in path.parent.name]
    good = pack.read_bytes()
    middle = len(good) // 2
    pack.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    return lambda: bool(pack.write_bytes(good)) or None


def missing_module(job: Path) -> Callable[[], None]:
    package, away = job.parent / "site-packages" / "lent", job.parent / "away"
    package.rename(away)
    return lambda: bool(away.rename(package)) and None


@pytest.mark.parametrize("spoil", [damaged_image, missing_module])
def test_an_image_that_cannot_be_loaded_changes_no_file(
    ended: Job, tmp_path: Path, spoil: Callable[[Path], Callable[[], None]]
) -> None:
    """All files were put back before, so the user had neither the state of then nor that of now."""
    mend = spoil(ended.directory)
    before = tree_of(str(tmp_path / "out"))
    for _ in range(2):
        done = run_ckpt("restart", ended.directory, cwd=tmp_path)
        assert done.returncode == 12, done.stderr
        assert tree_of(str(tmp_path / "out")) == before
        assert not ended.events("files-put-back")
    mend()
    (tmp_path / "out" / "0" / "replaced").write_text("mine")  # what the ranks had left is known still
    done = run_ckpt("restart", ended.directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/out/0/replaced: somebody else has changed the file" in done.stderr, done.stderr
    assert len(ended.events("files-put-back")) == 1
    after = tree_of(str(tmp_path / "out"))
    assert {path: each for path, each in without_times(after).items() if path.startswith("1")} == {
        path: each for path, each in without_times(before).items() if path.startswith("1")
    }


# What the image refers to by name comes behind a file that is held open.
HELD_FIRST = """
    import os, sys, time
    import ckpt
    from ckpt import MPI
    sys.path.append(sys.argv[2])
    ckpt.enable()
    rank = MPI.COMM_WORLD.rank
    held = open(f"{sys.argv[1]}/held-{rank}", "w")
    held.write("then")
    held.flush()
    import lent.module
    from lent.module import Thing, function
    things, called, table, stop = [Thing()], function, lent.module.table, os._exit
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    held.write("now")
    held.flush()
    open(f"{sys.argv[1]}/made-{rank}", "w").close()
    MPI.COMM_WORLD.Barrier()
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        stop(9)
    print(lent.module.value, things[0].name, called(), table is lent.module.table)
"""
NAMES = """
value = 7
table = {}
class Thing:
    name = "thing"
def function():
    return "called"
"""


def without(name: str) -> Callable[[Path], Callable[[], None]]:
    """The module has lost what has that name: the user has changed the package, and not its version."""

    def spoil(job: Path) -> Callable[[], None]:
        module = job.parent / "site-packages" / "lent" / "module.py"
        good = module.read_text()
        module.write_text(good.replace(name, f"another_{name}"))
        return lambda: bool(module.write_text(good)) or None

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (missing_module, "lent"),
        (without("Thing"), "'Thing'"),
        (without("function"), "'function'"),
        (without("table"), "'table'"),
    ],
    ids=["module", "class", "function", "variable"],
)
def test_names_behind_an_open_file_are_looked_up_before_files_are_put_back(
    start: Start, tmp_path: Path, spoil: Callable[[Path], Callable[[], None]], said: str
) -> None:
    """What comes behind a file was loaded when files had been put back: before it was known that a module was missing."""
    (tmp_path / "out").mkdir()
    job = ended_job(start, tmp_path, HELD_FIRST, NAMES)
    mend = spoil(job.directory)
    before = tree_of(str(tmp_path / "out"))
    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert done.returncode == 12 and said in done.stderr, done.stderr
    assert tree_of(str(tmp_path / "out")) == before
    assert not job.events("files-put-back")
    mend()
    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("7 thing called True") == 2
    assert without_times(tree_of(str(tmp_path / "out"))) == without_times(before)


# Standard input is used up, and removed.
CONSUMED = """
    import os, sys, time
    import ckpt
    from ckpt import MPI
    ckpt.enable()
    comm = MPI.COMM_WORLD
    first = sys.stdin.readline()
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    comm.Barrier()
    rest = sys.stdin.read()
    if comm.rank == 0:
        os.remove("lines")
        with open("result", "w") as file:
            file.write(first + rest)
    comm.Barrier()
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os._exit(9)
    print("rest", rest.split())
"""


def test_an_image_that_cannot_be_loaded_does_not_bring_standard_input_back(tmp_path: Path) -> None:
    """All files were put back before images were loaded where one of them is standard input."""
    (tmp_path / "lines").write_text("1\n2\n3\n")
    app = write_app(tmp_path, CONSUMED)
    command = ckpt_command("run", "-n", 2, "--keep", 9, "--job", tmp_path / "job", app)
    with (tmp_path / "lines").open("rb") as lines:
        done = subprocess.run(
            command, stdin=lines, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path
        )
    assert done.returncode == 9, done.stderr
    (tmp_path / "job" / "through").touch()
    mend = damaged_image(tmp_path / "job")
    done = run_ckpt("restart", tmp_path / "job", cwd=tmp_path)
    assert done.returncode == 12, done.stderr
    assert not (tmp_path / "lines").exists() and (tmp_path / "result").exists()
    mend()
    done = run_ckpt("restart", tmp_path / "job", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rest ['2', '3']" in done.stdout
    assert not (tmp_path / "lines").exists() and (tmp_path / "result").read_text() == "1\n2\n3\n"


# The program changes its own code, which it imports again while its image is loaded, and a package that can be taken away.
CODE = """
    import importlib, os, sys, time
    import ckpt
    from ckpt import MPI
    sys.path[:0] = [sys.argv[1] + "/own", sys.argv[2]]
    import lent.module
    ckpt.enable()
    comm = MPI.COMM_WORLD
    os.chdir(sys.argv[1])
    def write(name, text):
        with open(f"{name}-{comm.rank}.tmp", "w") as file:
            file.write(text)
        os.replace(f"{name}-{comm.rank}.tmp", name)
    if comm.rank == 0:
        os.makedirs("own/package")
        write("own/made.py", "def value(): return 'then'")
        write("own/package/__init__.py", "")
        write("own/package/below.py", "def value(): return 'below'")
        write("own/kept.py", "def value(): return 'kept'")
    comm.Barrier()
    importlib.invalidate_caches()
    import made, kept, package.below
    comm.Barrier()  # else one may change code that the other has not imported at the checkpoint
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    write(f"data-{comm.rank}", "now")
    if comm.rank == 0:
        write("own/made.py", "1 / 0  # never to be imported")
        os.rename("own/package", "own/moved")
        os.remove("own/kept.py")
        write("own/package.py", "raise SystemExit('taken for the package')")
    comm.Barrier()
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os._exit(9)
    print(made.value(), kept.value(), package.below.value(), lent.module.value)
"""


@pytest.fixture
def with_code(start: Start, tmp_path: Path) -> Job:
    """A job of two ranks that has changed code behind its only checkpoint."""
    (tmp_path / "out").mkdir()
    return ended_job(start, tmp_path, CODE)


def inodes_of(root: Path) -> dict[str, int]:
    return {
        str(path): path.lstat().st_ino for path in sorted(root.rglob("*")) if "__pycache__" not in path.parts
    }


def without_caches(tree: Tree) -> Tree:
    return {path: each for path, each in tree.items() if "__pycache__" not in path}


@pytest.mark.parametrize("spoil", [damaged_image, missing_module])
def test_an_image_that_cannot_be_loaded_changes_no_code(
    with_code: Job, tmp_path: Path, spoil: Callable[[Path], Callable[[], None]]
) -> None:
    """Code was put back before images were loaded, which import it, and so was all else: before a module was missing."""
    out = tmp_path / "out"
    mend = spoil(with_code.directory)
    before, inodes = without_caches(tree_of(str(out))), inodes_of(out)
    assert {"own/moved/below.py", "own/package.py"} <= before.keys() and "own/kept.py" not in before
    for _ in range(2):
        done = run_ckpt("restart", with_code.directory, cwd=tmp_path)
        assert done.returncode == 12, done.stderr
        assert (without_caches(tree_of(str(out))), inodes_of(out)) == (before, inodes)
        assert not with_code.events("files-put-back")
    mend()
    done = run_ckpt("restart", with_code.directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("then kept below 7") == 2
    assert "somebody else" not in done.stderr and "not put back" not in done.stderr, done.stderr
    assert len(with_code.events("files-put-back")) == 1
    after = without_times(without_caches(tree_of(str(out))))
    assert after == without_times(before)


@pytest.mark.parametrize("stage", ["loading", "taken back"])
def test_a_restart_that_is_killed_while_code_is_that_of_the_checkpoint_can_be_done_again(
    with_code: Job, tmp_path: Path, stage: str
) -> None:
    """All of its processes are killed, by and by."""
    out = tmp_path / "out"
    before = without_caches(tree_of(str(out)))
    given = with_code.directory / "undo" / "loading"
    for _ in range(3):
        restart = subprocess.Popen(
            ckpt_command("restart", with_code.directory), cwd=tmp_path, start_new_session=True
        )
        while not given.exists() and restart.poll() is None:
            time.sleep(0.0005)
        if stage == "taken back":
            while given.exists() and restart.poll() is None:
                time.sleep(0.0005)
        with contextlib.suppress(ProcessLookupError):  # it has come to its end
            os.killpg(restart.pid, signal.SIGKILL)
        if restart.wait() == 0:
            break
    mend = missing_module(with_code.directory)
    done = run_ckpt("restart", with_code.directory, cwd=tmp_path)
    if done.returncode == 12 and stage == "loading":
        assert without_caches(tree_of(str(out))) == before
    mend()
    assert run_ckpt("restart", with_code.directory, cwd=tmp_path).returncode == 0
    assert without_times(without_caches(tree_of(str(out)))) == without_times(before)


# What replicas undo by themselves: what was appended, and what was made.
APPENDED = """
    import os, sys, time
    import ckpt
    comm = ckpt.enable()
    log = open(f"{sys.argv[1]}/held-{comm.rank}", "w")
    print("then", file=log, flush=True)
    ckpt.checkpoint()
    comm.Barrier()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    print("now", file=log, flush=True)
    with open(f"{sys.argv[1]}/appended-{comm.rank}", "a") as file:
        file.write("now")
    comm.Barrier()
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        sys.exit(9)
    print("end")
"""


def test_an_image_that_cannot_be_loaded_changes_no_file_of_replicas(start: Start, tmp_path: Path) -> None:
    """Replicas of ranks whose images were whole had cut their files, and removed what was new."""
    out = tmp_path / "out"
    out.mkdir()
    job = start(write_app(tmp_path, APPENDED), str(out), ranks=2, redundancy=2, keep=9)
    assert job.finish() == 9, job.report()
    (job.directory / "through").touch()
    before = tree_of(str(out))
    assert len(before) == 4, before
    mend = damaged_image(job.directory)
    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert done.returncode == 12, done.stderr
    assert tree_of(str(out)) == before
    mend()
    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert without_times(tree_of(str(out))) == without_times(before)


# The second half is read behind a checkpoint at which the file on standard input has no name any more.
GONE = """
    import os, signal, sys, time
    import ckpt
    ckpt.enable()
    read = [sys.stdin.readline().strip()]
    if sys.argv[1] == "replaced":
        with open("new", "w") as file:
            file.write("another file" * 9)
        os.replace("new", "lines")
    else:
        os.remove("lines")
    for epoch in 1, 2:
        ckpt.checkpoint()
        while open(os.environ["CKPT_JOB"] + "/events.jsonl").read().count('"committed"') < epoch:
            time.sleep(0.001)
        read.append(sys.stdin.readline().strip())
        died = os.environ["CKPT_JOB"] + f"/died-{epoch}"
        if not os.path.exists(died):
            open(died, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
    print("read", *read, sys.stdin.read().count("x"))
"""


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_standard_input_that_has_lost_its_name_is_read_on(tmp_path: Path, how: str) -> None:
    """The position was lost, and where another file had the name, that was read: without a word."""
    (tmp_path / "lines").write_text("1\n2\n3\n" + "x" * 20_000)
    app = write_app(tmp_path, GONE)
    with (tmp_path / "lines").open("rb") as lines:
        done = subprocess.run(
            ckpt_command("run", "-n", 1, "--job", tmp_path / "job", app, how),
            stdin=lines, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("restarting from") == 2, done.stderr
    assert "read 1 2 3 20000" in done.stdout


DATABASES = """
    import os, sqlite3, time
    import ckpt
    ckpt.enable()
    grows, goes = sqlite3.connect("grows"), sqlite3.connect("goes")
    with goes:
        goes.execute("create table t (n)")
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    for n in range(5):
        with grows:
            grows.execute("create table if not exists t (n)")
            grows.execute("insert into t values (?)", (n,))
    with goes:
        goes.execute("insert into t values (1)")
    grows.close()
    goes.close()
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os.remove("goes")
        os._exit(9)
"""


def test_connections_to_databases_are_opened_when_files_are_back(start: Start, tmp_path: Path) -> None:
    """They were opened before: SQLite counted transactions on from those that were undone, and a database that the program
    had removed since was gone."""
    job = start(write_app(tmp_path, DATABASES), ranks=1, files="auto", keep=9)
    assert job.finish() == 9, job.report()
    grown = (tmp_path / "grows").read_bytes()
    assert not (tmp_path / "goes").exists()
    (job.directory / "through").touch()
    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "grows").read_bytes() == grown
    assert (tmp_path / "goes").read_bytes()[24:28] == (2).to_bytes(4, "big"), "transactions"


# What comes behind a file that is held open is loaded when files have been put back, and cannot be.
RESTORED = """
    import os, sys, time
    import ckpt
    from ckpt import MPI
    comm = MPI.COMM_WORLD
    ckpt.enable()
    os.chdir(sys.argv[1])
    held = open(f"held-{comm.rank}", "w")
    held.write("then" * 100_000)
    held.flush()
    def write(name, text, mode="w"):
        with open(f"{name}-{comm.rank}", mode) as file:
            file.write(text)
    for name in ("in-place", "appended", "removed", "replaced"):
        write(name, "then" * 100)
    class Thing:
        pass
    def load(name):
        if os.path.exists(os.environ["CKPT_JOB"] + "/spoilt"):
            raise RuntimeError("it was not to be restored")
        text = open(name).read()
        assert text == "then" * 100, text
        return Thing()
    ckpt.register_type(Thing, lambda thing: f"appended-{comm.rank}", load)
    if comm.rank == 1:
        things = [Thing()]
        other = open("other", "w")
    comm.Barrier()  # else one may be captured before it has all of this
    ckpt.checkpoint()
    while '"committed"' not in open(os.environ["CKPT_JOB"] + "/events.jsonl").read():
        time.sleep(0.001)
    held.write("now")
    held.flush()
    write("appended", "now", "a")
    write("in-place", "now", "r+")
    write("made", "now")
    write("new", "now")
    os.replace(f"new-{comm.rank}", f"replaced-{comm.rank}")
    os.remove(f"removed-{comm.rank}")
    comm.Barrier()
    if not os.path.exists(os.environ["CKPT_JOB"] + "/through"):
        os._exit(9)
    print("end")
"""


def raising(job: Path) -> Callable[[], None]:
    (job / "spoilt").touch()
    return (job / "spoilt").unlink


def unopened(job: Path) -> Callable[[], None]:
    """What no rank had changed, and somebody else has made a directory."""
    other = job.parent / "out" / "other"
    other.unlink()
    other.mkdir()
    return lambda: other.rmdir() or other.touch()


@pytest.mark.parametrize(
    ("spoil", "said"), [(raising, "it was not to be restored"), (unopened, "other")], ids=["raises", "opens"]
)
def test_files_are_taken_back_where_the_rest_of_an_image_cannot_be_loaded(
    start: Start, tmp_path: Path, spoil: Callable[[Path], Callable[[], None]], said: str
) -> None:
    """They stayed those of the checkpoint, from which nobody could go on, and what the program had left was lost."""
    out = tmp_path / "out"
    out.mkdir()
    package = tmp_path / "none"
    app = write_app(tmp_path, RESTORED)
    job = start(app, str(out), str(package), ranks=2, files="auto", keep=9)
    assert job.finish() == 9, job.report()
    (job.directory / "through").touch()
    mend = spoil(job.directory)
    before, inodes = tree_of(str(out)), inodes_of(out)
    for attempt in range(1, 3):
        done = run_ckpt("restart", job.directory, cwd=tmp_path)
        assert done.returncode == 12 and said in done.stderr, done.stderr
        assert "files are again what the program had left" in done.stderr
        assert (tree_of(str(out)), inodes_of(out)) == (before, inodes)
        assert not job.events("files-put-back") and len(job.events("files-taken-back")) == attempt
    mend()
    (out / "replaced-0").write_text("mine")  # what the ranks had left is known still
    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "replaced-0: somebody else has changed the file" in done.stderr, done.stderr
    assert len(job.events("files-put-back")) == 1
    after = without_times(tree_of(str(out)))
    assert after == {**without_times(before), "replaced-0": after["replaced-0"], "other": after["other"]}


@pytest.mark.parametrize("stage", ["given", "kept"])
def test_a_restart_that_is_killed_while_files_can_be_taken_back_can_be_done_again(
    start: Start, tmp_path: Path, stage: str
) -> None:
    """All of its processes are killed, by and by."""
    out = tmp_path / "out"
    out.mkdir()
    job = start(write_app(tmp_path, RESTORED), str(out), str(tmp_path), ranks=2, files="auto", keep=9)
    assert job.finish() == 9, job.report()
    (job.directory / "through").touch()
    before = tree_of(str(out))
    watched = job.directory / "undo" / ("loading" if stage == "given" else "kept")
    for _ in range(3):
        restart = subprocess.Popen(
            ckpt_command("restart", job.directory), cwd=tmp_path, start_new_session=True
        )
        while not watched.exists() and restart.poll() is None:
            time.sleep(0.0002)
        with contextlib.suppress(ProcessLookupError):  # it has come to its end
            os.killpg(restart.pid, signal.SIGKILL)
        if restart.wait() == 0:
            break
    mend = raising(job.directory)
    done = run_ckpt("restart", job.directory, cwd=tmp_path)
    if done.returncode == 12 and stage == "given":
        assert tree_of(str(out)) == before
    mend()
    assert run_ckpt("restart", job.directory, cwd=tmp_path).returncode == 0
    assert without_times(tree_of(str(out))) == without_times(before)

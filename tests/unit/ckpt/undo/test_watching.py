"""What a program does with files is seen by itself, in the process that does it, and can be undone."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from ckpt.image.process import moment
from ckpt.rank.files import open_for_writing
from ckpt.undo import _watch, keeping
from ckpt.undo.logs import read_log
from ckpt.undo.planning.plan import Log, make_plan
from ckpt.undo.records import Content, FileId, Uncovered
from ckpt.undo.restart.putting_back import Problem, put_back
from ckpt.undo.watching import FileWatch
from tests.unit.ckpt.undo.test_sequences import BUILDING, OPERATIONS, Rank, Tree, tree_of

KEY = b"k" * 32
SEQUENCES = int(os.environ.get("CKPT_UNDO_SEQUENCES", "2000")) // 20


class Watched:
    """A directory in which this process works, as a rank would; the job directory is beside it, if no ``root`` is given."""

    def __init__(
        self,
        where: Path,
        limit_bytes: int = 1 << 30,
        root: Path | None = None,
        covers: Callable[[str], bool] | None = None,
        divides: Callable[[str], bool] = lambda directory: True,
        ranks: int = 1,
    ) -> None:
        self.root, self.job = root or where / "work", where / "job"
        self.root.mkdir()
        self.job.mkdir()
        self.told: list[Uncovered] = []
        self.epoch = 0
        self.on_directory: Callable[[str], object] = lambda directory: None
        self.started: list[tuple[str, str]] = []
        self.watch = FileWatch(
            str(self.job),
            KEY,
            rank=0,
            incarnation=1,
            limit_bytes=limit_bytes,
            ranks=ranks,
            on_uncovered=lambda epoch, each: self.told.append(each),
            on_directory=lambda directory: self.on_directory(directory),
            on_process=lambda command, where: self.started.append((command, where)),
            covers=covers,
            divides=divides,
        )

    def open_files(self) -> list[Any]:
        return list(open_for_writing(moment.note(), lambda path: not path.startswith(str(self.root))))

    def start(self) -> None:
        self.watch.start(0, self.open_files())

    def cut(self) -> None:
        self.epoch += 1
        self.watch.cut(self.epoch, self.open_files())

    def cut_in_vain(self) -> None:
        """No image could be taken after the cut."""
        self.watch.cut(self.epoch + 1, self.open_files())
        self.watch.uncut(self.epoch + 1)

    def log(self, epoch: int) -> Log:
        directory = keeping.directory_of(str(self.job), epoch, 1, 0)
        return Log(directory, list(read_log(directory, KEY)))

    def back_to(self, line: int) -> list[Problem]:
        """A restart from the checkpoint of this number; the process has ended before."""
        self.cut()  # what the log says in the end
        self.watch.stop()
        renumbered: dict[FileId, FileId] = {}
        problems: list[Problem] = []
        for epoch in range(self.epoch, line - 1, -1):
            problems += put_back(make_plan([self.log(epoch)]), str(self.job / "undone"), renumbered)
        return problems


@contextlib.contextmanager
def watched(where: Path, **options: Any) -> Iterator[Watched]:
    made = Watched(where, **options)
    before = os.getcwd()
    os.chdir(made.root)
    try:
        yield made
    finally:
        made.watch.stop()
        os.chdir(before)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


class Program(Rank):
    """The random programs of test_sequences; nobody is told of their operations. Some files stay open."""

    def __init__(self, root: str, job: str, seed: int) -> None:
        super().__init__(root, job, seed)
        self.open: list[IO[bytes]] = []

    def hold(self, path: str, other: str) -> None:
        """A file is opened, and written later."""
        self.open.append(open(os.path.realpath(path), self.random.choice(["ab", "wb", "r+b", "xb"])))  # noqa: SIM115

    def use(self, path: str, other: str) -> None:
        if self.open:
            file = self.random.choice(self.open)
            if self.random.random() < 0.3 and "r" in file.mode:
                file.seek(self.random.randrange(8))
            file.write(self._bytes())
            file.flush()

    def let_go(self, path: str, other: str) -> None:
        if self.open:
            self.open.pop(self.random.randrange(len(self.open))).close()


def named_otherwise(choice: random.Random, path: str) -> Any:
    """The same path as programs may give it."""
    return choice.choice([path, os.fsencode(path), Path(path), os.path.relpath(path)])


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on a file system in memory, where there is one: hundreds of programs begin there."""
    monkeypatch.setattr(_watch, "LEFT_ALONE", ("/proc", "/sys"))
    directory = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    yield Path(directory)
    shutil.rmtree(directory)


@pytest.mark.rotate(2)
def test_whatever_a_program_does_is_seen_and_undone(in_memory: Path) -> None:
    operations = [*OPERATIONS, "hold", "hold", "use", "use", "use", "let_go"]
    for seed in range(SEQUENCES):
        where = in_memory / str(seed)
        where.mkdir()
        with watched(where) as work:
            program = Program(str(work.root), str(work.job), seed)
            trees: list[Tree] = []
            done: list[str] = []
            for _ in range(16):
                program.step([*BUILDING, "hold"])
            work.start()
            trees.append(tree_of(str(work.root)))
            for _ in range(program.random.randint(0, 2)):
                done += [program.step(operations) for _ in range(program.random.randint(1, 8))]
                while program.random.random() < 0.3:
                    work.cut_in_vain()
                    done += [program.step(operations) for _ in range(program.random.randint(0, 3))]
                work.cut()
                trees.append(tree_of(str(work.root)))
            done += [program.step(operations) for _ in range(program.random.randint(1, 8))]
            line = program.random.randrange(len(trees))
            problems = work.back_to(line)
            for file in program.open:
                file.close()
            assert not problems, (seed, problems, done)
            assert not work.told, (seed, work.told, done)
            assert tree_of(str(work.root)) == trees[line], (seed, line, done)
        shutil.rmtree(where)


def test_names_relative_to_a_directory_descriptor(work: Watched) -> None:
    os.makedirs("d/e")
    Path("d/e/x").write_text("x")
    Path("d/f").write_text("f")
    work.start()
    tree = tree_of(str(work.root))
    fd = os.open("d", os.O_RDONLY)
    os.rename("e/x", "e/y", src_dir_fd=fd, dst_dir_fd=fd)
    os.mkdir("new", dir_fd=fd)
    os.unlink("e/y", dir_fd=fd)
    os.symlink("e", "link", dir_fd=fd)
    os.close(os.open("e/z", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(os.open("f", os.O_WRONLY | os.O_TRUNC, dir_fd=fd))
    os.close(fd)
    shutil.rmtree("d")  # by descriptors, too
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_through_links_and_other_directories(work: Watched) -> None:
    os.mkdir("real")
    Path("real/x").write_text("x")
    os.symlink("real", "way")
    os.symlink("real/x", "file")
    work.start()
    tree = tree_of(str(work.root))
    Path("way/y").write_text("y")
    Path("file").write_text("changed")
    os.chdir("way")
    Path("x").rename("../z")
    os.truncate("../z", 1)
    os.chmod("../z", 0o600)
    os.chdir("..")
    os.replace("way", "other")
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_a_database_of_sqlite(work: Watched) -> None:
    with sqlite3.connect("db") as db:
        db.execute("create table t (x)")
        db.execute("insert into t values (1)")
    work.start()
    tree = tree_of(str(work.root))
    with sqlite3.connect("file:db?mode=rw", uri=True) as other:
        other.execute("insert into t values (2)")
    work.cut()
    db.execute("insert into t values (3)")  # a transaction that is killed: its journal must not come back
    assert os.path.exists("db-journal")
    content = Path("db").read_bytes()
    assert not work.back_to(1)
    assert not os.path.exists("db-journal")
    assert Path("db").read_bytes() == content
    db.close()
    work.epoch = 0
    renumbered: dict[FileId, FileId] = {}
    assert not put_back(make_plan([work.log(0)]), str(work.job / "undone"), renumbered)
    assert tree_of(str(work.root)) == tree


def test_a_copy_does_not_take_the_process_its_locks(work: Watched) -> None:
    """Closing any descriptor of a file releases the POSIX locks of the process (fcntl(2)): SQLite would lose its locks."""
    import fcntl

    Path("x").write_text("content")
    file = open("x", "r+")  # noqa: SIM115
    fcntl.lockf(file, fcntl.LOCK_EX)
    work.start()
    work.cut()
    pid = os.fork()
    if pid == 0:
        try:
            fcntl.lockf(open("x", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)  # noqa: SIM115
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert any(isinstance(record, Content) and record.copy for record in work.log(1).records)
    file.close()


def test_what_is_left_alone(work: Watched) -> None:
    os.makedirs("package/__pycache__")
    work.start()
    Path("package/__pycache__/x.pyc").write_text("x")
    os.mkdir("__pycache__")
    Path("__pycache__/x.pyc").write_text("x")
    Path("/dev/null").write_text("x")
    Path(work.job, "own").write_text("x")
    os.pipe()
    with open("/proc/self/comm", "r+"):
        pass
    Path(__file__).read_text()
    work.cut()
    assert [record.path for record in work.log(0).records] == [str(work.root / "__pycache__")]  # type: ignore[union-attr]


def test_a_signal_handler_that_raises_leaves_the_operation_undone(work: Watched) -> None:
    """The exception is the program's own; the operation has not begun."""

    class Alarm(Exception):
        pass

    def raises(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, raises)
    work.start()
    raised = 0
    try:
        for number in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00001 * (number % 20 + 1))
                for turn in range(20):
                    Path(f"{number}-{turn}").write_text("x")
            except Alarm:
                raised += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        raised += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert raised
    problems = work.back_to(0)
    assert not problems or work.told
    if not work.told:
        assert os.listdir() == []


def test_a_signal_handler_that_writes_while_a_change_is_recorded_is_told(
    work: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = keeping.look

    def looks(path: str) -> Any:
        if path.endswith("/x"):
            Path("of-the-handler").write_text("y")
        return genuine(path)

    monkeypatch.setattr(keeping, "look", looks)
    work.start()
    Path("x").write_text("x")
    assert [os.path.basename(each.path) for each in work.told] == ["of-the-handler"]
    work.cut()
    assert [each.path for each in work.log(0).records if isinstance(each, Uncovered)] == [work.told[0].path]


@pytest.mark.parametrize("moment", ["a change is recorded", "a checkpoint is taken"])
def test_a_finalizer_that_writes_while_the_log_is_written_leaves_it_whole(
    work: Watched, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its line was written in the midst of the other ones: the log did not verify, and the restart was refused."""
    Path("old").write_text("content")
    genuine, calls = keeping.copy_file, []

    def copies(*arguments: Any, **options: Any) -> int:
        calls.append(arguments)
        if len(calls) == (2 if moment == "a checkpoint is taken" else 1):
            Path("of-the-finalizer").write_text("y")
        return genuine(*arguments, **options)

    work.start()
    Path("first").write_text("x")
    monkeypatch.setattr(keeping, "copy_file", copies)
    with open("old", "r+"):
        work.cut()
    work.cut()
    assert len(calls) == 2
    assert [os.path.basename(each.path) for each in work.told] == ["of-the-finalizer"]
    logged = [each for epoch in range(work.epoch) for each in work.log(epoch).records]
    assert [each.path for each in logged if isinstance(each, Uncovered)] == [work.told[0].path]


def test_an_event_of_another_thread_comes_before_a_renaming_begins(work: Watched) -> None:
    """The renaming was taken for one that has failed, and what happened below its new name was not undone."""
    os.mkdir("d")
    Path("d/x").write_text("x")
    work.start()
    tree = tree_of(str(work.root))
    told = threading.Thread(target=work.watch._on_event, args=("os.rename", ("d", "e", -1, -1), False))
    told.start()
    told.join()
    Path("between").write_text("y")
    _watch.install(None, None)
    os.rename("d", "e")
    _watch.install(work.watch._on_event, work.watch._fast_path)
    os.remove("e/x")
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_threads_that_write_together(work: Watched) -> None:
    work.start()

    def writes(name: str) -> None:
        for number in range(30):
            Path(f"{name}-{number}").write_text(name)
            os.replace(f"{name}-{number}", name)

    threads = [threading.Thread(target=writes, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not work.back_to(0)
    assert os.listdir() == []


def test_a_file_above_the_limit_is_told_and_the_program_goes_on(tmp_path: Path) -> None:
    with watched(tmp_path, limit_bytes=1000) as work:
        Path("large").write_bytes(b"x" * 4000)
        work.start()
        Path("large").write_text("new")
        assert [(each.path, each.reason) for each in work.told] == [
            (str(work.root / "large"), "the limit for copies of files is reached")
        ] or os.stat(work.job).st_blocks  # where blocks can be shared, nothing is copied
        assert Path("large").read_text() == "new"


@pytest.mark.parametrize("which", range(3))
def test_a_full_disk_is_told_and_the_program_goes_on(
    work: Watched, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """Full when the directory of the log is made, when the log is written, when a copy is."""
    Path("old").write_text("old" * 2000)  # more than a block: its copy may share blocks with it
    full = OSError(errno.ENOSPC, "No space left on device")

    def refuses(*_: object, **__: object) -> Any:
        raise full

    work.start()
    match which:
        case 0:
            monkeypatch.setattr(os, "makedirs", refuses)
        case 1:
            Path("first").write_text("first")
            pwrite, left = os.pwrite, [1]

            def writes_a_part(fd: int, data: Any, offset: int) -> int:
                if left[0] <= 0:
                    monkeypatch.setattr(os, "pwrite", pwrite)
                    raise full
                left[0] -= 1
                return pwrite(fd, data[: len(data) // 2], offset)

            monkeypatch.setattr(os, "pwrite", writes_a_part)
        case 2:
            monkeypatch.setattr(os, "copy_file_range", refuses)
            monkeypatch.setattr(keeping.fcntl, "ioctl", refuses)
    Path("old").write_text("new")
    Path("more").write_text("more")
    monkeypatch.undo()
    assert Path("old").read_text() == "new"
    assert "No space left on device" in work.told[0].reason
    said = [record for record in work.log(0).records if isinstance(record, Uncovered)]
    assert which == 0 or any("No space left" in each.reason for each in said)


def test_where_the_program_starts_processes_is_told_once_a_place(work: Watched) -> None:
    work.start()
    for _ in range(2):
        subprocess.run(["true"], check=True)
    os.system("true")
    assert [command for command, _ in work.started] == ["true", "true"]
    assert all(where.startswith(f"{os.path.basename(__file__)}:") for _, where in work.started)


def test_the_directory_in_which_a_process_is_started_is_told(work: Watched) -> None:
    """Its files were not looked at where no rank had changed one there: nobody was told what it did."""
    for name in ("given", "entered"):
        (work.root / name).mkdir()
    work.start()
    told: list[str] = []
    work.on_directory = told.append
    subprocess.run(["true"], check=True, cwd="given")
    os.chdir("entered")
    for _ in range(2):
        os.waitpid(os.fork() or os._exit(0), 0)  # type: ignore[func-returns-value]
    os.chdir(work.root)
    assert told == [str(work.root / "given"), str(work.root / "entered")]


def test_changes_of_extended_attributes_are_named(work: Watched) -> None:
    """They stayed as they were, and nobody was told."""
    for name in ("old", "removed", "left"):
        Path(name).write_text("x")
    try:
        os.setxattr("removed", "user.x", b"then")
    except OSError:
        pytest.skip("another file system: it has no extended attributes")
    work.start()
    Path("new").write_text("x")
    os.setxattr("new", "user.x", b"now")  # it goes
    for _ in range(2):
        os.setxattr("old", "user.x", b"now")
        with open("old", "a") as file:
            os.setxattr(file.fileno(), "user.y", b"now")
    os.removexattr("removed", "user.x")
    os.chmod("left", 0o600)
    assert [(each.path, each.reason) for each in work.told] == [
        (str(work.root / name), "its extended attributes have been changed") for name in ("old", "removed")
    ]


def test_nothing_is_told_when_the_watch_has_stopped(work: Watched) -> None:
    work.start()
    work.watch.stop()
    Path("x").write_text("x")
    _watch.install(None, None)
    assert work.log(0).records == []


def test_a_checkpoint_that_is_rehearsed_ends_no_interval(work: Watched) -> None:
    Path("old").write_text("old")
    work.start()
    work.cut()
    work.watch.rehearse()
    Path("new").write_text("new")
    work.watch.rehearse()
    Path("old").write_text("changed")
    assert work.watch.records >= 2
    work.back_to(1)
    assert (os.listdir(), Path("old").read_text()) == (["old"], "old")


def test_the_log_of_the_interval_that_has_ended_is_closed_when_there_is_time(work: Watched) -> None:
    Path("x").write_text("0")
    work.start()
    Path("x").write_text("1")
    work.cut()
    assert work.watch.has_former and not work.watch.has_log
    Path("x").write_text("2")
    assert work.watch.has_log
    work.watch.close_former()
    assert work.watch.has_log and not work.watch.has_former
    tree = tree_of(str(work.root))
    work.cut()
    Path("x").write_text("3")
    assert not work.back_to(2)
    assert not work.told
    assert tree_of(str(work.root)) == tree


def test_a_checkpoint_can_be_rehearsed_with_a_log(work: Watched) -> None:
    Path("x").write_text("0")
    work.start()
    Path("x").write_text("1")
    before = work.log(0).records
    work.watch.rehearse()
    assert work.watch.has_log and not work.watch.has_former
    Path("y").write_text("1")
    os.rename("y", "z")
    work.watch.rehearse()
    assert work.log(0).records[: len(before)] == before
    assert len(work.log(0).records) == len(before) + 2
    assert not work.back_to(0)
    assert Path("x").read_text() == "0" and os.listdir(work.root) == ["x"]


def test_no_change_begins_while_an_image_is_cut(work: Watched) -> None:
    """A harmless thread opened a new file between the cut and the record of open files: it was open in the image, and gone
    after the restart, which failed: cannot be opened again."""
    work.start()

    def write() -> None:
        Path("new").write_text("")

    thread = threading.Thread(target=write)
    with work.watch.lock:
        thread.start()
        while not any(name == "_on_event" for name in _functions_of(thread)):
            assert thread.is_alive()
        assert not Path("new").exists()
    thread.join()
    assert Path("new").exists()


def _functions_of(thread: threading.Thread) -> list[str]:
    frame, found = sys._current_frames().get(thread.ident or 0), []
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found

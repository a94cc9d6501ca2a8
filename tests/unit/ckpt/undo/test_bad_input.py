"""Files, names and places as they come: strange ones, those of others, and those that do not let themselves be put back."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.undo.errors import NotUndone
from tests.unit.ckpt.undo import test_sequences as sequences
from tests.unit.ckpt.undo.test_sequences import Killed, check, tree_of
from tests.unit.ckpt.undo.test_watching import Watched, watched

where = sequences.where
TERABYTE = 1 << 40


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


# ---------------------------------------------------------------------- file systems


@pytest.fixture
def other(where: str, tmp_path: Path) -> Path:
    """A directory on another file system than `where`."""
    if os.stat(where).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("there is one file system only")
    return tmp_path


@pytest.mark.parametrize("share", range(2))
def test_the_job_directory_is_on_another_file_system(where: str, other: Path, share: int) -> None:
    """No hard link leads from one to the other: copies are kept."""
    for seed in range(share, 40, 2):
        check(where, seed, told="it had other names, which are not known", job_where=str(other))


def test_what_is_new_is_moved_to_another_file_system(where: str, other: Path) -> None:
    """Without filling it where a file has holes. Special files hold nothing: they are removed only."""
    with watched(Path(where), root=other / "work") as work:
        work.start()
        os.makedirs("new/deep/below")
        Path("new/file").write_text("content")
        os.symlink("file", "new/link")
        with open("new/sparse", "wb") as file:
            file.truncate(TERABYTE)
            file.write(b"begin")
        os.mkfifo("new/deep/fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("new/deep/socket")
        os.chmod("new/file", 0)
        os.chmod("new/deep", 0)
        assert not work.back_to(0)
        assert os.listdir() == []
    undone = Path(where, "job", "undone", "0-new")
    found = sorted(str(path.relative_to(undone)) for path in undone.rglob("*"))
    assert found == ["deep", "deep/below", "file", "link", "sparse"]
    assert (undone / "file").read_text() == "content" and os.readlink(undone / "link") == "file"
    sparse = (undone / "sparse").stat()
    assert (sparse.st_size, sparse.st_blocks < 1000) == (TERABYTE, True)


def test_a_move_to_another_file_system_that_is_killed(
    where: str, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a copy is in the way of nothing: the next restart moves what is left."""
    unlink, left = os.unlink, [1]

    def killed(name: str, *, dir_fd: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        unlink(name, dir_fd=dir_fd)

    with watched(Path(where), root=other / "work") as work:
        work.start()
        os.mkdir("new")
        for name in "abc":
            Path("new", name).write_text(name)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(os, "unlink", killed)
            work.back_to(0)
        assert not work.back_to(0)
        assert os.listdir() == []
    found = [path.name for path in Path(where, "job", "undone").rglob("*") if path.is_file()]
    assert sorted({*found}) == ["a", "b", "c"]


# ---------------------------------------------------------------------- names


NAMES = {
    "of 255 bytes": "n" * 255,
    "of 255 bytes in UTF-8": "ü" * 127 + "x",
    "not UTF-8": os.fsdecode(b"\xff\xfe-\x80"),
    "with line feeds and quotes": 'a\nb\t"c\\',
    "that looks deleted": "x (deleted)",
    "of spaces": "  ",
    "that looks like an option": "-rf",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_of_all_kinds(work: Watched, name: str) -> None:
    """Also as a directory's name, and as the target of a symbolic link."""
    other = name[:-1] + "~"
    os.mkdir(other)
    Path(other, name).write_text("then")
    work.start()
    tree = tree_of(str(work.root))
    Path(name).write_text("new")
    Path(other, name).write_text("now")
    os.rename(Path(other, name), Path(other, other))
    os.symlink(name, Path(other, name))
    os.remove(Path(other, other))
    os.rename(name, other + "!" if len(os.fsencode(other)) < 250 else "!")
    os.rename(other, name)
    assert not work.told
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_paths_near_the_limit_of_the_kernel(work: Watched) -> None:
    """PATH_MAX is 4096 with the final zero. A directory on its way to its old place gets a longer path than that."""
    path = str(work.root)
    while len(path) < 4000:
        name = "d" * min(200, 4090 - len(path) - 10)
        path = os.path.join(path, name)
        os.mkdir(path)
    last = "e" * (4095 - len(path) - 1 - 2)
    os.mkdir(os.path.join(path, last))
    Path(path, last, "f").write_text("then")
    work.start()
    tree = tree_of(str(work.root))
    Path(path, last, "f").write_text("now")
    Path(path, "new").write_text("new")
    os.rename(os.path.join(path, last), os.path.join(path, "moved"))
    os.remove(os.path.join(path, "moved", "f"))
    assert not work.told
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_a_path_above_the_limit_is_told(work: Watched) -> None:
    """The program has gone there step by step."""
    work.start()
    for _ in range(25):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    Path("x").write_text("x")
    assert Path("x").read_text() == "x"
    assert work.told
    os.chdir(work.root)


# ---------------------------------------------------------------------- files


def test_a_file_that_is_removed_while_it_is_open(work: Watched) -> None:
    Path("x").write_text("then")
    with open("x", "r+") as file:
        work.start()
        tree = tree_of(str(work.root))
        os.remove("x")
        file.write("more than that")
        file.flush()
        Path("x").write_text("another")
        work.cut()
        file.write("again")
        file.flush()
        assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree
    assert not work.told


def test_a_sparse_file_of_a_terabyte(work: Watched) -> None:
    """What is kept are its data; its holes stay holes."""
    with open("large", "wb") as file:
        file.truncate(TERABYTE)
        file.seek(TERABYTE // 2)
        file.write(b"data")
    work.start()
    with open("large", "r+b") as file:
        file.write(b"new")
        file.truncate(5)
    assert not work.told
    assert not work.back_to(0)
    status = os.stat("large")
    assert (status.st_size, status.st_blocks < 1000) == (TERABYTE, True)
    with open("large", "rb") as file:
        assert file.read(5) == bytes(5)
        file.seek(TERABYTE // 2)
        assert file.read(5) == b"data\0"


def test_a_file_that_is_replaced_again_and_again_costs_one_record(work: Watched) -> None:
    Path("state").write_text("then")
    work.start()
    tree = tree_of(str(work.root))
    sizes = set()
    for turn in range(1000):
        Path("state.tmp").write_text(f"{turn}")
        os.replace("state.tmp", "state")
        if turn:
            sizes.add(os.stat(work.log(0).directory + "/log").st_size)
    assert len(sizes) == 1
    assert len(os.listdir(work.log(0).directory)) <= 3
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


@pytest.mark.nightly
def test_ten_thousand_files_between_two_checkpoints(tmp_path: Path) -> None:
    with watched(tmp_path) as work:
        for number in range(10_000):
            Path(f"old-{number}").write_text(f"{number}")
        work.start()
        tree = tree_of(str(work.root))
        for number in range(10_000):
            Path(f"new-{number}").write_text("new")
            if number % 3 == 0:
                os.remove(f"old-{number}")
            elif number % 3 == 1:
                Path(f"old-{number}").write_text("now")
            else:
                os.replace(f"new-{number}", f"old-{number}")
        assert not work.told
        assert not work.back_to(0)
        assert tree_of(str(work.root)) == tree


def modes_of(root: Path) -> dict[str, int]:
    return {name: (root / name).lstat().st_mode for name in os.listdir(root)}


def test_special_files_go_and_named_pipes_come_back(work: Watched) -> None:
    """What the program had made since stayed, so it failed when it made that again; what another file had replaced stayed
    replaced, and nobody was told."""
    for name in ("moved", "replaced", "stays"):
        os.mkfifo(name, 0o640)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind("gone")
    work.start()
    then = modes_of(work.root)
    os.mkfifo("pipe")
    os.mknod("node")
    directory = os.open(".", os.O_RDONLY)
    os.mkfifo("pipe-there", dir_fd=directory)
    os.mknod("node-there", dir_fd=directory)
    os.close(directory)
    with socket.socket(socket.AF_UNIX) as made, socket.socket(socket.AF_UNIX) as nameless:
        made.bind(b"socket")
        nameless.bind(f"\0{work.root}")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
    os.rename("moved", "elsewhere")
    for name in ("replaced", "gone"):
        os.remove(name)
        Path(name).write_text("now")
    problems = work.back_to(0)
    assert [(each.path, each.reason) for each in problems] == [
        (str(work.root / "gone"), "it was a special file, and is gone")
    ]
    assert not work.told
    now = modes_of(work.root)
    assert "gone" not in now and now == {path: each for path, each in then.items() if path != "gone"}


# ---------------------------------------------------------------------- others


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user reaches."""
    directory = tempfile.mkdtemp()
    os.chmod(directory, 0o777)
    yield Path(directory)
    shutil.rmtree(directory)


@contextlib.contextmanager
def in_a_process() -> Iterator[bool]:
    """A forked process, in which this yields True, and which has to do all that is within without a failure."""
    pid = os.fork()
    if pid == 0:
        try:
            yield True
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    yield False
    assert os.waitpid(pid, 0)[1] == 0


def as_another_user(where: Path, function: Callable[[Watched], None]) -> None:
    """Call the function in a process without root's rights."""
    with in_a_process() as child:
        if child:
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 0)
            with watched(where) as work:
                function(work)


@pytest.mark.root
def test_directories_that_their_owner_may_not_change(open_place: Path) -> None:
    """A program that protects its results, and one that has taken the protection away for a while."""

    def program(work: Watched) -> None:
        for name in ("results", "protected"):
            os.makedirs(f"{name}/below")
            Path(name, "file").write_text("then")
        os.chmod("protected", 0o555)
        work.start()
        tree = tree_of(str(work.root))
        Path("results/file").unlink()
        Path("results/below/new").write_text("new")
        os.mkdir("new")
        Path("new/file").write_text("new")
        os.chmod("protected", 0o755)
        Path("protected/file").rename("protected/other")
        for directory in ("protected", "results/below", "results", "new"):
            os.chmod(directory, 0o555)
        assert not work.told
        assert not work.back_to(0)
        assert tree_of(str(work.root)) == tree

    as_another_user(open_place, program)


@pytest.mark.root
def test_what_belongs_to_another_user_by_now_is_refused_with_its_path(open_place: Path) -> None:
    """In a directory in which everybody may remove only what is his own."""
    shared = open_place / "shared"
    shared.mkdir()
    shared.chmod(0o1777)

    def program(work: Watched) -> None:
        path = shared / "state"
        work.start()
        path.write_text("now")
        path.unlink()
        work.watch.stop()
        os.seteuid(0)
        path.write_text("of another")
        os.seteuid(65534)
        with pytest.raises(NotUndone, match=str(path)):
            work.back_to(0)
        assert path.read_text() == "of another"

    as_another_user(open_place, program)


def test_what_was_a_file_is_a_directory_now(work: Watched) -> None:
    """Whoever has made it: it goes to the directory for what is new, with what is in it."""
    Path("x").write_text("then")
    work.start()
    tree = tree_of(str(work.root))
    os.remove("x")
    work.watch.stop()
    os.makedirs("x/below")
    Path("x/below/file").write_text("of somebody")
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree
    assert (work.job / "undone" / "0-x" / "below" / "file").read_text() == "of somebody"


def test_what_was_a_file_is_a_symbolic_link_now(work: Watched) -> None:
    """It is not followed: what it leads to stays as it is."""
    Path("x").write_text("then")
    outside = work.root.parent / "outside"
    outside.write_text("not the program's")
    work.start()
    with open("x", "a") as file:
        file.write(" and more")
    work.watch.stop()
    os.remove("x")
    os.symlink(outside, "x")
    problems = work.back_to(0)
    assert [(problem.path, problem.reason) for problem in problems] == [
        (str(work.root / "x"), "another file has taken its place")
    ]
    assert outside.read_text() == "not the program's" and os.readlink("x") == str(outside)


@pytest.mark.root
@pytest.mark.parametrize("has_log", [True, False], ids=["with a log", "without"])
def test_a_program_that_changes_its_root_directory_is_told(tmp_path: Path, has_log: bool) -> None:
    """Its paths mean something else from then on, outside of which the same paths may exist."""

    def program(work: Watched) -> None:
        os.makedirs("jail/data")
        os.makedirs("jail/proc")
        work.start()
        if has_log:
            Path("x").write_text("x")
        os.chroot("jail")
        for epoch in (1, 2):
            Path("/data/x").write_text(f"{epoch}")
            os.rename("/data/x", f"/data/{epoch}")
            assert [(each.path, "changed its root" in each.reason) for each in work.told] == [
                ("", True)
            ] * epoch
            work.watch.cut(epoch, [])
        assert sorted(os.listdir("/")) == ["data", "proc"] and sorted(os.listdir("/data")) == ["1", "2"]
        os._exit(0)  # there is no way back to the directory of the tests

    with in_a_process() as child:
        if child:
            with watched(tmp_path) as work:
                program(work)
    log = tmp_path / "job" / "undo" / "epoch-00000000-00001" / "rank-00000" / "log"
    assert log.exists() == has_log
    assert not has_log or '"uncovered",""' in log.read_text()


def test_the_limit_counts_the_data_that_are_copied(tmp_path: Path) -> None:
    with watched(tmp_path, limit_bytes=100_000) as work:
        with open("sparse", "wb") as file:
            file.truncate(TERABYTE)
        Path("dense").write_bytes(b"x" * 200_000)
        work.start()
        for name in ("sparse", "dense"):
            os.truncate(name, 1)
        told = [os.path.basename(each.path) for each in work.told]
        assert told in (["dense"], [])  # where blocks can be shared, nothing is copied

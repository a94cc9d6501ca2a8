"""The fast path in C says what the recorder would say: with and without it a program has the same undo log."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ckpt.undo import _watch, keeping, watching
from ckpt.undo.logs import read_log
from ckpt.undo.operations import operations_of
from ckpt.undo.records import Content, Moved, Name, Outcome, Record, Status, to_plain
from ckpt.undo.selection.covering import covering
from tests.unit.ckpt.undo import test_watching
from tests.unit.ckpt.undo.test_sequences import BUILDING, tree_of
from tests.unit.ckpt.undo.test_two_ranks import until_the_clock_has_gone_on
from tests.unit.ckpt.undo.test_watching import KEY, SEQUENCES, Program, Watched, watched

in_memory = test_watching.in_memory

FILES = [
    "new",
    "write",
    "write",
    "append",
    "append",
    "patch",
    "rename",
    "rename",
    "remove",
    "mkdir",
    "rmtree",
    "link",
]


# An `open` that fails because the file exists is a change for the recorder, which does not know why it would fail.
CHANGING = [*(each for each in FILES if each != "new"), "patch", "patch"]


def without_fast_path(watch: Any) -> None:
    _watch.install(watch._on_event, None)


def comparable(record: Record, root: str) -> list[Any]:
    """Without what differs from run to run: times, inodes, the directory."""
    fields = record._asdict()
    for name in ("time_ns", "tail", "file"):
        fields.pop(name, None)
    for name, value in fields.items():
        if isinstance(value, Status):
            fields[name] = (
                value.mode,
                value.links,
                value.is_file and value.nbytes,
                value.target.removeprefix(root),
            )
        elif isinstance(value, str):
            fields[name] = value.removeprefix(root)
    return [to_plain(record)[0], *fields.values()]


def records_of(where: Path, seed: int, begins: Callable[[Any], None]) -> list[list[Any]]:
    """What a program of this seed leaves in its logs."""
    where.mkdir()
    with watched(where) as work:
        program = Program(str(work.root), str(work.job), seed)
        for _ in range(12):
            program.step(BUILDING)
        work.start()
        begins(work.watch)
        for _ in range(2):
            for _ in range(20):
                program.step(FILES)
            work.cut()
        found = [each for epoch in (0, 1) for each in but_failed_removals(work.log(epoch).records)]
    shutil.rmtree(where)
    return [comparable(each, str(work.root)) for each in found]


def but_failed_removals(records: Iterable[Record]) -> list[Record]:
    """Without the removals of directories that have failed: `os.remove` of a directory, which the recorder is not asked."""
    found: list[Record] = []
    removal = -1  # where the last one is
    for each in records:
        if isinstance(each, Moved):
            removal = -1 if each.target else len(found)
        if isinstance(each, Outcome) and not each.happened and removal >= 0:
            del found[removal]
            removal = -1
        else:
            found.append(each)
    return found


@pytest.mark.rotate(2)
def test_the_log_is_the_same_without_the_fast_path(in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else it depends on a tick which files are surely new
    monkeypatch.setattr(keeping.time, "time_ns", lambda: 0)
    for seed in range(SEQUENCES):
        fast = records_of(in_memory / f"fast-{seed}", seed, lambda watch: None)
        slow = records_of(in_memory / f"slow-{seed}", seed, without_fast_path)
        assert fast == slow, (seed, fast, slow)


def changes_of(where: Path, seed: int, begins: Callable[[Any], None]) -> list[str]:
    """The paths that a program of this seed, one of two ranks, has changed before an image, the newest last."""
    where.mkdir()
    with watched(where, ranks=2) as work:
        program = Program(str(work.root), str(work.job), seed)
        for _ in range(12):
            program.step(BUILDING)
        work.start()
        begins(work.watch)
        for _ in range(40):
            program.step(CHANGING)
        found = [each.removeprefix(str(work.root)) for each in work.watch._recorder.changes]
        work.cut()
    shutil.rmtree(where)
    return found


@pytest.mark.rotate(2)
def test_the_last_changes_are_the_same_without_the_fast_path(in_memory: Path) -> None:
    count = 0
    for seed in range(SEQUENCES):
        fast = changes_of(in_memory / f"fast-{seed}", seed, lambda watch: None)
        slow = changes_of(in_memory / f"slow-{seed}", seed, without_fast_path)
        assert fast == slow, (seed, fast, slow)
        count += len(fast)
    assert count > SEQUENCES


@pytest.fixture
def work(tmp_path: Path) -> Any:
    with watched(tmp_path) as made:
        yield made


def slow_events(work: Watched, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events that the recorder is asked about from now on."""
    seen: list[str] = []
    genuine = watching.operations_of

    def tells(event: str, arguments: tuple[Any, ...]) -> Any:
        seen.append(event)
        return genuine(event, arguments)

    monkeypatch.setattr(watching, "operations_of", tells)
    return seen


def test_new_files_in_a_directory_are_settled(work: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    work.start()
    Path("first").write_text("x")
    seen = slow_events(work, monkeypatch)
    for number in range(100):
        with open(f"{number}.tmp", "w") as file:
            file.write("x")
        os.replace(f"{number}.tmp", f"{number}")
        os.remove(f"{number}")
    assert not seen
    names = {each.path for each in work.log(0).records if isinstance(each, Name)}
    assert len(names) == 201
    assert not work.back_to(0)
    assert os.listdir() == []


def test_a_file_whose_contents_are_kept_is_settled(work: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("state").write_text("old")
    Path("log").write_text("old")
    work.start()
    tree = tree_of(str(work.root))
    for mode, name in (("w", "state"), ("a", "log")):
        with open(name, mode) as file:
            file.write("new")
    seen = slow_events(work, monkeypatch)
    for _ in range(5):
        for mode, name in (("w", "state"), ("r+", "state"), ("a", "log")):
            with open(name, mode) as file:
                file.write("new")
    assert not seen
    with open("log", "r+"):
        pass
    assert seen[0] == "open"  # it is changed otherwise: now a copy is needed
    assert sum(isinstance(each, Content) for each in work.log(0).records) == 3
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_what_is_opened_in_a_new_directory_is_not_looked_at_while_all_in_it_is_new(
    work: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is not looked at, so the program makes small files five per cent faster."""
    work.start()
    os.mkdir("d")
    Path("d/first").touch()
    seen = slow_events(work, monkeypatch)
    for number in range(3):
        Path(f"d/{number}.tmp").write_text("x")
        os.rename(f"d/{number}.tmp", f"d/{number}")
        with open(f"d/{number}", "r+") as file:
            file.write("y")
    assert not seen
    assert not work.watch._recorder.tables().mixed
    assert not work.back_to(0)
    assert os.listdir() == []


@pytest.mark.parametrize(
    "comes",
    [
        lambda: os.rename("old", "d/name"),
        lambda: os.link("old", "d/name"),
        lambda: os.symlink("../old", "d/name"),
        lambda: os.rename("elsewhere/old", "d/name"),
        lambda: (os.mkdir("e"), os.rename("old", "e/old"), os.rename("e/old", "d/name")),
        lambda: (os.link("old", "d/tmp"), os.rename("d/tmp", "d/name")),
        lambda: (os.symlink(os.path.abspath("elsewhere"), "d/s"), os.rename("d/s/old", "d/name")),
    ],
    ids=[
        "renamed",
        "linked",
        "symbolic",
        "by the fast path",
        "in between",
        "linked and renamed",
        "through a link",
    ],
)
@pytest.mark.parametrize("is_fast", [True, False])
def test_an_old_file_that_comes_to_a_new_directory_is_kept_before_it_is_changed(
    work: Watched, comes: Callable[[], Any], is_fast: bool
) -> None:
    os.mkdir("elsewhere")
    for name in ("old", "elsewhere/old"):
        Path(name).write_text("then")
    work.start()
    if not is_fast:
        without_fast_path(work.watch)
    tree = tree_of(str(work.root))
    os.mkdir("d")
    for number in range(3):
        for directory in ("d", "elsewhere"):
            open(f"{directory}/{number}", "w").close()
        os.rename("elsewhere/old", "elsewhere/tmp")  # so that the fast path knows both places and these names
        os.rename("elsewhere/tmp", "elsewhere/old")
    comes()
    for number in range(3, 5):
        open(f"d/{number}", "w").close()  # so that the fast path knows the place again
    Path("d/name").write_text("now")
    Path("d/name").write_text("and again")
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_a_file_that_can_only_be_new_in_a_new_directory_is_settled(
    work: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old file that has been moved there is not opened."""
    Path("old").write_text("then")
    work.start()
    tree = tree_of(str(work.root))
    os.mkdir("d")
    os.rename("old", "d/old")
    Path("d/first").touch()
    seen = slow_events(work, monkeypatch)
    for number in range(3):
        open(f"d/{number}", "x").close()
    with pytest.raises(FileExistsError):
        open("d/old", "x").close()
    assert not seen
    Path("d/old").write_text("now")
    assert "open" in seen
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_a_tree_that_is_removed_is_settled(work: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """shutil.rmtree names files by the descriptor of their directory."""
    os.makedirs("old")
    Path("old/kept").write_text("old")
    work.start()
    tree = tree_of(str(work.root))
    os.mkdir("new")
    for number in range(100):
        Path(f"new/{number}").write_text("x")
        Path(f"old/{number}").write_text("x")
    seen = slow_events(work, monkeypatch)
    shutil.rmtree("new")
    shutil.rmtree("old")
    assert seen.count("os.remove") <= 3  # the first one in each directory, and that of the old file
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_a_directory_that_cannot_be_removed_like_a_file(
    work: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder is not asked: nothing happens. But it is asked of what removes directories."""
    os.mkdir("old")
    work.start()
    tree = tree_of(str(work.root))
    for where in (".", "new"):
        os.makedirs(where, exist_ok=True)
        Path(where, "d").touch()
        os.remove(f"{where}/d")
        os.mkdir(f"{where}/d")
        Path(where, "x").touch()  # its directory is known again
        seen = slow_events(work, monkeypatch)
        with pytest.raises(IsADirectoryError):
            os.remove(f"{where}/d")
        assert not seen
        os.rmdir(f"{where}/d")
        assert seen == ["os.rmdir"]
    with pytest.raises(IsADirectoryError):
        os.remove("old")
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_a_descriptor_of_a_directory_that_has_another_name_is_met_anew(work: Watched) -> None:
    os.makedirs("d")
    Path("d/x").write_text("old")
    work.start()
    tree = tree_of(str(work.root))
    fd = os.open("d", os.O_PATH)
    for name in ("1", "2"):
        Path("d", name).write_text("x")
        os.remove(name, dir_fd=fd)
    os.rename("d", "moved")
    os.mkdir("d")
    Path("d/x").write_text("new")
    os.remove("x", dir_fd=fd)  # of the old directory
    os.close(fd)
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_files_that_are_left_alone_are_replaced_without_the_recorder(
    work: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.start()
    directory = work.job / "of-ours"
    directory.mkdir()
    (directory / "a").write_text("x")
    seen = slow_events(work, monkeypatch)
    for _ in range(3):
        (directory / "a.tmp").write_text("x")
        os.replace(directory / "a.tmp", directory / "a")
    os.remove(directory / "a")
    assert not seen


def test_a_directory_of_another_process_in_the_place_of_a_new_one_is_met_anew(tmp_path: Path) -> None:
    """At once, not a millisecond later: what is made in it would not be recorded."""
    with watched(tmp_path, ranks=2) as work:
        os.mkdir("old")
        work.start()
        until_the_clock_has_gone_on(str(work.root))
        (go_on, going), (done, doing) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go_on, 1)
            os.rename("old", "new")
            os.write(doing, b"d")
            os._exit(0)
        os.mkdir("new")
        for _ in range(2):
            Path("new/a").touch()
            os.remove("new/a")
        os.write(going, b"g")
        os.read(done, 1)
        Path("new/x").touch()
        os.waitpid(child, 0)
        for fd in (go_on, going, done, doing):
            os.close(fd)
        names = [record.path for record in work.log(0).records if isinstance(record, Name)]
        assert f"{work.root}/new/x" in names and f"{work.root}/new/a" not in names


def test_in_a_forked_process_nothing_is_settled(work: Watched) -> None:
    """The log belongs to the rank."""
    work.start()
    Path("first").write_text("x")
    before = len(work.log(0).records)
    child = os.fork()
    if not child:
        Path("of-the-child").write_text("x")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(work.log(0).records) == before
    Path("second").write_text("x")
    assert len(work.log(0).records) == before + 1


def test_with_patterns_directories_that_they_do_not_divide_are_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    covers = covering(["!left", "!mixed/*.log"], str(tmp_path / "work"))
    assert covers is not None
    with watched(tmp_path, covers=covers, divides=covers.divides) as work:
        for each in ("out", "left", "mixed"):
            (work.root / each).mkdir()
        work.start()
        names = ("a.tmp", "a", "a.log")
        settled = {}
        for directory in ("out", "left", "mixed"):
            Path(directory, "first").write_text("x")
            seen = slow_events(work, monkeypatch)
            for name in names:
                Path(directory, name).write_text("x")
            os.replace(f"{directory}/a.tmp", f"{directory}/a")
            settled[directory] = not seen
        assert settled == {"out": True, "left": True, "mixed": False}
        assert not work.back_to(0)
        assert {name: sorted(os.listdir(name)) for name in settled} == {
            "out": [],
            "left": ["a", "a.log", "first"],
            "mixed": ["a.log"],
        }


def test_a_directory_that_gets_another_name_is_met_anew(work: Watched) -> None:
    os.makedirs("d/e")
    os.mkdir("other")
    work.start()
    tree = tree_of(str(work.root))
    Path("d/e/x").write_text("x")
    os.rename("d", "moved")
    os.rename("other", "d")
    os.mkdir("d/e")
    Path("d/e/y").write_text("y")  # in a new directory: it goes with it
    Path("moved/e/z").write_text("z")
    os.chdir("moved")
    Path("e/w").write_text("w")  # the same text leads elsewhere
    os.chdir("..")
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


def test_names_that_json_would_escape(work: Watched) -> None:
    work.start()
    for name in ('a"b', "a\\b", "a\nb", "a\x7fb", "grün", "a b"):
        for number in range(3):
            Path(f"{name}{number}").write_text("x")
    assert not work.back_to(0)
    assert os.listdir() == []


def siphash(key: bytes, message: bytes) -> bytes:
    """SipHash-2-4 with 128 bits, as its authors describe it; nothing about it is fast."""
    words = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8)]
    initial = (0x736F6D6570736575, 0x646F72616E646F6D ^ 0xEE, 0x6C7967656E657261, 0x7465646279746573)
    v = [part ^ words[at % 2] for at, part in enumerate(initial)]

    def left(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & 0xFFFFFFFFFFFFFFFF

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, bits, turns in (
                (0, 1, 13, True),
                (2, 3, 16, False),
                (0, 3, 21, False),
                (2, 1, 17, True),
            ):
                v[a] = (v[a] + v[b]) & 0xFFFFFFFFFFFFFFFF
                v[b] = left(v[b], bits) ^ v[a]
                if turns:
                    v[a] = left(v[a], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    halves = b""
    for place, constant in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= constant
        rounds(4)
        halves += (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    return halves


def test_the_mac_of_a_line_is_siphash() -> None:
    key = bytes(range(16))
    assert siphash(key, b"").hex() == "a3817f04ba25a8e66df67214c7550293"  # the first vector of its authors
    for length in range(70):
        text = os.urandom(length)
        assert _watch.mac(key, "", text) == siphash(key, b" " + text).hex()
        assert _watch.mac(key, "f" * 32, text) == siphash(key, b"f" * 32 + b" " + text).hex()
    with pytest.raises(ValueError, match="16 bytes"):
        _watch.mac(b"short", "", b"")


@contextlib.contextmanager
def log_that_fails(fd: int, how: str) -> Iterator[str]:
    """Writing to the log fails as the system itself fails. Yields what is said of it."""
    if how == "short write":
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.fstat(fd).st_size + 20, limits[1]))
        yield os.strerror(errno.EFBIG)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        return
    bad = os.open({"ENOSPC": "/dev/full", "EIO": "/proc/self/mem"}[how], os.O_RDWR)
    log = os.dup(fd)
    os.dup2(bad, fd)
    yield "the undo log cannot be written"
    os.dup2(log, fd)
    os.close(log)
    os.close(bad)


@pytest.mark.parametrize("how", ["short write", "ENOSPC", "EIO"])
def test_a_line_that_cannot_be_written(work: Watched, how: str) -> None:
    """The program goes on, what is not covered is said before the change, and what was recorded before is undone."""
    work.start()
    Path("first").write_text("x")
    assert work.watch._keeper is not None
    with log_that_fails(work.watch._keeper.end.fd, how) as reason:
        assert not work.told
        Path("y").write_text("y")
        assert [each.path for each in work.told] == [""] and reason in work.told[0].reason
        Path("z").write_text("z")
    assert len(work.told) == 1
    assert [record.path for record in work.log(0).records if isinstance(record, Name)] == [
        str(work.root / "first")
    ]
    work.back_to(0)
    assert sorted(os.listdir()) == ["y", "z"]


def test_threads_leave_one_chain_of_lines(work: Watched) -> None:
    """A line that is written by one thread while another one is in the recorder would break the chain of MACs."""
    work.start()

    def writes(number: int) -> None:
        for turn in range(150):
            Path(f"{number}-{turn}").write_text("x")
            if turn % 5 == number % 5:
                os.mkdir(f"d-{number}-{turn}")

    threads = [threading.Thread(target=writes, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work.cut()
    records = list(read_log(work.log(0).directory, KEY))
    assert len(records) == len({each.path for each in records}) == 4 * 150 + 4 * 30


@pytest.mark.parametrize(
    ("directory", "is_unsteady"),
    [
        ("x", False),
        ("./x", False),
        ("../top/x", False),
        ("..", False),
        ("", False),
        ("link", True),
        ("link/../x", True),
        ("x/../x", True),
    ],
)
def test_only_a_path_that_may_lead_elsewhere_is_tested_each_time(
    work: Watched, monkeypatch: pytest.MonkeyPatch, directory: str, is_unsteady: bool
) -> None:
    """Dots before the first name lead to no link, so ``../results/file`` costs no more than its canonical name."""
    os.makedirs("top/x")
    os.symlink("x", "top/link")
    os.chdir("top")
    work.start()

    class Noted:
        found: ClassVar[list[bool]] = []

        def note(self, path: str, canonical: str, standing: int, is_unsteady: bool) -> None:
            self.found.append(is_unsteady)

    monkeypatch.setattr(work.watch, "_fast_path", Noted())
    work.watch._note(
        os.path.join(directory, "file"),
        operations_of("open", (os.path.join(directory, "file"), "w", os.O_WRONLY | os.O_CREAT)),
    )
    assert Noted.found == [is_unsteady]

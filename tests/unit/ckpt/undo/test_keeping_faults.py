"""The process is killed before any call of the Keeper to the operating system, and any of them fails.

The program's changes are undone, or named at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ckpt.undo import _status, allowance, copying, keeping, sealing
from ckpt.undo.logs import unmade
from ckpt.undo.planning.plan import make_plan
from ckpt.undo.records import FileId
from ckpt.undo.restart.putting_back import Problem, put_back
from tests.unit.ckpt.undo import test_watching as watching_tests
from tests.unit.ckpt.undo.test_sequences import Killed, Tree, named_in, tree_of, without_times
from tests.unit.ckpt.undo.test_watching import Watched, watched

in_memory = watching_tests.in_memory
ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)

SYSTEM_CALLS = {
    *(
        "close",
        "copy_file_range",
        "fcntl",
        "fstat",
        "ftruncate",
        "ioctl",
        "link",
        "look",
        "look_at",
        "lseek",
        "makedirs",
        "open",
    ),
    *("pread", "pwrite", "readlink", "reserve", "unlink"),
    *("fdatasync", "fsync", "listdir", "sync_file_system", "write"),
}

# Compiled as a part of the room: an exception from elsewhere would be taken for one of the program's signal handlers.
_ROOM: dict[str, Any] = {}
_CALL = """
def counted(function, turn):
    def call(*args, **options):
        failure = turn()
        if failure is None or function.__name__ == "close":  # close(2) closes, also where it fails
            result = function(*args, **options)
        if failure is not None:
            raise failure
        return result
    return call
"""
exec(compile(_CALL, keeping.__file__, "exec"), _ROOM)


class Calls:
    """Stands in for a module: its system calls count."""

    def __init__(
        self,
        module: ModuleType,
        turn: Callable[[], BaseException | None],
        names: Collection[str] = SYSTEM_CALLS,
    ) -> None:
        self._module, self._turn, self._names = module, turn, names

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return _ROOM["counted"](value, self._turn) if name in self._names else value


@contextlib.contextmanager
def at_call(
    number: int, raised: Callable[[], BaseException], *, forever: bool
) -> Iterator[Callable[[], bool]]:
    """The call of this number raises (and, for ever, all after it). Yields whether there was such a call."""
    count = 0

    def turn() -> BaseException | None:
        nonlocal count
        count += 1
        fails = count - 1 == number or (forever and count > number)
        return raised() if fails else None

    with pytest.MonkeyPatch.context() as patch:
        for user in (keeping, copying, allowance, sealing):
            for name, module in (("os", os), ("fcntl", fcntl), ("_status", _status)):
                if hasattr(user, name):
                    patch.setattr(user, name, Calls(module, turn))
        yield lambda: count > number


def prepare() -> None:
    for name in ("a", "b", "c", "held", "log"):
        Path(name).write_text(f"{name} then")
    os.mkdir("d")
    Path("d/x").write_text("x then")
    os.symlink("a", "link")


def first_part() -> None:
    with open("link", "w") as file:
        file.write("a now")
    with open("log", "a") as file:
        file.write(" and more")
    os.replace("b", "c")
    os.remove("d/x")
    os.rmdir("d")
    os.mkdir("e")
    Path("e/y").write_text("y")
    os.chmod("log", 0o600)


def second_part() -> None:
    os.truncate("a", 1)
    os.rename("e", "f")
    os.link("a", "again")
    with open("log", "a") as file:
        file.write(" and more")


def runs(work: Watched, trees: list[Tree]) -> None:
    """The program; a file is held open over its checkpoint."""
    work.start()
    first_part()
    with open("held", "r+") as held:
        trees.append(tree_of(str(work.root)))
        work.cut()
        work.watch.seal()
        held.write("held now")
        held.flush()
        second_part()
    work.cut()
    work.watch.seal()


def undone(work: Watched, line: int) -> list[Problem]:
    """A restart, with the logs that are there, and with what was told."""
    work.watch.stop()
    renumbered: dict[FileId, FileId] = {}
    problems = [Problem(each.path, each.reason) for each in work.told]
    for epoch in range(work.epoch, line - 1, -1):
        problems += put_back(make_plan([work.log(epoch)]), str(work.job / "undone"), renumbered, problems)
    return problems


def close_all(where: Path) -> None:
    """A process that is killed has no descriptors any more."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(str(where)):
                os.close(fd)


@pytest.mark.rotate(2)
def test_the_process_is_killed_before_any_call(in_memory: Path) -> None:
    """The log is whole, and what it says is enough."""
    for number in range(1000):
        directory = in_memory / f"{number}"
        directory.mkdir()
        with watched(directory) as work:
            prepare()
            trees = [tree_of(str(work.root))]
            with at_call(number, Killed, forever=True) as was_reached, contextlib.suppress(Killed):
                runs(work, trees)
            close_all(in_memory)
            line = len(trees) - 1
            assert not undone(work, line), number
            assert tree_of(str(work.root)) == trees[line], number
            if line:
                assert not undone(work, 0), number
                assert tree_of(str(work.root)) == trees[0], number
        if not was_reached():
            break
    assert number > 100


@pytest.mark.rotate(8)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_any_call_fails(in_memory: Path, error: int, forever: bool) -> None:
    """The program goes on; a change that cannot be undone is told before the next one."""
    (in_memory / "undisturbed").mkdir()
    with watched(in_memory / "undisturbed") as work:
        prepare()
        runs(work, [])
        expected = without_times(tree_of(str(work.root)))
    named = 0
    for number in range(1000):
        directory = in_memory / f"{number}"
        directory.mkdir()
        with watched(directory) as work:
            prepare()
            trees = [tree_of(str(work.root))]
            with at_call(number, lambda: OSError(error, os.strerror(error)), forever=forever) as was_reached:
                runs(work, trees)
            assert without_times(tree_of(str(work.root))) == expected, number
            told = {each.path for each in work.told}
            assert all(os.strerror(error) in each.reason for each in work.told), (number, work.told)
            close_all(in_memory)
            told |= {problem.path for problem in undone(work, 0)}
            named += bool(told)
            if "" not in told:
                now = tree_of(str(work.root))
                differ = {
                    path for path in now.keys() | trees[0].keys() if now.get(path) != trees[0].get(path)
                }
                unnamed = {path for path in differ if not named_in(told, str(work.root / path))}
                assert not unnamed, (number, work.told, unnamed)
        if not was_reached():
            break
    assert number > 100 or forever
    assert named > 10


@pytest.mark.rotate(2)
def test_where_nothing_can_be_written_any_more_a_later_process_knows_it(in_memory: Path) -> None:
    """As with a quota on btrfs: new modes are all that the file system still takes. Nobody remembers what was told."""
    named = 0
    for number in range(1000):
        directory = in_memory / f"{number}"
        directory.mkdir()
        with watched(directory) as work:
            prepare()
            first = tree_of(str(work.root))
            with at_call(number, lambda: OSError(errno.EDQUOT, "quota"), forever=True) as was_reached:
                runs(work, [])
            close_all(in_memory)
            work.watch.stop()
            told = {problem.path for problem in work.back_to(0)} | {"" for _ in unmade(str(work.job))}
            named += bool(told)
            if "" not in told:
                now = tree_of(str(work.root))
                differ = {path for path in now.keys() | first.keys() if now.get(path) != first.get(path)}
                unnamed = {path for path in differ if not named_in(told, str(work.root / path))}
                assert not unnamed, (number, work.told, unnamed)
        if not was_reached():
            break
    assert named > 100

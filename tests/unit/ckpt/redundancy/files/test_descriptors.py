"""Descriptors of files that replicas write together: as the kernel's; what replicas cannot share is refused by name."""

from __future__ import annotations

import fcntl
import itertools
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ckpt.errors import NotReplicable
from ckpt.redundancy.files import descriptors, images, names, objects, opening
from ckpt.redundancy.files.changes import STATE
from ckpt.redundancy.files.descriptors import NO_DESCRIPTOR, TABLE
from ckpt.redundancy.files.notes import Notes
from tests.unit.ckpt.redundancy.files.test_files import twice

PROGRAMS = 60
ACCESS = {"O_RDONLY": os.O_RDONLY, "O_WRONLY": os.O_WRONLY, "O_RDWR": os.O_RDWR}
MORE = {"": 0, "O_APPEND": os.O_APPEND, "O_TRUNC": os.O_TRUNC, "O_EXCL": os.O_EXCL}
Call = Callable[..., Any]


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each change is made by two leaders, of which the first one dies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(STATE, "meet", twice)
    monkeypatch.setattr(STATE, "notes", Notes(str(tmp_path / "notes")))
    monkeypatch.setattr(TABLE, "files", {})


def of_replicas(name: str) -> Call:
    if name == "open":
        return opening.os_open
    if name in ("fsync", "chmod"):
        return getattr(names, f"os_{name}")  # type: ignore[no-any-return]
    found: Call = descriptors.GIVEN[getattr(os, name)]
    return found


def of_system(name: str) -> Call:
    found: Call = getattr(os, name)
    return found


def steps_by_chance(choose: random.Random) -> list[tuple[str, int, tuple[Any, ...]]]:
    """Names of functions, which of the descriptors, and the other arguments."""
    found = []
    for _ in range(choose.randrange(1, 20)):
        data = bytes(choose.choices(b"xyz", k=choose.randrange(9)))
        at = choose.randrange(-1, 30)
        step: tuple[str, tuple[Any, ...]] = choose.choice(
            [
                ("write", (data,)),
                ("write", (data,)),
                ("writev", ([data, data],)),
                ("pwrite", (data, at)),
                ("read", (at,)),
                ("pread", (5, at)),
                ("lseek", (at, choose.randrange(3))),
                ("ftruncate", (at,)),
                ("fsync", ()),
                ("dup", ()),
                ("close", ()),
                ("isatty", ()),
                ("fchmod", (0o600 | choose.randrange(0o100),)),
                ("chmod", (0o600 | choose.randrange(0o100),)),
                ("sendfile", (choose.choice([None, at]), choose.randrange(-1, 20))),
                ("copy_file_range", (choose.randrange(20), *choose.choice([(), (at,), (None, at), (at, 3)]))),
            ]
        )
        found.append((step[0], choose.randrange(3), step[1]))
    return found


def outcomes(
    function: Callable[[str], Call], flags: int, steps: list[tuple[str, int, tuple[Any, ...]]]
) -> list[Any]:
    """What the program sees: results, numbers of errors, sizes."""
    seen: list[Any] = []
    try:
        numbers = [function("open")("file", flags, 0o640)]
    except OSError as failure:
        return [failure.errno, failure.filename]
    source = os.open("source", os.O_RDONLY)  # of the kernel's
    for name, which, arguments in steps:
        number = numbers[which % len(numbers)]
        if name == "sendfile":
            arguments = (source, *arguments)
        if name == "close":
            if len(numbers) > 1:
                function("close")(numbers.pop())
            continue
        try:
            if name == "copy_file_range":
                result = function(name)(source if which else number, number, *arguments)
            else:
                result = function(name)(number, *arguments)
            if name == "dup":
                numbers.append(result)
            else:
                seen.append((name, result))
            status = function("fstat")(number)
            seen.append((status.st_size, status.st_mode))
        except OSError as failure:
            seen.append((name, failure.errno))
    for number in numbers:
        function("close")(number)
    os.close(source)
    for name, _, arguments in steps:
        if name not in ("isatty", "dup", "close", "sendfile", "copy_file_range"):
            with pytest.raises(OSError) as raised:
                function(name)(numbers[0], *arguments)
            seen.append((name, raised.value.errno))
    return seen


@pytest.mark.parametrize(
    ("access", "more"), [each for each in itertools.product(ACCESS, MORE) if each != ("O_RDONLY", "O_TRUNC")]
)
def test_descriptors_do_what_those_of_the_kernel_do(leaders: None, access: str, more: str) -> None:
    """Also where each change is made again by another leader."""
    flags = ACCESS[access] | MORE[more] | os.O_CREAT
    Path("source").write_bytes(bytes(range(40)))
    for seed, is_there in itertools.product(range(PROGRAMS // 2), (False, True)):
        choose = random.Random(f"{access} {more} {seed} {is_there}")
        steps = steps_by_chance(choose)
        found = []
        for function in (of_system, of_replicas):
            Path("file").unlink(missing_ok=True)
            if is_there:
                Path("file").write_text("0123456789abcdef")
            found.append((outcomes(function, flags, steps), Path("file").read_bytes()))
        differ = [pair for pair in zip(found[0][0], found[1][0], strict=True) if pair[0] != pair[1]]
        assert found[0] == found[1], (differ, seed, is_there, steps)
    assert not TABLE.files


@pytest.mark.parametrize("mode", ["r", "w", "a", "r+", "rb", "wb", "ab", "w+b"])
def test_a_file_object_over_a_descriptor_is_as_that_of_python(leaders: None, mode: str) -> None:
    found = []
    for open_file, function in ((open, of_system), (objects.replica_open, of_replicas)):
        Path("file").write_text("one\ntwo\n")
        access = os.O_RDWR | (os.O_APPEND if "a" in mode else 0)
        number = function("open")("file", access)
        given: Any = open_file
        with given(number, mode) as file:
            seen = [file.readable(), file.writable(), file.mode, file.fileno() == number, file.tell()]
            if file.readable():
                seen += [file.readline(), file.seek(4)]
            if file.writable():
                seen.append(file.write(b"THREE" if "b" in mode else "THREE"))
                file.flush()
                names.os_fsync(file.fileno())
            seen += [file.tell(), function("lseek")(number, 0, os.SEEK_CUR) if "+" not in mode else 0]
        with pytest.raises(OSError, match="Bad file descriptor"):
            function("fstat")(number)
        found.append((seen, Path("file").read_bytes()))
    assert found[0] == found[1]


def test_closefd_leaves_the_descriptor_open(leaders: None) -> None:
    number = opening.os_open("file", os.O_WRONLY | os.O_CREAT)
    with objects.replica_open(number, "w", closefd=False) as file:
        file.write("one")
    descriptors.os_write(number, b"two")
    descriptors.os_close(number)
    assert Path("file").read_text() == "onetwo"


def test_an_opener_is_called_as_by_python_and_a_function_of_os_is_the_programs(leaders: None) -> None:
    """`opener=os.open` is called by ckpt itself: each replica would have written the file."""

    def opener(calls: list[Any], path: Any, flags: int) -> int:
        calls.append((path, flags))
        return os.open(path, flags)

    for mode in ("w", "x", "a", "r+", "w+", "r"):
        given = []
        for open_file in (open, objects.replica_open):
            Path("file").unlink(missing_ok=True)
            if mode[0] in "ra":
                Path("file").write_text("0")

            calls: list[Any] = []
            with open_file("file", mode, opener=partial(opener, calls)):
                pass
            given.append(calls)
        assert given[0] == given[1]
    with objects.replica_open("file", "w", opener=opening.os_open) as file:
        assert file.fileno() >= NO_DESCRIPTOR
        file.write("once")
    assert Path("file").read_text() == "once"


def test_what_replicas_cannot_do_with_such_a_descriptor_is_refused_by_name(leaders: None) -> None:
    number = opening.os_open("file", os.O_RDWR | os.O_CREAT)
    given = descriptors.GIVEN
    calls = {
        "fcntl.flock": lambda: given[fcntl.flock](number, fcntl.LOCK_EX),
        "fcntl.lockf": lambda: given[fcntl.lockf](number, fcntl.LOCK_EX),
        "posix_fallocate": lambda: given[os.posix_fallocate](number, 0, 9),
        "os.sendfile into the same file": lambda: given[os.sendfile](number, number, 0, 9),
        "os.sendfile of": lambda: given[os.sendfile](1, number, 0, 9),
        "os.copy_file_range": lambda: given[os.copy_file_range](number, 1, 9),
        "fchmod of '.*file' to 0o400": lambda: given[os.fchmod](number, 0o400),
        "os.utime": lambda: names.os_utime(number),  # type: ignore[attr-defined]
        "flags": lambda: opening.os_open("new", os.O_WRONLY | os.O_CREAT | os.O_DIRECT),
        "a descriptor of a directory": lambda: opening.os_open("new", os.O_WRONLY | os.O_CREAT, dir_fd=3),
        "with the mode": lambda: opening.os_open("new", os.O_WRONLY | os.O_CREAT, 0o400),
        "with O_TRUNC": lambda: opening.os_open("new", os.O_CREAT | os.O_TRUNC),
        "no regular file": lambda: opening.os_open("/dev/zero", os.O_WRONLY),
    }
    for text, call in calls.items():
        with pytest.raises(NotReplicable, match=text):
            call()
    with objects.replica_open(number, "w") as file, pytest.raises(NotReplicable, match="flock"):
        given[fcntl.flock](file, fcntl.LOCK_EX)
    assert not os.path.exists("new")


def test_a_descriptor_of_a_file_that_is_gone_writes_nowhere(leaders: None) -> None:
    """Neither to the file that has its name now, nor does an image of it fail to load."""
    number = opening.os_open("file", os.O_RDWR | os.O_CREAT)
    os.unlink("file")
    with pytest.raises(FileNotFoundError):
        descriptors.os_write(number, b"x")
    with pytest.raises(NotReplicable, match="removed before it was written"):
        objects.replica_open(number, "w")
    number = opening.os_open("file", os.O_RDWR | os.O_CREAT)
    Path("other").write_text("other")
    os.replace("other", "file")
    with pytest.raises(OSError, match="replaced by another file"):
        descriptors.os_write(number, b"x")
    images.go_on(images.state(1), is_copy=False)
    assert Path("file").read_text() == "other"


def test_a_copy_has_the_same_descriptors_and_gives_the_same_numbers(leaders: None) -> None:
    first = opening.os_open("file", os.O_RDWR | os.O_CREAT)
    descriptors.os_write(first, b"abc")
    second = descriptors.os_dup(first)
    found = images.state(1)
    numbers = [descriptors.os_dup(first)]
    TABLE.go_on({})
    with pytest.raises(OSError, match="Bad file descriptor"):
        descriptors.os_write(first, b"d")
    images.go_on(found, is_copy=True)
    assert [descriptors.os_dup(first)] == numbers
    descriptors.os_write(second, b"def")
    assert descriptors.os_lseek(first, 0, os.SEEK_CUR) == 6 and Path("file").read_text() == "abcdef"


def test_a_file_that_a_copy_has_open_can_be_synced(leaders: None) -> None:
    """The number that its `fileno` had given was not known to the copy: EBADF."""
    file = objects.replica_open("file", "w")
    number = file.fileno()
    objects.numbers.clear()
    assert file.fileno() == number
    names.os_fsync(file.fileno())
    file.close()


@pytest.mark.parametrize("mode", ["ww", "wbb", "w++", "wbt", "b", "wz", "rw"])
def test_a_mode_that_python_refuses_is_refused_over_a_descriptor_too(leaders: None, mode: str) -> None:
    number = opening.os_open("file", os.O_RDWR | os.O_CREAT)
    with pytest.raises(ValueError, match="invalid mode"):
        objects.replica_open(number, mode)

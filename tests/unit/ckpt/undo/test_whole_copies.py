"""A large file that is opened for changing in place is copied as a whole, where blocks cannot be shared.

Blocks that are about to change could be kept instead only if every write were seen beforehand. These writes go through no
function that can be led elsewhere, in a file that Python has opened: each would be lost without a word.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.unit.ckpt.undo.test_sequences import tree_of
from tests.unit.ckpt.undo.test_watching import Watched, watched

SIZE = 5 << 20


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


def by_stdio(file: IO[bytes]) -> None:
    """numpy.ndarray.tofile: fdopen of a duplicate, then fwrite, whose write(2) is made within the C library."""
    numpy = pytest.importorskip("numpy")
    numpy.arange(1000).tofile(file)


def by_a_function_looked_up(file: IO[bytes]) -> None:
    assert ctypes.CDLL(None).pwrite(file.fileno(), b"now", ctypes.c_size_t(3), ctypes.c_long(4 << 20)) == 3


def by_a_system_call(file: IO[bytes]) -> None:
    """As programs in Go, and io_uring, make them."""
    libc = ctypes.CDLL(None)
    number = {"x86_64": 18, "aarch64": 68}.get(os.uname().machine)
    if number is None:
        pytest.skip("another machine: the number of pwrite64 is not known here")
    assert libc.syscall(number, file.fileno(), b"now", ctypes.c_size_t(3), ctypes.c_long(4 << 20)) == 3


def by_a_child(file: IO[bytes]) -> None:
    """The descriptor is inherited."""
    child = os.fork()
    if not child:
        os.pwrite(file.fileno(), b"now", 4 << 20)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def by_memory(file: IO[bytes]) -> None:
    with mmap.mmap(file.fileno(), 0) as memory:
        memory[4 << 20 : (4 << 20) + 3] = b"now"


@pytest.mark.parametrize(
    "write", [by_stdio, by_a_function_looked_up, by_a_system_call, by_a_child, by_memory]
)
def test_a_write_that_cannot_be_seen_is_undone(work: Watched, write: Callable[[IO[bytes]], None]) -> None:
    Path("large").write_bytes(b"then" * (SIZE // 4))
    work.start()
    tree = tree_of(str(work.root))
    with open("large", "r+b") as file:
        write(file)
    assert tree_of(str(work.root)) != tree
    assert not work.back_to(0)
    assert not work.told
    assert tree_of(str(work.root)) == tree

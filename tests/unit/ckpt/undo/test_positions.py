"""Files of which only the length is kept, and that are then written elsewhere than at their end."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpt.rank.files import _COPIED_AT_MOST_BYTES
from ckpt.undo import _watch
from tests.unit.ckpt.undo.test_interpose import compiled
from tests.unit.ckpt.undo.test_sequences import tree_of
from tests.unit.ckpt.undo.test_watching import Watched, watched

pytestmark = pytest.mark.skipif(not _watch.LEADS, reason="another system: calls cannot be led elsewhere")

LARGE = b"then" * (_COPIED_AT_MOST_BYTES // 4) + b"end"
NOW = b"now"


def seek(file: Any) -> None:
    file.seek(1000)
    file.write(NOW)
    file.flush()
    file.seek(0, os.SEEK_END)
    file.write(NOW)
    file.flush()


def seek_from_end(file: Any) -> None:
    file.seek(-len(LARGE) // 2, os.SEEK_END)
    file.write(NOW)
    file.flush()


def seek_from_here(file: Any) -> None:
    file.write(NOW)
    file.flush()
    os.lseek(file.fileno(), -5000, os.SEEK_CUR)
    os.write(file.fileno(), NOW)


def pwrite(file: Any) -> None:
    os.pwrite(file.fileno(), NOW, 5)


def pwritev(file: Any) -> None:
    os.pwritev(file.fileno(), [NOW, NOW], 5000)


def duplicate(file: Any) -> None:
    fd = os.dup(file.fileno())
    os.lseek(fd, 77, os.SEEK_SET)
    os.close(fd)
    os.write(file.fileno(), NOW)


def truncate(file: Any) -> None:
    file.truncate(100)


def truncate_and_fill(file: Any) -> None:
    os.ftruncate(file.fileno(), len(LARGE) - 5000)
    os.ftruncate(file.fileno(), len(LARGE))


def copy_range(file: Any) -> None:
    source = os.open("source", os.O_RDONLY)
    os.copy_file_range(source, file.fileno(), 3, 0, 10_000)
    os.close(source)


def in_thread(file: Any) -> None:
    thread = threading.Thread(target=seek, args=(file,))
    thread.start()
    thread.join()


CHANGES = (
    *(seek, seek_from_end, seek_from_here, pwrite, pwritev, duplicate),
    *(truncate, truncate_and_fill, copy_range, in_thread),
)


def put_back(work: Watched) -> None:
    assert work.back_to(work.epoch) == []
    assert not work.told


@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
def test_a_large_file_that_was_written_at_its_end_is_written_elsewhere(
    tmp_path: Path, change: Callable[[Any], None]
) -> None:
    """It came back with what was written there, and nobody was told: only its length had been kept."""
    with watched(tmp_path) as work:
        Path("source").write_bytes(NOW)
        with open("large", "wb") as file:
            file.write(LARGE)
            file.flush()
            work.start()
            tree = tree_of(str(work.root))
            assert work.watch.records == 1
            change(file)
        put_back(work)
        assert tree_of(str(work.root)) == tree


C = """
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static FILE *file;
int begin(const char *path)
{
    char part[4096];
    file = fopen(path, "w");
    memset(part, 'x', sizeof part);
    for (int i = 0; i < 100; i++)
        fwrite(part, sizeof part, 1, file);
    return fflush(file);
}
int change(int how)
{
    fpos_t start = {0};
    switch (how) {
    case 0: fseek(file, 8, SEEK_SET); break;
    case 1: fseeko(file, -9000, SEEK_END); break;
    case 2: rewind(file); break;
    case 3: fsetpos(file, &start); break;
    case 4: lseek(fileno(file), 40000, SEEK_SET); break;
    case 5: return pwrite(fileno(file), "now", 3, 5) != 3;
    case 6: return ftruncate(fileno(file), 3);
    }
    return fwrite("now", 3, 1, file) != 1 || fflush(file);
}
int end(void) { return fclose(file); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("cc") is None:
        pytest.skip("no compiler here")
    return ctypes.CDLL(compiled(tmp_path_factory.mktemp("library"), "positions", C))


@pytest.mark.parametrize("how", range(7))
def test_so_does_a_library_in_c(tmp_path: Path, library: ctypes.CDLL, how: int) -> None:
    with watched(tmp_path) as work:
        assert library.begin(b"large") == 0
        work.start()
        tree = tree_of(str(work.root))
        assert library.change(how) == 0
        library.end()
        put_back(work)
        assert tree_of(str(work.root)) == tree


def rewrite(file: Any) -> None:
    file.seek(0)
    file.truncate()
    file.write(NOW)


def map_and_change(file: Any) -> None:
    with mmap.mmap(file.fileno(), 0) as content:
        content[len(LARGE) // 2] = 0


def resize(file: Any) -> None:
    os.ftruncate(file.fileno(), 10)


def append_no_more(file: Any) -> None:
    """It was lost, and nobody was told."""
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_APPEND)
    os.pwrite(file.fileno(), NOW, 5)
    os.lseek(file.fileno(), 100, os.SEEK_SET)
    os.write(file.fileno(), NOW)


APPENDED = (rewrite, map_and_change, resize, append_no_more)


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "opened"])
@pytest.mark.parametrize("change", APPENDED, ids=[change.__name__ for change in APPENDED])
def test_a_file_that_is_opened_for_appending_is_changed_otherwise(
    tmp_path: Path, change: Callable[[Any], None], is_held: bool
) -> None:
    """With ``a+``, as programs do that read a file, and then write it anew. It was lost; where it was mapped, unnamed."""
    with watched(tmp_path) as work:
        Path("file").write_bytes(LARGE)
        tree = tree_of(str(work.root))
        if not is_held:
            work.start()
        with open("file", "a+b") as file:
            if is_held:
                work.start()
            change(file)
        put_back(work)
        assert tree_of(str(work.root)) == tree


def test_a_map_of_a_file_that_is_opened_for_appending_is_there_already(tmp_path: Path) -> None:
    with watched(tmp_path) as work:
        Path("file").write_bytes(LARGE)
        with open("file", "a+b") as file, mmap.mmap(file.fileno(), 0) as content:
            work.start()
            tree = tree_of(str(work.root))
            content[len(LARGE) // 2] = 0
        put_back(work)
        assert tree_of(str(work.root)) == tree


def test_what_only_goes_on_needs_no_copy(tmp_path: Path) -> None:
    """Positions that are asked for, reading, and appending."""
    with watched(tmp_path) as work:
        with open("large", "wb") as file, open("log", "a+b") as log:
            file.write(LARGE)
            log.write(LARGE)
            file.flush()
            log.flush()
            work.start()
            for _ in range(3):
                file.write(NOW)
                file.tell()
                file.seek(0, os.SEEK_END)
                file.flush()
                log.seek(0)
                assert log.read(4) == b"then"
                log.write(NOW)
                log.flush()
            with open("large", "rb") as other:
                other.seek(500)
            log.truncate(os.fstat(log.fileno()).st_size + 10)
            mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ).close()
        assert work.watch.records == 2, "the two lengths"


@pytest.mark.parametrize("is_in_vain", [False, True], ids=["taken", "in vain"])
def test_it_is_told_once_in_an_interval_and_after_a_checkpoint_in_vain(
    tmp_path: Path, is_in_vain: bool
) -> None:
    with watched(tmp_path) as work:
        with open("large", "wb") as file:
            file.write(LARGE)
            file.flush()
            work.start()
            if is_in_vain:
                work.cut_in_vain()
            else:
                work.cut()
            tree = tree_of(str(work.root))
            for _ in range(3):
                time.sleep(0.001)
                seek(file)
            assert work.watch.records == 2, "a length, a copy"
        put_back(work)
        assert tree_of(str(work.root)) == tree

"""What compiled libraries do with files is seen as Python's own operations are, and can be undone."""

from __future__ import annotations

import ctypes
import errno
import gc
import itertools
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.undo import _watch, keeping
from ckpt.undo.records import Uncovered
from tests.unit.ckpt.undo.test_sequences import tree_of
from tests.unit.ckpt.undo.test_watching import Watched, watched

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler here")

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int put(int fd) { return fd < 0 ? -errno : write(fd, "written", 7) == 7 && !close(fd) ? 0 : -1; }
static int put_file(FILE *file) { return file ? fputs("written", file) < 0 || fclose(file) : -errno; }

int by_open(const char *path) { return put(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640)); }
int by_open64(const char *path) { return put(open64(path, O_RDWR | O_CREAT, 0600)); }
int by_append(const char *path) { return put(open(path, O_WRONLY | O_APPEND | O_CREAT, 0600)); }
int by_creat(const char *path) { return put(creat(path, 0600)); }
int by_fopen(const char *path) { return put_file(fopen(path, "w")); }
int by_fopen_append(const char *path) { return put_file(fopen(path, "a+")); }
int by_freopen(const char *path) { return put_file(freopen(path, "w", fopen("/dev/null", "r"))); }
int by_truncate(const char *path) { return truncate(path, 1) ? -errno : 0; }
int by_remove(const char *path) { return remove(path) ? -errno : 0; }
int by_unlink(const char *path) { return unlink(path) ? -errno : 0; }
int by_chmod(const char *path) { return chmod(path, 0400) ? -errno : 0; }
int by_utimensat(const char *path) { return utimensat(AT_FDCWD, path, NULL, 0) ? -errno : 0; }
int by_rename(const char *path) { return rename(path, "renamed") ? -errno : 0; }
int by_link(const char *path) { return link(path, "linked") || put(open("linked", O_WRONLY)); }
int by_symlink(const char *path) { return symlink(path, "symlink") ? -errno : 0; }
int by_directory(const char *path)
{
    return mkdir("made", 0700) || rename(path, "made/inside") || rmdir("empty") || put(creat("made/other", 0600));
}
int by_directory_descriptor(const char *path)
{
    int fd = open("d", O_RDONLY | O_DIRECTORY);
    int failed = put(openat(fd, "new", O_WRONLY | O_CREAT, 0600)) || renameat(fd, "old", fd, "older") ||
                 mkdirat(fd, "e", 0700) || unlinkat(fd, "gone", 0) || linkat(fd, "new", fd, "newer", 0);
    return failed || close(fd);
}
int by_temporary(const char *path)
{
    char one[] = "one-XXXXXX", two[] = "two-XXXXXX.txt", three[] = "three-XXXXXX", bad[] = "bad";
    return put(mkstemp(one)) || put(mkstemps(two, 4)) || !mkdtemp(three) || mkstemp(bad) != -1 || errno != EINVAL;
}
int reads(const char *path)
{
    FILE *file = fopen(path, "r");
    return file ? fclose(file) : -errno;
}

static void *body(void *path) { return (void *)(long)by_fopen(path); }
int in_thread(const char *path)
{
    pthread_t thread;
    void *result;
    return pthread_create(&thread, NULL, body, (void *)path) || pthread_join(thread, &result) || result;
}

int later_in_thread(const char *path)
{
    usleep(20000);
    return in_thread(path);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int other_is_in, is_locked;
int with_the_lock(const char *path)
{
    while (!other_is_in)
        usleep(100);
    pthread_mutex_lock(&mutex);
    is_locked = 1;
    int failed = by_fopen(path);
    pthread_mutex_unlock(&mutex);
    return failed;
}
int waits_for_the_lock(void)
{
    other_is_in = 1;
    while (!is_locked)
        usleep(100);
    pthread_mutex_lock(&mutex);
    return pthread_mutex_unlock(&mutex);
}
"""

OTHER = """
int unlink(const char *path) { return path[0]; }

"""
USES_OTHER = "int unlink(const char *); int call(const char *path) { return unlink(path); }"


def compiled(directory: Path, name: str, source: str, *more: str) -> str:
    code, library = directory / f"{name}.c", directory / f"lib{name}.so"
    code.write_text(source)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(code), *more]
    subprocess.run(command, check=True)
    return str(library)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("library"), "writer", SOURCE, "-pthread", "-Wl,-z,now,-z,relro")


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        Path("x").write_text("content")
        for name in ("d", "empty"):
            os.mkdir(name)
        for name in ("d/old", "d/gone"):
            Path(name).write_text(name)
        yield made


FUNCTIONS = [
    word.split("(")[0] for word in SOURCE.split() if word.startswith("by_") and word.endswith("(const")
]
LOADERS: list[Callable[[str], Any]] = [ctypes.CDLL, ctypes.PyDLL]  # without and with the GIL


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_library_does_is_undone(
    work: Watched, library: str, load: Callable[[str], Any], function: str
) -> None:
    before = tree_of(str(work.root))
    work.start()
    assert getattr(load(library), function)(b"x") == 0
    assert tree_of(str(work.root)) != before
    assert not work.back_to(0)
    assert not work.told
    assert tree_of(str(work.root)) == before


def test_these_are_all_functions() -> None:
    assert len(FUNCTIONS) == 18


def test_what_a_library_is_told_is_as_without_a_watch(work: Watched, library: str) -> None:
    work.start()
    called = ctypes.CDLL(library)
    assert called.by_open(b"missing/x") == -errno.ENOENT
    assert called.by_rename(b"missing") == -errno.ENOENT
    assert called.by_open(b"mode") == 0
    assert stat.S_IMODE(os.stat("mode").st_mode) == 0o640 & ~os.umask(os.umask(0))
    assert called.by_temporary(b"") == 0
    [temporary] = Path().glob("one-??????")
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o600


def test_what_is_not_seen_can_be_told_by_an_audit_event(work: Watched) -> None:
    """As docs/extending.md says."""
    before = tree_of(str(work.root))
    work.start()
    libc = ctypes.CDLL(None)  # its functions are called by their addresses
    sys.audit("open", "made", None, os.O_WRONLY | os.O_CREAT)
    assert libc.close(libc.creat(b"made", 0o600)) == 0
    sys.audit("os.rename", "x", "renamed", -1, -1)
    assert libc.rename(b"x", b"renamed") == 0
    assert tree_of(str(work.root)) != before
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == before


def test_a_socket_that_a_library_removes_is_no_file(work: Watched, library: str) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        work.start()
        assert ctypes.CDLL(library).by_unlink(b"socket") == 0
        assert ctypes.CDLL(library).by_unlink(b"missing") == -errno.ENOENT
    work.cut()
    assert work.log(0).records == []


def test_a_library_that_only_reads_is_not_told(work: Watched, library: str) -> None:
    work.start()
    assert ctypes.CDLL(library).reads(b"x") == 0
    work.cut()
    assert work.log(0).records == []


def test_what_a_thread_does_that_python_does_not_know_is_undone(work: Watched, library: str) -> None:
    before = tree_of(str(work.root))
    work.start()
    assert ctypes.CDLL(library).in_thread(b"x") == 0
    assert Path("x").read_text() == "written"
    assert not work.back_to(0)
    assert not work.told
    assert tree_of(str(work.root)) == before


def test_such_a_thread_does_not_wait_for_a_library_that_waits_for_it(work: Watched, library: str) -> None:
    work.start()
    _watch.set_patience(10_000_000)
    assert ctypes.PyDLL(library).in_thread(b"x") == 0
    _watch.set_patience(1_000_000_000)
    while not work.told:
        time.sleep(0.001)
    assert [(each.path, each.reason) for each in work.told] == [
        (str(work.root / "x"), "changed by a thread of a compiled library (libwriter.so)")
    ]
    work.cut()
    assert [each.path for each in work.log(0).records if isinstance(each, Uncovered)] == [
        str(work.root / "x")
    ]


def test_such_a_thread_waits_while_the_main_thread_computes_with_the_gil(work: Watched, library: str) -> None:
    """A file was named as not covered because the thread with the GIL had no core for a second, or did one long thing."""
    before = tree_of(str(work.root))
    work.start()
    thread = threading.Thread(target=ctypes.CDLL(library).later_in_thread, args=(b"x",))
    _watch.set_patience(10_000_000)
    thread.start()
    while thread.is_alive():
        sum(itertools.repeat(1, 20_000_000))  # in C, with the GIL, for longer than the patience
    thread.join()
    _watch.set_patience(1_000_000_000)
    assert not work.back_to(0)
    assert not work.told
    assert tree_of(str(work.root)) == before


def test_a_thread_that_has_released_the_gil_does_not_wait_for_it_with_a_lock_that_its_holder_wants(
    work: Watched, library: str
) -> None:
    """Both waited for ever."""
    work.start()
    _watch.set_patience(10_000_000)
    thread = threading.Thread(target=ctypes.CDLL(library).with_the_lock, args=(b"x",))
    thread.start()
    assert ctypes.PyDLL(library).waits_for_the_lock() == 0  # the GIL is held
    thread.join()
    _watch.set_patience(1_000_000_000)
    assert Path("x").read_text() == "written"
    while not work.told:
        time.sleep(0.001)
    assert [each.path for each in work.told] == [str(work.root / "x")]


def test_a_function_of_the_same_name_from_elsewhere_is_left(work: Watched, tmp_path: Path) -> None:
    other = compiled(tmp_path, "other", OTHER)
    caller = compiled(tmp_path, "caller", USES_OTHER, other, f"-Wl,-rpath,{tmp_path}")
    work.start()
    assert ctypes.CDLL(caller, mode=os.RTLD_NOW | os.RTLD_DEEPBIND).call(b"x") == ord("x")
    work.cut()
    assert work.log(0).records == []


def test_a_forked_process_is_not_told(work: Watched, library: str) -> None:
    called = ctypes.CDLL(library)
    work.start()
    pid = os.fork()
    if pid == 0:
        os._exit(abs(called.by_fopen(b"y")) + abs(called.in_thread(b"z")))
    assert os.waitpid(pid, 0)[1] == 0
    work.cut()
    assert work.log(0).records == []


def test_no_finalizer_runs_within_the_library(
    work: Watched, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine, was_on = keeping.look, []

    def looks(path: str) -> Any:
        was_on.append(gc.isenabled())
        return genuine(path)

    monkeypatch.setattr(keeping, "look", looks)
    work.start()
    assert ctypes.CDLL(library).by_fopen(b"x") == 0
    assert was_on and not any(was_on)
    assert gc.isenabled()


def test_a_signal_handler_that_raises_within_the_library_is_heard(
    work: Watched, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library goes on; the exception comes when it has returned, and what was not recorded is told."""

    class Alarm(Exception):
        pass

    genuine = keeping.look

    def looks(path: str) -> Any:
        if path.endswith("/x"):
            raise_alarm()
        return genuine(path)

    def raise_alarm() -> None:
        raise Alarm

    monkeypatch.setattr(keeping, "look", looks)
    called = ctypes.PyDLL(library)
    work.start()
    with pytest.raises(Alarm):
        called.by_fopen(b"x")
        signal.getitimer(signal.ITIMER_REAL)  # any call: between two instructions
    assert Path("x").read_text() == "written"
    assert ["Alarm" in each.reason for each in work.told] == [True]


def test_nothing_is_told_when_the_watch_has_stopped(work: Watched, library: str) -> None:
    work.start()
    work.watch.stop()
    called = ctypes.CDLL(library)
    assert called.by_fopen(b"x") == 0 and called.in_thread(b"x") == 0
    _watch.install(None, None)
    assert work.log(0).records == [] and not work.told


def test_a_database_that_sqlite_attaches(work: Watched) -> None:
    """Python has an event for the first database of a connection only."""
    with sqlite3.connect("other") as db:
        db.execute("create table t (x)")
    db.close()
    before = tree_of(str(work.root))
    work.start()
    with sqlite3.connect(":memory:") as db:
        db.execute("attach 'other' as o")
        db.execute("insert into o.t values (1)")
    db.close()
    assert tree_of(str(work.root)) != before
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == before


def test_a_file_of_hdf5(work: Watched) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File("old.h5", "w") as file:
        file["a"] = [1, 2, 3]
    before = tree_of(str(work.root))
    work.start()
    with h5py.File("old.h5", "r+") as file:
        file["a"][:] = [4, 5, 6]
        file["b"] = [7]
    with h5py.File("new.h5", "w") as file:
        file["a"] = [1]
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == before

"""Locks that installed packages keep, held by the program when the image is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import resumed_output


def test_a_librarys_lock_that_is_held(tmp_path: Path) -> None:
    """soupsieve matches inside of `with RE_LOCK:`, a variable of its module; the new process has one that is free."""
    (tmp_path / "site-packages").mkdir()
    library = """
        import threading
        LOCK, AGAIN, FREE = threading.Lock(), threading.RLock(), threading.Lock()
        def locked(inside):
            with LOCK, AGAIN, AGAIN:
                inside()
                return LOCK.locked(), AGAIN._is_owned(), FREE.locked()
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import locked_library
        print(locked_library.locked(lambda: driver_tick()), locked_library.LOCK.locked(), locked_library.AGAIN._is_owned())
    """
    files = {"site-packages/locked_library.py": library}
    assert resumed_output(tmp_path, source, files=files) == "(True, True, False) False False\n"


def test_a_lock_in_a_librarys_class_that_is_held(tmp_path: Path) -> None:
    """tqdm draws its bars inside of two, one of multiprocessing."""
    (tmp_path / "site-packages").mkdir()
    library = """
        import multiprocessing, threading
        class Writes:
            among_threads, among_processes = threading.RLock(), multiprocessing.RLock()
            @classmethod
            def locked(cls, inside):
                cls.among_processes.acquire(), cls.among_threads.acquire(), cls.among_processes.acquire()
                inside()
                cls.among_processes.release(), cls.among_threads.release(), cls.among_processes.release()
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import locked_library
        locked_library.Writes.locked(lambda: driver_tick())
        print(locked_library.Writes.among_threads._is_owned(), locked_library.Writes.among_processes._semlock._count())
    """
    files = {"site-packages/locked_library.py": library}
    assert resumed_output(tmp_path, source, files=files) == "False 0\n"


@pytest.mark.parametrize("way", ["with", "acquire"])
@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_lock_in_a_librarys_object_that_is_held_by_a_method_of_it(
    tmp_path: Path, kind: str, way: str
) -> None:
    """asgiref's Local, of which django keeps one in a variable: "cannot release un-acquired lock" after a restart.

    Or the other way round: never free again, since what ``with`` had to release was a copy of the lock.
    """
    (tmp_path / "site-packages").mkdir()
    inside = {
        "with": """
                with self._lock:
                    inside(), self.values.append(len(self.values))
        """,
        "acquire": """
                self._lock.acquire()
                inside(), self.values.append(len(self.values))
                self._lock.release()
        """,
    }
    library = f"""
        import threading
        class Local:
            def __init__(self):
                self._lock, self.values = threading.{kind}(), []
            def add(self, inside):
                {inside[way].strip()}
        class Holder:
            shared = Local()
            def __init__(self):
                self.inner, self.pair = Local(), (Local(), 1)
        plain, table, row, holder, pair = Local(), {{"p": Local()}}, [Local()], Holder(), (1, Local())
        deep = {{"a": {{"b": [Holder()]}}}}
        free = Local()
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import locked_library as library
        def places():
            of = library.holder, library.deep["a"]["b"][0]
            yield from (library.plain, library.table["p"], library.table["later"], library.row[0], library.pair[1])
            yield from (library.Holder.shared, of[0].inner, of[0].pair[0], of[1].inner, of[1].pair[0])
        def hold(rest):
            rest[0].add(lambda: hold(rest[1:])) if rest else driver_tick()
        library.table["later"] = library.Local()
        hold(list(places()))
        for place in (*places(), library.free):
            print(place.values, place._lock.acquire(timeout=1), place._lock.acquire(timeout=0.01))
    """
    files = {"site-packages/locked_library.py": library}
    again = kind == "RLock"
    assert resumed_output(tmp_path, source, files=files) == f"[0] True {again}\n" * 10 + f"[] True {again}\n"


def test_what_a_library_synchronises_with_and_its_queues_go_on(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    library = """
        import queue, threading
        class Pool:
            def __init__(self):
                self.jobs, self.gate, self.changed = queue.Queue(), threading.BoundedSemaphore(2), threading.Condition()
            def run(self, inside):
                self.gate.acquire(), self.changed.acquire(), self.jobs.put("before")
                inside()
                self.jobs.put("after"), self.changed.notify_all(), self.changed.release(), self.gate.release()
        pools, ready = [Pool()], threading.Event()
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import pooled_library
        pool = pooled_library.pools[0]
        pooled_library.ready.set()
        pool.run(lambda: driver_tick())
        print(pool.jobs.get(), pool.jobs.get(), pool.jobs.empty(), pool is pooled_library.pools[0])
        print(pooled_library.ready.is_set())
        print([pool.gate.acquire(timeout=0.01) for _ in range(3)], pool.changed.acquire(timeout=0.01))
    """
    files = {"site-packages/pooled_library.py": library}
    expected = "before after True True\nTrue\n[True, True, False] True\n"
    assert resumed_output(tmp_path, source, files=files) == expected


def test_a_lock_that_another_thread_holds_is_free_after_a_restart(tmp_path: Path) -> None:
    """The thread will not be there to release it."""
    (tmp_path / "site-packages").mkdir()
    library = """
        import threading
        class Local:
            def __init__(self):
                self._lock = threading.Lock()
            def hold(self, inside):
                with self._lock:
                    inside()
        table = {"mine": Local(), "its": Local()}
    """
    source = """
        import sys, threading
        sys.path.append(sys.path[0] + "/site-packages")
        import locked_library
        mine, its = locked_library.table["mine"], locked_library.table["its"]
        begun, end = threading.Event(), threading.Event()
        threading.Thread(target=lambda: its.hold(lambda: (begun.set(), end.wait())), daemon=True).start()
        threading.Thread(target=end.wait, daemon=True).start()
        begun.wait()
        mine.hold(lambda: driver_tick())
        end.set()
        print([place._lock.acquire(timeout=10) for place in (mine, its)])
    """
    files = {"site-packages/locked_library.py": library}
    assert resumed_output(tmp_path, source, files=files) == "[True, True]\n"


def test_a_lock_object_of_a_library_is_held_in_its_with_block(tmp_path: Path) -> None:
    """SerializableLock of xarray and dask, whose ``__getstate__`` leaves the lock out: "release unlocked lock" after a
    restart. Another thread, as any that reads in the background, made no lock of it count as held."""
    (tmp_path / "site-packages").mkdir()
    library = """
        import threading
        class Named:
            def __init__(self, name):
                self.name, self.lock = name, threading.Lock()
            def __enter__(self):
                self.lock.__enter__()
            def __exit__(self, *raised):
                self.lock.__exit__(*raised)
            def __getstate__(self):
                return self.name
            def __setstate__(self, name):
                self.__init__(name)
        SHARED = Named("shared")
    """
    source = """
        import sys, threading
        sys.path.append(sys.path[0] + "/site-packages")
        import named_library
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        own = named_library.Named("own")
        with named_library.SHARED, own:
            driver_tick()
            print(named_library.SHARED.lock.locked(), own.lock.locked())
        print(named_library.SHARED.lock.locked(), own.lock.locked(), own.name)
    """
    files = {"site-packages/named_library.py": library}
    assert resumed_output(tmp_path, source, files=files) == "True True\nFalse False own\n"


def test_a_lock_that_a_package_has_made_when_it_was_needed(tmp_path: Path) -> None:
    """As tqdm does: an import alone does not make it."""
    (tmp_path / "site-packages").mkdir()
    library = """
        import threading
        _lock, old = None, threading.Lock()
        other = old
        class Lazy:
            lock = None
        class Local:
            _lock = None
            def hold(self, inside):
                global _lock, other
                self._lock, Lazy.lock, _lock, other = (threading.Lock() for _ in range(4))
                _lock.acquire(), other.acquire(), Lazy.lock.acquire()
                with self._lock:
                    inside()
                _lock.release(), other.release(), Lazy.lock.release()
        table = {"p": Local()}
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import locked_library as library
        library.table["p"].hold(lambda: driver_tick())
        locks = library._lock, library.Lazy.lock, library.table["p"]._lock, library.other, library.old
        print([lock.acquire(timeout=1) for lock in locks], library.other is library.old)
    """
    files = {"site-packages/locked_library.py": library}
    assert resumed_output(tmp_path, source, files=files) == "[True, True, True, True, True] False\n"


def test_a_lock_of_an_object_of_the_standard_library(tmp_path: Path) -> None:
    """The handler of last resort: held while it writes, and only by it."""
    source = """
        import logging
        class Odd:
            def __str__(self):
                driver_tick()
                return "odd"
        lock = logging.lastResort.lock
        logging.getLogger("odd").warning(Odd())
        print(lock is logging.lastResort.lock, lock._is_owned())
    """
    assert resumed_output(tmp_path, source) == "True False\n"

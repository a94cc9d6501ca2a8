"""State outside of variables, in a process that was resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import resumed_output


def test_random_numbers_go_on_where_they_were(tmp_path: Path) -> None:
    source = """
        import random
        from random import random as r, shuffle
        random.seed(5)
        own = random.Random(6)
        values = [r(), own.random()]
        driver_tick()
        values += [r(), random.randrange(1000), own.gauss(0, 1), random.random()]
        print(values, shuffle.__self__ is random._inst)
    """
    assert resumed_output(tmp_path, source).endswith(" True\n")


def test_numpy_random_numbers_go_on(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    source = """
        import numpy as np
        np.random.seed(1)
        g = np.random.default_rng(2)
        np.random.rand(), g.normal()
        driver_tick()
        print(np.random.rand(), np.random.randint(100), g.normal(), g.integers(1000))
    """
    resumed_output(tmp_path, source)


def test_directory_environment_arguments_and_limits(tmp_path: Path) -> None:
    source = """
        import gc, os, signal, sys
        os.makedirs("below", exist_ok=True)
        os.chdir("below")
        os.environ["A_NEW_ONE"], os.environ["HOME"] = "1", "changed"
        sys.argv.append("more")
        sys.path.append("/nowhere")
        sys.setrecursionlimit(2345)
        gc.set_threshold(123, 4, 5)
        gc.disable()
        def handler(number, frame):
            global got
            got = number
        signal.signal(signal.SIGUSR1, handler)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        os.umask(0o027)
        driver_tick()
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        os.system('test "$A_NEW_ONE $HOME" = "1 changed" && echo the same environment')
        print(os.path.basename(os.getcwd()), sys.argv[-1], sys.path[-1], sys.getrecursionlimit(), got)
        print(gc.get_threshold(), gc.isenabled(), oct(os.umask(0)))
    """
    output = resumed_output(tmp_path, source)
    assert "the same environment" in output
    assert "below more /nowhere 2345 10\n(123, 4, 5) False 0o27\n" in output


def test_contexts_hooks_warnings_and_exit_functions(tmp_path: Path) -> None:
    source = """
        import atexit, contextvars, decimal, sys, warnings
        var = contextvars.ContextVar("var")
        var.set([1])
        decimal.getcontext().prec = 7
        warnings.simplefilter("error")
        seen = []
        def hook(kind, value, tb):
            seen.append(kind)
        sys.excepthook = hook
        atexit.register(print, "last", end="!")
        atexit.register(seen.append, 1)
        atexit.register(seen.append, 2)
        atexit.unregister(seen.append)
        @atexit.register
        def bye():
            print("bye", seen)
        driver_tick()
        try:
            warnings.warn("w")
        except UserWarning:
            print("an error")
        print(var.get(), decimal.Decimal(1) / 3, sys.excepthook is hook)
        atexit._run_exitfuncs()
    """
    assert resumed_output(tmp_path, source) == "an error\n[1] 0.3333333 True\nbye []\nlast!"


def test_replaced_standard_streams(tmp_path: Path) -> None:
    source = """
        import contextlib, io, sys
        print("before", end="")
        class Tee:
            def __init__(self, *streams):
                self.streams = streams
            def write(self, text):
                for stream in self.streams:
                    stream.write(text)
            def flush(self):
                pass
        copy = io.StringIO()
        sys.stdout = Tee(sys.__stdout__, copy)
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            print("x", file=sys.stderr)
            driver_tick()
            print("y", file=sys.stderr)
        print(repr(errors.getvalue()))
        sys.__stdout__.write(repr(copy.getvalue()))
        sys.__stdout__.buffer.flush()
        sys.__stdout__.flush()
    """
    assert resumed_output(tmp_path, source) == "'x\\ny\\n'\n\"'x\\\\ny\\\\n'\\n\""


def test_logging_goes_on_as_configured(tmp_path: Path) -> None:
    source = """
        import logging, sys
        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
        logging.addLevelName(15, "CHATTY")
        log = logging.getLogger("app.part")
        file = logging.FileHandler("app.log")
        file.setLevel(logging.ERROR)
        log.addHandler(file)
        log.addFilter(lambda record: "secret" not in record.getMessage())
        logging.getLogger("app").setLevel(15)
        log.error("before")
        driver_tick()
        log.debug("hidden"), log.log(15, "shown"), log.error("both"), log.warning("secret")
        print(logging.getLogger("app.part") is log, file in log.handlers, open("app.log").read())
    """
    expected = "CHATTY app.part shown\nERROR app.part both\nTrue True before\nboth\n\n"
    assert resumed_output(tmp_path, source) == expected


def test_the_time_that_logs_tell_counts_from_the_import_on(tmp_path: Path) -> None:
    """From the import in the first process: else it would begin anew, and differ in a copy of a replica."""
    source = """
        import logging
        began = logging._startTime = logging._startTime - 1000
        driver_tick()
        print(logging._startTime == began)
    """
    assert resumed_output(tmp_path, source) == "True\n"


def test_loggers_that_logging_does_not_know_go_on(tmp_path: Path) -> None:
    """Made by the class, they have no parent, so their messages go to their own handlers only."""
    source = """
        import logging, sys
        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="root %(message)s")
        class Mine(logging.Logger):
            pass
        logs = [logging.Logger(None, level=logging.INFO), logging.Logger("plain"), Mine("mine"), logging.Logger("child")]
        for log in logs[:3]:
            log.addHandler(logging.StreamHandler(sys.stdout))
        logs[3].parent = logging.getLogger("a")
        driver_tick()
        for log in logs:
            log.debug("d"), log.info("i %s", log.name)
        print([log.parent for log in logs[:3]], logs[3].parent is logging.getLogger("a"))
        print([name in logging.root.manager.loggerDict for name in ("plain", "mine", "child")])
    """
    expected = ["i None", "d", "i plain", "d", "i mine", "root d", "root i child"]
    expected += ["[None, None, None] True", "[False, False, False]", ""]
    assert resumed_output(tmp_path, source) == "\n".join(expected)


def test_no_garbage_of_the_restart_is_left_to_the_program(tmp_path: Path) -> None:
    """A benchmark of the collector asserts that its second collection finds nothing."""
    source = """
        import gc
        gc.collect()
        driver_tick()
        print(gc.collect())
    """
    assert resumed_output(tmp_path, source) == "0\n"


def test_what_random_sets_when_it_is_first_seeded_by_a_text(tmp_path: Path) -> None:
    """3.13 looks for a hash function then, and an image may be taken before it uses the one that it has found."""
    source = """
        import random
        random.Random("text")
        driver_tick()
        print(getattr(random, "_sha512", "before 3.13") is not None)
    """
    assert resumed_output(tmp_path, source) == "True\n"


def test_a_librarys_dictionary_while_a_method_of_it_runs(tmp_path: Path) -> None:
    """SortedDict is put together from new parts by its own `__reduce__`; the method that runs works with the old ones."""
    (tmp_path / "site-packages").mkdir()
    library = """
        class Sorted(dict):
            def __init__(self, items=()):
                self.order = []
                for key, value in items:
                    self[key] = value
            def __setitem__(self, key, value):
                if key not in self:
                    self.order.append(key)
                    self.order.sort()
                super().__setitem__(key, value)
            def __reduce__(self):
                return type(self), (list(self.items()),)
            def work(self, inside):
                order = self.order
                inside()
                self[0] = "new"
                return order is self.order, order, sorted(self)
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        from sorted_library import Sorted
        table, idle = Sorted([(3, "c"), (1, "a")]), Sorted([(2, "b")])
        print(table.work(lambda: driver_tick()), table.order, idle.order, idle)
    """
    files = {"site-packages/sorted_library.py": library}
    assert (
        resumed_output(tmp_path, source, files=files)
        == "(True, [0, 1, 3], [0, 1, 3]) [0, 1, 3] [2] {2: 'b'}\n"
    )


def test_what_has_been_warned_of_is_not_warned_of_again(tmp_path: Path) -> None:
    source = """
        import warnings
        warnings.simplefilter("default")
        seen = []
        warnings.showwarning = lambda message, *rest: seen.append(str(message))
        for turn in range(4):
            warnings.warn("once is enough")
            driver_tick()
        warnings.simplefilter("always")
        for turn in range(2):
            warnings.warn("every time")
        print(seen)
    """
    assert resumed_output(tmp_path, source) == "['once is enough', 'every time', 'every time']\n"

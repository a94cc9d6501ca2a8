"""Private names and layouts of CPython: they are there, and what is not as it was known is said rather than guessed.

What is done with them is tested with its users (tests/unit/ckpt/image).
"""

from __future__ import annotations

import contextvars
import ctypes
import hashlib
import os
import re
import subprocess
import sys
import threading
import types
import warnings
from collections import OrderedDict
from typing import Any

import pytest

from ckpt.compat import accelerators, interpreter, memory, signals, stdlib, typeobjects


@pytest.mark.parametrize("name", accelerators._PLACES)
def test_every_name_of_a_module_in_c_is_there(name: str) -> None:
    assert getattr(accelerators, name) is getattr(accelerators, name)


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        accelerators.nothing  # noqa: B018


def test_the_next_place_is_taken_where_the_best_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(accelerators._PLACES, "a_name", (("_no_such_module", "x"), ("math", "pi")))
    assert 3 < accelerators.a_name < 4
    monkeypatch.delitem(vars(accelerators), "a_name")


def test_importing_the_accelerators_imports_nothing_else() -> None:
    """`ckpt run` does so before it starts its agent."""
    ask = "import sys; had = {*sys.modules}; import ckpt.compat.accelerators; print(*sorted({*sys.modules} - had))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    imported = {name for name in done.stdout.split() if not name.startswith("ckpt")}
    assert imported <= {"__future__", "atexit"}


def test_argument_types_of_the_c_api_are_set_for_ckpt_only() -> None:
    assert memory.new_frame(test_another_name_is_not_there.__code__, {}).f_locals == {}
    assert memory.is_made_from_definition(sys) and not memory.is_made_from_definition(types.ModuleType("m"))
    assert memory.address_of(bytearray(1)) != 0
    for name in ("PyFrame_New", "PyModule_GetDef", "PyObject_GetBuffer"):
        assert getattr(ctypes.pythonapi, name).argtypes is None


def test_a_struct_that_is_another_is_not_touched() -> None:
    iterator: Any = iter(OrderedDict(a=1))
    assert memory.ordered_iterator(iterator, OrderedDict()) is None
    assert memory.blake_state(hashlib.sha256()) is memory.blake_state(object()) is None
    assert memory.openssl_context(object()) is None
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    token = variable.set(1)
    assert not memory.mark_unused(token)
    variable.reset(token)
    assert memory.mark_unused(token) and not memory.mark_unused(token)
    with pytest.raises(TypeError, match="cannot change places"):
        memory.exchange(iter([]), iter(()))


def test_a_module_gets_the_very_dictionary() -> None:
    module, attributes = types.ModuleType("m"), {"__name__": "other"}
    count = sys.getrefcount(attributes)
    assert memory.replace_dictionary(module, attributes)
    assert sys.getrefcount(attributes) == count + 1  # before anything else holds it
    assert module.__dict__ is attributes


class Slotted:
    __slots__ = ("one", "two")


def test_what_types_show_of_their_instances() -> None:
    assert (
        typeobjects.is_heap(Slotted) and not typeobjects.is_heap(list) and not typeobjects.is_heap(re.Pattern)
    )
    assert not typeobjects.has_dictionary(Slotted) and typeobjects.has_dictionary(
        type(test_a_module_gets_the_very_dictionary)
    )
    assert not typeobjects.has_hidden_state(Slotted, 2) and typeobjects.has_hidden_state(Slotted, 1)
    assert typeobjects.has_hidden_state(re.Pattern, 0)


def test_an_uncaught_exception_is_noted_as_the_interpreter_notes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("last_type", "last_value", "last_traceback", "last_exc")
    for name in names:
        monkeypatch.setattr(sys, name, None, raising=False)
        monkeypatch.delattr(sys, name)
    failure = ValueError("x")
    stdlib.set_last_exception(failure)
    is_new = interpreter.HAS_LAST_EXC
    found = [getattr(sys, name, "none") for name in names]
    assert found == [ValueError, failure, None, failure if is_new else "none"]


def test_one_fork_gives_no_warning_of_threads() -> None:
    said = "This process (pid=1) is multi-threaded, use of {}() may lead to deadlocks in the child."
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        for _ in range(2):
            stdlib.ignore_threads_once()
            warnings.warn("something else", DeprecationWarning, stacklevel=1)
            assert stdlib.program_filters(warnings) == before != warnings.filters
            _fork()
            if not interpreter.FORK_COUNTS_THREADS:
                warnings.warn(said.format("fork"), DeprecationWarning, stacklevel=1)
            assert warnings.filters == before
        stdlib.ignore_threads_once()
        stdlib.stop_ignoring_threads()
        assert warnings.filters == before
        _fork()
        warnings.warn(said.format("forkpty"), DeprecationWarning, stacklevel=1)
    end.set()
    thread.join()
    texts = [str(each.message) for each in caught]
    assert texts[:2] == ["something else"] * 2
    assert ["multi-threaded" in text for text in texts[2:]] == [True] * (1 + interpreter.FORK_COUNTS_THREADS)


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def test_an_own_thread_ends_quietly_where_threading_has_lost_it(capfd: pytest.CaptureFixture[str]) -> None:
    def lose() -> None:
        stdlib.threads_by_ident().pop(thread.ident or 0)

    thread = stdlib.OwnThread(target=lose)
    thread.start()
    thread.join()
    assert capfd.readouterr().err == ""


def test_an_own_thread_is_known_to_itself_and_in_no_list_of_threads() -> None:
    seen: list[object] = []

    def look() -> None:
        seen.extend([threading.current_thread(), threading.active_count(), *threading.enumerate()])

    before = threading.enumerate()
    own = stdlib.OwnThread(target=look)
    own.start()
    own.join()
    assert seen == [own, len(before), *before]
    other = threading.Thread(target=lambda: seen.append(threading.active_count()))
    other.start()
    other.join()
    assert seen[-1] == len(before) + 1


def test_the_functions_of_signal_are_replaced_and_put_back() -> None:
    import signal

    original = vars(signal)["_signal"]
    signals.replace_signal_functions(getsignal=lambda number: number)
    try:
        assert signal.getsignal(signal.SIGUSR1) == signal.SIGUSR1
    finally:
        signals.replace_signal_functions()
    assert vars(signal)["_signal"] is original

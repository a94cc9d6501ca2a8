"""Looks that find the program inside a call of the library."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.capture.check_budget import CheckBudget
from ckpt.capture.places import Places, library_caller
from ckpt.compat.stdlib import IMPORT_SYSTEM_FILES
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.image.frames.running import run_base

pytestmark = pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")

CALL = """
def call():
    _frames.look(at_check, 0, 0, 16)
    for n in range(300):  # more checks than one look has
        helper()

def helper():
    pass
"""


def test_a_look_inside_a_library_call_is_made_after_it() -> None:
    """A rank that calls the library between long calls in C, and never waits there, had no image for seconds: each look came
    where a call had just begun, and its checks were used up before the call's end."""
    places: Any = Places.__new__(Places)
    places._allowance = CheckBudget()
    where, found, inside = "", [], []

    def at_check() -> bool:
        caller = library_caller()
        if caller is None:
            found.append(where)
        else:
            inside.append(caller.f_code.co_name)
            places.queue_after(caller, at_check)
        return False

    library: dict[str, Any] = {"__name__": "ckpt.any", "_frames": _frames, "at_check": at_check}
    exec(CALL, library)

    def program() -> None:
        nonlocal where
        where = "inside"
        library["call"]()
        where = "after"
        for _ in range(3):
            pass

    run_base(program)
    assert inside == ["program"] and found == ["after"]


def test_where_no_call_of_the_library_runs_nobody_has_called_it() -> None:
    found: list[Any] = []

    def program() -> None:
        found.append((lambda: library_caller())())

    run_base(program)
    assert found == [None]


ENDING = """
import os, sys
from ckpt.capture.places import Places

places = Places.__new__(Places)
places._pid = os.getpid()

class Late:
    def __del__(self):
        os.write(1, b"late: none\\n" if places.makes_no_calls() else b"late: calls\\n")

os.write(1, b"none\\n" if places.makes_no_calls() else b"calls\\n")
late = Late()
late.itself = late  # its end comes when modules are cleared
"""


def test_no_look_is_made_while_the_interpreter_ends() -> None:
    """Finalizers come to checks, and nothing can be imported any more: a program that had failed said `Exception ignored in
    ... Imager._at_check: ImportError: sys.meta_path is None` besides."""
    words = [sys.executable, "-c", ENDING]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env={**os.environ})
    assert done.stdout.splitlines() == ["calls", "late: none"], done.stderr


def test_an_import_is_the_reason_whatever_the_imported_module_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs with large packages were told that `stat()` is running, and to write loops out."""
    places: Any = Places.__new__(Places)
    places._runtime = SimpleNamespace(layer=None, port=None, finished_code=None)
    places._skipped, places._allowance, places._transient_since_ns = (), CheckBudget(), 0
    said: list[str] = []

    def ask() -> None:
        said.append(places.running("elsewhere"))
        with pytest.raises(Refused) as refused:
            places.capture("call")
        said.append(f"{refused.value.reason} ({refused.value.where})")

    (tmp_path / "outer_module.py").write_text("import inner_module\n")
    (tmp_path / "inner_module.py").write_text(
        "def look():\n    ask()\n\nsorted([1, 2], key=lambda _: look() or 0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("builtins.ask", ask, raising=False)
    text = "def load():\n    import outer_module\nload()\n"
    run_base(exec, compile(text, "app.py", "exec"), {})
    assert set(said) == {"an import is in progress (app.py:2 load)"}
    assert "an import" not in places.running("here")


def test_the_code_of_an_imported_module_is_no_call_of_the_library() -> None:
    """A function of the library runs around it. Looks came after that function, at a thousand checks each: imports took
    twice the time of the processor while a checkpoint was due."""
    found: dict[bool, Any] = {}

    def module() -> None:
        for imports in (False, True):
            found[imports] = (lambda imports: library_caller(imports=imports))(imports)

    watch: dict[str, Any] = {"__name__": "ckpt.any", "module": module}
    exec("def execute():\n    module()\n", watch)
    system: dict[str, Any] = {"__name__": "importlib._bootstrap", "execute": watch["execute"]}
    exec(compile("def load():\n    execute()\n", IMPORT_SYSTEM_FILES[0], "exec"), system)
    run_base(system["load"])
    assert found[False] is None and found[True].f_code.co_name == "load"


def test_few_checks_are_looked_at_while_an_import_is_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    places: Any = Places.__new__(Places)
    places._allowance, places._obstacle, places._ticks = CheckBudget(), (0, 0), 0
    checks: list[int] = []
    monkeypatch.setattr(_frames, "look", lambda look, obstacle, at, number: checks.append(number))
    for places._is_import in (False, True):
        places.queue(lambda: False)
    assert checks[0] > 100 and checks[1] < 10


def test_a_main_thread_that_no_signal_can_be_sent_to_is_asked_later() -> None:
    """The limit of signals that may wait counts all processes of the user: the program ended with BlockingIOError."""
    script = """
        import resource, threading, time
        from ckpt import image
        from ckpt.capture.places import wake_main_thread

        def wake():
            while not image.is_waiting(threading.main_thread().ident):
                time.sleep(0.001)
            wake_main_thread()
            print("woken")

        resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))
        other = threading.Thread(target=wake)
        other.start()
        other.join()
        """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("woken\n", "")

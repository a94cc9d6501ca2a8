"""What the start of a job costs, counted in modules and searches, which depend on no load of the machine.

Each module of a process costs a quarter of a millisecond at its start, and each object of the agent costs every rank time at
its end, when the interpreter destroys it. The bounds below are what is needed today, and a tenth more. A test that fails
here asks: must every start of every job pay for this?
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from tests.system.support import PATIENCE_S, environment, run_ckpt, write_app

pytestmark = pytest.mark.system

SELDOM_NEEDED = {
    "asyncio": "programs with an event loop",
    "dataclasses": "ckpt.transport.records instead: it imports inspect",
    "datetime": "ckpt.store.job.eventlog.iso_time instead",
    "dis": "programs that change the standard library",
    "email": "importlib.metadata, where a distribution has an entry point of ckpt.libraries",
    "importlib.metadata": "the same",
    "inspect": "dis, ast and others",
    "linecache": "traceback",
    "logging": "programs that log",
    "pydantic": "ckpt verify",
    "subprocess": "programs that start others",
    "tokenize": "linecache",
    "traceback": "failures",
}
"""Module → what needs it. Neither a command nor a rank imports it at its start."""
ONLY_RANKS = (
    "ckpt.capture",
    "ckpt.image",
    "ckpt.mpi",
    "ckpt.rank",
    "ckpt.replay",
    "ckpt.transport.driver",
    "ckpt.undo.keeping",
    "ckpt.undo.recorder",
    "ckpt.undo.watching",
    "zmq",
)
NOT_RANKS = ("ckpt.controller.cli", "ckpt.controller.doctor", "ckpt.controller.service", "argparse")

COMMAND = """
    import json, sys
    from ckpt.controller.cli.main import main

    code = main(["run", "-n", "1", "--job", sys.argv[1], sys.argv[2]])
    print(json.dumps(sorted(sys.modules)))
    sys.exit(code)
"""

PROGRAM = """
    import sys

    at_start = set(sys.modules)

    import json

    from ckpt.image.modules.references import process_references

    changed = process_references._module_states.changed(sys.modules)
    finders = [type(finder).__module__ for finder in sys.meta_path]

    import ckpt
    from ckpt.transport import records

    def uncompiled():
        return sorted(
            f"{space.__module__}.{space.__qualname__}"
            for module in list(sys.modules.values())
            for space in vars(module).values()
            if type(space) is type
            and space.__module__ == module.__name__
            and type(vars(space).get("__init__")) is records._Uncompiled
        )

    waiting = uncompiled()

    comm = ckpt.enable()
    comm.barrier()
    comm.allreduce(1)
    while ckpt.epoch() < 2:
        comm.barrier()
        ckpt.checkpoint()
    found = {
        "finders": finders,
        "waiting": len(waiting),
        "compiled": sorted(set(waiting) - set(uncompiled())),
        "at_start": sorted(at_start),
        "not_searched": sorted(at_start - process_references._own_names.keys()),
        "changed": changed,
        "later": sorted(set(sys.modules) - at_start),
    }
    print(json.dumps(found))
"""


def imported_by_python() -> set[str]:
    """The modules of an interpreter that does nothing: they depend on what is installed."""
    words = [sys.executable, "-c", "import sys; print(*sys.modules)"]
    return set(
        subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.split()
    )


def of(modules: Collection[str], packages: Collection[str]) -> list[str]:
    return sorted(
        name
        for name in modules
        if name.startswith(tuple(f"{each}." for each in packages)) or name in packages
    )


@pytest.fixture(scope="module")
def rank(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("start")
    run = run_ckpt("run", "-n", "1", "--job", folder / "job", write_app(folder, PROGRAM), env=environment())
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_a_rank_imports_what_it_needs(rank: dict[str, Any]) -> None:
    imported = set(rank["at_start"]) - imported_by_python()
    assert of(imported, tuple(SELDOM_NEEDED)) == []
    assert of(imported, NOT_RANKS) == []
    assert len(of(imported, ("ckpt",))) <= 356
    assert len(imported) - len(of(imported, ("ckpt",))) <= 112


def test_all_that_ranks_need_is_imported_and_searched_once_before_they_are_forked(
    rank: dict[str, Any],
) -> None:
    """What the agent has not done, every rank does; and a rank gets a copy of each page that it changes."""
    assert rank["later"] == []
    assert [
        name for name in rank["not_searched"] if name != "__main__" and not name.startswith("typing.")
    ] == []
    assert of(rank["changed"], ("ckpt", "zmq")) == []
    assert len(rank["changed"]) <= 8, rank["changed"]


def test_a_rank_finds_modules_by_the_import_systems_own_finders(rank: dict[str, Any]) -> None:
    assert [name for name in rank["finders"] if name.startswith("ckpt")] == ["ckpt.rank.mpi4py_alias"]


def test_what_each_rank_would_compile_has_been_compiled_once(rank: dict[str, Any]) -> None:
    """`ckpt.rank.boot` names the classes; no other class is compiled, since most ranks never make an instance."""
    assert rank["compiled"] == []
    assert rank["waiting"] >= 25


def test_the_command_imports_nothing_that_only_ranks_need(tmp_path: Path) -> None:
    words = [
        sys.executable,
        write_app(tmp_path, COMMAND, "command.py"),
        tmp_path / "job",
        write_app(tmp_path, ""),
    ]
    run = subprocess.run(
        list(map(str, words)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode == 0, run.stderr
    imported = set(json.loads(run.stdout)) - imported_by_python()
    assert of(imported, (*SELDOM_NEEDED, *ONLY_RANKS)) == []
    assert len(of(imported, ("ckpt",))) <= 99


def test_a_module_in_c_that_was_not_built_again_is_named_with_the_remedy(tmp_path: Path) -> None:
    """After a `git pull` without a build the agent ended with a bare traceback: "module 'ckpt.mpi.engine._quick' has no
    attribute 'send_buffer'"."""
    name = "ckpt.mpi.engine._quick"
    former = f"import sys, types\nformer = types.ModuleType('{name}')\nformer.__file__ = '_quick{EXTENSION_SUFFIXES[0]}'\n"
    write_app(tmp_path, f"{former}sys.modules['{name}'] = former\n", "sitecustomize.py")
    stale = {**environment(), "PYTHONPATH": str(tmp_path)}
    run = run_ckpt("run", "-n", "1", "--job", tmp_path / "job", write_app(tmp_path, ""), env=stale)
    assert run.returncode == 1
    assert "the compiled module ckpt.mpi.engine._quick does not fit" in run.stderr
    assert "`make setup`" in run.stderr
    assert "Traceback" not in run.stderr


def test_what_ckpt_has_can_be_named_after_import_ckpt_alone() -> None:
    """`import ckpt; ckpt.reduction.allreduce(…)` raised AttributeError."""
    text = (
        "import sys, ckpt; assert not {'ckpt.reduction', 'ckpt.mpi'} & set(sys.modules); "
        "print(ckpt.reduction.allreduce, ckpt.redundancy.same, ckpt.abft.solve, ckpt.MPI.COMM_WORLD.size); ckpt.redaction"
    )
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE_S)
    assert found.stdout.rstrip().endswith(" 1"), found.stderr
    assert "AttributeError: module 'ckpt' has no attribute 'redaction'" in found.stderr

"""Which modules a program imports, and whether a host has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ckpt.controller.launch.imports import imported, lacks, modules_of

SCRIPT = b"""
from __future__ import annotations
import os, numpy.linalg as la, ckpt
from scipy import sparse
from . import beside
from mpi4py import MPI
import tools
try:
    import cupy
except ImportError:
    cupy = None
if os.environ.get("PLOT"):
    import matplotlib
def late():
    import pandas
"""


def test_what_is_imported_whenever_a_program_runs() -> None:
    assert imported(SCRIPT) == ["numpy", "ckpt", "scipy", "mpi4py", "tools"]
    assert imported(b"print 'no Python 3'") == imported(b"\0") == imported(b"") == []


def test_modules_are_looked_for_beside_the_script_and_in_those_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, packages = tmp_path / "program", tmp_path / "packages"
    program.mkdir()
    (program / "app.py").write_bytes(SCRIPT)
    (program / "tools.py").write_text("import there, nowhere, tools, only_a_directory, app\n")
    (packages / "there").mkdir(parents=True)
    (packages / "there" / "__init__.py").write_text("import not_looked_at\n")
    (packages / "only_a_directory").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    found = modules_of({"script": {"path": "program/app.py"}}, str(tmp_path))
    assert found is not None
    assert {name: found[name] for name in ("tools", "there", "nowhere", "only_a_directory", "app")} == {
        "tools": True, "there": True, "nowhere": False, "only_a_directory": False, "app": True,
    }  # fmt: skip
    assert set(found) == {"numpy", "scipy", "tools", "there", "nowhere", "only_a_directory", "app"}
    assert "there" not in sys.modules and "only_a_directory" not in sys.modules
    real = modules_of({"script": {"path": "program/app.py"}, "mpi4py": False}, str(tmp_path))
    assert real is not None and set(real) == {*found, "mpi4py"}, "the installed one, with --no-mpi4py"
    assert modules_of({"script": {"path": "no such"}}, str(tmp_path)) == {}
    assert modules_of({}, str(tmp_path)) is None


def test_a_host_lacks_what_this_one_has() -> None:
    assert lacks({"a": True, "b": False, "c": True}, {"a": True, "b": False, "c": False}) == ["c"]
    assert lacks({"a": True}, {}) == lacks({"a": True}, None) == lacks(None, {"a": False}) == []

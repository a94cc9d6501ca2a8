"""A bounded part of mpi4py's own tests, and all of its names. The whole: `make conformance`.

The quick modules always run, and one of the others, another one for every commit.
"""

from __future__ import annotations

import ast
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt import MPI
from tests.conformance import __main__ as suite
from tests.conformance import plan
from tests.fetching import Unavailable
from tests.seeds import seed_of_the_commit

QUICK = [
    "test_ulfm",
    "test_errhandler",
    "test_errorcode",
    "test_request",
    "test_grequest",
    "test_status",
    "test_msgzero",
    "test_comm",
    "test_group",
    "test_info",
    "test_session",
    "test_pickle",
    "test_p2p_obj",
    "test_p2p_obj_matched",
    "test_cco_obj",
    "test_op",
    "test_handle",
    "test_objmodel",
    "test_win",
]
OTHERS = (
    "test_comm_topo",
    "test_cco_ngh_obj",
    "test_cco_obj_inter",
    "test_pack",
    "test_datatype",
    "test_subclass",
    "test_rma_nb",
)


@pytest.fixture(scope="session")
def sources() -> str:
    """mpi4py's sources; the tests are skipped where the package index cannot be reached."""
    given = os.environ.get("MPI4PY_SOURCES")
    if given:
        return given
    try:
        return suite.fetch()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.system
@pytest.mark.timeout(200)
@pytest.mark.rotate(2)
@pytest.mark.parametrize("size", [1, 3])
def test_the_quick_part_of_the_suite_passes(sources: str, size: int) -> None:
    chosen = random.Random(seed_of_the_commit()).choice(OTHERS)
    outcomes = suite.run_modules(os.path.abspath(sources), [*QUICK, chosen], size)
    failed = {test: why for test, (state, why) in outcomes.items() if state == "failed"}
    again = f"python -m tests.conformance -n {size} -m {','.join([*QUICK, chosen])}"
    assert not failed, f"{failed}\nrepeat: {again}"
    assert sum(state == "passed" for state, _ in outcomes.values()) > 300


@pytest.mark.system
@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("module", "least"),
    [("test_util_pool", 40), pytest.param("test_spawn", 44, marks=pytest.mark.nightly)],
)
def test_programs_that_start_processes_pass(sources: str, module: str, least: int) -> None:
    outcomes = suite.run_modules(os.path.abspath(sources), [module], 1)
    failed = {test: why for test, (state, why) in outcomes.items() if state == "failed"}
    assert not failed, f"{failed}\nrepeat: python -m tests.conformance -n 1 -m {module}"
    assert sum(state == "passed" for state, _ in outcomes.values()) >= least


def exported(path: Path) -> Iterator[str]:
    """Names in the stub of mpi4py.MPI: of the module, and `Class.name`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
                    yield f"{node.name}.{member.name}"


def test_every_name_that_mpi4py_exports_exists(sources: str) -> None:
    names = [name for name in exported(Path(sources, "src", "mpi4py", "MPI.pyi")) if not name.startswith("_")]
    assert len(names) >= 900
    missing = []
    for name in names:
        owner, _, member = name.partition(".")
        here = getattr(MPI, owner, None)
        if (here is None and not hasattr(MPI, owner)) or (member and not hasattr(here, member)):
            missing.append(name)
    assert not missing


def test_every_area_is_planned(sources: str) -> None:
    there = {path.stem for path in Path(sources, "test").glob("test_*.py")}
    planned = {module for modules in plan.AREAS.values() for module in modules} | set(plan.MODULES_LEFT_OUT)
    assert there == planned

"""mpi4py's own tests under `ckpt run --redundancy`: they pass as they do without, no replica is called wrong, also while one
is killed. The whole: `python -m tests.conformance -n 2,3 --redundancy 3`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conformance import __main__ as suite
from tests.conformance import plan
from tests.conformance.test_suite import sources
from tests.seeds import seed_of_the_commit

__all__ = ["sources"]

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

PARTS = [
    ("test_status", "test_msgzero", "test_request", "test_grequest", "test_p2p_obj", "test_p2p_obj_matched"),
    ("test_cco_obj", "test_cco_obj_inter", "test_cco_ngh_obj"),
    ("test_comm", "test_group", "test_attributes", "test_info", "test_session", "test_subclass"),
    ("test_exceptions", "test_errhandler", "test_errorcode", "test_ulfm", "test_handle", "test_objmodel"),
    (
        "test_environ",
        "test_toplevel",
        "test_threads",
        "test_doc",
        "test_mpimem",
        "test_buffer",
        "test_pickle",
    ),
    ("test_comm_inter", "test_comm_topo", "test_pack", "test_address", "test_op"),
]
"""Modules that take a second or two."""


def long_modules() -> list[str]:
    quick = {module for part in PARTS for module in part} | set(plan.MODULES_LEFT_OUT_OF_REPLICAS)
    return [module for area in plan.AREAS.values() for module in area if module not in quick]


def check(outcomes: dict[str, tuple[str, str]], size: int, modules: tuple[str, ...], least: int = 1) -> None:
    failed = {test: why for test, (state, why) in outcomes.items() if state == "failed"}
    again = f"python -m tests.conformance -n {size} --redundancy 3 -m {','.join(modules)}"
    assert not failed, f"{failed}\nrepeat: {again}"
    assert sum(state == "passed" for state, _ in outcomes.values()) >= least


@pytest.mark.rotate(12)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("modules", PARTS, ids=lambda part: part[0])
def test_the_suite_passes_with_three_replicas_of_each_rank(
    sources: str, modules: tuple[str, ...], size: int
) -> None:
    outcomes = suite.run_modules(os.path.abspath(sources), modules, size, ("--redundancy", "3"))
    check(outcomes, size, modules, least=20)


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("module", long_modules())
def test_so_do_its_long_modules(sources: str, module: str, size: int) -> None:
    outcomes = suite.run_modules(os.path.abspath(sources), [module], size, ("--redundancy", "3"))
    check(outcomes, size, (module,))


@pytest.mark.nightly
@pytest.mark.parametrize("compare", ["late", "sender", "receiver"])
@pytest.mark.parametrize("replicas", ["2", "3"])
@pytest.mark.parametrize("modules", PARTS[:3], ids=lambda part: part[0])
def test_and_with_each_way_of_comparing(
    sources: str, modules: tuple[str, ...], replicas: str, compare: str
) -> None:
    options = ("--redundancy", replicas, "--compare", compare)
    check(suite.run_modules(os.path.abspath(sources), modules, 2, options), 2, modules, least=20)


def kill_one(job: str, process: subprocess.Popen[str]) -> None:
    """Kill a process of the job somewhere in the middle of its tests."""
    choose, deadline = random.Random(seed_of_the_commit()), time.monotonic() + 300
    after, printed = choose.randrange(150, 400), Path(job, "output", "rank-0.out")
    while process.poll() is None and time.monotonic() < deadline:
        if printed.exists() and printed.read_text().count("\n") >= after:
            break
        time.sleep(0.01)
    events = [json.loads(line) for line in Path(job, "events.jsonl").read_text().splitlines()]
    started = [event["pid"] for event in events if event["event"] == "rank-started"]
    with contextlib.suppress(ProcessLookupError):
        os.kill(choose.choice(started), signal.SIGKILL)


@pytest.mark.nightly
@pytest.mark.parametrize("modules", PARTS[:3], ids=lambda part: part[0])
def test_and_while_a_replica_is_killed(sources: str, modules: tuple[str, ...]) -> None:
    outcomes = suite.run_modules(os.path.abspath(sources), modules, 2, ("--redundancy", "3"), kill_one)
    check(outcomes, 2, modules, least=20)


def test_each_module_of_the_plan_is_run_or_left_out_with_replicas() -> None:
    there = {module for area in plan.AREAS.values() for module in area}
    quick = [module for part in PARTS for module in part]
    assert len(quick) == len(set(quick)) and there.issuperset(quick)
    assert there.issuperset(plan.MODULES_LEFT_OUT_OF_REPLICAS)

"""The arrays of a program: which are found, under which names, and what belongs to no value."""

from __future__ import annotations

import sys
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ckpt.mpi import make_world
from ckpt.redundancy.memory import arrays
from ckpt.redundancy.memory.comparison import BLOCKS
from tests.unit.ckpt.redundancy.test_layer import Below

PROGRAM = """
import array
import numpy as np

class Grid:
    shared = np.ones(3)

    def __init__(self):
        self.u = np.zeros((64, 1024))
        self.inner = self.u[1:-1, 1:-1]
        self.again = self

class Point:
    __slots__ = ("x",)

    def __init__(self):
        self.x = np.arange(4)

class Solver:
    def __init__(self):
        self.grid = Grid()
        self.parts = {"left": [np.ones(2), Point()]}

solver = Solver()
buffer = bytearray(100)
table = array.array("d", [1.0, 2.0])
times = [0.5] * 20
few = [0.5] * 3
objects = np.array([np.ones(5), None], dtype=object)
turned = np.ones((8, 9)).T
nothing = np.zeros(0)
padded = np.zeros(3, dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True))
long = np.zeros(3, dtype=np.longdouble)
library = np.random.default_rng(1)

def closure():
    held = np.ones(6)
    return lambda: held

function = closure()

def generator():
    inside = np.ones(7)
    yield inside

running = generator()
next(running)

def main():
    local = np.ones(9)
    return find(1)
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("a_program")
    module.__file__ = "/home/somebody/a_program.py"
    monkeypatch.setitem(sys.modules, "a_program", module)
    module.find = lambda depth: arrays.find(sys._getframe(depth))
    exec(PROGRAM, vars(module))
    return module


def test_arrays_are_found_by_the_variables_that_lead_to_them_each_once(program: Any) -> None:
    found = {
        each.name.removeprefix("a_program."): each.form
        for each in program.main()
        if "a_program." in each.name
    }
    assert found == {
        "Grid.shared": "<f8 (3,)",
        "solver.grid.u": "<f8 (64, 1024)",
        "solver.parts['left'][0]": "<f8 (2,)",
        "solver.parts['left'][1].x": "<i8 (4,)",
        "buffer": "bytearray(100)",
        "table": "array('d', 2)",
        "times": "list of 20 floats",
        "objects.flat[0]": "<f8 (5,)",
        "turned": "<f8 (9, 8)",
        "function.held": "<f8 (6,)",
        "running().inside": "<f8 (7,)",
    }
    assert "main().local" in {each.name for each in program.main()}


def test_a_block_that_changed_is_the_only_one_with_another_digest(program: Any) -> None:
    name = "a_program.solver.grid.u"
    before = dict(arrays.digests(program.main(), []))[name]
    assert len(before.digests) == BLOCKS and before.row_bytes == 8192
    program.solver.grid.u[37, 5] = 1
    after = dict(arrays.digests(program.main(), []))[name]
    differ = [
        n for n, both in enumerate(zip(before.digests, after.digests, strict=True)) if len(set(both)) > 1
    ]
    assert differ == [(37 * 8192 + 40) // before.block_bytes]


def test_arrays_behind_the_first_ones_have_one_digest_together(
    monkeypatch: pytest.MonkeyPatch, program: Any
) -> None:
    monkeypatch.setattr(arrays, "NAMED_MAX", 3)
    before = dict(arrays.digests(program.main(), []))
    assert len(before) == 4
    program.running.gi_frame.f_locals["inside"][2] = 0
    after = dict(arrays.digests(program.main(), []))
    assert [name for name in before if before[name] != after[name]] == ["(other arrays)"]


def test_what_a_posted_receive_may_fill_is_open(program: Any) -> None:
    engine, world = make_world(Below(0, 2))  # type: ignore[arg-type]
    request = world.Irecv(program.solver.grid.u[2], source=1)
    opened = arrays.open_memory(engine)
    record = dict(arrays.digests(program.main(), opened))["a_program.solver.grid.u"]
    assert record.opened == (2,) and record.block_bytes == 8192
    request.Cancel()
    assert arrays.open_memory(engine) == []


def test_the_size_of_blocks_grows_with_the_array() -> None:
    for nbytes in (1, 4096, 64 * 4096, 64 * 4096 + 1, 10**6, 10**9):
        size = arrays.block_bytes(nbytes)
        assert -(-nbytes // size) <= BLOCKS and size % 4096 == 0
        assert size == 4096 or -(-nbytes // (size // 2)) > BLOCKS


def test_new_arrays_are_zero_where_replicas_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(np, name, getattr(np, name))
    arrays.zero_new_arrays()
    for count in (1, 50, 3000, 100_000):
        filled = np.full(count, 7.0)
        del filled
        assert not np.empty(count).any()
        filled = np.full(count, 7.0)
        shaped = filled.reshape(-1, 1)
        del filled
        assert not np.empty_like(shaped, dtype="i4", order="F").any()
    assert np.empty(2, dtype=object).tolist() == np.empty_like([None, 1]).tolist() == [None, None]
    assert np.empty((2, 3), "f4", "F").flags.f_contiguous


def test_a_program_without_such_a_variable_is_left_alone() -> None:
    assert arrays.flip(None, Random(1), "no such variable") == ""

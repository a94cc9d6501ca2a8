"""The memory of a program: which arrays and values are found, under which names, and what belongs to no value."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.mpi import make_world
from ckpt.redundancy.memory import arrays, flips
from ckpt.redundancy.memory.comparison import BLOCKS, VALUE
from ckpt.redundancy.memory.search import Found, _Search, find
from ckpt.redundancy.memory.values import Addresses, text_of
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
    module.find = lambda depth: find(sys._getframe(depth))
    exec(PROGRAM, vars(module))
    return module


def test_the_mpi4py_that_ckpt_offers_is_no_module_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its constants were compared as variables of the program."""
    offered = ModuleType("mpi4py")
    offered.__file__ = "<offered by ckpt>"
    monkeypatch.setitem(sys.modules, "mpi4py", offered)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", MPI)
    search = _Search()
    assert not any(map(search.is_of_program, ("mpi4py", "mpi4py.MPI", "ckpt.MPI", "numpy", "json")))
    assert search.is_of_program("__main__") and search.is_of_program(__name__)


def only_arrays(program: Any) -> Found:
    return Found(program.main().arrays, [], [])


def test_arrays_are_found_by_the_variables_that_lead_to_them_each_once(program: Any) -> None:
    found = {
        each.name.removeprefix("a_program."): each.form
        for each in program.main().arrays
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
    assert "main().local" in {each.name for each in program.main().arrays}


def test_a_block_that_changed_is_the_only_one_with_another_digest(program: Any) -> None:
    name = "a_program.solver.grid.u"
    before = dict(arrays.digests(only_arrays(program), []))[name]
    assert len(before.digests) == BLOCKS and before.row_bytes == 8192
    program.solver.grid.u[37, 5] = 1
    after = dict(arrays.digests(only_arrays(program), []))[name]
    differ = [
        n for n, both in enumerate(zip(before.digests, after.digests, strict=True)) if len(set(both)) > 1
    ]
    assert differ == [(37 * 8192 + 40) // before.block_bytes]


def test_arrays_behind_the_first_ones_have_one_digest_together(
    monkeypatch: pytest.MonkeyPatch, program: Any
) -> None:
    monkeypatch.setattr(arrays, "ARRAYS_MAX", 3)
    before = dict(arrays.digests(only_arrays(program), []))
    program.running.gi_frame.f_locals["inside"][2] = 0
    after = dict(arrays.digests(only_arrays(program), []))
    assert [name for name in before if before[name] != after[name]] == ["(arrays in a_program)"]


def test_what_a_posted_receive_may_fill_is_open(program: Any) -> None:
    engine, world = make_world(Below(0, 2))  # type: ignore[arg-type]
    request = world.Irecv(program.solver.grid.u[2], source=1)
    opened = arrays.open_memory(engine)
    record = dict(arrays.digests(only_arrays(program), opened))["a_program.solver.grid.u"]
    assert record.opened == (2,) and record.block_bytes == 8192
    request.Cancel()
    assert arrays.open_memory(engine) == []


COLLECTIVES: dict[str, Callable[[Any, Any, Any], object]] = {
    "Ibcast": lambda world, data, into: world.Ibcast(into, root=1),
    "Iallreduce": lambda world, data, into: world.Iallreduce(data, into),
    "Ireduce": lambda world, data, into: world.Ireduce(data, into, root=0),
    "Iscan": lambda world, data, into: world.Iscan(data, into),
    "Igather": lambda world, data, into: world.Igather(data[: len(data) // 2], into, root=0),
    "Iallgather": lambda world, data, into: world.Iallgather(data[: len(data) // 2], into),
    "Iscatter": lambda world, data, into: world.Iscatter(None, into, root=1),
    "Ialltoall": lambda world, data, into: world.Ialltoall(data, into),
    "Ireduce_scatter_block": lambda world, data, into: world.Ireduce_scatter_block(
        data, into[: len(into) // 2]
    ),
}


@pytest.mark.parametrize("count", [2, 100_000])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_what_a_collective_under_way_may_fill_is_open(name: str, count: int) -> None:
    """A replica whose collective had ended was called wrong beside one that waited for it."""
    engine, world = make_world(Below(1 if name == "Iscan" else 0, 2))  # type: ignore[arg-type]
    data, into = np.zeros(count), np.zeros(count)
    COLLECTIVES[name](world, data, into)
    address = into.__array_interface__["data"][0]
    opened = arrays.open_memory(engine)
    assert any(first < address + 8 and address < first + nbytes for first, nbytes in opened)


def test_a_collective_under_way_may_hold_what_it_has_received() -> None:
    """A line was not compared at all: a received payload is a view of its own memory, and no buffer of the program."""
    engine, world = make_world(Below(0, 2))  # type: ignore[arg-type]
    world.Iallreduce(np.zeros(2), np.zeros(2))
    (chain,) = engine.shared[world._shared.base].pending.values()
    received = bytearray(100)
    chain[0].values.append(memoryview(received)[10:30])
    address = ctypes.addressof(ctypes.c_char.from_buffer(received))
    assert (address + 10, 20) in arrays.open_memory(engine)


def test_the_size_of_blocks_grows_with_the_array() -> None:
    for nbytes in (1, 4096, 64 * 4096, 64 * 4096 + 1, 10**6, 10**9):
        size = arrays.block_bytes(nbytes)
        assert -(-nbytes // size) <= BLOCKS and size % 4096 == 0
        assert size == 4096 or -(-nbytes // (size // 2)) > BLOCKS


def test_new_arrays_are_zero_where_replicas_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(np, name, getattr(np, name))
    arrays.zero_new_arrays()

    class Has:
        new = np.empty

    assert not Has().new(3).any() and np.empty.__name__ == "empty"
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
    for where in flips.WHERE:
        assert flips.flip(None, Random(1), where, "no such variable") == ""


VALUES = """
import argparse, collections, dataclasses, enum, functools, random, types
from decimal import Decimal
from fractions import Fraction
import numpy as np

__version__ = "1"
steps = 10
ratio = 0.5
zero = -0.0
phase = 1 + 2j
title = "heat"
key = b"k"
nothing = None
done = False
price = Decimal("1.50")
part = Fraction(1, 3)
grid_range = range(3)
single = np.float32(0.25)
generator = np.random.default_rng(1)
dice = random.Random(1)
arguments = argparse.Namespace(tolerance=1e-6)
settings = {"dt": 0.1, 3: [1, 2], (0, 1): "corner"}
names = ["a", "b"]
neighbours = {(0, 1), (1, 0)}
many = list(range(40))
table = {f"key {n}": n for n in range(20)}
address = id(settings)
shown = f"<object at {id(settings):#x}>"
hashed = object.__hash__(settings)
last = collections.deque([1, 2], maxlen=2)
by_address = {id(each): n for n, each in enumerate([object() for _ in range(30)])}
bound = functools.partial(print, 7, end="")

@dataclasses.dataclass
class Cell:
    value: float
    tag: str = "none"

class Slotted:
    __slots__ = ("count",)
    limit = 5
    def __init__(self):
        self.count = 1

class Colour(enum.Enum):
    RED = 1

cell = Cell(2.5)
slotted = Slotted()

def defaults(a, seen=[1]):
    return a

def closure():
    total = 3
    def add():
        return total
    return add

function = closure()

def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return find(1)

def main():
    local = 4
    return find(1)
"""


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("a_program")
    module.__file__ = "/home/somebody/a_program.py"
    monkeypatch.setitem(sys.modules, "a_program", module)
    monkeypatch.setattr(_Search, "is_of_program", lambda self, name: name == "a_program")
    module.find = lambda depth: find(sys._getframe(depth))
    exec(VALUES, vars(module))
    return module


def told(found: Found) -> dict[str, tuple[str, ...]]:
    """What is told of single values and rows of the program, by name; what is an address is ()."""
    return {
        name.replace("a_program.", ""): () if record.opened else record.digests
        for name, record in arrays.digests(Found([], found.values, found.rows), [])
        if "a_program." in name or "()" in name
    }


def test_values_are_found_by_the_variables_that_lead_to_them(values: Any) -> None:
    found = told(values.main())
    exact = {name: texts[0] for name, texts in found.items() if len(texts) == 1 and "#" not in texts[0]}
    expected = {
        "steps": "10",
        "ratio": "0.5",
        "zero": "-0.0",
        "phase": "(1+2j)",
        "nothing": "None",
        "done": "False",
        "price": "Decimal('1.50')",
        "part": "Fraction(1, 3)",
        "grid_range": "range(0, 3)",
        "single": "float32 0.25",
        "arguments.tolerance": "1e-06",
        "settings['dt']": "0.1",
        "settings[3][0]": "1",
        "len(settings[3])": "2",
        "len(names)": "2",
        "len(neighbours)": "2",
        "last[1]": "2",
        "bound.args[0]": "7",
        "cell.value": "2.5",
        "slotted.count": "1",
        "Slotted.limit": "5",
        "defaults()[0][0]": "1",
        "function.total": "3",
        "main().local": "4",
    }
    assert {name: exact.get(name) for name in expected} == expected
    digested = {
        "title",
        "key",
        "generator",
        "dice",
        "names[0]",
        "neighbours",
        "settings.keys()",
        "settings[(0, 1)]",
    }
    assert {name for name in digested if "#" not in found[name][0]} == set()
    assert not {"__version__", "__name__"} & found.keys()
    assert len(found["many"]) == 3 and len(found["table"]) == 2


def test_addresses_of_this_process_are_no_values(values: Any) -> None:
    found = told(values.main())
    assert [found[name] for name in ("address", "shown", "hashed")] == [(), (), ()]
    assert [name for name in found if name.startswith("by_address")] == ["by_address.keys()"]  # their number
    addresses = Addresses(["7f0000000000-7f0000001000 rw-p 00000000 00:00 0 "])
    assert addresses.has(0x7F0000000010) and not addresses.has(0x7F0000001000) and not addresses.has(4)
    assert addresses.has(0x7F000000000) and addresses.in_text("<X at 0x7f0000000010>")
    assert not addresses.in_text("0x7f") and not addresses.has(0x7F0000000011)


def test_variables_of_a_function_that_calls_itself_are_those_of_each_call(values: Any) -> None:
    found = told(values.recurse(2))
    assert [found[f"recurse(){number}.depth"] for number in ("", "[2]", "[3]")] == [("0",), ("1",), ("2",)]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("steps += 1", {"steps"}),
        ("zero = 0.0", {"zero"}),
        ("title = 'hear'", {"title"}),
        ("settings['dt'] = 0.2", {"settings['dt']"}),
        ("settings['more'] = 1", {"settings.keys()", "settings['more']"}),
        ("neighbours.add((1, 1))", {"neighbours", "len(neighbours)"}),
        ("many[17] = 0", {"many"}),
        ("many.append(0)", {"many", "len(many)"}),
        ("table['key 3'] = 'x'", {"table"}),
        ("dice.random()", {"dice"}),
        ("generator.random()", {"generator"}),
        ("cell.tag = 'x'", {"cell.tag"}),
        ("names.reverse()", {"names[0]", "names[1]"}),
    ],
)
def test_what_changes_is_told_and_nothing_else(values: Any, change: str, names: set[str]) -> None:
    before = told(values.main())
    exec(change, vars(values))
    after = told(values.main())
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == names


def test_values_behind_the_first_ones_have_one_digest_for_each_variable(
    monkeypatch: pytest.MonkeyPatch, values: Any
) -> None:
    monkeypatch.setattr(arrays, "VALUES_MAX", 2)
    before = dict(arrays.digests(values.main(), []))
    values.cell.value = 3.5
    after = dict(arrays.digests(values.main(), []))
    assert [name for name in before if before[name] != after[name]] == ["(values in a_program)"]
    assert sum(record.form == VALUE for record in before.values()) == 2


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (1, 1.0),
        (0.0, -0.0),
        (True, 1),
        ("a", b"a"),
        (float("nan"), -float("nan")),
        (1 << 80, 1 << 81),
        ((1, 2), (2, 1)),
        (np.float64(1), 1.0),
        (np.datetime64("2026-01-01"), np.datetime64("2026-01-02")),
    ],
)
def test_values_that_differ_in_type_or_bits_have_other_texts(value: Any, other: Any) -> None:
    nowhere = Addresses([])
    texts = [text_of(each, nowhere, np) for each in (value, other)]
    assert None not in texts and texts[0] != texts[1]
    assert text_of(value, nowhere, np) == texts[0]


def test_the_order_of_a_set_does_not_count_and_what_has_parts_is_no_value() -> None:
    nowhere = Addresses([])
    assert text_of({1, 17, 33}, nowhere) == text_of({33, 17, 1}, nowhere)
    assert text_of([1], nowhere) is None and text_of((1, [2]), nowhere) is None
    assert text_of(np.longdouble(1), nowhere, np) is None


@pytest.mark.parametrize("where", ["scalar", "object"])
def test_a_flip_changes_one_value_where_it_is_kept(values: Any, where: str) -> None:
    del values.address, values.shown, values.hashed  # they are not told
    for seed in range(40):
        before = told(values.main())
        name = flips.flip(None, Random(seed), where).replace("a_program.", "")
        after = told(values.main())
        differ = {each for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
        assert name and differ == {name}, name


def test_a_flip_of_a_local_variable_is_seen_by_its_function(values: Any) -> None:
    def program() -> int:
        count = 5
        assert flips.flip(sys._getframe(), Random(1), "scalar", "program().count") == "program().count"
        return count

    function = type(program)(program.__code__, {**globals(), "__name__": "a_program"}, "program", None, None)
    assert function().bit_count() in (1, 3)

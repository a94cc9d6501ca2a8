"""Tables by ``id(obj)`` find their objects again; numbers that only look like addresses stay as they are."""

from __future__ import annotations

import math
import random
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ckpt.image.lowlevel import _addresses
from ckpt.image.lowlevel.addresses import ADDRESSES, Addresses, believed
from tests.unit.ckpt.image.support import copy_of, resumed_output


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[Node] = []


class Counted:
    """Known to itself, as some visitors are."""

    __slots__ = ("table", "where")

    def __init__(self) -> None:
        self.where = id(self)
        self.table = {id(self): self}


def nodes(count: int = 5) -> list[Node]:
    return [Node(str(number)) for number in range(count)]


@pytest.mark.parametrize("tables_first", [True, False])
def test_tables_by_address_find_their_objects(tables_first: bool) -> None:
    objects = nodes()
    tables: tuple[Any, ...] = (
        {id(node): node.name for node in objects},
        {id(node) for node in objects},
        frozenset(id(node) for node in objects),
        [id(node) for node in objects],
        {(id(node), "column"): number for number, node in enumerate(objects)},
        {node.name: (id(node), node.name) for node in objects},
    )
    both = (tables, objects) if tables_first else (objects, tables)
    copied = copy_of(both)
    (names, members, frozen, ordered, pairs, values), copies = copied if tables_first else copied[::-1]
    assert not {id(node) for node in copies} & {id(node) for node in objects}
    assert names == {id(node): node.name for node in copies}
    assert list(names) == ordered == [id(node) for node in copies]
    assert members == frozen == {id(node) for node in copies}
    assert pairs == {(id(node), "column"): number for number, node in enumerate(copies)}
    assert values == {node.name: (id(node), node.name) for node in copies}


def test_an_object_that_knows_its_own_address() -> None:
    copy = copy_of(Counted())
    assert copy.where == id(copy)
    assert copy.table == {id(copy): copy}


@pytest.mark.parametrize(
    "make",
    [
        lambda: {1: 2},
        lambda: [1, [2]],
        lambda: {1, 2},
        lambda: {Node("key")},
        lambda: frozenset([Node("key")]),
        lambda: (Node("a"), Node("b")),
        lambda: bytearray(b"bytes"),
        lambda: lambda: None,
        lambda: type("Local", (), {}),
        lambda: "a text of its own: " + str(random.random()),
        lambda: iter([1, 2]),
        lambda: Node("a").__init__,
    ],
)
def test_whatever_the_address_is_of(make: Any) -> None:
    obj = make()
    table: dict[Any, Any] = {id(obj): "it"}
    table["itself"] = obj
    copy = copy_of(table)
    assert copy == {id(copy["itself"]): "it", "itself": copy["itself"]}


def test_a_container_that_holds_its_own_address_by_detours() -> None:
    table: dict[Any, Any] = {}
    around = (table, [table])
    table[id(around)] = id(table)
    table["around"] = around
    copy = copy_of(around)
    assert copy[0] is copy[1][0]
    assert copy[0][id(copy)] == id(copy[0])


def test_objects_that_are_known_by_name_keep_their_tables() -> None:
    known = [math, math.sin, dict, None, textwrap.dedent]
    table = {id(obj): number for number, obj in enumerate(known)}
    assert copy_of([table, known])[0] == table


def test_addresses_of_what_has_gone_stay_as_they_are() -> None:
    gone = [id(node) for node in nodes()]
    objects = nodes(1)
    numbers = [*gone, gone[0] + 8, 2**47, 12, id(objects[0]) + 1]
    stays = [
        number for number in numbers if number not in map(id, (objects, objects[0], objects[0].__dict__))
    ]
    copy, (node,), where = copy_of((stays, objects, id(objects[0])))
    assert copy == stays
    assert where == id(node)


def test_floats_have_no_address_worth_keeping() -> None:
    value = random.random()
    number = id(value)
    assert copy_of([value, number]) == [value, number]


def test_random_numbers_stay_though_one_is_an_address() -> None:
    objects = nodes(1000)
    draw = random.Random(1)
    numbers = [draw.getrandbits(47) // 8 * 8 for _ in range(100_000)]
    copy, _ = copy_of(([*numbers, id(objects[5])], objects))
    assert copy == [*numbers, id(objects[5])]


def test_the_odds() -> None:
    one: dict[int, object] = {8: "object"}
    assert believed(one, 10**6, 1) == one
    assert believed(one, 10**6, 17) == one
    assert believed(one, 10**6, 10**3) == {}
    assert believed(one, 10**3, 10**3) == one
    assert believed(one, 10**3, 10**6) == {}
    assert believed({}, 10**6, 10**6) == {}


def test_python_and_c_agree_on_what_looks_like_an_address() -> None:
    ends = [ADDRESSES.start, ADDRESSES.stop, ADDRESSES[-1], 2**40, 2**63, 2**64]
    for number in (end + step for end in ends for step in (-8, -4, -1, 0, 4, 8)):
        _, _, numbers = _addresses.numbers([[number]], {}, {}, lambda pid, obj: pid, {})
        assert numbers == (number in ADDRESSES), number


def test_everything_is_gone_through_once_and_only_if_a_number_looks_like_an_address() -> None:
    walks = []

    def walk() -> tuple[dict[int, object], int, int]:
        walks.append(1)
        return {}, 0, 0

    addresses = Addresses(walk)
    assert not walks
    assert addresses(2**40) is None
    assert addresses(2**41) is None
    assert walks == [1]


def test_the_walk_stays_out_of_what_is_saved_by_name() -> None:
    inside = Node("inside")
    named = [inside]
    other = Node("other")
    roots = [[named, other, id(inside), id(other), id(named), 2**40]]
    found, objects, numbers = _addresses.numbers(roots, {id(named): "pid"}, {}, lambda pid, obj: pid, {})
    assert found == {id(other): other, id(named): named}
    assert numbers == 4
    assert objects < 10
    found, _, _ = _addresses.numbers(roots, {id(named): "pid"}, {}, lambda pid, obj: None, {})
    assert found[id(inside)] is inside


def test_the_walk_goes_into_classes_of_the_program_only() -> None:
    mine = type("Mine", (), {"__module__": "program", "kept": Node("kept")})
    roots = [[mine(), id(mine.kept)]]  # type: ignore[attr-defined]
    assert _addresses.numbers(roots, {}, {}, lambda pid, obj: pid, {"program": None})[0]
    assert not _addresses.numbers(roots, {}, {}, lambda pid, obj: pid, {"another": None})[0]


def test_a_failing_check_is_not_swallowed() -> None:
    def check(pid: object, obj: object) -> object:
        raise LookupError(pid)

    named: list[object] = []
    with pytest.raises(LookupError, match="pid"):
        _addresses.numbers([[named]], {}, {id(named): "pid"}, check, {})


def test_a_resumed_program_goes_on_with_its_tables(tmp_path: Path) -> None:
    source = """
        class Node:
            def __init__(self, *parts):
                self.parts = parts

        def visit(node, seen, results, path):
            path.append(id(node))
            for part in node.parts:
                if id(part) not in seen:
                    seen.add(id(part))
                    visit(part, seen, results, path)
            if not node.parts:
                driver_tick()
            assert path.pop() == id(node)
            results[id(node)] = sum(results[id(part)] for part in node.parts) + 1

        shared = Node(Node(), Node())
        top = Node(shared, Node(shared, Node()), shared)
        seen, results, path = set(), {}, []
        visit(top, seen, results, path)
        print(results[id(top)], len(seen), len(results), path, id(shared) in seen)
    """
    for place in (1, 2, 3):
        directory = tmp_path / str(place)
        directory.mkdir()
        assert resumed_output(directory, source, places=[place]) == "12 5 6 [] True\n"

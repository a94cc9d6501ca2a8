"""Tables by ``id(obj)`` find their objects again; other numbers that look like addresses stay as they are."""

from __future__ import annotations

import copy
import itertools
import math
import random
import sys
import textwrap
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import pytest

from ckpt.image.interface.library import Library
from ckpt.image.interface.registry import libraries
from ckpt.image.pickling.id_tables import numbers_in, renumber
from tests.unit.ckpt.image.support import after_restart, copy_of, resumed_output


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[Node] = []


def nodes(count: int = 5) -> list[Node]:
    return [Node(str(number)) for number in range(count)]


# ---------------------------------------------------------------------- tables that hold the objects


@pytest.mark.parametrize("is_first", [True, False])
def test_tables_that_hold_their_objects(is_first: bool) -> None:
    objects = nodes()
    tables: list[dict[int, Any]] = [
        {id(node): node for node in objects},
        {id(node): weakref.ref(node) for node in objects},
        {id(node): (node, node.name) for node in objects},
        {id(node): [node.name, node] for node in objects},
    ]
    both = (tables, objects) if is_first else (objects, tables)
    copied = copy_of(both)
    (plain, weak, pairs, lists), copies = copied if is_first else copied[::-1]
    assert not {id(node) for node in copies} & {id(node) for node in objects}
    assert list(plain.items()) == [(id(node), node) for node in copies]
    assert [weak[id(node)]() for node in copies] == copies
    assert pairs == {id(node): (node, node.name) for node in copies}
    assert lists == {id(node): [node.name, node] for node in copies}


def test_a_weak_dictionary_by_address_loses_what_dies() -> None:
    objects = nodes(2)
    registry = weakref.WeakValueDictionary((id(node), node) for node in objects)
    copies, table = copy_of((objects, registry))
    assert [table[id(node)] for node in copies] == copies
    copies.pop()
    assert list(table) == [id(copies[0])]


def test_the_memo_of_deepcopy() -> None:
    objects, memo = nodes(), dict[int, Any]()
    made = copy.deepcopy(objects, memo)
    objects, memo, made = copy_of((objects, memo, made))
    assert copy.deepcopy(objects[2], memo) is made[2]
    assert len(memo[id(memo)]) == len(set(map(id, memo[id(memo)])))


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
        lambda: math,
        lambda: math.sin,
        lambda: None,
        lambda: textwrap.dedent,
        lambda: sys.path,
    ],
)
def test_whatever_the_address_is_of(make: Any) -> None:
    obj = make()
    table = copy_of({"first": 1, id(obj): obj, "last": 2})
    ((key, value),) = [item for item in table.items() if type(item[0]) is int]
    assert key == id(value)
    assert next(iter(table)) == "first"
    assert [*table][2] == "last"


def test_a_container_that_holds_its_own_address_by_detours() -> None:
    table: dict[Any, Any] = {}
    around = (table, [table])
    table[id(around)] = around
    copied = copy_of(around)
    assert copied[0] is copied[1][0]
    assert copied[0] == {id(copied): copied}


def test_a_table_whose_dictionary_has_other_keys_too() -> None:
    node, gone = Node("a"), id(Node("gone"))
    copied, table = copy_of((node, {id(node): node, gone: "gone", 12: 13, Node: "a class", "b": id(node)}))
    assert table == {id(copied): copied, gone: "gone", 12: 13, table_key(table): "a class", "b": id(node)}


def table_key(table: dict[Any, Any]) -> Any:
    return next(key for key in table if isinstance(key, type))


# ---------------------------------------------------------------------- others stay


def test_numbers_elsewhere_stay() -> None:
    objects = nodes()
    numbers = [id(node) for node in objects]
    small: dict[int, str] = {id(node): node.name for node in objects} | {3: "no address"}
    tables: tuple[Any, ...] = (small, {*numbers, 3}, frozenset(numbers), numbers)
    assert copy_of((tables, objects))[0] == tables


def test_dictionaries_and_sets_of_addresses_become_new() -> None:
    """A table of requests by the `id` of their arrays was not found any more after a restart: KeyError."""
    objects = nodes()
    gone = id(Node("gone"))
    names = {id(node): node.name for node in objects}
    lists = defaultdict(list, {id(node): [node.name] for node in objects})
    tables: tuple[Any, ...] = (names, names | {gone: "gone"}, names | {"other": 1}, lists)
    sets = (set(names), {*names, gone})
    (first, second, third, lists), (members, others), copies = copy_of((tables, sets, objects))
    here = {id(node): node.name for node in copies}
    assert first == here and second == here | {gone: "gone"} and third == here | {"other": 1}
    assert members == set(here) and others == {*here, gone}
    assert lists == {id(node): [node.name] for node in copies} and lists.default_factory is list


def test_addresses_in_tuples_become_new() -> None:
    """A table of listeners by object and function (blinker) was not found any more after a restart."""
    objects = nodes()
    keys = [(id(node), id(Node)) for node in objects]
    both: dict[Any, Any] = {(id(node), "x", 3): weakref.ref(node) for node in objects}
    names, members, both, copies = copy_of((dict.fromkeys(keys, "x"), {*keys}, both, objects))
    here = [(id(node), id(type(node))) for node in copies]
    assert list(names) == here and members == {*here}
    assert list(both) == [(id(node), "x", 3) for node in copies]


@pytest.mark.parametrize("taken", [0, 2, 5])
def test_an_iterator_over_addresses_gives_each_once(taken: int) -> None:
    """The set has another order when its members are other numbers."""
    objects = nodes()
    iterator = iter({id(node) for node in objects})
    before = [next(iterator) for _ in range(taken)]
    indexes = [[id(node) for node in objects].index(number) for number in before]
    copies, iterator = copy_of((objects, iterator))
    left = [[id(node) for node in copies].index(number) for number in iterator]
    assert sorted(indexes + left) == [0, 1, 2, 3, 4]
    assert not list(iterator)


def test_a_weak_dictionary_by_tuples_loses_what_dies() -> None:
    objects = nodes(2)
    registry = weakref.WeakValueDictionary(((id(node), id(Node)), node) for node in objects)
    copies, table = copy_of((objects, registry))
    copies.pop()
    assert list(table) == [(id(copies[0]), id(type(copies[0])))]


def test_random_numbers_stay() -> None:
    draw = random.Random(1)
    table = {draw.getrandbits(47) // 8 * 8: Node("a") for _ in range(100)}
    assert list(copy_of(table)) == list(table)


# ---------------------------------------------------------------------- tables that libraries name


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that is named, with a class."""

    class Named(Library):
        id_tables = ("a_named_library",)

    module = types.ModuleType("a_named_library.inner")
    code = """
class Walk:
    def __init__(self, **tables):
        self.__dict__.update(tables)

def walk(nodes):
    seen, path = set(), []
    for node in nodes:
        path.append(id(node))
        seen.add(id(node))
        yield [id(each) in seen for each in nodes], path == [id(each) for each in nodes[:len(path)]]
"""
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(libraries, "loaded", lambda: (Named("a_named_library"),))
    return module


def test_attributes_of_objects_of_a_named_module(named: types.ModuleType) -> None:
    objects = nodes()
    numbers = [id(node) for node in objects]
    walk = named.Walk(
        seen=set(numbers),
        path=deque(numbers),
        names={id(node): node.name for node in objects},
        pairs={(id(a), id(b)): id(b) for a, b in itertools.pairwise(objects)},
        counts=OrderedDict((number, 1) for number in numbers),
        caches=defaultdict(dict, {numbers[0]: {1: 2}}),
        receivers=[((number, id(None)), "x") for number in numbers],
        other="text",
    )
    walk, copies = copy_of((walk, objects))
    here = [id(node) for node in copies]
    assert not set(here) & set(numbers)
    assert walk.seen == set(here)
    assert list(walk.path) == here
    assert walk.names == {id(node): node.name for node in copies}
    assert walk.pairs == {(a, b): b for a, b in itertools.pairwise(here)}
    assert list(walk.counts) == here
    assert dict(walk.caches) == {here[0]: {1: 2}}
    assert walk.receivers == [((number, id(None)), "x") for number in here]


def test_numbers_by_themselves_tables_in_tables_and_texts(named: types.ModuleType) -> None:
    objects = nodes(2)
    number = id(objects[0])
    walk = named.Walk(
        own=number,
        key=(number, "x"),
        senders={0: [number], 1: {0, number}},
        text=f"enter@{number} {hex(number)} 0x12",
        callbacks={f"enter@{number}": 1},
        gone=8 << 40,
    )
    walk, copies = copy_of((walk, objects))
    here = id(copies[0])
    assert (walk.own, walk.key, walk.gone) == (here, (here, "x"), 8 << 40)
    assert walk.senders == {0: [here], 1: {0, here}}
    assert walk.text == f"enter@{here} {hex(here)} 0x12"
    assert walk.callbacks == {f"enter@{here}": 1}


def test_attributes_in_slots(named: types.ModuleType) -> None:
    slotted = type("Slotted", (), {"__module__": named.__name__, "__slots__": ("key",)})
    node, walk = Node("a"), slotted()
    walk.key = id(node)
    named.Slotted = slotted
    walk, copied = copy_of((walk, node))
    assert walk.key == id(copied)


def test_callbacks_of_a_named_module(named: types.ModuleType) -> None:
    """What takes a dead object out of a table knows the key by its closure, or by a default argument."""
    code = """
def callbacks(number):
    def cleanup(ref):
        return number
    def remove(ref, number=number):
        return number
    return cleanup, remove
"""
    exec(code, named.__dict__)
    node = Node("a")
    (cleanup, remove), copied = copy_of((named.callbacks(id(node)), node))
    assert cleanup(None) == remove(None) == id(copied)


def test_a_class_of_the_program_that_derives_from_a_named_one(named: types.ModuleType) -> None:
    mine = type("Mine", (named.Walk,), {"__module__": "__main__"})
    objects = nodes()
    walks = [mine(seen=set(map(id, objects))), mine(seen=set(map(id, objects[1:])))]
    walks, copies = copy_of((walks, objects))
    assert [walk.seen for walk in walks] == [set(map(id, copies)), set(map(id, copies[1:]))]


def test_objects_whose_class_has_a_way_of_its_own_to_be_saved(named: types.ModuleType) -> None:
    def reduce(self: Any) -> Any:
        return type(self), (), vars(self)

    named.Walk.__reduce__ = reduce
    objects = nodes()
    walks = [named.Walk(seen={id(node)}) for node in objects]
    walks, copies = copy_of((walks, objects))
    assert [walk.seen for walk in walks] == [{id(node)} for node in copies]


def test_variables_of_a_suspended_generator_of_a_named_module(named: types.ModuleType) -> None:
    objects = nodes(3)
    walk = named.walk(objects)
    next(walk)
    walk = copy_of(walk)
    assert next(walk) == ([True, True, False], True)


def test_numbers_that_are_no_address_stay(named: types.ModuleType) -> None:
    gone = [8 << 40, 8 << 41]
    walk = copy_of(named.Walk(seen=set(gone)))
    assert walk.seen == set(gone)


def test_what_is_changed_in_a_table() -> None:
    table: dict[Any, Any] = {8 << 40: 8 << 40, (8 << 41, 1): 1, "a": 2**70, 5: 3}
    assert set(numbers_in(table, False)) == {8 << 40, 8 << 41}
    here = object()
    renumber([(table, False, [(8 << 40, here), (8 << 41, here)])])
    assert list(table.items()) == [(id(here), 8 << 40), ((id(here), 1), 1), ("a", 2**70), (5, 3)]
    renumber([(table, True, [(8 << 40, here)])])
    assert table[id(here)] == id(here)


# ---------------------------------------------------------------------- programs


def test_what_a_package_with_named_modules_holds(tmp_path: Path) -> None:
    """As Django has it: a signal is a variable of one module, its class is of another, which is named."""
    library = """
        from lib.dispatch import Signal, walk
        signal = Signal()
    """
    dispatch = """
        class Signal:
            def __init__(self):
                self.receivers = []
            def connect(self, receiver, sender=None):
                self.receivers.append(((id(receiver), id(sender)), receiver))
            def send(self, sender):
                return [each(sender) for key, each in self.receivers if key[1] in (id(sender), id(None))]
        def walk(nodes, tick):
            seen, first = set(map(id, nodes)), id(nodes[0])
            tick()
            return [id(node) in seen for node in nodes], first == id(nodes[0])
    """
    program = """
        from ckpt.image.interface.registry import libraries
        from ckpt.libraries import Library
        class Named(Library):
            id_tables = ("lib.dispatch",)
        libraries.extend([("lib", "__main__:Named")])
        import lib
        class Sender: pass
        lib.signal.connect(lambda sender: "any")
        lib.signal.connect(lambda sender: "only", Sender)
        lib.signal.connect(lambda sender: "never", Named)
        print(lib.walk([Sender(), Sender()], driver_tick), lib.signal.send(Sender))
    """
    expected = "([True, True], True) ['any', 'only']\n"
    assert after_restart(tmp_path, library, program, dispatch=dispatch) == expected


def test_a_resumed_program_goes_on_with_its_tables(tmp_path: Path) -> None:
    source = """
        import weakref

        class Node:
            def __init__(self, *parts):
                self.parts = parts

        def visit(node, results, known):
            number = id(node)
            known[number] = weakref.ref(node)
            for part in node.parts:
                if id(part) not in results:
                    visit(part, results, known)
            if not node.parts:
                driver_tick()
            assert known[number]() is node
            results[number] = node, sum(results[id(part)][1] for part in node.parts) + 1

        shared = Node(Node(), Node())
        top = Node(shared, Node(shared, Node()), shared)
        results, known = {}, {}
        visit(top, results, known)
        print(results[id(top)][1], len(results), len(known), all(id(ref()) == key for key, ref in known.items()))
    """
    for place in (1, 3):
        directory = tmp_path / str(place)
        directory.mkdir()
        assert resumed_output(directory, source, places=[place]) == "12 6 6 True\n"

"""Sets come back with the order their history gave them; keys in cycles come back at all."""

from __future__ import annotations

import collections
import dataclasses
import random
import weakref
from pathlib import Path
from typing import Any

import pytest

from ckpt.image.lowlevel import _lookup
from tests.unit.ckpt.image.support import copy_of, pickled, resumed_output


def set_with_a_history(seed: int) -> set[Any]:
    draw = random.Random(seed)
    made: set[Any] = set()
    for _ in range(draw.randrange(300)):
        member = draw.choice([draw.randrange(1000), str(draw.randrange(50)), -1, -2, (1, draw.randrange(9))])
        (made.add if draw.random() < 0.6 else made.discard)(member)
        if made and draw.random() < 0.05:
            made.pop()
    return set(made) if draw.random() < 0.3 else made


def is_special(container: Any) -> bool:
    finder = _lookup.Finder({}, {}, lambda pid, obj: pid, lambda obj: "special", lambda table: None)
    return finder(container) is not None


@pytest.mark.rotate(10)
@pytest.mark.parametrize("seed", range(0, 400, 8))
def test_a_copied_set_behaves_like_the_original_from_then_on(seed: int) -> None:
    for original in map(set_with_a_history, range(seed, seed + 8)):
        copy, frozen = copy_of((original, frozenset(original)))
        assert list(copy) == list(original)
        assert list(frozen) == list(frozenset(original))
        draw = random.Random(seed)
        for _ in range(60):
            member = draw.randrange(1000)
            for one in (copy, original):
                (one.add if member % 2 else one.discard)(member)
            assert list(copy) == list(original)
        while original:
            assert copy.pop() == original.pop()


@pytest.mark.parametrize("seed", range(200))
def test_only_sets_that_need_it_are_special(seed: int) -> None:
    original = set_with_a_history(seed)
    again: set[Any] = set()
    for member in original:
        again.add(member)
    assert is_special(original) or list(again) == list(original)


def test_ordinary_containers_are_left_to_c() -> None:
    for ordinary in ({1, 2, "a"}, {"a": 1, (1, "b"): 2}, frozenset([3]), set(), frozenset(), {}, [1], 5):
        assert not is_special(ordinary)
    history = set(range(100))
    history -= set(range(90))
    assert is_special(history)


def test_members_that_hash_differently_here_are_added_one_by_one() -> None:
    members, places, hashes, mask, finger = _lookup.layout({1, 2, 3})
    made: set[Any] = set()
    assert _lookup.restore(made, members, places, hashes, mask, finger)
    assert not _lookup.restore(made, members, places, b"\x01" * len(hashes), mask, finger)
    assert made == {1, 2, 3}
    frozen = _lookup.new_frozenset()
    assert not _lookup.restore(frozen, members, places, b"\x01" * len(hashes), mask, finger)
    assert hash(frozen) == hash(frozenset({1, 2, 3}))


@pytest.mark.parametrize(
    ("places", "hashes", "mask"),
    [
        (b"\x09\0\0\0", b"\x01" + b"\0" * 7, 7),
        (b"", b"\0" * 8, 7),
        (b"\0" * 4, b"", 7),
        (b"\0" * 4, b"\0" * 8, 6),
    ],
)
def test_what_is_no_layout_is_refused(places: bytes, hashes: bytes, mask: int) -> None:
    with pytest.raises(ValueError, match="no layout"):
        _lookup.restore(set(), [1], places, hashes, mask, 0)


class City:
    def __init__(self, name: str) -> None:
        self.name = name
        self.roads: set[City] = set()
        self.tolls: dict[City, int] = {}

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, City) and self.name == other.name


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    near: frozenset[Any] = frozenset()


def test_keys_whose_hash_needs_what_comes_later() -> None:
    one, two = City("one"), City("two")
    one.roads |= {one, two}
    two.roads.add(one)
    one.tolls[two] = 5
    two.tolls[one] = 6
    copy = copy_of(one)
    other = next(city for city in copy.roads if city is not copy)
    assert copy in other.roads
    assert copy.tolls[other] == 5
    assert other.tolls[copy] == 6


def test_frozen_sets_and_tuples_as_keys() -> None:
    groups = {frozenset({Point(1), Point(2)}): "a", (Point(3), frozenset({4})): "b"}
    nested = Point(5, frozenset({Point(6), Point(7)}))
    copy, inner = copy_of((groups, {nested: 1}))
    kind = type(next(iter(inner)))
    assert copy[frozenset({kind(2), kind(1)})] == "a"
    assert copy[(kind(3), frozenset({4}))] == "b"
    assert inner[kind(5, frozenset({kind(7), kind(6)}))] == 1


def test_constructors_called_while_loading_find_their_arguments_filled() -> None:
    counted = collections.Counter([Point(1), Point(1), Point(2)])
    copy = copy_of(counted)
    assert sorted(copy.values()) == [1, 2]


def test_shared_containers_stay_shared_and_cost_nothing_twice() -> None:
    history = set(range(1000))
    history -= set(range(500))
    first, second = copy_of([history, history])
    assert first is second
    once, twice = (len(pickled([history] * times)[0].data) for times in (1, 50))
    assert twice < once + 1500


WEAK_KEYS_OF_A_CLASS = """
    import weakref

    class Checked:
        def __init__(self):
            self.seen, self.all = weakref.WeakKeyDictionary(), weakref.WeakSet()

    class Shape:
        width = Checked()
        __slots__ = ("n", "__weakref__")
        def __init__(self, n):
            self.n = n
        def __eq__(self, other):
            return type(other) is type(self) and self.n == other.n
        def __hash__(self):
            return hash(type(self).__name__)

    seen, all = Shape.width.seen, Shape.width.all
    shapes = [Shape(n) for n in range(5)]
    seen.update((shape, shape.n) for shape in shapes)
    all.update(shapes)
    driver_tick()
    print([(seen.get(shape), shape in all, seen.get(Shape(shape.n)), Shape(shape.n) in all) for shape in shapes])
"""


def test_weak_containers_find_keys_that_were_hashed_before_their_class_was_there(tmp_path: Path) -> None:
    """A descriptor that counts in a WeakKeyDictionary: after a restart it began anew. The references kept a wrong hash."""
    assert "(3, True, 3, True)" in resumed_output(tmp_path, WEAK_KEYS_OF_A_CLASS)


class Node:
    """Of a graph, as programs write them: equal by name, with a container of others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.near: Any = None

    def __eq__(self, other: object) -> bool:
        return self.name == getattr(other, "name", None)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class FrozenNode:
    name: str
    near: Any = dataclasses.field(default=None, compare=False)


class OwnDict(dict):  # type: ignore[type-arg]
    pass


class OwnOrder(collections.OrderedDict):  # type: ignore[type-arg]
    pass


class OwnSet(set):  # type: ignore[type-arg]
    pass


class OwnFrozenSet(frozenset):  # type: ignore[type-arg]
    pass


class OwnCounter(collections.Counter):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize("cls", [Node, FrozenNode])
@pytest.mark.parametrize(
    "make",
    [
        lambda key: collections.OrderedDict({key: 1}),
        lambda key: collections.defaultdict(list, {key: 1}),
        lambda key: collections.Counter([key]),
        lambda key: weakref.WeakSet([key]),
        lambda key: weakref.WeakKeyDictionary({key: 1}),
        lambda key: OwnDict({key: 1}),
        lambda key: OwnOrder({key: 1}),
        lambda key: OwnCounter([key]),
        lambda key: OwnSet([key]),
        lambda key: OwnFrozenSet([key]),
        lambda key: {OwnFrozenSet([key]): 1},
    ],
    ids=[
        "OrderedDict",
        "defaultdict",
        "Counter",
        "WeakSet",
        "WeakKeyDictionary",
        "dict",
        "own OrderedDict",
        "own Counter",
        "set",
        "frozenset",
        "frozenset as a key",
    ],
)
def test_a_container_of_any_class_was_empty_or_could_not_be_loaded_if_a_key_refers_to_it(
    cls: Any, make: Any
) -> None:
    """``node.neighbours = defaultdict(float)``, and the like: a restart failed, and a Counter was empty without a word."""
    key = cls("a")
    object.__setattr__(key, "near", make(key))
    copy = copy_of(key)
    [member] = copy.near
    inner = next(iter(member)) if isinstance(member, frozenset) else member
    assert type(copy.near).__name__ == type(key.near).__name__
    assert inner is copy and member in copy.near
    if not isinstance(key.near, (weakref.WeakSet, weakref.WeakKeyDictionary)):
        container = copy_of(key.near)
        [member] = container
        inner = next(iter(member)) if isinstance(member, frozenset) else member
        assert inner.near is container and member in container


def test_an_ordered_dictionary_whose_keys_are_in_a_cycle_keeps_its_order() -> None:
    keys = [Node(name) for name in "dcba"]
    ordered = collections.OrderedDict((key, place) for place, key in enumerate(keys))
    ordered.move_to_end(keys[1], last=False)
    for key in keys:
        key.near = ordered
    copy = copy_of(keys)[0].near
    assert [(key.name, place) for key, place in copy.items()] == [("c", 1), ("d", 0), ("b", 2), ("a", 3)]


def test_a_hash_that_depends_on_a_container_that_is_filled_later() -> None:
    """The key's hash is that of its own set, whose member leads back to both."""

    class Group:
        def __init__(self, members: frozenset[Node]) -> None:
            self.members = members

        def __hash__(self) -> int:
            return hash(self.members)

        def __eq__(self, other: object) -> bool:
            return self is other

    node = Node("a")
    group = Group(frozenset([node]))
    node.near = collections.defaultdict(list, {group: [1]})
    copy = copy_of(node)
    [found] = copy.near
    assert copy in found.members and copy.near[found] == [1]


@pytest.mark.parametrize("cls", [OwnSet, OwnFrozenSet])
def test_an_instance_of_a_subclass_of_set_keeps_the_order_that_its_history_gave_it(cls: Any) -> None:
    for seed in range(40):
        original = cls(set_with_a_history(seed))
        if cls is OwnSet:
            for member in [*original][::3]:
                original.discard(member)
        assert list(copy_of(original)) == list(original)


def test_a_load_begins_without_what_a_failed_one_has_left() -> None:
    class Broken:
        def __hash__(self) -> int:
            if self.__dict__.get("may_hash"):
                raise ValueError("no hash")
            return 1

    broken = Broken()
    container = {broken: 1}
    broken.__dict__["may_hash"] = True
    with pytest.raises(ValueError, match="no hash"):
        copy_of(container)
    assert copy_of({Node("a"): 1})


def test_a_counter_that_contains_itself() -> None:
    counter: Any = collections.Counter("ab")
    counter["self"] = counter
    copy = copy_of(counter)
    assert copy["self"] is copy and copy["a"] == 1 and type(copy) is collections.Counter


def test_no_image_was_made_of_a_class_with_a_weak_proxy_of_what_is_gone() -> None:
    class Owner:
        gone = weakref.proxy(Node("a"))

    assert copy_of(Owner).__name__ == "Owner"


def test_a_restart_failed_if_a_key_was_a_weak_reference_to_what_is_gone() -> None:
    """ "weak object has gone away"."""
    node, plain = Node("a"), set_with_a_history(1)
    refs = [weakref.ref(node), weakref.ref(plain.__class__)]
    containers = ({refs[0]: 1}, {refs[0], 5}, frozenset(refs), collections.OrderedDict({refs[0]: 2}), refs[0])
    del node
    mapping, members, frozen, ordered, gone = copy_of(containers)
    assert gone() is None and mapping[gone] == 1 and ordered[gone] == 2
    assert gone in members and 5 in members and gone in frozen and len(frozen) == 2


def test_a_weak_set_that_is_just_being_made_is_saved_as_far_as_it_is() -> None:
    made: Any = weakref.WeakSet.__new__(weakref.WeakSet)
    assert not copy_of(made).__dict__

"""Every iterator and view of the interpreter's containers keeps its container and its place.

For each container, each way to iterate over it, each number of items handed out, and what wraps an iterator: the copy
goes on as the original does, also after both containers have been changed alike.
"""

from __future__ import annotations

import array
import io
import itertools
import sysconfig
import types
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ckpt.compat import referents
from ckpt.image.reducers import iterators, rebuild
from ckpt.image.reducers.builtin_types import REDUCERS
from tests.unit.ckpt.image.support import copy_of, pickled, resumed_output

pytestmark = pytest.mark.turns(2)


class OwnList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise AssertionError("no code of the program runs")


class OwnDict(dict):  # type: ignore[type-arg]
    def keys(self) -> Any:
        raise AssertionError("no code of the program runs")

    __iter__ = values = items = __len__ = keys  # type: ignore[assignment]


class Sequence:
    def __init__(self) -> None:
        self.content = [0, 1, 2, 3, 4]

    def __getitem__(self, index: int) -> int:
        return self.content[index]

    def __len__(self) -> int:
        return len(self.content)

    def append(self, item: int) -> None:
        self.content.append(item)


def append(container: Any) -> None:
    container.append(9)


def change_last(container: Any) -> None:
    container[4] = "z"


def grow(container: Any) -> None:
    container[9] = "z"


def exchange(container: Any) -> None:
    """What has been handed out goes, something else comes: as many items as before."""
    del container[0]
    container[9] = "z"


def letters(kind: Any) -> Callable[[], Any]:
    return lambda: kind(enumerate("abcde"))


CONTAINERS: dict[str, tuple[Callable[[], Any], list[Callable[[Any], Any]]]] = {
    "list": (lambda: [0, 1, 2, 3, 4], [append, change_last]),
    "tuple": (lambda: (0, 1, 2, 3, 4), []),
    "str": (lambda: "abcde", []),
    "range": (lambda: range(5), []),
    "bytearray": (lambda: bytearray(range(5)), [append]),
    "array": (lambda: array.array("i", range(5)), [append]),
    "dict": (letters(dict), [change_last, grow]),
    "OrderedDict": (letters(OrderedDict), [change_last, grow, exchange, lambda od: od.move_to_end(3)]),
    "defaultdict": (lambda: defaultdict(int, enumerate("abcde")), [change_last, grow]),
    "Counter": (letters(Counter), [change_last, grow]),
    "ChainMap": (lambda: ChainMap(dict(enumerate("abcde"))), [change_last]),
    "UserDict": (letters(UserDict), [change_last]),
    "UserList": (lambda: UserList(range(5)), [append]),
    "deque": (lambda: deque(range(5)), [append, change_last]),
    "set": (lambda: set(range(5)), [lambda s: s.add(9), lambda s: (s.discard(4), s.add(9))]),
    "set in an order of its own": (lambda: {16, 0, 8, 32, 24} - {64}, [lambda s: s.add(9)]),
    "frozenset": (lambda: frozenset(range(5)), []),
    "sequence": (Sequence, [append]),
    "proxy": (letters(dict), [change_last, grow]),
    "proxy of an OrderedDict": (letters(OrderedDict), [change_last]),
}
IMPLEMENTATIONS: dict[str, Callable[[Any], Any]] = {
    "iter": iter,
    "reversed": reversed,
    "keys": lambda c: iter(c.keys()),
    "values": lambda c: iter(c.values()),
    "items": lambda c: iter(c.items()),
    "keys backwards": lambda c: reversed(c.keys()),
    "values backwards": lambda c: reversed(c.values()),
    "items backwards": lambda c: reversed(c.items()),
}
WRAPPED: dict[str, Callable[[Any], Any]] = {
    "enumerate": enumerate,
    "zip": lambda i: zip(i, itertools.count(), strict=False),
    "map": lambda i: map(str, i),
    "filter": lambda i: filter(lambda x: True, i),
    "generator": lambda i: (x for x in i),
    "chain": lambda i: itertools.chain(i, [5]),
    "chain of iterables": lambda i: itertools.chain.from_iterable([[1], i]),
    "islice": lambda i: itertools.islice(i, 1, 9),
    "tee": lambda i: itertools.tee(i)[0],
    "cycle": lambda i: itertools.islice(itertools.cycle(i), 12),
    "accumulate": lambda i: itertools.accumulate(i, lambda a, b: f"{a}{b}"),
    "groupby": lambda i: (key for key, _ in itertools.groupby(i, str)),
    "compress": lambda i: itertools.compress(i, [1] * 9),
    "dropwhile": lambda i: itertools.dropwhile(lambda x: False, i),
    "takewhile": lambda i: itertools.takewhile(lambda x: True, i),
    "filterfalse": lambda i: itertools.filterfalse(lambda x: False, i),
    "starmap": lambda i: itertools.starmap(str, ([item] for item in i)),
    "zip_longest": lambda i: itertools.zip_longest(i, range(2)),
    "pairwise": itertools.pairwise,
    "calls": lambda i: iter(i.__next__, object()),
}
WRAPPED |= {"batched": lambda i: itertools.batched(i, 1)} if hasattr(itertools, "batched") else {}  # type: ignore[attr-defined]


def nothing(container: Any) -> None:
    pass


def way_of(name: str, container: Any, way: str) -> Any:
    shown = types.MappingProxyType(container) if name.startswith("proxy") else container
    try:
        return IMPLEMENTATIONS[way](shown)
    except (TypeError, AttributeError):
        return None  # there is no such way


def rest(iterator: Iterator[Any]) -> list[Any]:
    found: list[Any] = []
    try:
        found.extend(iterator)
    except RuntimeError as changed:
        found.append(str(changed))
    return found


Case = tuple[str, str, str, int, Callable[[Any], Any]]
"""(container, way, wrapped, items handed out, change)"""


def begun(case: Case) -> tuple[Any, Any] | None:
    """A container and an iterator over it that has handed out some items."""
    name, way, wrapped, steps, _ = case
    container = CONTAINERS[name][0]()
    iterator = way_of(name, container, way)
    if iterator is None:
        return None
    iterator = WRAPPED[wrapped](iterator) if wrapped else iterator
    for _ in itertools.islice(iterator, steps):
        pass
    return container, iterator


def check(cases: list[Case]) -> int:
    """In one image, since the time is that of looking at all modules; how many there were."""
    there = [(case, pair) for case in cases if (pair := begun(case)) is not None]
    copies = copy_of([pair for _, pair in there])
    for (case, (container, iterator)), (again, copy) in zip(there, copies, strict=True):
        case[-1](container)
        case[-1](again)
        expected, found = rest(iterator), rest(copy)
        assert found == expected, case
    return len(there)


class Member:
    """Hashed by identity, so that a set of these has another order in each process."""


@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("wrapped", ["", "zip", "generator", "enumerate"])
def test_a_loop_over_a_set_meets_each_member_once_whatever_its_hash_is_then(
    kind: Callable[[list[Member]], Any], wrapped: str
) -> None:
    """Lark, in the middle of an analysis, met 19 of 120 states twice and 19 others never: wrong tables, and no error."""
    members = [Member() for _ in range(120)]
    for number, member in enumerate(members):
        vars(member).update(number=number, next=members[number - 1])
    whole = kind(members)
    loop = WRAPPED[wrapped](iter(whole)) if wrapped else iter(whole)
    met = [next(loop) for _ in range(50)]
    members[0].loop = loop  # type: ignore[attr-defined] - loaded before the set is complete
    again, loop_again, met_again = copy_of([whole, loop, met])
    numbers = [_number(item) for item in (*met_again, *loop_again)]
    assert numbers == [_number(item) for item in (*met, *loop)]
    assert len(again) == 120 and all(member in again for member in again)


class OwnSet(set):  # type: ignore[type-arg]
    """Restored by adding its items one by one."""


class OwnNumber(int):
    """Its class could define a hash."""


ORDER_IS_CERTAIN: list[Any] = [{1, 2.5, 3j}, {"a", "b"}, frozenset({b"a", ("x", (1, "y"))}), set()]
ORDER_MAY_DIFFER: list[Any] = [
    {1, Member()},
    {1, None},  # hashed by its address in Python 3.11
    {1, float("nan")},
    {1, complex(0, float("nan"))},
    {1, ("x", Member())},
    {1, OwnNumber(2)},
    {1, int},
    OwnSet({1, 2}),
    sysconfig._ALWAYS_STR,  # type: ignore[attr-defined]  # a variable of an installed module: made again by the import
]


@pytest.mark.parametrize(
    ("whole", "is_certain"),
    [*((whole, True) for whole in ORDER_IS_CERTAIN), *((whole, False) for whole in ORDER_MAY_DIFFER)],
)
def test_the_remaining_items_of_a_set_are_saved_only_where_its_order_may_differ(
    whole: Any, is_certain: bool
) -> None:
    _, pickler = pickled(None)
    _, arguments = iterators.reduce_set_iterator(pickler, iter(whole))
    assert len(arguments) == (4 if is_certain else 5)


def _number(item: Any) -> int:
    """Of the member, or of the one in a tuple."""
    parts = item if isinstance(item, tuple) else (item,)
    return next(each.number for each in parts if hasattr(each, "number"))  # type: ignore[no-any-return]


def test_an_iterator_keeps_its_container_and_its_place() -> None:
    cases: list[Case] = [
        (name, way, "", steps, change)
        for name in CONTAINERS
        for way in IMPLEMENTATIONS
        for steps in (0, 1, 3, 5, 6)
        for change in (nothing, *CONTAINERS[name][1])
    ]
    assert check(cases) > 500


def test_what_wraps_an_iterator_keeps_it() -> None:
    ways = (("list", "iter"), ("OrderedDict", "values"), ("dict", "keys backwards"), ("set", "iter"))
    cases: list[Case] = [
        (name, way, wrapped, 2, change)
        for name, way in ways
        for wrapped in WRAPPED
        for change in (nothing, CONTAINERS[name][1][0])
    ]
    assert check(cases) >= 160


def test_a_group_that_was_left_before_its_end_does_not_begin_anew() -> None:
    """The ``__reduce__`` of ``groupby`` leaves the key out when the item that has been taken is given out."""
    for items_of_groups in (0, 1, 2, 3):
        groups = itertools.groupby("aaabbbccc")
        _, group = next(groups)
        taken = list(itertools.islice(group, items_of_groups))
        again, its_group = copy_of([groups, group])
        assert (taken + list(its_group), [(key, list(items)) for key, items in again]) == (
            ["a"] * 3,
            [("b", ["b"] * 3), ("c", ["c"] * 3)],
        )
        again, _ = copy_of([groups, group])
        assert [key for key, _ in again] == ["b", "c"], items_of_groups
    fresh, ended = copy_of([itertools.groupby("ab"), itertools.groupby("")])
    assert ([key for key, _ in fresh], list(ended)) == (["a", "b"], [])


@pytest.mark.parametrize("name", ["dict", "OrderedDict", "defaultdict", "proxy", "proxy of an OrderedDict"])
def test_views_keep_their_dictionary(name: str) -> None:
    container = CONTAINERS[name][0]()
    shown = types.MappingProxyType(container) if name.startswith("proxy") else container
    again, *views = copy_of((container, shown.keys(), shown.values(), shown.items()))
    for mapping in (container, again):
        grow(mapping)
    assert [type(view) for view in views] == [
        type(each()) for each in (shown.keys, shown.values, shown.items)
    ]
    assert [list(view) for view in views] == [
        list(container.keys()),
        list(container.values()),
        list(container.items()),
    ]


class Node:
    walk: Any
    more: Any


@pytest.mark.parametrize("first", ["the container", "its item"])
def test_an_iterator_that_is_part_of_an_item_of_its_container_is_where_it_was(first: str) -> None:
    found = []
    for name, way in itertools.product(
        ("list", "dict", "OrderedDict", "set", "deque", "sequence"), IMPLEMENTATIONS
    ):
        node = Node()
        container: Any = CONTAINERS[name][0]()
        if name == "sequence":
            container.content = [node, 1, 2, 3]
        elif name in ("dict", "OrderedDict"):
            container = type(container)({0: node, 1: 1, 2: 2, 3: 3})
        else:
            container = type(container)([node, 1, 2, 3])
        walk = way_of(name, container, way)
        if walk is not None:
            next(walk)
            node.walk, node.more = walk, enumerate(walk)
            found.append((name, way, node if first == "its item" else container))
    assert len(found) > 20
    for name, way, copy in copy_of(found):
        if first == "the container":
            content = copy.values() if hasattr(copy, "values") else getattr(copy, "content", copy)
            copy = next(item for item in content if hasattr(item, "walk"))
        next(copy.more)
        assert len(list(copy.walk)) == 2, (name, way)


def test_an_iterator_over_a_container_of_the_programs_own_class_runs_none_of_its_code() -> None:
    container = OwnDict()
    dict.update(container, enumerate("abcde"))
    items = OwnList("abcde")
    walks = [iter(dict.values(container)), list.__iter__(items)]
    for walk in walks:
        next(walk)
    again, _, *copies = copy_of((container, items, *walks))
    dict.__setitem__(again, 4, "z")
    assert [list(copy) for copy in copies] == [list("bcdz"), list("bcde")]


def test_what_uses_an_object_up_looks_once() -> None:
    source = io.StringIO("abc")
    assert iterators.by_exhausting(source, lambda obj: obj.read()) == "abc"
    assert iterators.by_exhausting(source, lambda obj: obj.read()) == "abc"


IN_A_PROCESS = """
    from collections import OrderedDict

    class Worker:
        def __init__(self, pool):
            self.turns = iter(pool)

    pool, spoilt, kept = [], {1: 1, 2: 2, 3: 3}, {0, 1, 2}
    pool.extend([Worker(pool), "b", "c", "d"])
    next(pool[0].turns)
    wrong, over = iter(spoilt), iter(kept)
    next(wrong), next(over)
    spoilt[4] = 4
    view = iter(memoryview(b"abc"))
    next(view)
    numbers = OrderedDict((i, i) for i in range(10))
    seen = []
    for key, value in numbers.items():
        if key == 6:
            driver_tick()
            numbers[7] = numbers[8] = 1
            pool.append("e")
        seen.append(value)
    print(seen, list(pool[0].turns), list(view), numbers[7])
    try:
        print(list(wrong))
    except RuntimeError as changed:
        print(changed)
    kept.add(5)
    try:
        print(list(over))
    except RuntimeError as changed:
        print(changed)
"""


@pytest.mark.system
def test_a_loop_over_an_ordered_dictionary_goes_on_over_it_in_another_process(tmp_path: Any) -> None:
    assert resumed_output(tmp_path, IN_A_PROCESS).splitlines() == [
        "[0, 1, 2, 3, 4, 5, 6, 1, 1, 9] ['b', 'c', 'd', 'e'] [98, 99] 1",
        "dictionary changed size during iteration",
        "Set changed size during iteration",
    ]


CERTAIN_ORDER = """
import random

chance = random.Random(7)
sets = [set(range(0, 4000, 37)), {str(n) for n in range(90)}, {(n, b"%d" % n) for n in range(90)}]
for members in sets:
    for member in chance.sample(list(members), 30):  # leaves holes in the table of the set
        members.discard(member)
loops = [iter(members) for members in (*sets, frozenset(sets[1]))]
for loop in loops:
    next(loop)
rest = [list(members)[1:] for members in (*sets, frozenset(sets[1]))]
driver_tick()
print([list(loop) for loop in loops] == rest, sum(map(len, rest)) > 200)
"""


@pytest.mark.system
def test_a_loop_over_a_set_of_plain_values_goes_on_in_the_same_order_in_another_process(
    tmp_path: Any,
) -> None:
    assert resumed_output(tmp_path, CERTAIN_ORDER) == "True True\n"


def test_an_iteration_of_a_weak_set_of_the_standard_library_goes_on_in_the_new_process() -> None:
    """By random programs: `asyncio.run` ended with a KeyError after a restart from an image in the middle of `all_tasks`.

    The set of all tasks is the new process's own, and did not know that it is iterated.
    """

    class Kept:
        pass

    kept, container = [Kept(), Kept()], weakref.WeakSet()
    container.update(kept)
    iterator = iter(container)
    next(iterator)
    (guard,) = container._iterating
    make, arguments, state, *_ = REDUCERS[referents.ITERATION_GUARD](None, guard)
    container._iterating.clear()  # as in a new process
    new = make(*arguments)
    rebuild.fill_iteration_guard(new, state)
    assert container._iterating == {new}
    new.__exit__(None, None, None)
    assert not container._iterating
    container._iterating.add(guard)
    iterator.close()

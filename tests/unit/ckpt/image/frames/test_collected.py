"""``list(generator)`` and its like go on after a restart with what they have collected before."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ckpt.image.support import refusals, resumed_output

SOURCE = """
class Item:
    def __init__(self, number):
        self.number = number
    def __repr__(self):
        return f"<{self.number}>"

def produce(make, count, place):
    for number in range(count):
        if number == place:
            driver_tick()
        yield make(number)

def text(number):
    return f"item {number * number}"

COUNT, PLACE = 20, AT
stale = []
for _ in range(3):  # pointers to other lists, sets and tuples are left on the C stack
    stale.append([list(x for x in range(30)), set(x for x in range(30)), tuple(x for x in range(30))])
print(EXPRESSION)
print(len(stale))
"""

CALLS = {
    "list": "list(produce(Item, COUNT, PLACE))",
    "set": "set(produce(text, COUNT, PLACE))",
    "tuple": "tuple(produce(Item, COUNT, PLACE))",
    "sorted": "sorted(produce(text, COUNT, PLACE))",
    "join": "'-'.join(produce(text, COUNT, PLACE))",
    "join of bytes": "b'-'.join(produce(lambda n: b'%d' % n, COUNT, PLACE))",
    "in another call": "[list(produce(Item, 3, -1)), list(produce(Item, COUNT, PLACE))]",
    "one in another": "list(list(produce(Item, 4, 2 if n == 2 else -1)) for n in range(4))",
    "by a method": "(lambda separator: separator.join(produce(text, COUNT, PLACE)))(', ')",
    "with a star": "[*list(produce(Item, COUNT, PLACE)), 1]",
}


MAPS = {
    "list": "list(map(made, range(COUNT)))",
    "several iterables": "list(map(made, range(COUNT), 'x' * COUNT))",
    "a bound method": "list(map(Maker().made, range(COUNT)))",
    "partial": "set(map(functools.partial(made, b=2), range(COUNT)))",
    "tuple": "tuple(map(made, range(COUNT)))",
    "sorted": "sorted(map(made, range(COUNT)))",
    "join": "'-'.join(map(made, range(COUNT)))",
    "unpacked": "[0, *map(made, range(COUNT)), 1]",
    "a set display": "{*map(made, range(COUNT))} == set(map(made, range(COUNT)))",
    "extend": "(found := [1], found.extend(map(made, range(COUNT))))",
    "any": "any(map(lambda n: not made(n), range(COUNT)))",
    "behind others": "list(itertools.chain('ab', map(made, range(COUNT)), 'cd'))",
    "a generator in it": "list(map(made, (n for n in range(COUNT))))",
    "a loop": "[x for x in map(made, range(COUNT))]",
}
MAP_SOURCE = """
import functools, itertools
COUNT, calls = 9, []

def made(a, b=1):
    calls.append(a)
    held = [a]
    if a in PLACES and calls.count(a) == 1:
        driver_tick()
    return f"{held}{b}"

class Maker:
    def made(self, a):
        return made(a)

print(EXPRESSION)
print(calls)
"""


@pytest.mark.rotate(8)
@pytest.mark.parametrize("call", MAPS)
def test_a_call_goes_on_collecting_what_the_function_of_map_returns(tmp_path: Path, call: str) -> None:
    source = MAP_SOURCE.replace("EXPRESSION", MAPS[call])
    resumed_output(tmp_path, source.replace("PLACES", "(4,)"))


@pytest.mark.rotate(8)
@pytest.mark.parametrize("call", MAPS)
def test_an_image_of_such_a_call_that_was_resumed(tmp_path: Path, call: str) -> None:
    source = MAP_SOURCE.replace("EXPRESSION", MAPS[call])
    resumed_output(tmp_path, source.replace("PLACES", "(0, 4, 8)"), places=[3])


AROUND = {
    "zip of the same function": "for x in zip(map(f, range(5)), map(f, range(5))): print(x)",
    "zip of one source": "s = map(f, range(5))\n    for x in zip(s, s): print(x)",
    "the same function": "for x in map(f, map(f, range(5))): print(x)",
    "starmap": "for x in map(f, itertools.starmap(f, zip(range(5)))): print(x)",
}


@pytest.mark.parametrize("loop", AROUND)
def test_what_the_function_of_map_returns_is_not_taken_for_the_item_of_an_iterator_around_it(
    tmp_path: Path, loop: str
) -> None:
    """Such a loop got the result of the function as its item, after a restart. Where it is not known which `map` calls the
    function, the image waits, and says why."""
    source = f"""
    import itertools
    def f(x):
        driver_tick()
        return x + 1
    def g(x):
        return [x]
    {AROUND[loop]}
    """
    assert "is running f" in " ".join(refusals(tmp_path, source))


def source_of(call: str, place: int) -> str:
    return SOURCE.replace("EXPRESSION", CALLS[call]).replace("AT", str(place))


@pytest.mark.parametrize("call", CALLS)
def test_a_call_goes_on_collecting(tmp_path: Path, call: str) -> None:
    assert resumed_output(tmp_path, source_of(call, 9)).endswith("3\n")


@pytest.mark.parametrize("place", [0, 1, 11, 19])
def test_wherever_it_is(tmp_path: Path, place: int) -> None:
    for call in ("list", "tuple"):
        directory = tmp_path / call
        directory.mkdir()
        resumed_output(directory, source_of(call, place))


def test_an_image_of_a_resumed_call(tmp_path: Path) -> None:
    """The second image finds the stand-in for the callable."""
    source = """
    def produce():
        for number in range(10):
            if number in (3, 6):
                driver_tick()
            yield [number]
    print(list(produce()), ".".join(f"{n}" for n, in produce()))
    """
    resumed_output(tmp_path, source, places=[2])


ITERATOR = """
class Numbers:
    def __init__(self):
        self.number = 0
    def __iter__(self):
        calls.append("iter")
        return self
    def __next__(self):
        if self.number == 12:
            raise StopIteration
        self.number += 1
        if self.number in PLACES:
            driver_tick()
        return f"{self.number * 7 % 5}"

class Copies(Numbers):
    def __iter__(self):
        return Numbers()

calls = []
print(EXPRESSION)
print(calls)
"""
ITERATORS = [
    "list(Numbers())",
    "set(Numbers()) == set('01234')",
    "tuple(Numbers())",
    "sorted(Numbers())",
    "'-'.join(Numbers())",
]


@pytest.mark.parametrize("call", ITERATORS)
def test_a_call_goes_on_collecting_from_an_iterator_in_python(tmp_path: Path, call: str) -> None:
    """`list(pool.imap(f, items))`: no checkpoint until it had all items."""
    source = ITERATOR.replace("EXPRESSION", call)
    resumed_output(tmp_path, source.replace("PLACES", "(5,)"))


def test_an_image_of_such_a_call_from_an_iterator_in_python_that_was_resumed(tmp_path: Path) -> None:
    source = ITERATOR.replace("EXPRESSION", "list(Numbers())")
    resumed_output(tmp_path, source.replace("PLACES", "(1, 5, 12)"), places=[3])


@pytest.mark.parametrize(
    "call", ["list(Copies())", "[*Numbers()]", "any(x == '9' for x in []) or [].extend(Numbers())"]
)
def test_an_image_waits_where_the_iterator_would_be_asked_for_again(tmp_path: Path, call: str) -> None:
    source = ITERATOR.replace("EXPRESSION", call).replace("PLACES", "(5,)")
    assert "is running Numbers.__next__" in " ".join(refusals(tmp_path, source))


ITERABLE = """
class Items:
    def __init__(self, place):
        self.place = place
    def __iter__(self):
        return self.produced() if self.place % 2 else Items.produced(self)
    def produced(self):
        try:
            for number in range(9):
                if number == self.place:
                    driver_tick()
                yield f"{number * number}"
        finally:
            if self.place == "end":
                driver_tick()
"""

TAKERS = {
    "list": "list(Items(PLACE))",
    "tuple": "tuple(Items(PLACE))",
    "sorted": "sorted(Items(PLACE))",
    "join": "'-'.join(Items(PLACE))",
    "deque": "__import__('collections').deque(Items(PLACE))",
    "extend": "(found := ['a'], found.extend(Items(PLACE)))",
    "a display": "['a', *Items(PLACE)]",
    "in another": "[list(Items(3 if n == 1 else -1)) for n in range(3)]",
}


@pytest.mark.rotate(8)
@pytest.mark.parametrize("call", TAKERS)
def test_an_object_whose_iter_makes_a_generator_is_collected_from_as_the_generator_is(
    tmp_path: Path, call: str
) -> None:
    """``list(board.legal_moves)``: only C code knows the generator that ``__iter__`` has returned."""
    expected: dict[str, object] = {"driver_tick": lambda: None}
    exec(ITERABLE, expected)
    text = TAKERS[call].replace("PLACE", str(4 + len(call) % 2))
    source = f"{ITERABLE}\nprint({text})"
    assert resumed_output(tmp_path, source) == f"{eval(text, expected)}\n"


def test_a_deque_collects_tuples_as_they_are(tmp_path: Path) -> None:
    """Not their items: a tuple of one was silently taken out of its tuple, and others ended the program."""
    source = """
    import collections
    def pairs(length):
        for number in range(9):
            if number == 5:
                driver_tick()
            yield (number,) * length
    print([collections.deque(pairs(length)) for length in range(3)])
    """
    expected = [collections.deque((n,) * length for n in range(9)) for length in range(3)]
    assert resumed_output(tmp_path, source) == f"{expected}\n"


@pytest.mark.parametrize("call", ["set([[]] and Unhashable())", "4 in Numbers()", "any(Numbers())"])
def test_a_generator_that_is_closed_is_not_taken_for_one_that_is_asked_for_an_item(
    tmp_path: Path, call: str
) -> None:
    source = f"""
    class Numbers:
        def __iter__(self):
            try:
                yield from self.items()
            finally:
                driver_tick()
        def items(self):
            yield from range(9)
    class Unhashable(Numbers):
        def items(self):
            yield from ([], [])
    try:
        print({call})
    except TypeError as error:
        print(error)
    """
    assert refusals(tmp_path, source)


OTHERS = {
    "a map of a generator": "map(str, self.produced())",
    "a function of each": "map(worked, range(3))",
    "a chain": "itertools.chain(self.produced(), self.produced())",
    "generators in a generator": "itertools.chain.from_iterable(self.produced() for _ in range(3))",
    "collected ones": "map(list, (self.produced() for _ in range(3)))",
    "an iterator in Python": "Steps(self.produced())",
    "the same twice": "zip(*[self.produced()] * 2)",
}


@pytest.mark.rotate(7)
@pytest.mark.parametrize("made", OTHERS)
def test_what_iter_makes_beside_generators_goes_on_equal_or_waits(sweep: Any, made: str) -> None:
    program = f"""
import itertools
class Steps:
    def __init__(self, source):
        self.source = source
    def __iter__(self):
        return self
    def __next__(self):
        return [next(self.source)]
def worked(n):
    return work(n)
class Items:
    def __iter__(self):
        return {OTHERS[made]}
    def produced(self):
        for n in range(2):
            yield work(n)
for call in (list, tuple, lambda items: [*items]):
    emit(call(Items()))
"""
    assert sweep(program)["failures"] == []

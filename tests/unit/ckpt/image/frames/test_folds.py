"""`sum`, `min`, `max`, `functools.reduce`, `sorted` with a key, functions of `heapq` that compare in Python, and `dict`,
`frozenset`, `bytes` and `bytearray` of an iterator, go on after a restart with what they have so far. They do what the
interpreter's own functions do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import REPOSITORY, refusals, resumed_output

SOURCE = """
import fractions, functools, heapq, itertools

class Item:
    def __init__(self, number):
        self.number = number
    def __repr__(self):
        return f"<{self.number}>"

class Pair:
    def __init__(self, number):
        self.number = number
    def __iter__(self):
        yield from produce(lambda n: n + self.number)

class Numbers:
    number = 0
    def __iter__(self):
        return self
    def __next__(self):
        if self.number == COUNT:
            raise StopIteration
        self.number += 1
        tick(self.number)
        return self.number * 7 % 5

def tick(number):
    if number in PLACES and number not in ticked:
        ticked.append(number)
        driver_tick()

def produce(make):
    for number in range(COUNT):
        tick(number)
        yield make(number)

def mixed(number):
    return [number, number / 7, 2 ** 70 + number, True, fractions.Fraction(1, number + 1)][number * 3 // COUNT + number % 2]

def key(item):
    value = item * 7 % 5
    tick(item)
    return value

def in_place(items, key=None, reverse=False):
    if key is None and not reverse:
        items.sort()
    elif reverse:
        items.sort(key=key, reverse=reverse)
    else:
        items.sort(key=key)
    return items

def heap(count):
    return [Ordered(n) for n in sorted(range(count), key=lambda n: n * 7 % 5)]

def difference(a, b):
    tick(a)
    return a * 7 % 5 - b * 7 % 5

class Ordered(Item):
    def __lt__(self, other):
        compared.append((self.number, other.number))
        tick(self.number)
        return self.number * 7 % 5 < other.number * 7 % 5
    def __gt__(self, other):
        compared.append((other.number, self.number))
        tick(self.number)
        return self.number * 7 % 5 > other.number * 7 % 5

class Other(Ordered):
    pass

def add(a, b):
    held = [a, b]
    tick(b)
    return held[0] + b

COUNT, ticked, compared = 20, [], []
print(repr(EXPRESSION))
print(ticked, compared)
"""

CALLS = {
    "sum of integers": "sum(produce(int))",
    "sum of large integers": "sum(produce(lambda n: 2 ** 62 * n))",
    "sum of floats": "sum(produce(lambda n: 0.1 * n))",
    "sum of what is lost by rounding": (
        "sum(produce(lambda n: 1e16 if n == 3 else -1e16 if n == 15 else 0.3))"
    ),
    "sum of all types": "sum(produce(mixed))",
    "sum with a start": "sum(produce(lambda n: [n]), [])",
    "sum with a named start": "[1, sum(produce(float), start=0.5)]",
    "sum of a container with a generator": "sum(Pair(3))",
    "sum of an iterator in Python": "sum(Numbers())",
    "sum of map": "sum(map(key, range(COUNT)))",
    "sum of a chain": "sum(enumerate_ for enumerate_, x in enumerate(zip(produce(int), 'x' * COUNT)))",
    "sum over zip": "max(zip(produce(str), range(COUNT)))",
    "min": "min(produce(lambda n: abs(n - 7)))",
    "max": "max(produce(lambda n: n * 7 % 11))",
    "the first of equal ones": "max(produce(lambda n: (n * 7 % 11, n)), key=lambda pair: pair[0])",
    "max with a key": "max(range(COUNT), key=key)",
    "min of a list with a key": "min(list(range(COUNT)), key=key, default=3)",
    "min with a key that is partial": "min(range(COUNT), key=functools.partial(key))",
    "max with a default": "max((n for n in produce(int) if n > 100), default='none')",
    "max of map": "max(map(key, range(COUNT)))",
    "reduce": "functools.reduce(lambda a, b: a + [b], produce(Item), [])",
    "reduce without a start": "functools.reduce(lambda a, b: a * 3 + b, produce(int))",
    "the function of reduce": "functools.reduce(add, range(COUNT))",
    "the function of reduce with a start": "functools.reduce(add, range(COUNT), 1000)",
    "dict": "dict(produce(lambda n: (f'k{n % 7}', Item(n))))",
    "dict of map": "dict(map(lambda n: (key(n), n), range(COUNT)))",
    "bytes": "bytes(produce(int))",
    "bytearray": "bytearray(produce(int))",
    "frozenset": "sorted(frozenset(produce(lambda n: n % 7)))",
    "frozenset of a map": "sorted(frozenset(map(key, range(COUNT))))",
    "sorted with a key": "sorted(range(COUNT), key=key)",
    "sorted with a key, in reverse": "sorted([*range(COUNT), 0], key=lambda n: key(n) // 2, reverse=True)",
    "sorted of a generator with a key": "sorted(produce(int), key=lambda n: n * 7 % 5)",
    "sorted of a map with a key": "sorted(map(key, range(COUNT)), key=lambda n: -n)",
    "the key of sorted of a generator": (
        "[n for n in sorted((n for n in range(COUNT)), reverse=True, key=key)]"
    ),
    "list.sort with a key": "in_place(list(range(COUNT)), key=key)",
    "list.sort with a key, in reverse": (
        "in_place([*range(COUNT), 0], key=lambda n: key(n) // 2, reverse=True)"
    ),
    "list.sort of what is held as a method": (
        "[method(key=key) or numbers for numbers in [[*range(COUNT)]] for method in [numbers.sort]]"
    ),
    "list.sort as a function": "[list.sort(numbers, key=key) or numbers for numbers in [[*range(COUNT)]]]",
    "the list is empty while it is sorted": (
        "[numbers.sort(key=lambda n: (key(n), len(numbers))) or numbers for numbers in [[*range(COUNT)]]]"
    ),
    "sorted compares in Python": "sorted(map(Ordered, range(COUNT)))",
    "sorted compares a set in Python": "sorted({Ordered(n): n for n in range(COUNT)})",
    "sorted compares in Python, in reverse": "sorted([Ordered(n) for n in range(COUNT)], reverse=True)",
    "sorted compares keys in Python": "sorted([*range(COUNT), 0, 5], key=lambda n: Ordered(n ^ 1))",
    "sorted compares with cmp_to_key": "sorted(range(COUNT), key=functools.cmp_to_key(difference))",
    "list.sort compares in Python": "in_place([Ordered(n) for n in range(COUNT)])",
    "list.sort compares with cmp_to_key": (
        "in_place([*range(COUNT)], reverse=True, key=functools.cmp_to_key(difference))"
    ),
    "list.sort of two types": "in_place([(Ordered, Other)[n % 2](n) for n in range(COUNT)])",
    "max compares in Python": "max([Ordered(n) for n in range(COUNT)])",
    "min compares in Python": "min((Ordered(n) for n in range(COUNT)), default=3)",
    "max compares keys in Python": "max(range(COUNT), key=lambda n: Ordered(key(n)))",
    "heapify": "[heapq.heapify(items) or items for items in [[Ordered(n) for n in range(COUNT)]]]",
    "heapify of many": "[heapq.heapify(items) or items for items in [[Ordered(n) for n in range(2600)]]]",
    "heappush": "[[heapq.heappush(items, Ordered(n)) for n in range(COUNT)] and items for items in [[]]]",
    "heappop": "[[heapq.heappop(items) for _ in range(COUNT)] + items for items in [heap(COUNT)]]",
    "heapreplace": "[[heapq.heapreplace(items, Ordered(n)) for n in range(COUNT)] + items for items in [heap(COUNT)]]",
    "heappushpop": "[[heapq.heappushpop(items, Ordered(n)) for n in range(COUNT)] + items for items in [heap(COUNT)]]",
    "heappop with a star": "[[heapq.heappop(*[items]) for _ in range(COUNT)] for items in [heap(COUNT)]]",
    "heappop in a generator": "sum(heapq.heappop(items).number * n for items in [heap(COUNT)] for n in range(COUNT))",
    "sorts in each other": (
        "sorted(range(3), key=lambda n: in_place([Ordered(m) for m in range(COUNT - n)])[n].number)"
    ),
    "in each other": "sum(sum(produce(int)) for _ in range(3))",
    "one beside another": "max(sum(produce(int)), min(produce(float)))",
    "with a star": "[*'ab', sum(produce(int))]",
}


@pytest.mark.rotate(12)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_goes_on_with_what_it_has(tmp_path: Path, call: str) -> None:
    resumed_output(tmp_path, SOURCE.replace("EXPRESSION", CALLS[call]).replace("PLACES", "(5,)"))


@pytest.mark.rotate(12)
@pytest.mark.parametrize("call", CALLS)
def test_an_image_of_such_a_call_that_was_resumed(tmp_path: Path, call: str) -> None:
    source = SOURCE.replace("EXPRESSION", CALLS[call])
    resumed_output(tmp_path, source.replace("PLACES", "(1, 8, 15)"), places=[3])


BUSY = {
    "an addition in Python": "sum(map(Vector, range(5)), Vector(0))",
    "a comparison that the other object makes": "max(Backwards(n) for n in range(5))",
    "a comparison of tuples": "sorted((1, Vector(n)) for n in range(5))",
    "a key that is a class": "max(range(5), key=Key)",
    "a key with a cache": "max(range(5), key=functools.lru_cache(tick))",
    "a sum in a sum": "sum(map(sum, [generator()]))",
    "a hash in a frozenset": "frozenset(Vector(n) for n in range(5))",
    "a comparison of keys": "sorted(range(5), key=lambda n: Vector(n))",
    "a hash in Python": "dict((Vector(n), n) for n in range(5))",
}


@pytest.mark.parametrize("call", BUSY)
def test_an_image_waits_where_other_code_runs_in_such_a_call(tmp_path: Path, call: str) -> None:
    source = f"""
    import functools

    def tick(n=0):
        driver_tick()
        return n

    def generator():
        for n in range(3):
            tick()
            yield n

    class Key:
        def __init__(self, number):
            tick()
        def __gt__(self, other):
            return False

    class Backwards:
        def __init__(self, number):
            self.number = number
        def __gt__(self, other):
            return NotImplemented
        def __lt__(self, other):
            tick()
            return self.number < other.number

    class Vector:
        def __init__(self, number):
            self.number = number
        def __add__(self, other):
            tick()
            return Vector(self.number + other.number)
        def __gt__(self, other):
            tick()
            return self.number > other.number
        def __hash__(self):
            tick()
            return self.number

    {BUSY[call]}
    """
    assert refusals(tmp_path, source)


COMPARED = """
import functools, heapq, itertools, math, random, re
from fractions import Fraction
from decimal import Decimal

class Counted(int):
    def __radd__(self, other):
        return ("radd", other)

class Falling:
    def __iter__(self):
        raise ValueError("falling")

VALUES = [0, 1, -5, True, 2**62, -2**63, 2**63 - 1, 2**64, 0.1, -0.0, 1e16, -1e16, 1e308, math.inf, -math.inf, math.nan,
          Counted(3),          Fraction(1, 3), Decimal("0.1"), "text", [1], None, 1j, 5e-324]

def outcome(call):
    taken = []
    def items(values):
        for value in values:
            taken.append(value)
            yield value
    try:
        result = call(items)
        return type(result).__name__, re.sub("0x[0-9a-f]+", "", repr(result)), taken
    except Exception as error:
        return type(error), str(error), taken

class Cell:
    def __init__(self, number, log):
        self.number, self.log = number, log
    def __repr__(self):
        return f"<{self.number}>"
    def __lt__(self, other):
        if type(other) is not Cell:
            return NotImplemented
        self.log.append((self.number, other.number))
        if self.number == 93:
            raise ValueError("of 93")
        if self.number == 95:
            self.log[0].append(self)
        if self.number == 96:
            self.log[0].clear()
        return self.number if self.number < other.number else 0

def on_heap(function, numbers, other):
    items = []
    log = [items]
    items += [Cell(number, log) if number >= 0 else number for number in numbers]
    try:
        result = function(items, *[Cell(number, log) for number in other])
    except Exception as error:
        result = type(error), str(error)
    return result, items, log[1:]

def calls():
    rng = random.Random(7)
    for n in range(1500):
        largest = rng.choice([20, 97])
        numbers = [rng.randrange(-1 if n % 9 == 0 else 0, largest) for _ in range(rng.randrange(14))]
        if n % 2:
            numbers.sort()
        function = (heapq.heappop, heapq.heapify, heapq.heappush, heapq.heapreplace, heapq.heappushpop)[n % 5]
        yield lambda items: on_heap(function, numbers, [rng.randrange(largest)][n % 5 < 2:])
    for n in [2499, 2500, 2501, 2502, 4093, 4094, 4095, 4096, 4097, 6000, 8190, 8191, 8192]:
        yield lambda items: hash(str(on_heap(heapq.heapify, [rng.randrange(n) + 100 for _ in range(n)], ())))
    cell = Cell(1, [[]])
    for args in [(), (1,), ([],), ([], 1), ([1, 2],), ((1, 2), 3), ([cell, "a"],), ([3, 1], cell), ([3], 1, 2)]:
        for function in (heapq.heappop, heapq.heapify, heapq.heappush, heapq.heapreplace, heapq.heappushpop):
            yield lambda items: function(*args)
    rng = random.Random(8)
    for _ in range(600):
        few = [rng.choice(VALUES[:rng.choice([8, 16, 24])]) for _ in range(rng.randrange(9))]
        floats = [rng.choice([1.0, 1e16, -1e16, 0.1, 3, 1e308, -1e308]) * rng.choice([1, 1, -1]) for _ in range(12)]
        start = rng.choice(VALUES)
        yield lambda items: sum(items(few))
        yield lambda items: sum(items(floats))
        yield lambda items: sum(items(floats), start=-0.0)
        yield lambda items: sum(items(few), start)
        yield lambda items: min(items(few))
        yield lambda items: max(items(few), default=start)
        yield lambda items: max(few, key=repr)
        yield lambda items: min(items(few), key=None)
        yield lambda items: min(items(few), key=lambda v: v[0], default=1)
        yield lambda items: functools.reduce(lambda a, b: (a, b), items(few))
        yield lambda items: frozenset(items(few))
        yield lambda items: sorted(items(few), key=lambda v: abs(v), reverse=len(few) % 2 > 0)
        yield lambda items: sorted(few, key=lambda v: v[0])
        yield lambda items: sorted(items(few), key=lambda v: str(v), reverse=True)
        yield lambda items: sorted(items(floats), key=lambda v: -v)
        yield lambda items: list(zip(items(few), items(floats), items(few[1:])))
        yield lambda items: list(zip(items(few), items(few[1:]), floats, strict=True))
        yield lambda items: list(zip(items(few), few, items(few + [1]), strict=True))
        yield lambda items: list(zip(items(few), items(few), map(abs, few), strict=len(few) % 2 > 0))
        yield lambda items: [id(pair) == id(before) for before in [None] for pair in zip(floats, items(few))]
        yield lambda items: list(itertools.starmap(lambda a, b=2: [a, b], items([(1,), (1, 2), few])))
        yield lambda items: list(itertools.accumulate(items(few), lambda a, b: a + b, initial=start))
        yield lambda items: functools.reduce(lambda a, b: a + b, items(few), start)
        yield lambda items: bytes(items(few))
        yield lambda items: bytearray(items(few))
        yield lambda items: dict(items(few))
        yield lambda items: dict(items((value, value) for value in few))
        yield lambda items: dict(items([("a", 1), "bc", ["d", start], few[:2]]))
    for function in (sum, min, max, dict, bytes, bytearray, frozenset, sorted):
        for args in [(), (5,), (Falling(),), ([],), (iter([]),), (iter([1, 2]), 3), (iter([1]), iter([2])), (None,)]:
            yield lambda items: function(*args)
            yield lambda items: function(*args, key=repr)
            yield lambda items: function(*args, key=lambda v: -v, reverse=True)
            yield lambda items: function(*args, default=7)
            yield lambda items: function(*args, other=7)
    some = [iter([]), iter([1, 2]), iter([1, 2])]
    for args in [(), (len,), (len, 5), (len, Falling()), (len, some[0]), (5, some[1]), (max, some[2]), (1, 2, 3, 4)]:
        yield lambda items: functools.reduce(*args)
    yield lambda items: bytes("text", encoding="ascii")
    yield lambda items: bytes(source=3)
    yield lambda items: bytearray(b"12")
    yield lambda items: dict(items([("a", 1)]), b=2)
    yield lambda items: type("D", (dict,), {})(items([("a", 1)]))
    yield lambda items: type("B", (bytes,), {})(items([1]))

before = [outcome(call) for call in calls()]
from ckpt.image.frames import _frames, running
assert running.available()[0]
running.run_base(len, "")
after = [outcome(call) for call in calls()]
differ = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
print(len(before), differ[:5])
"""


def test_they_do_what_the_functions_of_the_interpreter_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPARED], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    count, differ = done.stdout.split(" ", 1)
    assert int(count) > 9000
    assert differ == "[]\n"

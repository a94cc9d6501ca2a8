"""Loops over iterators in C that ask Python code for their items: the image is taken there, and the loop goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import refusals, resumed_output

SOURCE = """
import collections, functools, itertools, math

def tick(number):
    if number in PLACES and number not in ticked:
        ticked.append(number)
        driver_tick()

def produce(make=int):
    for number in range(COUNT):
        tick(number)
        yield make(number)

def f(number):
    held = [number]
    calls.append(number)
    tick(number)
    return held[0] * 3 % 5

def g(x):
    return [x]

def single(n):
    tick(n)
    return (n,)

def both(a, b, more=1):
    held = [a, b]
    tick(b - 1)
    return held[0] * 2 % 7 + b * (3 if more == "c" else 2)

class Many:
    def __iter__(self):
        yield from produce()

class Real:
    def __init__(self, n):
        self.n = n
    def __float__(self):
        return float(self.n)
    def __mul__(self, other):
        return Real(self.n * other)

class Own(dict):
    pass

class Even:
    def is_even(self, number):
        tick(number)
        return number % 2 == 0

def even(number):
    tick(number)
    return number % 2 == 0

class Made:
    def __init__(self, n):
        self.n = tick(n)
    def __lt__(self, other):
        return False

def below(n):
    tick(n)
    return n < 9

def even_or_small(n):
    tick(n)
    return [] if n > 4 and n % 2 else [n]

def third(n):
    tick(n)
    return n // 3

def rebinds(n):
    n += 0
    tick(n)
    return n

def shares(n):
    read = lambda: n
    tick(read())
    return n

def short():
    for number in range(7):
        tick(number)
        yield number

def short_of(count):
    for number in range(count):
        if number >= count - 2:
            tick(0)
            tick(4)
        yield number
        tick(3)
        tick(6)

def unpacks():
    for number in range(6):
        a, b, *c = produce()
        yield number + a + b + sum(c)

def outcome(call):
    try:
        return call()
    except ValueError as error:
        return str(error)

COUNT, ticked, calls = 12, [], []
xs = range(COUNT)

def loop(iterator):
    kept = iterator
    out = []
    for item in iterator:
        out.append(item)
    return out, list(kept)

print(EXPRESSION)
print(ticked, calls)
"""

CALLS = {
    "enumerate of map": "loop(enumerate(map(f, xs), 5))",
    "list of enumerate of map": "list(enumerate(map(f, xs)))",
    "map of map": "loop(map(g, map(f, xs)))",
    "sum of map of map": "sum(map(abs, map(f, xs)))",
    "zip of map": "loop(zip(map(f, xs), 'abcdefghijkl'))",
    "zip with a generator": "loop(zip(xs, produce()))",
    "list of zip with a generator": "list(zip(xs, 'abcdefghijkl', produce(), itertools.count()))",
    "dict of zip with a map": "dict(zip('abcdefghijkl', map(f, xs)))",
    "zip of two generators": "loop(zip(produce(str), produce(float)))",
    "zip of one generator": "(g := produce(), loop(zip(g, g)))[1]",
    "a source that ends first": "(i := iter(xs), loop(zip(i, short())), list(i))[1:]",
    "a strict zip": "loop(zip(xs, produce(), 'abcdefghijkl', strict=True))",
    "a strict zip whose later source ends first": "outcome(lambda: loop(zip(xs, short(), strict=True)))",
    "a strict zip whose later source is longer": (
        "outcome(lambda: loop(zip('abcdefg', xs, produce(), strict=True)))"
    ),
    "zip_longest": "loop(itertools.zip_longest(produce(), xs))",
    "zip_longest of later sources": "list(itertools.zip_longest('ab', range(30), produce(), fillvalue=0))",
    "zip_longest that ends with the first": "loop(itertools.zip_longest(produce(), 'abc', []))",
    "zip_longest whose sources end in one round": (
        "list(itertools.zip_longest([1, 2, 3, 4], (n for n in (0, 3, 4, 6) if n != 6 or tick(n)), produce()))"
    ),
    "zip_longest that goes on with a map": "list(itertools.zip_longest(range(3), map(f, xs)))",
    "zip_longest that a name keeps": (
        "(z := itertools.zip_longest([7], produce(), [8]), [next(z) for _ in range(6)], list(z))[1:]"
    ),
    "zip of zip_longest with one that has ended": ("loop(zip(itertools.zip_longest([1], xs), produce()))"),
    "zip_longest of zip_longest": (
        "list(itertools.zip_longest(itertools.zip_longest([1], produce()), 'abc', fillvalue=5))"
    ),
    "zip in zip": "loop(zip(xs, zip('abcdefghijkl', map(f, xs))))",
    "enumerate of zip": "loop(enumerate(zip(itertools.count(), produce())))",
    "islice of enumerate": "[x for x in itertools.chain('ab', enumerate(map(f, xs)))]",
    "next of enumerate": "(e := enumerate(map(f, xs)), [next(e) for _ in xs])[1]",
    "filter": "loop(filter(even, xs))",
    "list of filter": "list(filter(even, xs))",
    "takewhile": "loop(itertools.takewhile(below, xs))",
    "takewhile to the end": "(i := iter(xs), list(itertools.takewhile(lambda n: f(n) >= 0, i)), list(i))[1:]",
    "takewhile that stops in the call": (
        "(i := iter([0, 1, 2, 3, 4, 6, 5, 8, 4, 1]), t := itertools.takewhile(even_or_small, i), "
        "list(t), list(t), list(i))[2:]"
    ),
    "takewhile of a map": "sum(itertools.takewhile(lambda n: n < 9, map(f, xs)))",
    "dropwhile": "list(itertools.dropwhile(below, xs))",
    "dropwhile that begins in the call": "loop(itertools.dropwhile(lambda n: f(n) >= 0 and n < 6, xs))",
    "dropwhile of a generator": "loop(itertools.dropwhile(lambda n: n < 3, produce()))",
    "filterfalse": "loop(itertools.filterfalse(even, xs))",
    "filterfalse with a method": "sorted(itertools.filterfalse(Even().is_even, xs))",
    "enumerate of takewhile": "dict(enumerate(itertools.takewhile(below, xs)))",
    "zip of dropwhile": "list(zip(xs, itertools.dropwhile(lambda n: f(n) >= 0 and n < 6, xs)))",
    "groupby": "[(k, list(g)) for k, g in itertools.groupby(xs, key=third)]",
    "groupby, groups not looked into": "[k for k, g in itertools.groupby(xs, key=third)]",
    "groupby, in groups": "[(k, [n for n in g]) for k, g in itertools.groupby(xs, third)]",
    "groupby, groups left early": "[(k, next(g), list(g)[:1]) for k, g in itertools.groupby(xs, third)]",
    "groupby, groups kept": "[list(g) for k, g in list(itertools.groupby(xs, third))]",
    "groupby, the group is looked into": (
        "[(k, [(tick(n), n) for n in g]) for k, g in itertools.groupby(xs, key=lambda n: n // 3)]"
    ),
    "groupby of a generator": "[(k, sum(g)) for k, g in itertools.groupby(produce(), key=lambda n: n // 5)]",
    "groupby of a generator without a key": (
        "[(k, len(list(g))) for k, g in itertools.groupby(produce(lambda n: n // 2))]"
    ),
    "dict of groups": (
        "dict((k, list(map(g_, g))) for g_ in [f] for k, g in itertools.groupby(xs, key=lambda n: n // 5))"
    ),
    "filter with a method": "sorted(filter(Even().is_even, xs))",
    "filter with a lambda": "set(filter(lambda n: even(n) and n > 2, xs))",
    "sum of filter": "sum(filter(even, xs))",
    "filter of a generator": "list(filter(None, produce()))",
    "any of filter": "any(filter(lambda n: tick(n) or n > 9, xs))",
    "contains": "(c := produce(), 8 in c, list(c))[1:]",
    "not in": "99 not in produce()",
    "contains in map": "(m := map(f, xs), 4 in m, list(m))[1:]",
    "contains in enumerate of map": "(m := enumerate(map(f, xs)), (9, 2) in m, list(m))[1:]",
    "starmap": "loop(itertools.starmap(f, zip(xs)))",
    "starmap of more arguments": "list(itertools.starmap(both, zip(xs, xs, 'abcdefghijkl')))",
    "starmap with a method": "list(itertools.starmap(Even().is_even, zip(xs)))",
    "starmap of a generator": "loop(itertools.starmap(pow, zip(xs, produce())))",
    "enumerate of starmap": "loop(enumerate(itertools.starmap(both, zip(xs, xs))))",
    "sum of starmap of two": "sum(itertools.starmap(both, zip(xs, xs)))",
    "zip with starmap": "dict(zip(xs, itertools.starmap(both, zip(xs, xs))))",
    "accumulate": "loop(itertools.accumulate(xs, both))",
    "accumulate with a start": "list(itertools.accumulate(xs, both, initial=7))",
    "accumulate of a map": "loop(itertools.accumulate(map(f, xs)))",
    "accumulate of a generator": "list(itertools.accumulate(produce(), max))",
    "zip of accumulate": "loop(zip(xs, itertools.accumulate(xs, functools.partial(both, more=3))))",
    "map of accumulate": "max(map(g, itertools.accumulate(xs, both)))",
    "Counter": "collections.Counter(produce(lambda n: n % 5))",
    "update of a Counter": "(c := collections.Counter('aab'), c.update(produce(str)), c)[2]",
    "deque": "collections.deque(produce(g))",
    "deque of map": "collections.deque(map(f, xs))",
    "unpacking": "(lambda: [(a, b, c) for a, b, *c in [produce()]])()",
    "unpacking of as many": "(lambda: [(a, b) for a, b in [short_of(2)]])()",
    "unpacking that looks for more": "(lambda: [(a, b, c, d) for a, b, c, d in [short_of(4)]])()",
    "unpacking of too many": "outcome(lambda: [(a, b, c, d) for a, b, c, d in [short_of(5)]])",
    "unpacking of too few": "outcome(lambda: [0 for a, b, c, d, e, g in [short_of(5)]])",
    "unpacking of a map": "(lambda: [(a, c) for a, *_, c in [map(f, xs)]])()",
    "unpacking of a zip": "(lambda: [(a, c) for a, *_, c in [zip(xs, produce())]])()",
    "unpacking of a generator that unpacks": "(lambda: [(a, c) for a, *_, c in [unpacks()]])()",
    "prod": "math.prod(produce(lambda n: n + 1))",
    "prod with a start": "math.prod(map(lambda n: f(n) + 1, xs), start=1.5)",
    "fsum": "math.fsum(produce(lambda n: n / 7))",
    "fsum of a map": "math.fsum(map(lambda n: 10.0 ** f(n), xs))",
    "dict.fromkeys": "list(dict.fromkeys(produce(lambda n: n % 7), 2))",
    "pairwise": "loop(itertools.pairwise(produce()))",
    "pairwise of map": "list(itertools.pairwise(map(f, xs)))",
    "islice of a generator": "loop(itertools.islice(produce(), 1, 11, 3))",
    "islice of map": "list(itertools.islice(map(f, xs), 1, None, 2))",
    "enumerate of islice": "dict(enumerate(itertools.islice(enumerate(map(f, xs)), 2, 9)))",
    "cycle": "list(itertools.islice(itertools.cycle(produce()), 30))",
    "compress": "list(itertools.compress(map(f, xs), itertools.cycle([1, 0, 1])))",
    "tee": "(lambda a, b: (loop(a), list(b)))(*itertools.tee(produce()))",
    "tee of a map, the second one first": "(lambda a, b: (next(a), list(b), list(a)))(*itertools.tee(map(f, xs)))",
    "a display": "[0, *enumerate(produce()), 1]",
    "a display of enumerate of map": "{*enumerate(map(f, xs))} == set(enumerate(map(f, xs)))",
    "keyword arguments of a call": "sorted(*[list(zip(xs, produce()))], reverse=True)",
}


@pytest.mark.rotate(12)
@pytest.mark.parametrize("call", CALLS)
def test_a_loop_goes_on(tmp_path: Path, call: str) -> None:
    resumed_output(tmp_path, SOURCE.replace("EXPRESSION", CALLS[call]).replace("PLACES", "(4,)"))


@pytest.mark.rotate(12)
@pytest.mark.parametrize("call", CALLS)
def test_an_image_of_a_loop_that_was_resumed(tmp_path: Path, call: str) -> None:
    source = SOURCE.replace("EXPRESSION", CALLS[call])
    resumed_output(tmp_path, source.replace("PLACES", "(0, 3, 6)"), places=[3])


WAITS = {
    "the end of a strict zip": "list(zip([], (n for n in xs if tick(n)), strict=True))",
    "an argument that is assigned": "list(filter(rebinds, xs))",
    "an argument of an inner function": "list(filter(shares, xs))",
    "starmap with a partial": "list(itertools.starmap(functools.partial(f), zip(xs)))",
    "starmap over a map with its function": "list(itertools.starmap(single, map(single, xs)))",
    "sorted with a key that is a class": "sorted(xs, key=Made)",
    "dropwhile whose function assigns to its argument": "list(itertools.dropwhile(rebinds, range(1, COUNT)))",
    "the key of groupby over a map with it": "list(itertools.groupby(map(f, xs), f))",
    "unpacking of an object with __iter__": "(lambda: [a for a, b, *c in [Many()]])()",
    "fsum of objects": "math.fsum(Real(n) for n in produce())",
    "prod that starts with an object": "math.prod(map(f, xs), start=Real(2))",
    "fromkeys of a class": "len(Own.fromkeys(produce()))",
    "zip_longest over a map with a function that another one has": (
        "list(itertools.zip_longest(map(f, xs), map(f, xs)))"
    ),
    "selectors of compress": "list(itertools.compress(xs, produce()))",
}


@pytest.mark.parametrize("call", WAITS)
def test_an_image_waits_where_something_is_known_to_c_alone(tmp_path: Path, call: str) -> None:
    program = SOURCE.replace("EXPRESSION", WAITS[call]).replace("PLACES", "(4,)")
    assert refusals(tmp_path, program)

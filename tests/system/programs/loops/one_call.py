"""A program whose whole time is one call of a function in C that takes items from Python code."""

import collections
import functools
import sys

ITEMS = 4000 * int(sys.argv[1])


def items(seed, count=ITEMS):
    value = seed
    for n in range(count):
        for _ in range(20):
            value = (value * 1103515245 + 12345) % 2**31
        yield value


def mixed(number):
    for _ in range(20):
        number = (number * 69069 + 1) % 2**32
    return number


print("sum", sum(items(1)))
print("sum of floats", repr(sum(n / 7 for n in items(2))))
print("min, max", min(items(3)), max(items(4)))
print("max with a key", max(range(ITEMS), key=mixed))
print("reduce", functools.reduce(lambda a, b: (a * 31 + b) % 1000003, items(5)))
print("the function of reduce", functools.reduce(lambda a, b: mixed(a + b), range(ITEMS)))
print("dict", sum(dict((n % 1000, n) for n in items(6)).values()))
print("zip", sum(a * b % 7 for a, b in zip(range(ITEMS), items(7))))
print("enumerate", sum(n * i % 11 for i, n in enumerate(map(mixed, range(ITEMS)))))
print("filter", len(list(filter(lambda n: mixed(n) % 3 == 0, range(ITEMS)))))
print("in", -1 in items(8))
print("Counter", collections.Counter(n % 10 for n in items(9)).most_common())
print("deque", sum(collections.deque(items(10))))
print("bytes", hash(bytes(n % 256 for n in items(11))) != 0, sum(bytearray(n % 256 for n in items(12))))
print("sum of map of zip", sum(map(lambda pair: pair[0] ^ pair[1], zip(items(13), items(14)))))

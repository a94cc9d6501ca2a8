"""Sorted containers, toolz and more-itertools over the same numbers."""

import random

import more_itertools as mit
import toolz
from sortedcontainers import SortedDict, SortedKeyList, SortedList

rng = random.Random(4)
numbers = SortedList()
for turn in range(30000):
    numbers.add(rng.randrange(5000))
    if turn % 3 == 0:
        numbers.pop(rng.randrange(len(numbers)))
print(len(numbers), numbers[10:15], numbers.bisect(2500), sum(numbers))
table = SortedDict((rng.randrange(1000), str(i)) for i in range(3000))
print(table.peekitem(5), list(table.irange(100, 110)))
keyed = SortedKeyList((str(rng.randrange(999)) for _ in range(800)), key=lambda s: (len(s), s))
print(keyed[:3], keyed[-3:])
groups = toolz.groupby(lambda n: n % 7, numbers)
print({key: len(group) for key, group in sorted(groups.items())})
for window in mit.chunked(toolz.sliding_window(4, numbers), 400):
    total = 0
    for a, b, c, d in window:
        total += max(a, b) * (c - d)
    print(total, end=" ")
print(
    toolz.pipe(
        range(2000), toolz.curried.filter(lambda n: n % 3), toolz.curried.map(lambda n: n * n), toolz.last
    )
)
for pair in mit.distinct_permutations("aabbcd"):
    total += hash(pair[0] < pair[1])
print(total, list(mit.collapse([1, [2, [3, "x"]], (4,)])), mit.nth_permutation(range(9), 4, 2000))

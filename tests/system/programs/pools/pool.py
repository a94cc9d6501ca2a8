"""multiprocessing.Pool: map, starmap, imap over a generator that changes what it gives, imap_unordered, apply_async with
callbacks, an initializer, workers that end after some tasks, arguments larger than a pipe."""

import multiprocessing
import sys

SCALE = int(sys.argv[1])


def begin(value):
    global offset
    offset = value


def work(n):
    value = offset
    for i in range(12_000 * SCALE):
        value = (value * 31 + n + i) % 1_000_003
    if n % 17 == 3:
        raise ValueError(n)
    return value


def add(n, more):
    return work(n) + more


def total(numbers):
    return work(numbers[0] % 3) + sum(numbers)


def length(text):
    return work(4) + len(text)


def changing(count):
    numbers = [0]
    for n in range(count):
        numbers[0] = n
        numbers.append(n % 7)
        yield numbers


got, failed = [], []
with multiprocessing.Pool(2, begin, (17,), maxtasksperchild=9) as pool:
    print(pool.map(work, range(4, 20)))
    print(pool.starmap(add, [(n, n % 5) for n in range(21, 37)]))
    for value in pool.imap(total, changing(16)):
        print(value)
    print(sorted([value for value in pool.imap_unordered(work, range(4, 20))]))
    print([value for value in pool.imap(work, range(21, 37), chunksize=3)])
    answers = [
        pool.apply_async(work, (n,), callback=got.append, error_callback=failed.append) for n in range(24)
    ]
    for answer in answers:
        answer.wait()
    print(
        sorted(got), sorted(repr(failure) for failure in failed), [answer.successful() for answer in answers]
    )
    print([value for value in pool.imap(length, ("x" * 40_000 * n for n in range(10)))])
    print(pool.apply(add, (5, 6)))
    late = pool.map_async(work, range(40, 52))
    pool.close()
    pool.join()
print(late.get())

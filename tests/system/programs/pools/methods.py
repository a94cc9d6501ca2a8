"""The methods of multiprocessing.Pool: results in any order, callbacks of results and of errors, several arguments, chunks; workers
that are replaced; the pool of threads with the same methods."""

import multiprocessing
import sys
from multiprocessing.pool import ThreadPool

SCALE = int(sys.argv[1])


def begin(value):
    global offset
    offset = value


def work(n):
    value = offset
    for i in range(5000):
        value = (value * 3 + i * n) % 104_729
    return n, value


def product(a, b):
    return work(a * b)[1]


def failing(n):
    raise ValueError(n)


for step in range(3 * SCALE):
    with multiprocessing.Pool(2, begin, (step,), maxtasksperchild=20 if step % 2 == 0 else None) as pool:
        unordered = sorted(pool.imap_unordered(work, range(40), chunksize=3))
        ordered = list(pool.imap(work, range(20), 4))
        called, failures = [], []
        asked = [pool.apply_async(work, (n,), callback=called.append) for n in range(12)]
        failed = [
            pool.apply_async(
                failing,
                (n,),
                callback=called.append,
                error_callback=lambda error: failures.append(str(error)),
            )
            for n in range(3)
        ]
        products = pool.starmap(product, [(a, b) for a in range(5) for b in range(4)])
        later, two = pool.map_async(work, range(25)), pool.starmap_async(product, [(1, 2), (3, 4)])
        later.wait()
        answers = [each.get() for each in asked]
        for each in failed:
            each.wait()
        successes = [each.successful() for each in failed]
        pool.close()
        pool.join()
    print(
        step, unordered[-1], len(unordered), ordered[-1], sorted(called) == sorted(answers), sorted(failures)
    )
    print(sum(products), later.get()[-1], two.get(), successes)
    with ThreadPool(3, begin, (step,)) as threads:
        print(sorted(threads.imap_unordered(work, range(10)))[-1], threads.map(work, range(8))[-1])

"""joblib.Parallel: results as a list and as a generator, arrays large enough for shared memory, an exception of a task, the same pool
for several calls."""

import sys

import numpy as np
from joblib import Parallel, delayed

SCALE = int(sys.argv[1])


def work(n, array=None):
    value = n
    for i in range(20_000 * SCALE):
        value = (value * 31 + n + i) % 1_000_003
    if n == -1:
        raise ValueError(n)
    return n, value if array is None else value + float(array.sum())


large = np.arange(200_000.0)
for turn in range(3):
    found = Parallel(n_jobs=2)(delayed(work)(n + turn) for n in range(40))
    print(
        turn,
        [n for n, _ in found] == list(range(turn, 40 + turn)),
        sum(value for _, value in found),
        flush=True,
    )
    total = 0
    for n, value in Parallel(n_jobs=2, return_as="generator")(delayed(work)(n, large) for n in range(16)):
        total += n * value
    print(turn, total, flush=True)
with Parallel(n_jobs=2) as pool:
    print([value for _, value in pool(delayed(work)(n) for n in range(12))])
    try:
        pool(delayed(work)(n) for n in range(10, -5, -1))
    except ValueError as error:
        print("raised", error)

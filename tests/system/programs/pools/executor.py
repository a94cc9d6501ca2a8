"""ProcessPoolExecutor: map, with chunks too, as_completed, callbacks, exceptions, a task that cannot be pickled, an initializer,
results larger than a pipe, a task that has ended before the pool is shut down."""

import sys
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, as_completed, wait

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


def long_text(n):
    return str(work(n)) * 30_000


called, lock = [], threading.Lock()


def note(future):
    with lock:
        called.append(future.exception() is None)


with ProcessPoolExecutor(2, initializer=begin, initargs=(17,)) as pool:
    print([value for value in pool.map(work, range(4, 20))])
    print([value for value in pool.map(work, range(21, 37), chunksize=5)])
    futures = {pool.submit(work, n): n for n in range(40)}
    futures[pool.submit(lambda: 0)] = -1
    for future in futures:
        future.add_done_callback(note)
    found = {}
    for future in as_completed(futures):
        failure = future.exception()
        found[futures[future]] = type(failure).__name__ if failure else future.result()
    print(sorted(found.items()))
    print(len(called), sum(called))
    print([len(pool.submit(long_text, n).result()) for n in range(4, 10)])
    left, answers = {pool.submit(work, n) for n in range(40, 52)}, []
    while left:
        done, left = wait(left, return_when=FIRST_COMPLETED)
        for future in done:
            answers.append(future.result())
    print(sorted(answers))
    last = [pool.submit(work, n) for n in range(60, 70)]
print([future.result() for future in last], [future.done() for future in last])

"""ThreadPoolExecutor: map, submit with callbacks, as_completed, exceptions of tasks."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed


def work(n):
    value = 0
    for i in range(8_000 * int(sys.argv[1])):
        value = (value * 31 + n + i) % 1_000_003
    if n % 17 == 3:
        raise ValueError(n)
    return value


called, lock = [], threading.Lock()


def note(future):
    with lock:
        called.append(future.exception() is None)


with ThreadPoolExecutor(3) as pool:
    print([value for value in pool.map(lambda n: work(17 * n), range(60))])
    futures = {pool.submit(work, n): n for n in range(120)}
    for future in futures:
        future.add_done_callback(note)
    found = {}
    for future in as_completed(futures):
        failure = future.exception()
        found[futures[future]] = repr(failure) if failure else future.result()
print(sorted(found.items()))
print(len(called), sum(called))

"""A pool that nobody shuts down: the interpreter's end tells its threads to leave, and waits for them."""

import sys

from concurrent.futures import ThreadPoolExecutor


def work(n):
    value = n
    for i in range(30_000 * int(sys.argv[1])):
        value = (value * 17 + i) % 999_983
    return value


pool = ThreadPoolExecutor(2)
futures = [pool.submit(work, n) for n in range(60)]
total = 0
for future in futures[:40]:
    total += future.result()
print(total)
last = futures[-1]
last.add_done_callback(lambda future: print("last", future.result(), flush=True))

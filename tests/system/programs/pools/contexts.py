"""Pools and executors of all start methods, whose workers share a lock and an event that the initializer hands over."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

SCALE = int(sys.argv[1])


def begin(shared_lock, shared_event):
    global lock, event
    lock, event = shared_lock, shared_event


def work(n):
    value = 1
    for i in range(4000):
        value = (value * 3 + i * n) % 104_729
    with lock:
        return n, value, event.is_set()


def main():
    for method in ("spawn", "forkserver", "fork"):
        context = multiprocessing.get_context(method)
        shared = context.Lock(), context.Event()
        with (
            context.Pool(2, begin, shared) as pool,
            ProcessPoolExecutor(1, context, begin, shared) as executor,
        ):
            for step in range(4 * SCALE):
                if step == 2 * SCALE:
                    shared[1].set()
                answers = pool.map_async(work, range(10))
                others = list(executor.map(work, range(5)))
                unordered = sorted(pool.imap_unordered(work, range(8)))
                print(method, step, answers.get()[-1], others[-1], unordered[-1])


if __name__ == "__main__":
    main()

"""multiprocessing.pool.ThreadPool beside a pool of processes, whose tasks its threads give."""

import multiprocessing
import multiprocessing.pool
import sys

SCALE = int(sys.argv[1])


def work(n):
    value = 0
    for i in range(20_000 * SCALE):
        value = (value * 31 + n + i) % 1_000_003
    return value


processes = multiprocessing.Pool(2)


def ask(n):
    value = 0
    for i in range(5_000 * SCALE):
        value = (value * 31 + n + i) % 1_009
    return n, processes.apply(work, (n,)), value


with multiprocessing.pool.ThreadPool(3) as threads:
    for step in range(4):
        print([value for value in threads.imap(ask, range(12 * step, 12 * step + 8))])
        answers = [threads.apply_async(ask, (n,)) for n in range(6)]
        print([answer.get() for answer in answers])
        print(sorted([value for value in threads.imap_unordered(ask, range(6))]))
processes.terminate()
processes.join()

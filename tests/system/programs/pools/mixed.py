"""A pool and an executor that threads and an event loop use at the same time; futures that wait for futures."""

import asyncio
import multiprocessing
import queue
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed

SCALE = int(sys.argv[1])


def work(n):
    value = 1
    for i in range(4000):
        value = (value * 3 + i * n) % 104_729
    return n, value


def failing(n):
    if n % 4 == 3:
        raise KeyError(n)
    return work(n)


def feed(pool, numbers, found):
    while (n := numbers.get()) is not None:
        found.append(pool.apply(work, (n,)))


async def in_a_loop(executor, step):
    loop = asyncio.get_running_loop()

    async def one(n):
        return await loop.run_in_executor(executor, work, n)

    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(step + n)) for n in range(6)]
    failures = (loop.run_in_executor(executor, failing, n) for n in range(4))
    return [task.result() for task in tasks], await asyncio.gather(*failures, return_exceptions=True)


with multiprocessing.Pool(2) as pool, ProcessPoolExecutor(2) as executor, ThreadPoolExecutor(3) as threads:
    for step in range(3 * SCALE):
        numbers, found = queue.Queue(), []
        feeders = [threading.Thread(target=feed, args=(pool, numbers, found)) for _ in range(2)]
        for feeder in feeders:
            feeder.start()
        for n in range(10):
            numbers.put(n + step)
        answers = pool.imap(work, iter(range(12)), 2)
        first = next(answers)
        chained = [threads.submit(lambda n=n: executor.submit(work, n).result()) for n in range(6)]
        done = sorted(future.result() for future in as_completed(chained))
        tasks, failures = asyncio.run(in_a_loop(executor, step))
        for _ in feeders:
            numbers.put(None)
        for feeder in feeders:
            feeder.join()
        print(
            step, first, done, list(answers)[-1], sorted(found), tasks[-1], [repr(each) for each in failures]
        )

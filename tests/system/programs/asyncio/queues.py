"""Producers and consumers over a bounded Queue, a PriorityQueue behind it; join, task_done, names of tasks."""

import asyncio
import sys

SCALE = int(sys.argv[1])


async def producer(n, queue):
    for i in range(60 * SCALE):
        value = 0
        for j in range(500):
            value = (value + j * i * (n + 1)) % 10_007
        await queue.put((value, n, i))


async def consumer(queue, ordered, sums):
    while True:
        value, n, i = await queue.get()
        await asyncio.sleep(0.0005 * (value % 3))
        for j in range(500):
            value = (value * 7 + j) % 10_007
        sums[n] = sums.get(n, 0) + value
        ordered.put_nowait((value, n, i))
        queue.task_done()


async def main():
    queue, ordered, sums = asyncio.Queue(5), asyncio.PriorityQueue(), {}
    consumers = [asyncio.create_task(consumer(queue, ordered, sums)) for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        for n in range(4):
            group.create_task(producer(n, queue))
    await queue.join()
    for task in consumers:
        task.cancel()
    results = await asyncio.gather(*consumers, return_exceptions=True)
    print([type(result).__name__ for result in results], [task.get_name() for task in consumers])
    first = [ordered.get_nowait() for _ in range(10)]
    print(sorted(sums.items()), first, ordered.qsize(), asyncio.create_task(asyncio.sleep(0)).get_name())


asyncio.run(main())

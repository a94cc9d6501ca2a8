"""gather of sleeps; a long computation within one step of a task; many steps of sleep(0)."""

import asyncio
import sys

SCALE = int(sys.argv[1])


async def sleeper(n, log):
    for i in range(10 * SCALE):
        await asyncio.sleep(0.002 * (n + 1))
        log.append(n)
    return n, i


async def computer():
    total = 0
    for i in range(60_000 * SCALE):
        total = (total * 31 + i) % 1_000_003
        if i % 20_000 == 0:
            await asyncio.sleep(0)
    return total


async def turns(n, log):
    for i in range(300 * SCALE):
        log.append((i, n))
        await asyncio.sleep(0)


async def main():
    log, order = [], []
    results = await asyncio.gather(*[sleeper(n, log) for n in range(5)], computer())
    print(results, sorted(log) == sorted(n for n in range(5) for _ in range(10 * SCALE)))
    await asyncio.gather(*[turns(n, order) for n in range(3)])
    print(order == sorted(order), len(order))
    total = 0
    for i in range(200_000 * SCALE):  # no await
        total = (total + i * i) % 1_000_003
    print(total, asyncio.current_task().get_name(), len(asyncio.all_tasks()))


asyncio.run(main())

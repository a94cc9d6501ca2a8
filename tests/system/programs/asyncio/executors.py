"""to_thread, run_in_executor with a pool of its own, call_soon_threadsafe and run_coroutine_threadsafe from threads."""

import asyncio
import concurrent.futures
import contextvars
import sys
import threading

SCALE = int(sys.argv[1])
name = contextvars.ContextVar("name", default="nobody")


def work(n):
    value = n
    for i in range(15_000):
        value = (value * 31 + i) % 1_000_003
    return value, name.get()


async def answer(n):
    await asyncio.sleep(0.001)
    return n * n


def ask(loop, n, arrived):
    found = asyncio.run_coroutine_threadsafe(answer(n), loop).result()
    loop.call_soon_threadsafe(arrived.append, found)
    return found


async def main():
    loop, arrived = asyncio.get_running_loop(), []
    results = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for n in range(6 * SCALE):
            name.set(f"name {n}")
            results += await asyncio.gather(*[asyncio.to_thread(work, n + i) for i in range(3)])
            results.append(await loop.run_in_executor(pool, work, n))
            results.append(await loop.run_in_executor(pool, ask, loop, n, arrived))
            await asyncio.sleep(0)
    print(results[:5], results[-5:], sum(arrived), len(arrived), threading.active_count() > 1)


asyncio.run(main())

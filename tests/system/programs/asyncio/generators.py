"""Asynchronous generators, comprehensions, context managers; one left half-way and closed, anext with a default."""

import asyncio
import contextlib
import sys

SCALE = int(sys.argv[1])
log = []


async def numbers(n, count):
    try:
        for i in range(count):
            value = 0
            for j in range(800):
                value = (value + i * j + n) % 997
            if i % 3 == 0:
                await asyncio.sleep(0.001)
            yield value
    finally:
        await asyncio.sleep(0)
        log.append(("closed", n))


async def doubled(source):
    async for value in source:
        yield 2 * value


@contextlib.asynccontextmanager
async def place(n):
    log.append(("enter", n))
    await asyncio.sleep(0.001)
    try:
        yield n * n
    except KeyError as error:
        log.append(("caught", error.args))
    finally:
        await asyncio.sleep(0.001)
        log.append(("leave", n))


async def echo():
    answer = None
    while True:
        answer = yield answer
        await asyncio.sleep(0)
        answer = answer * 3


async def main():
    totals = []
    for n in range(6 * SCALE):
        totals.append(sum([value async for value in doubled(numbers(n, 12)) if value % 2 == 0]))
        async with place(n) as square:
            totals.append(square)
            if n % 4 == 3:
                raise_it = {}
                totals.append(raise_it["missing"] if n < 0 else 0)
                raise KeyError(n)
        half = numbers(1000 + n, 10)
        async for value in half:
            if value > 100:
                break
        totals.append(await anext(half, -1))
        await half.aclose()
        totals.append(await anext(half, -2))
        speaker = echo()
        await speaker.asend(None)
        totals.append([await speaker.asend(i) for i in range(3)])
    print(totals[-6:], len(log), log[:12], log[-6:])
    return numbers(5, 3)


left = asyncio.run(main())
print(left.ag_running)

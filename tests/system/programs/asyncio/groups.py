"""TaskGroup with a failing task, nested groups, exception groups, tasks that fail in a gather."""

import asyncio
import sys

SCALE = int(sys.argv[1])


async def fails(n, after):
    await asyncio.sleep(after)
    value = 0
    for i in range(3000):
        value = (value + i * n) % 911
    raise (ValueError if n % 2 else KeyError)(n, value)


async def endless(n, ended):
    try:
        while True:
            await asyncio.sleep(0.001)
    except asyncio.CancelledError:
        ended.append(n)
        raise


async def nested(n, ended):
    async with asyncio.TaskGroup() as group:
        group.create_task(endless(100 + n, ended))
        group.create_task(fails(2 * n + 1, 0.006))


async def main():
    lines, ended = [], []
    for n in range(8 * SCALE):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(endless(n, ended))
                group.create_task(nested(n, ended))
                group.create_task(asyncio.sleep(0.003))
        except* ValueError as errors:
            inner = errors.exceptions[0]
            lines.append(
                (type(inner).__name__, inner.message if hasattr(inner, "message") else "", repr(errors))
            )
        results = await asyncio.gather(
            fails(n, 0.001), asyncio.sleep(0.002, n), fails(n + 1, 0), return_exceptions=True
        )
        lines.append([repr(result) for result in results])
    print(lines[:2], lines[-2:], sorted(ended))


asyncio.run(main())

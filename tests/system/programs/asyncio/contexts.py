"""Context variables and decimal contexts of tasks and callbacks, tokens, a task of the library's own Python class."""

import asyncio
import contextvars
import decimal
import sys

SCALE = int(sys.argv[1])
depth, path = contextvars.ContextVar("depth", default=0), contextvars.ContextVar("path")


async def descend(level):
    token = depth.set(depth.get() + 1)
    inner = path.set(path.get("") + f"/{level}")
    decimal.getcontext().prec = 5 + level
    value = 0
    for i in range(1500):
        value = (value + i) % 13
    await asyncio.sleep(0.001)
    if level:
        below = await asyncio.gather(descend(level - 1), descend(level - 1))
    else:
        below = []
    third = str(decimal.Decimal(1) / 3)
    here = (depth.get(), path.get(), third)
    depth.reset(token)
    path.reset(inner)
    return [here, *[row for rows in below for row in rows]]


def python_task(loop, coro, **options):
    return asyncio.tasks._PyTask(coro, loop=loop, **options)


async def main():
    loop, rows, called = asyncio.get_running_loop(), [], []
    context = contextvars.copy_context()
    context.run(depth.set, 50)
    for n in range(5 * SCALE):
        if n % 2:
            loop.set_task_factory(python_task)
        rows.append(await asyncio.create_task(descend(3)))
        loop.set_task_factory(None)
        loop.call_soon(lambda: called.append(depth.get()), context=context)
        rows.append(await loop.create_task(descend(1), context=context))
    await asyncio.sleep(0)
    print(
        rows[0][:4],
        rows[-1],
        all(row == rows[0] for row in rows[::2]),
        set(called),
        depth.get(),
        path.get("none"),
    )
    print(decimal.getcontext().prec, len(rows), context[depth])


asyncio.run(main())

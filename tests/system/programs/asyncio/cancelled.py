"""Timeouts, cancellation, shielding, a task that cancels itself, one that swallows the first cancellation."""

import asyncio
import sys

SCALE = int(sys.argv[1])


def work(n, rounds=4000):
    value = n
    for i in range(rounds):
        value = (value * 17 + i) % 10_007
    return value


async def itself(n):
    task = asyncio.current_task()
    task.cancel(f"by itself {n}")
    value = work(n)  # the request is pending meanwhile
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError as error:
        return value, error.args, task.cancelling(), task.uncancel()


async def stubborn(log):
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        log.append(work(1))
        await asyncio.sleep(0.001)
        log.append(work(2))
    return "finished"


async def cleans(log):
    try:
        await asyncio.Event().wait()
    finally:
        log.append(work(3))
        await asyncio.sleep(0.002)
        log.append("cleaned")


async def main():
    seen, log = [], []
    for n in range(12 * SCALE):
        try:
            async with asyncio.timeout(0.005):
                await asyncio.sleep(30)
        except TimeoutError:
            seen.append(("timeout", work(n)))
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.sleep(0.01, work(n))), 0.002)
        except TimeoutError as error:
            seen.append(("wait_for", str(error), type(error.__cause__).__name__))
        seen.append(await asyncio.create_task(itself(n)))
        task = asyncio.create_task(stubborn(log))
        await asyncio.sleep(0)
        task.cancel()
        seen.append((await task, task.cancelling(), task.cancelled()))
        task = asyncio.create_task(cleans(log))
        await asyncio.sleep(0)
        task.cancel(msg="enough")
        try:
            await task
        except asyncio.CancelledError as error:
            seen.append((error.args, task.cancelled(), asyncio.current_task().cancelling()))
    print(len(seen), seen[-5:], sum(work(i) for i in range(10)), log[-5:], len(log))
    print(seen[:5])


asyncio.run(main())

"""as_completed, wait with FIRST_COMPLETED and FIRST_EXCEPTION, futures of the program with callbacks."""

import asyncio
import sys

SCALE = int(sys.argv[1])


async def job(n):
    await asyncio.sleep(0.003 * (n % 4))
    value = n
    for i in range(2000):
        value = (value * 3 + i) % 65_537
    if n % 7 == 6:
        raise LookupError(n)
    return n, value


async def main():
    loop, found, called = asyncio.get_running_loop(), [], []
    for round_ in range(6 * SCALE):
        for future in asyncio.as_completed([job(n) for n in range(8)]):
            try:
                found.append((await future)[1])
            except LookupError as error:
                found.append(error.args[0])
        pending = {asyncio.create_task(job(n), name=f"job {n}") for n in range(8)}
        rounds = 0
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            found += sorted(task.result()[1] if not task.exception() else -1 for task in done)
            rounds += 1
        answer = loop.create_future()
        answer.add_done_callback(lambda future: called.append(future.result()))
        answer.add_done_callback(lambda future: called.append(len(called)))
        loop.call_later(0.004, answer.set_result, round_)
        found.append(await answer)
    print(sum(found), len(found), sorted(found)[:9], called[-4:], len(called), rounds > 1)


asyncio.run(main())

"""Lock, Condition, Event, Semaphore, Barrier."""

import asyncio
import sys

SCALE = int(sys.argv[1])


def work(n):
    value = n
    for i in range(1500):
        value = (value * 5 + i) % 4099
    return value


async def player(number, state, condition):
    for n in range(25 * SCALE):
        async with condition:
            await condition.wait_for(lambda: state["turn"] == number)
            state["log"].append((n, number, work(n)))
            state["turn"] = 1 - number
            condition.notify_all()


async def guest(n, room, inside, most):
    for _ in range(5 * SCALE):
        async with room:
            inside.append(n)
            most.append(len(inside))
            await asyncio.sleep(0.001 * (n % 2))
            work(n)
            inside.remove(n)


async def walker(n, barrier, sums):
    for step in range(8 * SCALE):
        sums[n] += work(step)
        await barrier.wait()
        if barrier.n_waiting > 4:
            raise AssertionError
        await asyncio.sleep(0.001 * n)


async def main():
    state, condition = {"turn": 0, "log": []}, asyncio.Condition()
    await asyncio.gather(*[player(n, state, condition) for n in (0, 1)])
    print(len(state["log"]), state["log"][:3], state["log"] == sorted(state["log"], key=lambda row: row[:2]))
    room, inside, most = asyncio.BoundedSemaphore(2), [], []
    await asyncio.gather(*[guest(n, room, inside, most) for n in range(5)])
    print(max(most), inside, room.locked())
    sums, barrier = [0] * 4, asyncio.Barrier(4)
    await asyncio.gather(*[walker(n, barrier, sums) for n in range(4)])
    print(sums)
    event, lock = asyncio.Event(), asyncio.Lock()
    await lock.acquire()
    waiting = [asyncio.create_task(event.wait()), asyncio.create_task(lock.acquire())]
    asyncio.get_running_loop().call_later(0.02, event.set)
    await asyncio.sleep(0.03)
    print([task.done() for task in waiting], lock.locked())
    lock.release()
    print(await waiting[0], await waiting[1], lock.locked())


asyncio.run(main())

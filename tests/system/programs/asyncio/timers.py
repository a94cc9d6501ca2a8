"""Chains of call_later and call_at with deadlines: each timer comes in its order, none before its time; signals."""

import asyncio
import os
import signal
import sys

SCALE = int(sys.argv[1])


class Chain:
    def __init__(self, loop, n, done):
        self.loop, self.n, self.done, self.log = loop, n, done, []
        self.left, self.early = 15 * SCALE, 0
        self.next()

    def next(self):
        self.when = self.loop.time() + 0.001 * (self.n + 1)
        self.handle = self.loop.call_at(self.when, self.fire)

    def fire(self):
        self.early += self.loop.time() < self.when - 0.001
        value = 0
        for i in range(2000):
            value = (value + i * self.left) % 997
        self.log.append(value)
        self.left -= 1
        if self.left:
            self.next()
        else:
            self.done.set_result(sum(self.log))


async def main():
    loop = asyncio.get_running_loop()
    begun, order, signals = loop.time(), [], []
    loop.add_signal_handler(signal.SIGUSR1, signals.append, 1)
    chains = [Chain(loop, n, loop.create_future()) for n in range(4)]
    never = loop.call_later(3600, order.append, "never")
    cancelled = loop.call_later(0.01, order.append, "cancelled")
    cancelled.cancel()
    for n in range(8):
        loop.call_later(0.02 * SCALE * (8 - n), order.append, n)
    for _ in range(5 * SCALE):
        await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)
    print(await asyncio.gather(*[chain.done for chain in chains]), [chain.early for chain in chains])
    await asyncio.sleep(0.18 * SCALE)
    print(order, len(signals) - 5 * SCALE, never.cancelled(), 3000 < never.when() - loop.time() < 3600)
    print(loop.time() - begun < 600, loop.remove_signal_handler(signal.SIGUSR1))


asyncio.run(main())

"""Timers that start each other, one that is cancelled; sleeping threads."""

import sys
import threading
import time

ticks, done = [], threading.Event()


def tick(n):
    ticks.append(n)
    if n == 12 * int(sys.argv[1]):
        done.set()
    else:
        timer = threading.Timer(0.04, tick, args=(n + 1,))
        timer.daemon = True
        timer.start()


def nap(n):
    for _ in range(6 * int(sys.argv[1])):
        time.sleep(0.05)
    naps.append(n)


naps = []
never = threading.Timer(3600, naps.append, args=("never",))
never.start()
sleepers = [threading.Thread(target=nap, args=(n,)) for n in range(3)]
for thread in sleepers:
    thread.start()
tick(0)
done.wait()
never.cancel()
never.join()
for thread in sleepers:
    thread.join()
print(ticks, sorted(naps))

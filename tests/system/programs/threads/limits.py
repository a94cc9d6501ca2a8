"""Semaphores, a bounded one among them, and a barrier with an action."""

import sys
import threading

room, inside, most, lock = threading.BoundedSemaphore(2), 0, 0, threading.Lock()
sums, rounds = [0] * 4, []


def together():
    rounds.append(sum(sums))


barrier = threading.Barrier(4, action=together)


def run(n):
    global inside, most
    for step in range(100 * int(sys.argv[1])):
        with room:
            with lock:
                inside += 1
                most = max(most, inside)
            value = 0
            for i in range(4000):
                value = (value + i * (n + 1) * step) % 10_007
            sums[n] += value
            with lock:
                inside -= 1
        barrier.wait()


threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sums, most <= 2, inside, len(rounds), rounds[-1], rounds == sorted(rounds))
try:
    room.release()
except ValueError as error:
    print(error)

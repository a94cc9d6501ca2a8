"""Producers and consumers over a queue with room for three; each consumer adds up by itself and all together."""

import hashlib
import queue
import sys
import threading

ITEMS, WORKERS = 6000 * int(sys.argv[1]), 4
tasks: "queue.Queue[int | None]" = queue.Queue(maxsize=3)
results: "queue.Queue[tuple[int, int]]" = queue.Queue()
lock, total = threading.Lock(), 0


def consume():
    global total
    while (item := tasks.get()) is not None:
        value = 0
        for i in range(1500):
            value += item * i % 7
        with lock:
            total += value
        results.put((item, value))


def produce(first):
    for item in range(first, ITEMS, 2):
        tasks.put(item)


consumers = [threading.Thread(target=consume) for _ in range(WORKERS)]
producers = [threading.Thread(target=produce, args=(first,)) for first in range(2)]
for thread in consumers + producers:
    thread.start()
for thread in producers:
    thread.join()
for _ in consumers:
    tasks.put(None)
for thread in consumers:
    thread.join()
rows = sorted(results.get() for _ in range(results.qsize()))
print(len(rows), total, hashlib.sha256(repr(rows).encode()).hexdigest())

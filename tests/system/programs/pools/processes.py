"""Processes, queues and a manager that come and go between the phases of a program, beside a pool that stays."""

import multiprocessing
import sys

SCALE = int(sys.argv[1])


def serve(asked, answered):
    while (n := asked.get()) is not None:
        answered.put((n, n * n))


def note(table, lock, key):
    with lock:
        table[key] = key * key


def work(n):
    value = 1
    for i in range(30_000):
        value = (value * 3 + i * n) % 7919
    return value


def through_queues():
    asked, answered = multiprocessing.Queue(), multiprocessing.Queue()
    servers = [multiprocessing.Process(target=serve, args=(asked, answered)) for _ in range(2)]
    for server in servers:
        server.start()
    for n in range(50):
        asked.put(n)
    found = sorted(answered.get() for _ in range(50))
    for _ in servers:
        asked.put(None)
    for server in servers:
        server.join()
    for each in (asked, answered):
        each.close()
        each.join_thread()
    return found[-1], [server.exitcode for server in servers]


def through_a_manager():
    with multiprocessing.Manager() as manager:
        table, lock = manager.dict(), manager.Lock()
        writers = [multiprocessing.Process(target=note, args=(table, lock, key)) for key in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        return sorted(table.items())


with multiprocessing.Pool(2) as pool:
    for step in range(2 * SCALE):
        print(step, through_queues(), through_a_manager())
        print(step, pool.map(work, range(40), 1)[-1], [work(n) for n in range(10)][-1])

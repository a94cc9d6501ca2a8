"""Pools whose tasks use what multiprocessing shares: locks, an event, a bounded semaphore, Value and Array, a block of shared
memory; with the start methods fork and spawn. Each task changes this memory once: a counter counts all of them. Images are taken
between the tasks."""

import ctypes
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory

SCALE = int(sys.argv[1])
COUNT = 8


def begin(*given):
    global lock, turn, ready, seen, values, block
    lock, turn, ready, seen, values, name = given
    block = shared_memory.SharedMemory(name)


def work(n):
    with turn:
        value = sum(i * i % 7 for i in range(2_000 + n))
    with lock, seen:
        seen.value += 1
        values[n] += value
    block.buf[n] = (block.buf[n] + value) % 251
    return value, ready.is_set()


def own_work():
    return sum(i * i % 11 for i in range(200_000))


def main():
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        lock, turn, ready = context.RLock(), context.BoundedSemaphore(1), context.Event()
        seen, values = context.Value("q"), context.Array(ctypes.c_long, COUNT)
        block = shared_memory.SharedMemory(create=True, size=COUNT)
        given = (lock, turn, ready, seen, values, block.name)
        with context.Pool(2, begin, given) as pool, ProcessPoolExecutor(2, context, begin, given) as executor:
            for step in range(2 * SCALE):
                if step == SCALE:
                    ready.set()
                found = pool.map(work, range(COUNT))
                total = own_work()
                with lock:
                    futures = [executor.submit(work, n) for n in range(0, COUNT, 2)]
                    before = values[2]
                found += [future.result() for future in futures]
                with seen:
                    seen.value += own_work() % 2
                print(step, total, before, found[step % len(found)], seen.value, flush=True)
            print(method, list(values), bytes(block.buf[:COUNT]), flush=True)
        block.close()
        block.unlink()
        spare = context.Semaphore(2)
        spare.acquire()
        print(own_work(), spare.acquire(), spare.acquire(block=False), flush=True)
        del spare


if __name__ == "__main__":
    main()

"""Pools whose tasks use what multiprocessing shares: locks, an event, a bounded semaphore, Value and Array, a block of shared
memory; with the start methods fork and spawn. Each task changes this memory once: a counter counts all of them."""

import ctypes
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory

SCALE = int(sys.argv[1])
COUNT = 16


def begin(*given):
    global lock, turn, ready, seen, values, block
    lock, turn, ready, seen, values, name = given
    block = shared_memory.SharedMemory(name)


def work(n):
    value = n
    with turn:
        for i in range(5_000 * SCALE):
            value = (value * 31 + n + i) % 1_000_003
    with lock, seen:
        seen.value += 1
    values[n] = value
    block.buf[n] = value % 251
    return value, ready.is_set()


def main():
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        lock, turn, ready = context.RLock(), context.BoundedSemaphore(1), context.Event()
        seen, values = context.Value("q"), context.Array(ctypes.c_long, COUNT)
        block = shared_memory.SharedMemory(create=True, size=COUNT)
        given = (lock, turn, ready, seen, values, block.name)
        with context.Pool(2, begin, given) as pool:
            found = pool.map(work, range(COUNT))
            print(method, found, seen.value, flush=True)
            print([value for value, _ in found] == list(values), bytes(block.buf[:COUNT]), flush=True)
            ready.set()
            for value, is_set in pool.imap(work, range(COUNT)):
                print(value, is_set, flush=True)
        values[:] = [0] * COUNT
        with ProcessPoolExecutor(2, context, begin, given) as executor:
            with lock:
                futures = [executor.submit(work, n) for n in range(COUNT)]
                print(sum(i * i for i in range(60_000 * SCALE)), list(values), flush=True)
            print([future.result()[0] for future in futures] == list(values), seen.value, flush=True)
        block.close()
        block.unlink()
        spare = context.Semaphore(2)
        spare.acquire()
        print(
            sum(i * i for i in range(60_000 * SCALE)), spare.acquire(), spare.acquire(block=False), flush=True
        )
        del spare


if __name__ == "__main__":
    main()

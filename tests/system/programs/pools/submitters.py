"""An executor that several threads submit to while the main thread waits for the first of its own futures; exceptions with
arguments of their own; one executor after the other."""

import sys
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

SCALE = int(sys.argv[1])


class Trouble(Exception):
    def __init__(self, number, offset):
        super().__init__(number, offset)
        self.number = number


def begin(value):
    global offset
    offset = value


def work(n):
    value = offset
    for i in range(6000):
        value = (value * 3 + i * n) % 104_729
    return value


def failing(n):
    raise Trouble(n, offset)


def submit(executor, found, start):
    found[start] = sum(executor.map(work, range(start, start + 6)))


for step in range(4 * SCALE):
    with ProcessPoolExecutor(2, initializer=begin, initargs=(step,)) as executor:
        found, called = {}, []
        submitters = [threading.Thread(target=submit, args=(executor, found, start)) for start in range(3)]
        for each in submitters:
            each.start()
        futures = [executor.submit(work, n) for n in range(8)]
        for future in futures:
            future.add_done_callback(lambda future: called.append(future.result()))
        left, count = set(futures), 0
        while left:
            done, left = wait(left, return_when=FIRST_COMPLETED)
            count += len(done)
        chunks = list(executor.map(work, range(30), chunksize=7))
        try:
            executor.submit(failing, 3).result()
        except Trouble as trouble:
            failure = trouble.args, trouble.number, "Traceback" in str(trouble.__cause__)
        for each in submitters:
            each.join()
    print(step, sorted(found.items()), sorted(called), count, sum(chunks), failure)

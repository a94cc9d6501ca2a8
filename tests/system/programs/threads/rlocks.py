"""A reentrant lock that is held several times over, by the thread that holds it, across its recursion; also by the main thread."""

import sys
import threading

lock, log = threading.RLock(), []


def descend(name, depth, value):
    with lock:
        for i in range(3000):
            value = (value * 33 + i) % 1_000_003
        if depth == 0:
            log.append((name, value))
            return value
        value = descend(name, depth - 1, value)
        return (value + depth) % 1_000_003


def run(name):
    for n in range(40 * int(sys.argv[1])):
        finals.append((name, n, descend(name, 6, n)))


finals: list = []
threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(3)]
for thread in threads:
    thread.start()
run("main")
for thread in threads:
    thread.join()
try:
    lock.release()
except RuntimeError as error:
    print(error)
print(sorted(finals))
print(len(log), len(set(log)))

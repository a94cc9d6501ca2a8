"""Threads that start threads, subclasses of Thread, a thread that dies of an exception, one started after another has ended."""

import sys
import threading

hooked, results, lock = [], [], threading.Lock()
threading.excepthook = lambda args: hooked.append((args.exc_type.__name__, args.thread.name))


class Child(threading.Thread):
    def __init__(self, depth, path):
        super().__init__(name="child " + path)
        self.depth, self.path, self.value = depth, path, 0

    def run(self):
        children = [Child(self.depth - 1, f"{self.path}{n}") for n in range(2)] if self.depth else []
        for child in children:
            child.start()
        for i in range(40_000):
            self.value = (self.value * 7 + i + len(self.path)) % 1_000_003
        for child in children:
            child.join()
            self.value = (self.value + child.value) % 1_000_003
        with lock:
            results.append((self.path, self.value))
        if self.path.endswith("11"):
            raise OverflowError(self.path)


for generation in range(3 * int(sys.argv[1])):
    root = Child(3, f"r{generation}")
    root.start()
    root.join()
print(sorted(results))
print(sorted(hooked), threading.active_count() >= 1, file=sys.stdout)

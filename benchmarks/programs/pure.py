"""One piece of ordinary Python, without any message: pure.py NAME SCALE OUT.

Writes to OUT when it began (monotonic) and the CPU time of this process for a fixed amount of work, all its threads
included; in nanoseconds.
"""

import time

BEGAN_NS = time.monotonic_ns()  # before anything else is imported
# ruff: noqa: E402

import gc
import heapq
import json
import random
import re
import sys


def nbody(scale):
    bodies = [[random.random() for _ in range(7)] for _ in range(5)]
    for _ in range(8_000 * scale):
        for i, a in enumerate(bodies):
            for b in bodies[i + 1 :]:
                dx, dy, dz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
                mag = 0.001 * (dx * dx + dy * dy + dz * dz + 0.01) ** -1.5
                a[3] -= dx * b[6] * mag
                a[4] -= dy * b[6] * mag
                a[5] -= dz * b[6] * mag
                b[3] += dx * a[6] * mag
                b[4] += dy * a[6] * mag
                b[5] += dz * a[6] * mag
        for r in bodies:
            r[0] += 0.001 * r[3]
            r[1] += 0.001 * r[4]
            r[2] += 0.001 * r[5]
    return bodies


class Packet:
    def __init__(self, kind, work):
        self.kind = kind
        self.work = work
        self.next = None


class Task:
    def __init__(self, name, other):
        self.name = name
        self.other = other
        self.queue = []
        self.count = 0

    def put(self, packet):
        self.queue.append(packet)

    def is_idle(self):
        return not self.queue

    def step(self):
        if self.is_idle():
            return 0
        packet = self.queue.pop()
        packet.work = (packet.work * 1103515245 + 12345) & 0x7FFFFFFF
        self.count += packet.work & 1
        return self.send(packet)

    def send(self, packet):
        self.other.put(Packet(packet.kind ^ 1, packet.work))
        return 1


def richards(scale):
    a = Task("a", None)
    b = Task("b", a)
    a.other = b
    a.put(Packet(0, 1))
    done = 0
    while done < 60_000 * scale:
        done += a.step()
        done += b.step()
    return a.count


def texts(scale):
    row = {"name": "x" * 20, "values": list(range(30)), "inner": {"a": 1.5, "b": None, "c": [True, "é"]}}
    for _ in range(4_000 * scale):
        row["values"] = json.loads(json.dumps(row))["values"][::-1]
    return row


def patterns(scale):
    line = "2026-11-23 10:00:00,123 INFO [worker-17] GET /path/to/thing?id=42&x=abc 200 1234\n"
    found = 0
    pattern = re.compile(r"(\d+)-(\d+)-(\d+) .*?\[(\w+)-(\d+)\] (\w+) (/[^ ?]*)\?(.*?) (\d+)")
    for i in range(14_000 * scale):
        found += len(pattern.match(line).groups()) + len(re.sub(r"[aeiou]", "_", line)) + i
    return found


def containers(scale):
    counts = {}
    for i in range(120_000 * scale):
        key = (i * 7919 % 1000, i & 3)
        counts.setdefault(key, []).append(i)
        if len(counts[key]) > 8:
            counts[key] = sorted(counts[key], reverse=True)[:2]
    heap = [(-len(value), key) for key, value in counts.items()]
    heapq.heapify(heap)
    return heap[0]


def generators(scale):
    def tree(depth):
        if depth:
            yield from tree(depth - 1)
            yield depth
            yield from tree(depth - 1)

    return sum(value for _ in range(80 * scale) for value in tree(10))


def exceptions(scale):
    caught = 0
    for i in range(130_000 * scale):
        try:
            if i % 3 == 0:
                raise KeyError(i)
            [][i % 2]
        except KeyError:
            caught += 1
        except IndexError as error:
            caught += len(error.args)
    return caught


def calls(scale):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return [fib(18) for _ in range(60 * scale)]


def objects(scale):
    """Many objects that live, in cycles: what the garbage collector goes through."""
    kept = []
    for i in range(40_000 * scale):
        node = {"i": i, "back": kept[i // 2] if kept else None, "items": [i, (i,)]}
        node["self"] = node
        kept.append(node)
    return len(kept) + gc.isenabled()


WORK = {
    each.__name__: each
    for each in (nbody, richards, texts, patterns, containers, generators, exceptions, calls, objects)
}


def main():
    random.seed(1)
    name, scale, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    began = time.process_time_ns()
    WORK[name](scale)
    took = time.process_time_ns() - began
    with open(out, "w") as file:
        file.write(f"{BEGAN_NS} {took}")


main()

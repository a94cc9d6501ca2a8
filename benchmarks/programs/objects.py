"""Holds COUNT small objects and lets its host measure: `measure(data)` is a builtin of benchmarks.image_objects."""

import itertools
import sys


class Particle:
    def __init__(self, number):
        self.number = number
        self.name = f"particle {number}"
        self.position = (number * 0.5, number * 0.25)
        self.next = None


def make(count):
    made = [Particle(number) for number in range(count)]
    for one, other in itertools.pairwise(made):
        one.next = other if other.number % 10 else None  # chains, not one chain of all: plain pickle recurses
    return made


def deep(frames, work):
    return work() if frames == 1 else deep(frames - 1, work)


def main():
    data = make(int(sys.argv[1]))
    measure(data, deep)  # noqa: F821
    return len(data)


if __name__ == "__main__":
    main()

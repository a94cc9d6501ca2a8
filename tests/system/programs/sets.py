"""Sets whose order depends on their history, and keys that are objects in cycles."""

import dataclasses


class City:
    def __init__(self, name):
        self.name = name
        self.roads = set()
        self.tolls = {}

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self.name == other.name

    def __repr__(self):
        return self.name


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int


driver_start()
cities = [City(f"city{i}") for i in range(30)]
for i, city in enumerate(cities):
    for j in (1, 3, 7):
        other = cities[(i * j + 1) % 30]
        city.roads.add(other)
        other.roads.add(city)
        city.tolls[other] = i * j
work = set(range(0, 5000, 7))
words = {f"w{i}" for i in range(700)}
frozen = frozenset(words - {f"w{i}" for i in range(0, 700, 3)})
points = {Point(i % 13, i % 7) for i in range(200)}
groups = {frozenset({Point(i, i + 1), Point(i + 1, i)}): i for i in range(40)}
digest = 0
for step in range(2500):
    item = work.pop() if work else step
    digest = (digest * 31 + item) % 1000003
    work.add((item * 37 + step) % 9000)
    if step % 3 == 0:
        work.discard(step)
        words.discard(f"w{step % 700}")
        words.add(f"x{step}")
    if step % 5 == 0:
        points.discard(Point(step % 13, step % 7))
        points.add(Point(step % 17, step % 5))
    for number, word in enumerate(words):
        digest = (digest + len(word) * number) % 1000003
        if number > 20:
            break
    city = cities[step % 30]
    digest += city.tolls[cities[(step % 30 + 1) % 30]] + len(city.roads)
    if step % 250 == 0:
        print(step, digest, list(work)[:6], list(words)[:4], list(frozen)[:3], list(points)[:3])
        print(
            [c for c in city.roads], list(city.tolls.items())[:3], cities[0] in cities[1].roads, len(groups)
        )
        print(groups[frozenset({Point(3, 4), Point(4, 3)})], list(groups)[5])

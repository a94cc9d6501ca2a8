import random, math, collections, functools, enum, dataclasses

random.seed(1)
driver_start()


class Color(enum.Enum):
    RED = 1
    GREEN = 2


@dataclasses.dataclass
class P:
    x: int
    y: list = dataclasses.field(default_factory=list)


class Node:
    def __init__(self, v):
        self.v = v
        self.next = None


def gen(n):
    for i in range(n):
        yield i * i


@functools.lru_cache(None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@functools.lru_cache(5)
def sq(n):
    return n * n


def work(k):
    tot = 0
    g = gen(50)
    d = {i: str(i) for i in range(30)}
    for a in g:
        for kk, v in d.items():
            tot += a * len(v)
            if kk % 7 == 0:
                tot += random.randrange(100)
        tot += sq(a % 7)
        try:
            if a % 10 == 3:
                raise ValueError(a)
        except ValueError as e:
            tot += e.args[0]
        with open("/dev/null") as f:
            tot += 1
    return tot


p = P(1)
p.y.append(Color.RED)
head = Node(0)
cur = head
for i in range(20):
    cur.next = Node(i)
    cur = cur.next
cur.next = head
for r in range(4):
    print(r, work(r), fib(20 + r), p, Color(2))
print([n for n in map(lambda x: x + 1, gen(5))], head.next.next.v)

"""Objects in the standard library: collections, dataclasses, enum, functools, contextlib, itertools, weakref, typing, abc, copy."""

import abc
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import operator
import types
import typing
import weakref


class Colour(enum.Flag):
    RED = enum.auto()
    GREEN = enum.auto()
    BLUE = enum.auto()


class Planet(enum.Enum):
    EARTH = (5.97, 6.37)
    MARS = (0.64, 3.39)

    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius

    @property
    def gravity(self):
        return round(6.67 * self.mass / self.radius**2, 4)


@dataclasses.dataclass(order=True)
class Job:
    priority: int
    name: str = dataclasses.field(compare=False)
    needs: list["Job"] = dataclasses.field(default_factory=list, repr=False, compare=False)
    done: typing.ClassVar[int] = 0

    def __post_init__(self):
        self.key = (self.priority, self.name)


class Shape(abc.ABC):
    registry = weakref.WeakValueDictionary()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.registry[cls.__name__] = cls

    @abc.abstractmethod
    def area(self): ...

    @functools.cached_property
    def rounded(self):
        return round(self.area(), 2)


class Circle(Shape):
    __slots__ = ("r",)

    def __init__(self, r):
        self.r = r

    def area(self):
        return 3.14159 * self.r**2


class Square(Shape):
    def __init__(self, a):
        self.a = a

    def area(self):
        return self.a**2

    @functools.singledispatchmethod
    def scaled(self, by):
        raise TypeError(by)

    @scaled.register
    def _(self, by: int):
        return Square(self.a * by)

    @scaled.register
    def _(self, by: str):
        return Square(self.a * len(by))


@functools.lru_cache(maxsize=40)
def ways(n, coins=(1, 5, 10, 25)):
    return 1 if n == 0 else 0 if n < 0 or not coins else ways(n - coins[-1], coins) + ways(n, coins[:-1])


@contextlib.contextmanager
def noted(log, name):
    log.append(f"+{name}")
    try:
        yield log
    except KeyError as error:
        log.append(repr(error))
    finally:
        log.append(f"-{name}")


def main():
    log = []
    with contextlib.ExitStack() as stack:
        for i in range(20):
            stack.enter_context(noted(log, i))
            stack.callback(log.append, i)
            if i == 13:
                with contextlib.suppress(ValueError):
                    raise ValueError(i)
        raise KeyError("x")
    print(len(log), log[-3:])
    counter = collections.Counter("abracadabra" * 50)
    chain = collections.ChainMap({"a": 1}, dict(counter), collections.defaultdict(int))
    ring = collections.deque(range(10), maxlen=7)
    for i in range(300):
        ring.rotate(i % 3)
        ring.append(counter["a"] + chain["a"] + i)
        counter.subtract({"b": 1})
    print(ring, counter.most_common(2), chain["b"])
    mask = Colour(0)
    for i, colour in zip(range(500), itertools.cycle(Colour)):
        mask ^= colour if i % 4 else ~colour
    print(mask, Planet.MARS.gravity, Planet((5.97, 6.37)).name, [c.name for c in Colour.RED | Colour.BLUE])
    jobs = [Job(i * 7 % 11, f"job{i}") for i in range(60)]
    for a, b in itertools.pairwise(jobs):
        a.needs.append(b)
    copied = copy.deepcopy(jobs)
    print(
        sorted(copied)[0],
        copied[0].needs[0] is copied[1],
        max(jobs).key,
        dataclasses.replace(jobs[3], priority=99),
    )
    shapes = [Circle(i) if i % 2 else Square(i).scaled(2 if i % 3 else "abc") for i in range(40)]
    print(sum(shape.rounded for shape in shapes), sorted(Shape.registry), issubclass(Circle, Shape))
    print(ways(180), ways.cache_info().currsize)
    finalized = []
    keep = weakref.WeakKeyDictionary()
    for shape in shapes:
        keep[shape] = shape.rounded
        weakref.finalize(shape, finalized.append, shape.rounded).atexit = False
    del shapes[10:], shape
    print(len(keep), len(finalized), finalized[:3])
    rows = itertools.groupby(sorted((n % 9, n) for n in range(400)), key=operator.itemgetter(0))
    print([(key, sum(n for _, n in group)) for key, group in rows])
    ticks = itertools.accumulate(itertools.count(1), lambda a, b: (a * 31 + b) % 1009)
    print(list(itertools.islice(itertools.takewhile(lambda n: n != 7, ticks), 6)), next(ticks))
    Point = typing.NamedTuple("Point", [("x", int), ("y", int)])
    space = types.SimpleNamespace(points=[Point(*pair) for pair in itertools.product(range(12), repeat=2)])
    print(
        sum(p.x * p.y for p in space.points),
        space.points[-1]._replace(x=0),
        functools.reduce(operator.add, space.points[1]),
    )


try:
    main()
except KeyError as error:
    print("outside", error)

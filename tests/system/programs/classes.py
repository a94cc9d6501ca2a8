"""Classes of every make, changed and compared while images are taken."""

import abc
import collections
import dataclasses
import enum
import functools
import random
import typing
import weakref
from random import random as rnd


random.seed(2)
driver_start()


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    def shade(self):
        return self.name.lower()


class Flag(enum.IntFlag):
    A = 1
    B = 2


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = cls.__name__
        return made


class Base(metaclass=Meta):
    made = 0

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        cls.registered = True
        Base.made += 1

    def __init__(self, n):
        self.n = n


class Child(Base):
    def __init__(self, n):
        super().__init__(n)
        self.square = n * n


class Slotted:
    __slots__ = ("x", "y", "__weakref__")

    def __init__(self, x):
        self.x = x


class Mixed(Slotted):
    def __init__(self, x):
        super().__init__(x)
        self.extra = [x]


class Point(typing.NamedTuple):
    x: int
    y: int = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: tuple = ()


@dataclasses.dataclass(slots=True)
class SlotData:
    a: int
    b: list = dataclasses.field(default_factory=list)


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Sq(Shape):
    def __init__(self, s):
        self.s = s

    def area(self):
        return self.s**2

    @functools.cached_property
    def twice(self):
        return 2 * self.area()

    @property
    def side(self):
        return self.s

    @classmethod
    def make(cls, s):
        return cls(s)

    @staticmethod
    def unit():
        return Sq(1)


class Weird:
    count = 0

    def __new__(cls, v):
        Weird.count += 1
        self = super().__new__(cls)
        self.v = v
        return self

    def __getattr__(self, name):
        if name.startswith("x_"):
            return name
        raise AttributeError(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __getstate__(self):
        raise RuntimeError("must not be called")

    def __reduce__(self):
        raise RuntimeError("must not be called")


class MyList(list):
    def append(self, item):
        super().append(item * 2)


class MyDict(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)


class MyInt(int):
    pass


class MyStr(str):
    __slots__ = ()


class Borg:
    shared = {}

    def __init__(self):
        self.__dict__ = self.shared


class Counted(collections.OrderedDict):
    pass


class Default(collections.defaultdict):
    pass


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, item):
        self.item = item


Shape.register(Slotted)


def local_class(n):
    class Inner:
        def get(self):
            return n, __class__

    return Inner


Inner = local_class(7)
Inner.self = Inner()
b1, b2 = Borg(), Borg()
things = [Child(3), Mixed(4), Point(1), Frozen(1, (2,)), SlotData(5), Sq(3), Weird(8), Box(3)]
things += [MyList([1, 2]), MyDict(a=1), MyInt(7), MyStr("s"), Counted(a=1), Default(list)]
refs = weakref.WeakValueDictionary({i: t for i, t in enumerate(things[:2])})
wk = weakref.WeakKeyDictionary({things[0]: "first"})
ws = weakref.WeakSet([things[5]])
r = weakref.ref(things[0])
total = 0
for step in range(150):
    b1.value = step
    things[8].append(step)
    things[9][step] = step
    things[13][step % 3].append(step)
    total += things[5].twice + Sq.make(2).side + things[0].square + b2.value
    total += Weird(step).v + len(Weird(1).x_abc)
    total += random.randrange(1000) + int(rnd() * 100)
    SlotData(step).b.append(total)
    x = Child(step)
    total += x.n + Flag(3).value + (Flag.A | Flag.B) + Color.RED.value
    if step % 10 == 0:
        print(step, total, [type(t).__name__ for t in things], Color(2).shade(), b1.__dict__ is b2.__dict__)
        print(
            isinstance(Slotted(1), Shape),
            Base.made,
            Weird.count,
            Inner().get(),
            Inner.self.get()[0],
            Point(2),
        )
        print(
            refs[0] is things[0],
            wk[things[0]],
            len(ws),
            r() is things[0],
            things[10] + 1,
            Frozen(1) == Frozen(1),
        )
        print(dict(things[12]), dict(things[13]), Color["RED"] is Color.RED, Box[int], Flag.A in Flag(3))

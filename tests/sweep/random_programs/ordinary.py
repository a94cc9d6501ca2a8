"""What random programs use: objects whose methods C code calls back, context managers, generators, coroutines, threads.

Each of them runs some Python code of its own (`tick`), so that images fall inside it, with C code below or above. A thread
notes what it does in a list of its own, which is printed when it has been joined: the output is always the same.
"""

import asyncio
import contextlib
import contextvars
import dataclasses
import enum
import functools
import threading
import typing

LOCAL = threading.local()
FUEL = 40
VAR = contextvars.ContextVar("VAR", default=0)


def note(*what):
    lines = getattr(LOCAL, "lines", None)
    if lines is None:
        print(*map(repr, what))
    else:
        lines.append(what)


def burn():
    """Has this thread done enough? Then loops end, and functions return."""
    LOCAL.fuel = getattr(LOCAL, "fuel", FUEL) - 1
    return LOCAL.fuel < 0


def refuel():
    LOCAL.fuel = FUEL


def kept():
    """Iterators that are gone on with later."""
    if not hasattr(LOCAL, "kept"):
        LOCAL.kept = []
    return LOCAL.kept


def further(i):
    """One of them is gone on with: it may be running now."""
    try:
        return next(kept()[i % len(kept())], "end") if kept() else 0
    except ValueError as error:
        return error.args


def num(x):
    return x % 1009 if isinstance(x, int) else len(repr(x))


def tick(x):
    total = 0
    for i in range(2):
        total += i
    return x + total - 1 if isinstance(x, int) else x


class Trouble(Exception):
    def __init__(self, code, *more):
        super().__init__(code, *more)
        self.code = code


class Worse(Trouble):
    pass


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int = dataclasses.field(default=3, compare=False)
    more: list = dataclasses.field(default_factory=list, compare=False)

    def __post_init__(self):
        self.more.append(num(self.x))


class Named(typing.NamedTuple):
    a: int
    b: int = 2


class Typed:
    """A descriptor."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else tick(getattr(obj, self.name, 0))

    def __set__(self, obj, value):
        setattr(obj, self.name, tick(value))


class Meta(type):
    def __call__(cls, *args, **more):
        made = super().__call__(*args, **more)
        made.made = tick(len(args))
        return made


class Thing(metaclass=Meta):
    """All the methods that C code calls."""

    value = Typed()

    def __init__(self, value):
        self.value = num(value)

    def __add__(self, other):
        return Thing(self.value + num(getattr(other, "value", other)))

    def __radd__(self, other):
        return self + other

    def __matmul__(self, other):
        return tick(self.value * num(other))

    def __divmod__(self, other):
        return divmod(tick(self.value), 3)

    def __abs__(self):
        return abs(tick(-self.value))

    def __lt__(self, other):
        return tick(self.value) < tick(other.value)

    def __eq__(self, other):
        return isinstance(other, Thing) and tick(self.value) == other.value

    def __hash__(self):
        return hash(tick(self.value) % 5)

    def __len__(self):
        return tick(self.value % 4)

    def __bool__(self):
        return tick(self.value) % 2 == 0

    def __getitem__(self, i):
        if i >= 3:
            raise IndexError(i)
        return tick(self.value + i)

    def __contains__(self, x):
        return any(tick(v) == x for v in self)

    def __call__(self, x):
        return tick(self.value * num(x) % 101)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return tick(len(name))

    def __enter__(self):
        return tick(self.value)

    def __exit__(self, kind, error, trace):
        return tick(self.value) % 3 == 0 and kind is not None and issubclass(kind, Trouble)

    def __format__(self, spec):
        return spec + str(tick(self.value))

    def __repr__(self):
        return f"<{tick(self.value)}>"

    def __index__(self):
        return tick(self.value) % 7

    def __reduce__(self):
        return (Thing, (self.value,))

    def __deepcopy__(self, memo):
        return Thing(tick(self.value))

    @property
    def half(self):
        return tick(self.value // 2)

    @functools.cached_property
    def slow(self):
        return sum(tick(i) for i in range(3)) + self.value % 10

    @classmethod
    def of(cls, x):
        return cls(tick(num(x)))

    @staticmethod
    def plain(x):
        return tick(num(x))


class Slotted:
    __slots__ = ("__weakref__", "a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __iter__(self):
        yield self.a
        yield self.b


class Counted:
    def __init__(self, n):
        self.n, self.i = n, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return tick(self.i)


class Default(dict):
    def __missing__(self, key):
        self[key] = tick(num(key))
        return self[key]


class Handled:
    """An asynchronous iterator and context manager."""

    def __init__(self, n):
        self.n = n

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        if self.n <= 0:
            raise StopAsyncIteration
        self.n -= 1
        return tick(self.n)

    async def __aenter__(self):
        await asyncio.sleep(0)
        return tick(4)

    async def __aexit__(self, kind, error, trace):
        await asyncio.sleep(0)
        return kind is not None and issubclass(kind, Worse)


@contextlib.contextmanager
def managed(x):
    tick(x)
    try:
        yield tick(num(x))
    except Worse as error:
        note("managed", error.code)
    finally:
        tick(x)


def counted(n):
    got = 0
    for i in range(n):
        sent = yield tick(i + got)
        if sent is not None:
            got += num(sent)
    return got


def delegated(n):
    result = yield from counted(n)
    yield result
    try:
        yield from (tick(i) for i in range(n))
    finally:
        tick(n)


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args, **more):
        tick(len(args))
        return f(*args, **more)

    return wrapper


@functools.singledispatch
def shown(x):
    return tick(1)


@shown.register
def _(x: int):
    return tick(x)


@shown.register
def _(x: list):
    return tick(len(x))


@functools.lru_cache(maxsize=8)
def cached(x):
    return tick(x * 3 % 17)


def threaded(f, *args):
    """(a running thread, what it will have noted)"""
    lines = []

    def run():
        LOCAL.lines = lines
        lines.append(("result", f(*args)))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, lines


def quiet(f):
    """For a thread of a pool: (result, what was noted). Which thread it is, and what that has done before, is not seen."""

    def run(*args):
        LOCAL.lines, lines = [], getattr(LOCAL, "lines", None)
        LOCAL.kept = []
        refuel()
        try:
            return f(*args), LOCAL.lines
        finally:
            LOCAL.lines = lines

    return run


def running():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def counted_later(n):
    for i in range(3):
        await asyncio.sleep(0)
        yield tick(i + num(n))


async def gathered(n):
    await asyncio.sleep(0)
    if num(n) % 3 == 0:
        raise Trouble(n)
    return tick(n)

"""Control flow that keeps state in frames: generators, with, exceptions, comprehensions, recursion."""

import contextlib
import itertools


driver_start()


def inner(n):
    try:
        got = yield n
        while got is not None:
            got = yield got * 2
    finally:
        log.append(("closed", n))


def outer(n):
    for i in range(n):
        result = yield from inner(i)
        log.append(result)
    return "done"


def five(n):
    return (yield from four(n))


def four(n):
    return (yield from three(n))


def three(n):
    for i in range(n):
        yield i * n
    return n


class Manager:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        log.append("enter " + self.name)
        return work(3)

    def __exit__(self, kind, value, tb):
        log.append(("exit", self.name, kind and kind.__name__))
        work(2)
        return kind is KeyError


@contextlib.contextmanager
def managed(x):
    log.append(("in", x))
    try:
        yield x + work(2)
    except ValueError as e:
        log.append(("caught", str(e)))
    finally:
        log.append(("out", x))


def work(n):
    total = 0
    for i in range(n):
        total += i * n
    return total


def finally_return(n):
    try:
        work(n)
        raise ValueError(n)
    finally:
        work(n)
        if n % 2:
            return "swallowed"  # noqa: B012


def chain(n):
    try:
        try:
            raise KeyError(n)
        except KeyError as e:
            work(3)
            raise ValueError(n) from e
    except ValueError as v:
        work(3)
        try:
            raise
        except ValueError as again:
            return type(again.__cause__).__name__, again is v, again.__context__ is v.__context__


def star(n):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(n), TypeError(n), KeyError(n)])
    except* ValueError as e:
        out.append(work(3) + len(e.exceptions))
    except* (TypeError, KeyError) as e:
        out.append(work(2) + len(e.exceptions))
    return out


def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)


class Num:
    def __init__(self, v):
        work(2)
        self.v = v

    def __add__(self, other):
        work(2)
        return Num(self.v + getattr(other, "v", other))

    __radd__ = __add__

    def __lt__(self, other):
        return work(1) + self.v < other.v

    def __getitem__(self, i):
        work(1)
        if i > 3:
            raise IndexError
        return self.v + i

    def __call__(self, *args, **kw):
        return work(2) + self.v + sum(args) + sum(kw.values())

    def __iter__(self):
        return iter([self.v + i for i in range(3)])

    def __contains__(self, x):
        return work(1) == x


log = []
started = outer(3)
next(started)
fresh = outer(2)
finished = three(0)
list(finished)
zipped = zip(range(10**6), itertools.cycle("abc"))
numbers = enumerate(itertools.count(5))
for r in range(25):
    try:
        started.send(r)
    except StopIteration:
        started = outer(3)
        next(started)
    if r % 5 == 4:
        try:
            started.throw(KeyError("x"))
        except (KeyError, StopIteration) as e:
            log.append(repr(e))
            started = outer(3)
            next(started)
    with Manager("a") as a, Manager("b"):
        log.append(a)
        if r % 3 == 0:
            raise KeyError(r)
    with managed(r) as m, contextlib.ExitStack() as stack:
        stack.callback(log.append, r)
        stack.enter_context(Manager("c"))
        if r % 4 == 0:
            raise ValueError(m)
    log.append(finally_return(3))
    log.append(chain(r))
    log.append(star(r))
    log.append(list(five(3)))
    log.append([x for x in five(4) if work(2) == 2])
    log.append({x: work(x) for x in five(3)})
    log.append(deep(40))
    n = Num(r) + Num(1) + 4
    n = 3 + n
    log.append((n.v, n(1, 2, a=3), *[*three(3)], f"{work(3)}{n.v:>{work(2) + 3}}"))
    log.append((max(Num(1), Num(2)).v, list(n), 0 in n, next(zipped), next(numbers)))
    log.append([a + b for a, b in zip(three(3), five(3), strict=False)])
    log.append([*map(work, three(3))])
    if (w := work(3)) > 2:
        log.append(w)
    for i, (k, v) in enumerate({"p": 1, "q": 2}.items()):
        log.append((i, k, work(v)))
    if len(log) > 60:
        print(r, log[-30:])
        log.clear()
print(list(started), list(fresh), list(finished))

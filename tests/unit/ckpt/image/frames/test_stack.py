"""Capture and resume of the call stack: programs imaged at every check, or at every call of a library function.

Each program runs in a process of its own (see sweep.py); every image is resumed in another one, and its output must equal
that of the undisturbed run.
"""

import gc
import subprocess
import sys

import pytest

from ckpt.image import resume
from ckpt.image.errors import Refused, RestoreError
from ckpt.image.frames import _frames, running
from ckpt.image.frames.running import available, run_base
from ckpt.image.frames.stack import FrameRecord, Stack, capture
from ckpt.image.lowlevel import c_stack

pytestmark = pytest.mark.turns(9)

EVERY = 4  # of the images taken one is resumed (all of them by the long sweep)

PROGRAMS = {
    "nested calls and loops over builtin iterators": """
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
emit(fib(5))
for i, pair in enumerate(zip([1, 2], (3, 4))):
    for key, value in {"a": work(i), "b": 2}.items():
        for letter in "xy":
            emit((i, pair, key, value, letter))
for n in reversed(range(3)):
    if n == 1:
        continue
    emit(work(n))
else:
    emit("end")
emit([work(n) for n in range(3)])
emit({n: work(n) for n in range(2)})
emit({work(n) for n in range(2)})
a = b = 0
while a < 4:
    a += 1
    b += work(a)
emit(b)
""",
    "methods, properties and attributes": """
import functools
class Point:
    count = 0
    def __init__(self, x):
        self.x = work(x)
    @property
    def double(self):
        return work(self.x) * 2
    @double.setter
    def double(self, value):
        self.x = work(value)
    @functools.cached_property
    def once(self):
        emit("computed")
        return work(self.x)
    @classmethod
    def make(cls, x):
        return cls(work(x))
    @staticmethod
    def stat(x):
        return work(x)
    def __getattr__(self, name):
        if name == "dynamic":
            return work(self.x)
        raise AttributeError(name)
    def method(self, *args, **kwargs):
        return work(self.x) + sum(args) + len(kwargs)
class Child(Point):
    def method(self, *args, **kwargs):
        return super().method(*args, **kwargs) + work(1)
    @property
    def double(self):
        return super().double + work(2)
p = Child(1)
emit((p.double, p.once, p.once, p.dynamic, p.method(1, 2, k=3), p.method(*[1], **{"k": 1})))
q = Point.make(3)
q.double = 5
emit((q.x, q.stat(2), Point.stat(3), getattr(q, "dynamic"), getattr(q, "none", 7), hasattr(q, "double")))
""",
    "functions in contexts, one in another": """
import contextvars, functools
v = contextvars.ContextVar("v", default=0)
def deep(n, *more, key=1):
    v.set(v.get() + key)
    found = [work(n), v.get(), more]
    if n:
        found.append(contextvars.copy_context().run(deep, n - 1, *more, key=2))
    found.append(v.get())
    return found
class Thing:
    def __call__(self, x):
        return work(x)
    def fails(self, x):
        v.set(7)
        raise KeyError(work(x))
def callback(context, function, args):
    try:
        return context.run(function, *args)
    except KeyError as error:
        return error.args, v.get(), work(2)
context = contextvars.copy_context()
emit((context.run(deep, 2), v.get(), context[v]))
emit(callback(context, functools.partial(deep, 1, 5, key=3), ()))
emit((callback(context, Thing(), (3,)), callback(context, Thing().fails, [4]), context[v], v.get()))
""",
    "operators, reflected ones too": """
class N:
    def __init__(self, v):
        self.v = v
    def __add__(self, other):
        if not isinstance(other, N):
            return NotImplemented
        return N(work(self.v + other.v))
    def __radd__(self, other):
        return N(work(self.v) + other)
    def __iadd__(self, other):
        self.v += work(other)
        return self
    def __neg__(self):
        return N(-work(self.v))
    def __eq__(self, other):
        return work(self.v) == work(other.v)
    def __lt__(self, other):
        return work(self.v) < work(other.v)
    def __hash__(self):
        return hash(work(self.v))
    def __getitem__(self, key):
        return work(key) + self.v
    def __setitem__(self, key, value):
        self.v = work(key) + work(value)
    def __delitem__(self, key):
        self.v = work(key)
    def __contains__(self, key):
        return work(key) % 2 == 1
    def __len__(self):
        return work(2)
    def __bool__(self):
        return work(self.v) > 0
    def __call__(self, x):
        return work(x) + self.v
    def __str__(self):
        return "N%d" % work(self.v)
    def __format__(self, spec):
        return str(self) + spec
    def __iter__(self):
        return iter([work(1), work(2)])
    def __index__(self):
        return work(0)
def f(x):
    return N(work(x))
a = N(1)
emit((a + f(2)).v)
emit((5 + f(2)).v)
a += f(3).v
a[1] = 2
emit((a.v, a[3], a == N(1), a < f(9), 1 in a, 2 in a, (-a).v, len(a), a(4), str(a), f"{a:x} {a!s}", not a))
del a[1]
emit("yes" if a else "no")
emit(list(a))
emit({a: 1}[N(a.v)])
emit((a and f(0) or f(1)).v)
emit([10, 20, 30][a])
emit((hash(a) == hash(a), repr(abs(-2)), int(a)))
""",
    "calls with * arguments, partial, map": """
import functools
def f(a, b=2, *c, d, e=5, **g):
    return work(a + b + sum(c) + d + e + sum(g.values()))
class C:
    def m(self, x, y=1):
        return work(x + y)
    def __call__(self, x):
        return work(x)
emit((f(1, d=4), f(1, 2, 3, d=4, z=1), f(*(1, 2), **{"d": 3}), f(*[1], 5, d=2)))
c = C()
emit((c.m(*[1, 2]), c(3), c(*[4]), C().m(x=5)))
p0, p1, p2 = functools.partial(work, 3), functools.partial(f, 1), functools.partial(f, 1, 2, d=3)
p3, p4 = functools.partial(C.m, c), functools.partial(c.m, 2)
class Holder:
    pass
h = Holder()
h.call = functools.partial(work, 8)
def inner():
    local = functools.partial(C.m, c)
    return local(6) + h.call()
emit((p0(), p1(d=2), p2(), p2(5), p3(4), p4(5), inner()))
for x in map(work, [1, 2]):
    emit(x)
for x in map(lambda a, b: work(a + b), [1, 2], [3, 4]):
    emit(x)
emit(next(map(work, [3])))
""",
    "closures with shared cells": """
def counter():
    count = 0
    def up(n):
        nonlocal count
        count += work(n)
        return count
    def get():
        return work(count) - count
    return up, get
up, get = counter()
emit([up(1), get(), up(2), get()])
functions = [lambda x, n=n: work(x + n) for n in range(2)]
emit([f(1) for f in functions])
""",
    "try, finally, with, exceptions being handled": """
import contextlib
class Manager:
    def __enter__(self):
        return work(1)
    def __exit__(self, kind, value, traceback):
        emit((work(2), kind and kind.__name__))
        return kind is ValueError
def returning():
    try:
        return work(1)
    finally:
        emit(work(2))
def overriding():
    for i in range(3):
        try:
            raise ValueError(i)
        except ValueError:
            try:
                raise
            except ValueError as again:
                emit((work(i), again.args))
        finally:
            if work(i) > 2:
                return i
def groups():
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as group:
        emit(work(len(group.exceptions)))
    except* TypeError:
        emit(work(7))
with Manager() as m:
    emit(m)
with Manager(), Manager():
    raise ValueError(work(1))
try:
    with Manager():
        raise KeyError(work(1))
except KeyError as error:
    emit(work(error.args[0]))
    try:
        raise TypeError("x") from error
    except TypeError as inner:
        emit((work(2), repr(inner.__context__), repr(inner.__cause__)))
    try:
        raise
    except KeyError as same:
        emit((same is error, work(3)))
finally:
    emit("finally")
emit((returning(), overriding()))
groups()
with contextlib.ExitStack() as stack:
    stack.enter_context(Manager())
    stack.callback(lambda: emit(work(5)))
    emit(work(4))
@contextlib.contextmanager
def managed(x):
    emit(("enter", work(x)))
    try:
        yield x
    except ValueError as error:
        emit(("caught", error.args, work(x)))
    finally:
        emit(("exit", work(x)))
with managed(1) as x:
    emit(work(x))
with managed(2):
    raise ValueError(work(3))
try:
    try:
        raise ValueError(work(1))
    finally:
        emit(work(6))
except ValueError:
    emit(work(7))
""",
    "__init__, __new__, metaclasses' __call__": """
class Meta(type):
    def __call__(cls, *args):
        work(1)
        made = type.__call__(cls, *args)
        emit(("made", work(2)))
        return made
class A(metaclass=Meta):
    def __new__(cls, *args):
        work(5)
        return super().__new__(cls)
    def __init__(self, a):
        self.a = work(a)
class B:
    def __init__(self, b, *rest):
        def method():
            return self
        self.b = work(b)
        self.method = method
class C(B):
    def __init__(self):
        super().__init__(work(3))
        self.c = B(4)
class E(Exception):
    def __init__(self, x):
        super().__init__(work(x))
emit(A(3).a)
b = B(*[1, 2])
emit((b.b, b.method() is b))
emit((C().b, C().c.b))
try:
    raise E(3)
except E as error:
    emit(error.args)
""",
    "slices, attributes by super(), managers that are kept by with alone": """
class S:
    def __getitem__(self, key):
        return (work(1), key)
    def __setitem__(self, key, value):
        emit((work(2), key, value))
    def __delitem__(self, key):
        emit((work(3), key))
    @property
    def value(self):
        return work(4)
    @classmethod
    def kind(cls):
        return (cls.__name__, work(5))
    def method(self):
        return lambda: work(6)
class T(S):
    @property
    def value(self):
        return super().value + super(T, self).value
    @classmethod
    def kind(cls):
        return super().kind()
    @property
    def both(self):
        return super().method()()
class Manager:
    def __enter__(self):
        return work(7)
    @staticmethod
    def nothing():
        return work(8)
    def __exit__(self, *info):
        emit((work(9), len(info), self.nothing()))
n = 1
s, t = S(), T()
emit((s[n:n + 1], s[:], s[n:2:1]))
s[n:work(1)] = work(2)
s[:] = 1
del s[1:2]
emit((t.value, T.kind(), t.both))
for i in range(3):
    with Manager() as m:
        emit(m)
def choose(x):
    match x:
        case [a, b] if work(a):
            return b
        case {"k": v}:
            return work(v)
        case _:
            return None
emit((choose([1, 2]), choose({"k": 3}), choose(4), [x for x in [1, 2] if work(x) for y in [work(x)]]))
""",
    "lru_cache and iterators of the program's own": """
import functools
def cached(n):
    return work(n) + (cached(n - 1) if n else 0)
cached = functools.lru_cache(None)(cached)
class Memo:
    def get(self, n):
        return work(n)
    get = functools.lru_cache(maxsize=2)(get)
class Countdown:
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        work(1)
        return self
    def __next__(self):
        work(self.n)
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return self.n
class Sequence:
    def __getitem__(self, i):
        if work(i) > 5:
            raise IndexError
        return i
memo = Memo()
emit((cached(2), cached(2), memo.get(1), memo.get(1)))
for x in Countdown(2):
    emit(x)
emit((next(Countdown(2)), next(Countdown(0), "none")))
for x in Sequence():
    emit(x)
values = iter([work(1), work(2), 0])
for x in iter(lambda: work(next(values)) - 1, 0):
    emit(x)
""",
    "functions that replace their own code when they are called first": """
import functools
def lazily(function):
    seen = []
    def compiled(*args, __wrapper=None, **kwargs):
        seen.append(args)
        __wrapper.__code__ = (lambda *args, __wrapper=None, **kwargs: "%s" % seen and function(*args, **kwargs)).__code__
        return __wrapper(*args, **kwargs), work(len(seen)), __wrapper.__code__.co_name
    compiled.__kwdefaults__ = {"__wrapper": compiled}
    return compiled
@lazily
def twice(n):
    return work(n) * 2
class Thing:
    @property
    @lazily
    def value(self):
        return work(3)
def once(n):
    once.__code__ = later.__code__
    return work(n), [work(i) for i in range(n)], once(n)
def later(n):
    return work(n), "later"
emit((twice(2), twice(3), once(2), once(1)))
emit((Thing.value.fget.__code__.co_name, Thing.value.fget(1)))
""",
    "lru_cache called with * arguments, as decorators do": """
import functools
def memoised(**options):
    def decorate(function):
        cached = functools.lru_cache(**options)(function)
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            try:
                return cached(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)
        wrapper.info = cached.cache_info
        return wrapper
    return decorate
class Node:
    def __init__(self, n):
        self.n = n
    def __hash__(self):
        return work(self.n) and self.n
    def __eq__(self, other):
        return self.n == other.n
    @memoised(maxsize=2, typed=True)
    def expand(self, deep=True, *more, **hints):
        return work(self.n) + len(more) + len(hints) + (Node(self.n - 1).expand(deep, x=1) if self.n else 0)
@memoised(maxsize=None)
def total(*values, scale=1):
    return scale * sum([work(value) for value in values])
class Term:
    def __new__(cls, *args, sign=1):
        self = object.__new__(cls)
        self.args = args
        self.sign = work(sign)
        return self
    new = __new__
    __new__ = memoised(maxsize=None)(__new__)
    def __init__(self, *args, sign=1):
        self.size = work(len(args))
def spread(f, first, rest, named):
    return f(first, *rest, **named), f(*rest, scale=work(2) if named else 3), f(*[work(1)], **named)
emit((Node(2).expand(), Node(1).expand(True, x=1), Node.expand.info()))
emit((Node(1).expand([]), Node.expand.info()))
emit((spread(total, 1, (2, 3), {"scale": 2}), spread(total, 1, [3], {}), total.info()))
term = Term(*iter((1, 2)), sign=2)
parts = [term, 5]
both = Term(*[term, *term.args]), Term(*term.args), Term(*parts), Term(*iter(parts)), Term.new(Term, *parts)
class Sum(Term):
    new = Term.new
    @memoised(maxsize=None, typed=True)
    def __new__(cls, first, *args):
        return Term.new(cls, first, *args)
    __init__ = lambda self, *args: None
emit([Sum(*parts).args[1:], Sum(*[1]).sign, Sum(*iter([1])).args, len(Sum(*[parts.pop(), 7]).args), len(Sum(*parts).args)])
""",
    "an lru_cache whose function leaves the result of an equal call": """
import functools
@functools.lru_cache(maxsize=None)
def half(x):
    got = half(int(x)) if type(x) is float else x // 2
    return work(x) and got
@functools.lru_cache(maxsize=3)
def third(x, *, by=3):
    got = third(int(x), by=by) if type(x) is float else x // by
    return work(x) and got
emit((half(4.0), half(4), half(6), half(6.0), half.cache_info()))
emit((third(9.0, by=2), third(9, by=2), third(7), third(7.0), third.cache_info()))
""",
    "exec and eval": """
exec('for i in range(3): emit(work(i))')
code = compile("y = 1\\ndef f(x):\\n    return work(x) + y\\nemit(f(2))\\nemit(sum([f(1), 2]))", "inner", "exec")
ns = {"work": work, "emit": emit}
exec(code, ns)
emit(sorted(k for k in ns if k != "__builtins__"))
emit(eval("work(1) + work(2)"))
emit(eval("f(1)", ns))
emit(eval(compile("[work(i) for i in range(2)]", "e", "eval")))
emit(exec(compile("work(1) + work(2)", "e", "exec")))
loc = {"work": work}
exec("a = work(3)\\nb = [work(a) for _ in range(2)]", loc)
emit(sorted(loc)[-2:])
def nested(n):
    ns = {"nested": nested, "n": n, "work": work}
    if n:
        exec("r = nested(n - 1) + work(n)", ns)
        return ns["r"] + eval("work(n)")
    return work(0)
emit(nested(3))
def failing():
    try:
        exec("work(1)\\nraise KeyError(work(2))")
    except KeyError as e:
        return e.args, e.__traceback__.tb_next.tb_lineno
emit(failing())
def implicit():
    a = work(1)
    exec("a = 5; b = work(2)")
    return a, eval("a + work(2)"), locals().get("b"), work(3)
emit(implicit())
def held():
    found = locals()
    found["more"] = work(2)
    return list(found), locals() is found, work(1)
emit(held())
""",
    "methods that put what they take where it is seen": """
import collections, csv, io
def gen(n):
    for i in range(n):
        work(i)
        yield i
def pairs(n):
    for i in range(n):
        yield i, work(i)
a = []
a.extend(gen(3)); emit(a)
a += gen(2); emit(a)
a.extend(enumerate(gen(2))); emit(a)
list.extend(a, gen(2)); emit(a)
s = set()
s.update(gen(4)); emit(s)
d = {}
d.update(pairs(3)); emit(d)
q = collections.deque(maxlen=3)
q.extend(gen(4)); q.extendleft(gen(2)); emit(q)
q += enumerate(gen(2)); emit(q)
f = io.StringIO()
f.writelines(str(x) for x in gen(3)); emit(f.getvalue())
w = csv.writer(f)
w.writerows(pairs(3)); emit(f.getvalue())
class L(list):
    pass
l = L()
l.extend(x * 2 for x in gen(3)); emit(l)
class S(set):
    pass
s = S(["7"]); s.update(map(str, gen(2))); emit(sorted(s))
""",
    "random numbers": """
import random
from random import random as draw
for i in range(3):
    emit((random.randrange(100), draw(), random.choice("abc"), random.gauss(0, 1)))
""",
}


@pytest.mark.rotate(6)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_resumes_equal_at_every_check(sweep, program):
    report = sweep(program, every=EVERY)
    assert report["failures"] == []
    # an lru_cache is one only when its wrapping is complete
    assert all("update_wrapper" in text or "still wrapping" in text for text in report["unpicklable"])
    assert report["restored"] * EVERY >= 30


def test_generations_of_images_resume_equal(sweep):
    report = sweep(PROGRAMS["methods, properties and attributes"], generations=3, every=3)
    assert report["failures"] == []
    assert report["restored"] >= 30


def test_init_waits_through_generations(sweep):
    """A restored frame that waits for an __init__ (mode I) is captured as such again."""
    program = """
class A:
    def __init__(self, n):
        self.inner = A(n - 1) if n else None
        self.n = work(n)
a = A(3)
while a:
    emit(a.n)
    a = a.inner
"""
    report = sweep(program, generations=3)
    assert report["failures"] == []
    assert any("III" in modes for modes in report["modes"])


OFTEN = """
import functools, sys
class Point:
    def __init__(self, x, y=2):
        self.x = work(x)
        self.y = y
        self.depth = sys._getframe().f_back.f_lineno
    @property
    def double(self):
        return work(self.x) * 2
    def __getitem__(self, key):
        return work(key) + self.x
    def __bool__(self):
        return work(self.x) > 0
    def __lt__(self, other):
        return work(self.x) < other.x
    def __format__(self, spec):
        return spec + str(work(self.x))
    def __str__(self):
        return "s%d" % work(self.x)
    __repr__ = __str__
    def __enter__(self):
        work(1)
        return self
    def __exit__(self, *info):
        work(2)
        return True
    def method(self, a, *, key=1):
        return work(a) + key
class Over:
    def __init__(self):
        self.n = 1
    def __getattribute__(self, name):
        work(1)
        return object.__getattribute__(self, name)
class Bad:
    def __init__(self, n):
        work(n)
        if n % 2:
            raise ValueError(n)
def gen(n):
    for i in range(n):
        yield work(i)
    return "done"
def outer(n):
    got = yield from gen(n)
    yield got
def kw(a, *args, b=2, **more):
    return work(a) + b + len(args) + len(more)
part = functools.partial(work, 3)
def line():
    import sys
    return sys._getframe(1).f_lineno
def fail(n):
    try:
        work(n)
        raise KeyError(n)
    finally:
        work(1)
over = Over()
for i in range(25):
    p = Point(i)
    q = Point(i, y=3)
    r = Point(work(i))
    emit((p.x, p.double, p[i], bool(p), p < q, f"{p}{p!s}{p:>3}{p!r}", p.depth, q.depth))
    if p:
        emit(not q)
    with p as z, q:
        emit(z.method(1, key=work(2)))
        raise ValueError(work(3))
    emit(kw(1, b=work(2)))
    emit(kw(1, 2, *[work(1)], b=3, **{"c": work(4)}))
    emit((part(), list(map(work, [1, 2])), p.method(*[1]), over.n))
    for x in outer(2):
        emit((x, line()))
    try:
        Bad(i)
    except ValueError as error:
        tb = error.__traceback__
        lines = []
        while tb:
            lines.append(tb.tb_lineno)
            tb = tb.tb_next
        emit((work(1), error.args, lines))
    try:
        fail(i)
    except KeyError as error:
        tb = error.__traceback__
        emit((work(1), tb.tb_lineno, tb.tb_next.tb_lineno))
    emit([w for w in gen(2)] + [v for v in sorted([3, 1])])
    m = p.method
    emit((m(1), m(1, key=2), (lambda *a, **k: work(len(a)))(*"ab", k=1)))
"""


def test_what_the_interpreter_has_specialised_resumes_equal(sweep):
    """Code that runs often enters functions, __init__, properties, generators without C in between; line numbers of
    frames that wait, and in tracebacks, are as ever."""
    report = sweep(OFTEN, every=149)
    assert report["failures"] == []
    assert all("frame object" in text for text in report["unpicklable"])
    assert report["restored"] >= 30
    assert report["captured"] >= 0.9 * report["checks"]


def test_what_the_interpreter_has_specialised_through_generations(sweep):
    report = sweep(OFTEN, every=499, generations=3)
    assert report["failures"] == []


def test_the_recursion_depth_comes_back_as_it_was(sweep):
    """Also behind calls that are levels of their own: of classes and of objects with __call__."""
    program = """
import sys
sys.setrecursionlimit(100)
def dig(n):
    try:
        return dig(n + 1)
    except RecursionError:
        return n
class A:
    def __init__(self, n):
        self.n = work(n)
        if n:
            self.inner = A(n - 1)
class C:
    def __call__(self):
        return work(3)
c = C()
for i in range(20):
    A(3)
    emit((dig(0), c(), dig(0), c(*[])))
"""
    report = sweep(program, every=7, generations=2)
    assert report["failures"] == []
    assert report["restored"] >= 10


def test_library_call_resumes_with_its_value(sweep):
    program = """
class A:
    def __init__(self):
        self.said = library()
    @property
    def p(self):
        return library()
def gen():
    got = yield library()
    emit((got, library()))
    yield from [library()]
emit(library())
emit((A().said, A().p, [library() for _ in range(2)]))
emit("x" + library())
for x in gen():
    emit(x)
try:
    raise ValueError(library())
except ValueError as error:
    emit((error.args, library()))
finally:
    emit(library())
with open("/dev/null") as nothing:
    emit(library())
emit(library(*[], **{}))
"""
    report = sweep(program, at="call")
    assert report["failures"] == []
    assert report["refused"] == {}
    assert report["restored"] == report["checks"] == 15


def test_library_called_from_c_is_refused(sweep):
    report = sweep("import functools\nemit([1, 2].sort(key=functools.cache(lambda n: library())))", at="call")
    assert report["captured"] == 0
    assert set(report["refused"]) == {"list.sort() is running <lambda>"}


REFUSALS = {
    "insort_right() is running H.__lt__": (
        "import bisect\nclass H(int):\n    def __lt__(self, other):\n        return work(1)\nbisect.insort([H(2)], H(1))"
    ),
    "FOR_ITER is running <lambda>": (
        "import itertools\nfor a in itertools.takewhile(lambda n: (n := [work(n)]), [1, 2]): emit(a)"
    ),
    "an iterator is being unpacked": (
        "class Two:\n    def __iter__(self):\n        return iter([work(1), work(2)])\na, b = Two()"
    ),
    "a destructor is running": "class D:\n    def __del__(self):\n        work(1)\nd = D()\ndel d",
    "a weak reference callback is running": (
        "import weakref\nclass D: pass\nd = D()\nr = weakref.ref(d, lambda ref: work(1))\ndel d"
    ),
    "a class is being created": "class A:\n    x = [work(n) for n in range(2)]",
    "exec() is running <module>": "exec(compile('work(1)', 'expression', 'eval'))",
    "run() is running <lambda>": "import contextvars\ncontextvars.copy_context().run(sorted, [2, 1], key=lambda n: work(n))",
    "the code of a running function has been replaced": """
class Thing:
    def __add__(self, other):
        Thing.__add__.__code__ = (lambda self, other: 1).__code__
        return work(3)
emit((Thing() + 1, Thing() + 1))
""",
    "an import is in progress": "import sys\nsys.modules.pop('colorsys', None)\nimport colorsys",
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_state_hidden_in_c_is_refused_by_name(sweep, reason):
    report = sweep(REFUSALS[reason] + "\nemit(work(1))")
    assert any(reason in refused for refused in report["refused"]), report["refused"]
    assert report["failures"] == []
    assert report["captured"] > 0  # refusals are short


DESTRUCTORS = """
import gc, weakref
class D:
    def __init__(self, n):
        self.n = n
    def __del__(self):
        emit(("del", self.n, work(self.n)))
    def __add__(self, other):
        return self.n + other.n
    def __eq__(self, other):
        return work(self.n) == work(other.n)
    def __bool__(self):
        return True
    def __enter__(self):
        return work(1)
    def __exit__(self, *info):
        work(2)
    def m(self):
        return work(self.n)
class Shut:
    def shut(self):
        emit(("shut", work(6)))
    __del__ = shut
class Node:
    def __init__(self, next_node):
        self.next_node = next_node
    def __del__(self):
        emit(("node", work(1)))
def f(d):
    return work(d.n)
def local():
    d = D(3)
    work(1)
    return d.n
emit(f(D(1)))
emit(local())
emit(D(2) + D(3))
emit(D(4).m())
emit(f(*(D(5),)))
def two(a, b):
    work(a.n)
    return D(a.n + 100)
emit(two(*[D(19), D(20)]).n)
emit(D(1) == D(2))
if D(7):
    emit("true")
with D(8) as w:
    emit(w)
x = D(9)
x = None
cycle = D(11)
cycle.me = cycle
del cycle
gc.collect()
Shut().shut()
Shut.shut(*[Shut()])
node = None
for i in range(3):
    node = Node(node)
node = None
try:
    raise ValueError(D(16))
except ValueError as error:
    emit(work(1))
emit("after")
items = [D(21), D(22)]
items[0] = D(24)
items.clear()
target = D(12)
reference = weakref.ref(target, lambda ref: emit(("gone", work(1))))
target = None
emit("end")
"""


def test_destructors_during_release_never_give_a_wrong_image(sweep):
    report = sweep(DESTRUCTORS)
    assert report["failures"] == []
    assert report["restored"] >= 100
    assert "a destructor is running" in report["refused"]


def test_a_call_that_returns_a_method_of_a_c_type_is_over(sweep):
    """``copy.copy`` looks its function up so: the method returned was taken for the one in use, and the image waited."""
    program = """
table = {list: list.copy, dict: dict.copy, str: str.upper}
def result(thing):
    found = table.get(type(thing))
    return found(thing)
for thing in ([1], {}, "a") * 5:
    emit(result(thing))
"""
    report = sweep(program)
    assert report["failures"] == []
    assert report["restored"] >= 15
    # `dict.copy` lies below the dictionary of which `get` was called, so it may be a call under way.
    assert not {"list.copy() is running", "str.upper() is running"} & set(report["refused"])


def test_deep_recursion_is_restored(sweep):
    program = """
import sys
sys.setrecursionlimit(30000)
def down(n):
    return library() if n == 0 else down(n - 1)
emit(down(20000))
"""
    report = sweep(program, at="call")
    assert report["failures"] == []
    assert report["restored"] == 1


def test_the_recursion_limit_is_reached_where_it_would_have_been(sweep):
    program = """
import sys
def until_error(n):
    try:
        return until_error(n + 1)
    except RecursionError:
        return n
def outer(n):
    return until_error(0) if n == 0 else outer(n - 1) + work(1)
sys.setrecursionlimit(200)
emit(outer(3))
emit(library())
emit((outer(5), work(1)))
"""
    report = sweep(program, at="call")
    assert report["failures"] == []
    assert report["restored"] == 1
    report = sweep(program, every=10)
    assert report["failures"] == []
    assert report["restored"] >= 10


# ---------------------------------------------------------------------------------- in this process


def test_a_capture_outside_of_run_base_is_refused():
    with pytest.raises(Refused, match="run_base"):
        capture(at="call")


def test_a_capture_at_a_check_needs_a_request():
    with pytest.raises(RuntimeError, match="request"):
        run_base(capture_at_check)


def capture_at_check():
    return capture(at="check")


def watch(*event):
    watched.append(event[1])


watched = []


def test_a_profile_function_is_part_of_the_stack():
    def program():
        sys.setprofile(watch)
        try:
            got = taken("resumed")
            seen = len(watched)
            len([])
            return got, sys.getprofile() is watch, len(watched) > seen
        finally:
            sys.setprofile(None)

    stack = run_base(program)[0]
    assert stack.tracing.profile is watch
    assert resume(stack) == ("resumed", True, True)
    assert stack.tracing is None


def test_a_running_trace_function_is_refused():
    def program():
        sys.setprofile(lambda *event: reasons.append(refusal()))
        sys.setprofile(None)

    def refusal():
        with pytest.raises(Refused) as refused:
            capture(at="call")
        return refused.value.reason

    reasons = []
    run_base(program)
    assert set(reasons) == {"a trace or profile function of the program is running"}


def test_what_watches_in_c_is_refused_by_name():
    """Its state is not known: as that of a debugger or profiler that brings a compiled module."""
    sys.setprofile("".format)
    try:
        with pytest.raises(Refused, match=r"traced or profiled by a .*builtin_function_or_method"):
            run_base(lambda: taken())
    finally:
        sys.setprofile(None)


PROFILED = """
import cProfile
def one(n):
    t = work(n)
    library()
    for i in range(3):
        t += two(i)
    return t
def two(n):
    library()
    return work(n) if n < 2 else two(n - 1)
def mine(entries):
    return [(e.code.co_name, *e[1:3]) for e in entries if getattr(e.code, "co_filename", "") == "program"]
profile = cProfile.Profile()
profile.enable()
for i in range(2):
    emit(one(i))
profile.disable()
for row in sorted((mine([e]), sorted(mine(e.calls or ()))) for e in profile.getstats() if mine([e])):
    emit(row)
"""

TRACED = """
import sys
def one(n):
    t = 0
    for i in range(n):
        t += two(i)
        for j in range(2):
            t += j; library()
    return t
def two(n):
    library()
    while True:
        n += 1
        if n > 5:
            break
    return n
def three():
    yield one(1)
    try:
        yield two(1)
    finally:
        library()
def main():
    for x in three():
        emit(x)
    emit(one(2))
def watch(frame, event, arg):
    if frame.f_code.co_name in ("one", "two", "three"):
        out((event, frame.f_code.co_name, frame.f_lineno))
        return watch
for begin in (sys.settrace, sys.setprofile):
    begin(watch)
    main()
    begin(None)
"""


@pytest.mark.parametrize("program", [PROFILED, TRACED], ids=["cProfile", "settrace and setprofile"])
def test_what_watches_a_program_sees_the_same_after_a_restart(sweep, program):
    report = sweep(program, at="call", every=2)
    assert report["failures"] == report["unpicklable"] == []
    assert report["refused"] == {}
    assert report["restored"] >= 5


def taken(value="value"):
    """A library function: it leaves itself out."""
    return capture(at="call", skip=(taken.__code__,), value=value)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="another Python: 3.12 has sys.monitoring")
def test_monitoring_is_refused():
    tool = sys.monitoring.PROFILER_ID
    sys.monitoring.use_tool_id(tool, "test")
    sys.monitoring.set_events(tool, sys.monitoring.events.PY_START)
    try:
        with pytest.raises(Refused, match="traced or profiled"):
            run_base(lambda: taken())
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)


def test_describe_names_the_lines():
    def program():
        return taken()

    rows = run_base(program).describe()
    assert [row["function"].split(".")[-1] for row in rows] == ["program"]
    assert rows[0]["file"] == __file__
    assert rows[0]["line"] == program.__code__.co_firstlineno + 1


def test_a_record_holds_variables_and_stack():
    def program(a):
        result = (a, 5, taken("pushed"))
        return result[2]

    (record,) = run_base(program, "A").frames
    assert record.func is program
    assert record.locals[0] == "A"
    assert record.stack == ["A", 5]
    assert (record.mode, record.value) == ("L", "pushed")


def test_an_unset_variable_is_a_null():
    def program():
        first = taken()
        second = 1
        return first, second

    stack, _ = run_base(program)
    assert stack.frames[0].locals == [_frames.NULL, _frames.NULL]


def test_resume_runs_to_the_end_and_empties_the_stack():
    def program(log):
        got = taken("resumed")
        log.append(got if isinstance(got, str) else "first")
        return got

    log = []
    stack = run_base(program, log)
    assert resume(stack) == "resumed"
    assert log == ["first", "resumed"]
    assert stack.frames == []


def test_resume_passes_exceptions_on():
    def keeping():
        kept.append(taken("resumed"))
        raise_if_resumed(kept)

    def raise_if_resumed(kept):
        if len(kept) > 1:
            raise KeyError("mine")

    kept = []
    run_base(keeping)
    with pytest.raises(KeyError, match="mine"):
        resume(kept[0])


def test_resume_keeps_nothing_alive():
    class Thing:
        pass

    def program():
        thing = Thing()
        state = taken(None)
        if state is None:
            del thing
            gc.collect()
            return sum(type(o) is Thing for o in gc.get_objects())
        return state

    stack = run_base(program)
    assert resume(stack) == 0


def test_the_hook_is_gone_after_resume_and_after_a_failure():
    stack = run_base(lambda: taken(1))
    resume(stack)
    good = run_base(lambda: taken(1))
    good.frames[0].locals = [1, 2, 3]
    with pytest.raises(RestoreError, match="bad record"):
        resume(good)
    # both could not run with a hook left behind: it would look for records
    assert run_base(lambda: len(taken(1).frames)) == 1


def test_a_repeated_instruction_that_does_not_enter_its_frame_is_an_error():
    class Lazy:
        @property
        def value(self):
            kept.append(taken(1))
            return 1

    def program(lazy):
        return lazy.value

    kept = []
    run_base(program, Lazy())
    Lazy.value = 5
    with pytest.raises(RestoreError, match="did not enter"):
        resume(kept[0])


def test_an_empty_or_malformed_stack_is_refused():
    with pytest.raises(RestoreError, match="no frames"):
        resume(Stack())
    record = FrameRecord(None, None, None, None, [], [], 0, "L", None, None, None)
    with pytest.raises(ValueError, match="malformed"):
        resume(Stack([record], recursion_limit=sys.getrecursionlimit()))


def test_a_stack_too_deep_for_the_c_stack_is_refused(monkeypatch):
    monkeypatch.setattr(c_stack, "_LIMIT_BYTES", 9 << 20)
    monkeypatch.setattr(c_stack.resource, "getrlimit", lambda which: (8 << 20, 64 << 20))
    with pytest.raises(RestoreError, match="KiB of C stack"):
        c_stack.ensure(100_000)


def test_available_here_and_not_elsewhere(monkeypatch):
    assert available() == (True, "")
    monkeypatch.setattr(running, "TABLE", None)
    ok, reason = available()
    assert not ok
    assert "3.11" in reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"JIT": 1}, "JIT"),
        ({"SUPPORTED": 0}, "built for"),
        ({"BUILT_FOR": "3.10.1"}, "built for CPython 3.10.1"),
    ],
)
def test_other_builds_are_named(monkeypatch, change, words):
    for name, value in change.items():
        monkeypatch.setattr(_frames, name, value)
    ok, reason = available()
    assert not ok
    assert words in reason


def test_a_free_threaded_interpreter_is_named(monkeypatch):
    monkeypatch.setattr(sys, "abiflags", "t")
    assert available() == (False, "frames cannot be captured in a free-threaded interpreter")


def test_another_implementation_is_named(monkeypatch):
    monkeypatch.setattr(
        sys, "implementation", type(sys.implementation)(**{**vars(sys.implementation), "name": "pypy"})
    )
    ok, reason = available()
    assert not ok
    assert "pypy" in reason


def test_request_runs_at_a_check_and_reports_faults(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: seen.append(info.exc_value))

    def fault():
        raise OSError("ours")

    assert _frames.request(fault)
    for _ in range(10):
        pass
    assert [str(error) for error in seen] == ["ours"]


def test_a_request_made_while_another_runs_is_not_forgotten():
    """CPython 3.13 takes back the notice of it at a check within the first, and ends after some calls."""
    runs = []

    def again():
        runs.append(1)
        if len(runs) < 100:
            assert _frames.request(again)
            for _ in range(3):
                len(runs)

    assert _frames.request(again)
    for _ in range(100):
        len(runs)
    assert len(runs) == 100


@pytest.mark.parametrize("how", ["sys.settrace(count)", "cProfile.Profile().enable()"])
def test_a_request_made_while_another_runs_does_not_hold_a_profiled_program(how):
    """CPython 3.11 looks for it again and again where a traced function begins, as long as the first has not ended."""
    program = f"""
import cProfile, sys
from ckpt.image.frames import _frames
def count(*_):
    if _[1] == "call" and _[0].f_code.co_name in ("first", "nested"):
        seen.append(_[0])
def nested():
    pass
def first():
    _frames.request(lambda: done.append("second"))
    nested()
    done.append("first")
seen, done = [], []
{how}
_frames.request(first)
while len(done) < 2:
    pass
print(done, len(seen))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("['first', 'second'] 0\n", "")


def test_request_lets_an_interrupt_through():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assert _frames.request(interrupt)
        for _ in range(10):
            pass


def test_fork_runs_no_callbacks_of_the_program():
    program = """
import os, random
from ckpt.image.frames import _frames
os.register_at_fork(after_in_child=lambda: os.write(1, b"callback "))
random.seed(7)
expected = random.Random(7).random()
if _frames.fork() == 0:
    os.write(1, b"same" if random.random() == expected else b"seeded again")
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stdout == "same"


def test_an_import_by_import_module_is_refused_too(sweep):
    """faker: the import lock and the module half made by importlib's own Python code have no place in a new process."""
    program = """
import importlib
emit(importlib.import_module("colorsys").rgb_to_hls(1, 0, 0))
"""
    report = sweep(program)
    assert not report["failures"] and report["refused"]["an import is in progress"] >= 3


def test_the_removal_of_a_tree_is_refused_while_it_knows_directories_by_their_numbers(sweep):
    """A restart makes the directory again, with another number: the program got "Cannot call rmtree on a symbolic link"."""
    program = """
import os, shutil
shutil.rmtree("/does/not/exist", onerror=lambda *failure: work(3))
emit(os.path.samefile("/", "/tmp"))
"""
    report = sweep(program)
    assert (
        not report["failures"] and report["refused"]["files are being told apart by their inode numbers"] > 4
    )


def test_a_deep_copy_is_refused_while_it_knows_objects_by_their_addresses(sweep):
    """Its table of what was copied would be wrong in a new process: what was one object would be copied twice."""
    program = """
import copy
shared = [1]
class Slow:
    def __deepcopy__(self, memo):
        return work(3)
emit(copy.deepcopy([shared, Slow(), shared]))
copied = copy.deepcopy([shared, Slow(), shared])
emit(copied[0] is copied[2])
"""
    report = sweep(program)
    assert not report["failures"] and report["refused"]["objects are being told apart by their addresses"] > 4
    assert report["captured"]


def test_a_thread_that_is_being_made_is_waited_for(sweep):
    """By random programs: the table of all threads was in the image, with those of ckpt; a round was lost to it."""
    program = """
import threading
thread = threading.Thread(target=emit, name="made")
emit(thread.name)
"""
    report = sweep(program)
    assert not report["failures"] and not report["unpicklable"]
    assert report["refused"]["a thread is being made"] > 4


def test_a_thread_whose_init_has_not_been_called_yet_is_in_an_image(sweep):
    """By random programs: "Thread.__init__() not called"."""
    program = """
import threading
class Late(threading.Thread):
    def __init__(self):
        self.value = work(3)
        super().__init__(name="late")
    def run(self):
        emit(self.value)
late = Late()
late.run()
emit((late.name, late.ident))
"""
    report = sweep(program)
    assert not report["failures"] and not report["unpicklable"]


def test_while_a_signal_handler_is_set_or_looked_up_no_image_is_taken(sweep):
    """By random programs with asyncio: ckpt's own function before that in C was in the image; a round was lost to it."""
    program = """
import signal
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
emit(signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN)
"""
    report = sweep(program)
    assert not report["failures"]
    assert report["refused"]["a signal handler is being set or looked up"] > 4

"""Objects of the interpreter itself: functions, iterators, exceptions, locks, weak references, contexts, modules."""

import abc
import collections
import contextlib
import contextvars
import functools
import gc
import tempfile
import socket
import pathlib
import os
import importlib.util
import importlib.machinery
import importlib.abc
import itertools
import operator
import queue
import sys
import threading
import types
import weakref

from cases import case, main


class Thing:
    def __init__(self, name="thing"):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"

    def method(self):
        return self.name


@case
def closures_with_shared_cells():
    def make():
        count = 0

        def up():
            nonlocal count
            count += 1
            return count

        return up, lambda: count

    up, look = make()
    while True:
        yield up(), look(), up.__closure__[0] is look.__closure__[0]


@case
def recursive_closures_and_defaults():
    def outer(n, _memo={}):
        def inner(k):
            return 1 if k < 2 else k * inner(k - 1)

        _memo[n] = inner(n)
        return _memo, inner

    memo, inner = outer(3)
    n = 3
    while True:
        n += 1
        yield sorted(outer(n)[0].items()), inner(n), inner.__qualname__


@case
def empty_cells():
    def make():
        def use():
            return later

        if False:
            later = 1
        return use

    use = make()
    while True:
        try:
            use()
        except NameError as error:
            yield str(error)


@case
def generators_delegating():
    def leaf(n):
        total = 0
        for i in range(n):
            got = yield i
            total += got or 0
        return total

    def middle(n):
        result = yield from leaf(n)
        yield ("leaf", result)

    def top():
        try:
            yield from middle(20)
        finally:
            closed.append("closed")

    closed = []
    running = top()
    next(running)
    fresh, done = leaf(2), leaf(0)
    list(done)
    while True:
        yield running.send(2), fresh.gi_frame is not None, done.gi_frame, closed


@case
def generator_close_and_throw():
    def noisy(log):
        while True:
            try:
                yield len(log)
            except ValueError as error:
                log.append(str(error))
            except GeneratorExit:
                log.append("exit")
                raise

    log = []
    running = noisy(log)
    next(running)
    while True:
        running.throw(ValueError("thrown"))
        other = noisy(log)
        next(other)
        other.close()
        yield next(running), list(log)


@case
def coroutines_by_hand():
    @types.coroutine
    def wait(x):
        return (yield x)

    async def work():
        total = 0
        while True:
            total += await wait(total)

    running = work()
    running.send(None)
    n = 0
    while True:
        n += 1
        yield running.send(n), running.cr_running


@case
def builtin_iterators():
    things = [
        list(range(9)),
        tuple(range(9)),
        "abcdefghi",
        b"abcdefghi",
        bytearray(b"abcdefghi"),
        range(9),
        range(2**70, 2**70 + 9),
    ]
    iterators = [iter(x) for x in things] + [reversed(x) for x in things if not isinstance(x, (bytes,))]
    iterators += [
        zip("abcdefgh", range(9)),
        enumerate("abcdefg", 5),
        map(str, range(9)),
        filter(None, range(9)),
    ]
    iterators += [
        iter({n: n for n in range(9)}),
        iter({n: n for n in range(9)}.items()),
        reversed({n: n for n in range(9)}),
    ]
    iterators += [
        iter({f"k{n}" for n in range(9)}),
        iter(frozenset(range(50, 60))),
        iter([1, 2, 3, 4, 5, 6].pop, 1),
    ]
    iterators += [
        iter(memoryview(b"abcdefgh")),
        iter(collections.deque(range(9))),
        reversed(collections.deque(range(9))),
    ]
    iterators += [
        iter(collections.OrderedDict(a=1, b=2, c=3, d=4, e=5)),
        iter(collections.OrderedDict(a=1, b=2, c=3, d=4, e=5).items()),
    ]
    finished = iter([])
    list(finished)
    while True:
        yield [next(i) for i in iterators], list(finished)


@case
def iterator_over_a_changing_list():
    items = [1, 2, 3]
    iterator = iter(items)
    while True:
        items.append(len(items) + 1)
        yield next(iterator), operator.length_hint(iterator)


@case
def sequence_iterator():
    class Sequence:
        def __getitem__(self, i):
            return i * i

        def __len__(self):
            return 100

    iterator, back = iter(Sequence()), reversed(Sequence())
    while True:
        yield next(iterator), next(back)


@case
def itertools_everything():
    made = [
        itertools.count(3),
        itertools.count(0.5, 0.25),
        itertools.count(2**65),
        itertools.cycle("abc"),
        itertools.repeat("x"),
        itertools.repeat("x", 50),
        itertools.chain("ab", [1, 2, 3], "cdef"),
        itertools.chain.from_iterable([n, n] for n in range(9)),
        itertools.compress("abcdefghijkl", itertools.cycle([1, 0])),
        itertools.dropwhile(lambda x: x < 3, range(20)),
        itertools.takewhile(lambda x: x < 30, range(20)),
        itertools.filterfalse(lambda x: x % 2, range(30)),
        itertools.islice(range(100), 3, None, 4),
        itertools.starmap(pow, [(n, 2) for n in range(20)]),
        itertools.accumulate(range(20)),
        itertools.accumulate(range(20), operator.mul, initial=1),
        itertools.product("ab", "cde", repeat=2),
        itertools.permutations("abcd", 2),
        itertools.combinations("abcde", 3),
        itertools.combinations_with_replacement("abc", 3),
        itertools.zip_longest("ab", range(20), fillvalue="-"),
        itertools.pairwise(range(30)),
    ]
    if hasattr(itertools, "batched"):
        made.append(itertools.batched(range(40), 3))
    while True:
        yield [next(i) for i in made]


@case
def itertools_tee():
    first, second = itertools.tee(itertools.count())
    third = iter(first)
    next(first)
    next(first)
    source = (n * n for n in range(50))
    a, b = itertools.tee(source)
    list(itertools.islice(a, 60 if False else 5))
    while True:
        yield next(first), next(second), next(third), next(a), next(b)


@case
def itertools_groupby():
    groups = itertools.groupby(range(60), lambda n: n // 10)
    key, group = next(groups)
    next(group)
    while True:
        yield key, next(group)


@case
def slices_ranges_and_singletons():
    cell = object()
    kept = [slice(1, None, 2), range(3, 9, 2), Ellipsis, NotImplemented, None, type(None), type(...), cell]
    while True:
        yield kept[:-1], kept[-1] is cell, kept[2] is ..., kept[3] is NotImplemented


@case
def exceptions_in_flight():
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            try:
                raise ValueError("outer") from inner
            except ValueError:
                while True:
                    error = sys.exc_info()[1]
                    yield (
                        repr(error),
                        repr(error.__cause__),
                        repr(error.__context__),
                        error.__suppress_context__,
                    )
    finally:
        pass


@case
def reraise_after_a_stop():
    def chain():
        try:
            try:
                {}["gone"]
            except KeyError:
                yield "handling"
                raise
        except KeyError as again:
            yield repr(again), repr(again.__context__)
            try:
                raise RuntimeError("second")
            except RuntimeError as second:
                yield repr(second.__context__)
        yield sys.exc_info()[0]

    running = chain()
    while True:
        yield next(running)


@case
def exception_groups_and_notes():
    def handle():
        try:
            raise ExceptionGroup(
                "all", [ValueError(1), TypeError("t"), ExceptionGroup("in", [KeyError(3), ValueError(4)])]
            )
        except* ValueError as group:
            yield [repr(e) for e in group.exceptions]
            yield str(group)
        except* TypeError:
            yield "type"
        except* KeyError:
            yield "key"

    kept = ValueError("with notes")
    kept.add_note("one")
    running = handle()
    while True:
        kept.add_note("more")
        yield next(running), kept.__notes__


@case
def tracebacks_of_kept_exceptions():
    def fail(depth):
        if depth:
            fail(depth - 1)
        raise ValueError("deep")

    try:
        fail(2)
    except ValueError as error:
        kept = error
    while True:
        import traceback

        entries = traceback.extract_tb(kept.__traceback__)
        yield [(entry.name, entry.lineno, entry.line) for entry in entries]


@case
def exc_info_tuple_kept():
    try:
        1 / 0
    except ZeroDivisionError:
        info = sys.exc_info()
    while True:
        yield (
            info[0].__name__,
            str(info[1]),
            info[2] is info[1].__traceback__,
            info[2].tb_frame.f_code.co_name,
        )


@case
def locks_of_all_kinds():
    held, free, twice = threading.Lock(), threading.Lock(), threading.RLock()
    held.acquire()
    twice.acquire()
    twice.acquire()
    condition, own = threading.Condition(), threading.Condition(threading.Lock())
    own.acquire()
    event, semaphore, bounded = threading.Event(), threading.Semaphore(5), threading.BoundedSemaphore(2)
    barrier = threading.Barrier(3)
    event.set()
    bounded.acquire()
    while True:
        semaphore.acquire()
        free.acquire()
        free.release()
        with condition:
            condition.notify_all()
        own.notify()
        twice.release()
        twice.acquire()
        yield (
            held.locked(),
            own._lock.locked(),
            event.is_set(),
            semaphore._value,
            bounded._value,
            barrier.parties,
            twice._is_owned(),
        )


@case
def queues():
    plain, last, first, simple = queue.Queue(3), queue.LifoQueue(), queue.PriorityQueue(), queue.SimpleQueue()
    plain.put("begin")
    simple.put(("begin", 0))
    n = 0
    while True:
        n += 1
        for q in (last, first, simple):
            q.put((-n, n))
            q.put((n, -n))
        plain.put(n)
        yield (
            plain.get(),
            last.get(),
            first.get(),
            simple.get(),
            plain.qsize(),
            plain.unfinished_tasks,
            simple.qsize(),
            plain.full(),
        )


@case
def weak_containers():
    things = [Thing(f"t{n}") for n in range(6)]
    by_name = weakref.WeakValueDictionary((t.name, t) for t in things)
    keyed = weakref.WeakKeyDictionary((t, t.name.upper()) for t in things)
    members = weakref.WeakSet(things)
    method = weakref.WeakMethod(things[0].method)
    while True:
        gc.collect()
        yield (
            sorted(by_name),
            sorted(keyed.values()),
            len(members),
            method()(),
            by_name["t0"] is things[0],
            things[0] in members,
        )
        things.pop()


@case
def weak_references_with_callbacks():
    log = []
    things = [Thing(f"t{n}") for n in range(8)]
    refs = [weakref.ref(t, lambda r, n=n: log.append(n)) for n, t in enumerate(things)]
    proxy = weakref.proxy(things[0])
    dead = weakref.ref(Thing())
    while True:
        things.pop()
        gc.collect()
        yield (
            list(log),
            [r() is not None for r in refs],
            proxy.name,
            dead(),
            refs[0] is weakref.ref(things[0], refs[0].__callback__),
            weakref.getweakrefcount(things[0]),
        )


@case
def weak_reference_is_shared():
    thing = Thing()
    ref = weakref.ref(thing)
    while True:
        yield weakref.ref(thing) is ref, hash(ref) == hash(thing), ref == weakref.ref(thing)


@case
def finalizers():
    log = []
    things = [Thing(f"t{n}") for n in range(6)]
    finalizers = [weakref.finalize(t, log.append, t.name) for t in things]
    finalizers[0].atexit = False
    dead = finalizers[5]
    while True:
        things.pop()
        gc.collect()
        yield (
            list(log),
            [f.alive for f in finalizers],
            finalizers[0].peek()[2:] if finalizers[0].alive else None,
            dead.alive,
            finalizers[1].atexit,
        )


@case
def objects_with_del():
    log = []

    class Noisy:
        def __init__(self, n):
            self.n = n

        def __del__(self):
            log.append(self.n)

    kept = [Noisy(n) for n in range(6)]
    while True:
        kept.pop()
        yield list(log)


@case
def context_variables():
    var = contextvars.ContextVar("var", default=0)
    other = contextvars.ContextVar("other")
    token = var.set(1)
    context = contextvars.copy_context()
    context.run(var.set, 50)
    n = 0
    while True:
        n += 1
        other.set(n)
        context.run(lambda: var.set(var.get() + 1))
        yield (
            var.get(),
            other.get(),
            context[var],
            other in context,
            token.old_value is contextvars.Token.MISSING,
            token.var is var,
        )


@case
def context_tokens_reset():
    var = contextvars.ContextVar("var", default="default")
    var.set("first")
    tokens = [var.set(f"value {n}") for n in range(6)]
    while True:
        var.reset(tokens.pop())
        yield var.get(), len(tokens)


@case
def code_objects():
    code = compile("a + b * [c for c in range(3)][2]", "<somewhere>", "eval")
    function = types.FunctionType(
        (lambda x, y=2, /, *a, k=3, **kw: (x, y, a, k, kw)).__code__, globals(), "renamed"
    )
    n = 0
    while True:
        n += 1
        yield (
            eval(code, {"a": n, "b": 2}),
            code.co_filename,
            function(1, 2, 3, k=4, z=5),
            list(code.co_positions())[:2] == list(code.co_positions())[:2],
        )


@case
def module_objects():
    made = types.ModuleType("made", "doc")
    made.value = 1
    exec("def f():\n    global value\n    value += 1\n    return value", made.__dict__)
    f = made.f
    while True:
        yield (
            made.f(),
            f.__globals__ is made.__dict__,
            made.value,
            made.__doc__,
            repr(made),
            sys.modules["itertools"] is itertools,
        )


@case
def globals_and_namespaces():
    space = {"x": 1, "__builtins__": __builtins__}
    exec("class C:\n    def f(self): return x\ndef g(): return C().f() + x", space)
    simple = types.SimpleNamespace(a=1, me=None)
    simple.me = simple
    proxy = types.MappingProxyType(space)
    while True:
        space["x"] += 1
        simple.a += 1
        yield space["g"](), repr(simple), proxy["x"], space["C"].__module__


@case
def methods_and_partials():
    thing = Thing("bound")
    bound, unbound, builtin = thing.method, Thing.method, [3, 1, 2].append
    made = types.MethodType(lambda self, x: (self.name, x), thing)
    partial = functools.partial(made, 3)
    nested = functools.partial(functools.partial(max, 5), 7)
    partial.extra = thing
    getter, item, caller = (
        operator.attrgetter("name", "method"),
        operator.itemgetter(1, -1),
        operator.methodcaller("method"),
    )
    while True:
        builtin(4)
        yield (
            bound(),
            unbound(thing),
            builtin.__self__,
            partial(),
            nested(1),
            getter(thing)[0],
            item("abc"),
            caller(thing),
            partial.extra is thing,
        )


@case
def functools_tools():
    @functools.singledispatch
    def show(x):
        return "object"

    @show.register
    def _(x: int):
        return "int"

    @show.register(list)
    def _(x):
        return "list"

    class Lazy:
        @functools.cached_property
        def value(self):
            calls.append("computed")
            return len(calls)

        @functools.singledispatchmethod
        def kind(self, x):
            return "any"

        @kind.register
        def _(self, x: str):
            return "str"

        @functools.partialmethod
        def pm(self):
            return "pm"

    @functools.total_ordering
    class Order:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

    calls = []
    lazy, fresh = Lazy(), []
    lazy.value
    fresh.append(Lazy())
    key = functools.cmp_to_key(lambda a, b: b - a)
    keys = [key(1), key(2)]

    def register(kind):
        show.register(kind)(lambda x: kind.__name__)

    kinds = [float, str, tuple, dict]
    while True:
        register(kinds.pop())
        yield (
            show(1),
            show([]),
            show(1.5),
            show({}),
            show("x"),
            lazy.value,
            fresh[-1].value,
            lazy.kind("a"),
            lazy.kind(1),
            sorted([1, 3, 2], key=key),
            keys[1] < keys[0],
            Order(1) >= Order(0),
        )


@case
def lru_caches():
    calls = []

    @functools.lru_cache(maxsize=4)
    def bounded(a, *, b=0):
        calls.append(a)
        return a + b

    @functools.cache
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    class Owner:
        @functools.lru_cache
        def method(self, x):
            calls.append("method")
            return x

    owner = Owner()
    n = 0
    while True:
        n += 1
        yield (
            bounded(n),
            bounded(n, b=1),
            bounded(n - 1),
            fib(20 + n),
            owner.method(1),
            len(calls),
            bounded.cache_info(),
            fib.cache_info().currsize,
        )


@case
def memory_views():
    data = bytearray(range(32))
    whole, part, words = memoryview(data), memoryview(data)[4:12], memoryview(data).cast("H")
    shaped = memoryview(data).cast("B", [4, 8])
    fixed = memoryview(bytes(range(10)))[3:6]
    strided, back = memoryview(data)[::3], memoryview(data)[::-1]
    read_only = memoryview(data).toreadonly()[2:5]
    while True:
        part[0] += 1
        words[4] += 1
        yield (
            data[:12].hex(),
            whole[4],
            shaped[1, 0],
            bytes(fixed),
            strided[2],
            back[0],
            bytes(strided)[:3],
            bytes(read_only),
            part.nbytes,
        )


@case
def descriptors_and_wrappers():
    class Has:
        __slots__ = ("x", "__dict__")

        @property
        def p(self):
            "doc"
            return self.x

        @p.setter
        def p(self, value):
            self.x = value

        @staticmethod
        def s():
            return "s"

        @classmethod
        def c(cls):
            return cls.__name__

    has = Has()
    has.p = 1
    kept = [
        Has.x,
        Has.__dict__["p"],
        Has.__dict__["s"],
        Has.__dict__["c"],
        int.__add__,
        (5).__add__,
        dict.fromkeys,
        str.join,
        "".join,
        object.__new__,
        type.__call__,
    ]
    while True:
        kept[1].__set__(has, has.p + 1)
        yield (
            kept[0].__get__(has),
            kept[1].__get__(has),
            kept[2].__get__(has)(),
            kept[3].__get__(has)(),
            kept[4](1, 2),
            kept[5](3),
            kept[6]("a"),
            kept[7]("-", "ab"),
            kept[8]("cd"),
            kept[1].__doc__,
            kept[9](Thing).__class__ is Thing,
        )


@case
def context_managers_open():
    log = []

    @contextlib.contextmanager
    def manager(name):
        log.append(f"enter {name}")
        try:
            yield name
        finally:
            log.append(f"exit {name}")

    stack = contextlib.ExitStack()
    stack.enter_context(manager("a"))
    stack.callback(log.append, "callback")
    one = manager("b")
    one.__enter__()
    with contextlib.suppress(KeyError), manager("c"), contextlib.nullcontext(5) as five:
        yield five, list(log)
        stack.close()
        yield five, list(log)
        one.__exit__(None, None, None)
        yield five, list(log)
        raise KeyError
    while True:
        yield list(log)


@case
def thread_objects_that_have_ended():
    def work():
        done.append(threading.current_thread().name)

    done = []
    ended = threading.Thread(target=work, name="worker")
    ended.start()
    ended.join()
    fresh = threading.Thread(target=work, name="fresh")
    local = threading.local()
    local.x = 0
    main = threading.current_thread()
    while True:
        local.x += 1
        yield (
            done,
            ended.is_alive(),
            ended.name,
            fresh.is_alive(),
            local.x,
            main is threading.main_thread(),
            main.is_alive(),
            fresh.ident,
        )


@case
def a_thread_started_after_the_restart():
    def work():
        done.append(threading.current_thread().name)

    done = []
    fresh = [threading.Thread(target=work, name=f"fresh {n}") for n in range(6)]
    timers = [threading.Timer(0.001, done.append, ["timer"])]
    while True:
        yield list(done)
        thread = fresh.pop()
        thread.start()
        thread.join()
        if timers and len(done) == 2:
            timer = timers.pop()
            timer.start()
            timer.join()


@case
def shared_dictionaries():
    class Borg:
        state = {}

        def __init__(self):
            self.__dict__ = self.state

    a, b = Borg(), Borg()
    c = Thing()
    alias = c.__dict__
    n = 0
    while True:
        n += 1
        a.n = n
        alias["name"] = n
        yield b.n, c.name, a.__dict__ is Borg.state, alias is c.__dict__


@case
def cyclic_structures():
    a = []
    a.append(a)
    d = {}
    d["me"] = d
    t = ([],)
    t[0].append(t)
    s = Thing()
    s.members = {s}
    s.by = {s: s}
    f = frozenset([s])
    s.f = f
    while True:
        yield a[0] is a, d["me"] is d, t[0][0] is t, s in s.members, s.by[s] is s, next(iter(s.f)) is s


@case
def interned_and_small():
    a = sys.intern("an interned name")
    key = "name"
    big, nan = 10**30, float("nan")
    pair = [nan, nan, big]
    while True:
        yield (
            pair[0] is pair[1],
            nan in pair,
            a == "an interned name",
            -0.0,
            complex(-0.0, 1e308),
            key in vars(Thing()),
        )


@case
def gc_and_frozen():
    counts = gc.get_threshold()
    gc.callbacks.append(len) if False else None
    while True:
        yield counts, gc.isenabled()


@case
def abstract_classes():
    class Base(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    class Real(Base):
        def f(self):
            return 1

    class Other:
        pass

    Base.register(Other)
    later = [type(f"Late{n}", (), {}) for n in range(6)]
    checks = []
    while True:
        late = later.pop()
        before = isinstance(late(), Base)
        Base.register(late)
        checks.append((before, isinstance(late(), Base)))
        try:
            Base()
        except TypeError as error:
            refused = "abstract" in str(error)
        yield (
            isinstance(Real(), Base),
            isinstance(Other(), Base),
            issubclass(late, Base),
            checks,
            refused,
            isinstance({}, collections.abc.Mapping),
        )


@case
def finders_of_modules():
    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            return importlib.util.spec_from_loader(name, self) if name.startswith("made_up_") else None

        def create_module(self, spec):
            return None

        def exec_module(self, made):
            made.length = len(made.__name__)

    class Doubling(importlib.machinery.SourceFileLoader):
        def get_data(self, path):
            return super().get_data(path).replace(b"twice", b"2 *")

    class Veto:
        @classmethod
        def find_spec(cls, name, path, target=None):
            if name.startswith("vetoed"):
                raise ImportError(f"no {name}")

    usual = [
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (importlib.machinery.SourceFileLoader, [".py"]),
    ]
    finder = Finder()
    sys.meta_path.insert(0, finder)
    sys.meta_path.append(Veto)
    sys.path_hooks.insert(0, importlib.machinery.FileFinder.path_hook(*usual, (Doubling, [".doubling"])))
    sys.path_importer_cache.clear()
    sys.path.append("doubled")
    os.makedirs("doubled", exist_ok=True)
    for number in itertools.count():
        found = [importlib.import_module(f"made_up_{'x' * number}").length]
        pathlib.Path(f"doubled/number_{number}.doubling").write_text(f"value = twice {number}\n")
        importlib.invalidate_caches()
        found += [importlib.import_module(f"number_{each}").value for each in range(number + 1)]
        try:
            importlib.import_module(f"vetoed_{number}")
        except ImportError as error:
            found.append(str(error))
        yield found, sys.meta_path[0] is finder, sys.meta_path[-1] is Veto, len(sys.path_hooks)


@case
def settings_of_the_interpreter():
    calls = []

    def called(phase, info):
        calls.append(phase)

    sys.dont_write_bytecode, sys.pycache_prefix = True, "elsewhere"
    sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_GLOBAL)
    gc.callbacks.append(called)
    socket.setdefaulttimeout(12.5)
    tempfile.tempdir = os.getcwd()
    while True:
        calls.clear()
        gc.collect()
        made = tempfile.mkdtemp()
        os.rmdir(made)
        yield (
            (sys.dont_write_bytecode, sys.pycache_prefix, bool(sys.getdlopenflags() & os.RTLD_GLOBAL)),
            (bool(calls), gc.callbacks.count(called), gc.get_debug()),
            (socket.getdefaulttimeout(), os.path.dirname(made) == os.getcwd()),
        )


if __name__ == "__main__":
    main()

"""Classes of the program, above all those that derive from types written in C or define pickle hooks of their own."""

import array
import collections
import copyreg
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import json
import pathlib
import queue
import random
import threading
import types
import typing
import uuid
import weakref

from cases import case, main


class Boom:
    """Runs nothing of its own at an image or a restart."""

    def __init__(self, *args):
        self.args = args

    def __reduce__(self):
        raise RuntimeError("called")

    __getstate__ = __setstate__ = __copy__ = __deepcopy__ = __reduce__


@case
def proxies_that_hide_their_dictionary():
    """As those of celery and werkzeug: an attribute named __dict__ is that of another object."""

    class Proxy:
        __slots__ = ("__weakref__", "__dict__", "target")

        def __init__(self, target, **own):
            object.__setattr__(self, "target", target)
            for name, value in own.items():
                object.__setattr__(self, name, value)

        @property
        def __dict__(self):
            return object.__getattribute__(self, "target").__dict__

        def __setattr__(self, name, value):
            setattr(self.target, name, value)

    class Hidden:
        __dict__ = "hidden"

        def __init__(self):
            self.n = 0

    class Target:
        pass

    target, hidden = Target(), Hidden()
    proxy = Proxy(target, own=[1])
    while True:
        proxy.n = hidden.n = hidden.n + 1
        proxy.own[0] += 1
        yield proxy.own, vars(target), proxy.__dict__ is target.__dict__, hidden.n, hidden.__dict__


@case
def hooks_are_not_called():
    boom = Boom(1, [2])
    while True:
        boom.args[1].append(3)
        yield boom.args


@case
def int_float_complex_subclasses():
    class Int(int):
        def __new__(cls, v, note=None):
            self = super().__new__(cls, v + 100)
            self.note = note
            return self

        def __reduce__(self):
            raise RuntimeError

        def __int__(self):
            return -1

        __index__ = __int__

    class Float(float):
        __slots__ = ("unit",)

        def __float__(self):
            return -1.0

    class Complex(complex):
        def __complex__(self):
            return 1j

    kept = [Int(1, "n"), Float(2.5), Complex(1 + 2j)]
    kept[1].unit = "m"
    while True:
        i, f, c = kept
        yield i + 0, i.note, f + 0, f.unit, c + 0


@case
def str_bytes_tuple_subclasses():
    class Str(str):
        def __str__(self):
            return "changed"

        def __getnewargs__(self):
            raise RuntimeError

    class Bytes(bytes):
        def __bytes__(self):
            return b"changed"

    class Tuple(tuple):
        def __iter__(self):
            return iter("changed")

        def __len__(self):
            return 1

    class Frozen(frozenset):
        def __iter__(self):
            return iter("changed")

    kept = [Str("original"), Bytes(b"original"), Tuple((1, 2, 3)), Frozen([1])]
    kept[0].note = kept
    while True:
        s, b, t, z = kept
        yield s + "", s.note is kept, b + b"", tuple.__len__(t), t[1], frozenset.__contains__(z, 1)


@case
def containers_with_hooks():
    class List(list):
        def __init__(self, owner):
            self.owner = owner

        def append(self, x):
            raise RuntimeError

        extend = __iter__ = __len__ = __reduce_ex__ = append

    class Dict(dict):
        def __setitem__(self, k, v):
            raise RuntimeError

        update = __iter__ = items = keys = __setitem__

        def __missing__(self, key):
            return "missing"

    class Set(set):
        __slots__ = ("tag",)

        def add(self, x):
            raise RuntimeError

        update = __iter__ = add

    l, d, s = List("o"), Dict(), Set()
    list.append(l, l)
    dict.__setitem__(d, "me", d)
    set.add(s, 7)
    s.tag = "t"
    n = 0
    while True:
        n += 1
        set.add(s, n)
        yield (
            list.__len__(l),
            list.__getitem__(l, 0) is l,
            l.owner,
            d["me"] is d,
            d["x"],
            7 in s,
            set.__len__(s),
            s.tag,
        )


@case
def collections_with_hooks():
    class Counter(collections.Counter):
        def __init__(self):
            pass

    class Deque(collections.deque):
        def __init__(self, must):
            super().__init__(maxlen=3)
            self.must = must

    class Ordered(collections.OrderedDict):
        def __setitem__(self, k, v):
            raise RuntimeError

    class Default(collections.defaultdict):
        def __init__(self):
            super().__init__(lambda: 5)

    c, q, o, f = Counter(), Deque("m"), Ordered(), Default()
    c.update("aab")
    collections.OrderedDict.__setitem__(o, "z", 1)
    collections.OrderedDict.__setitem__(o, "a", 2)
    n = 0
    while True:
        n += 1
        q.append(n)
        collections.OrderedDict.move_to_end(o, "z")
        f[n] += 1
        yield c["a"], list(q), q.must, list(collections.OrderedDict.__iter__(o)), f[99], f[n]


@case
def over_numbers_and_dates():
    class Array(array.array):
        def __new__(cls, note):
            self = super().__new__(cls, "i", [1])
            self.note = note
            return self

    class Date(datetime.date):
        def __new__(cls, note):
            self = super().__new__(cls, 2020, 1, 1)
            self.note = note
            return self

        def __reduce__(self):
            raise RuntimeError

    class Delta(datetime.timedelta):
        pass

    class Dec(decimal.Decimal):
        def __new__(cls, v, note=None):
            self = super().__new__(cls, v)
            self.note = note
            return self

    class Frac(fractions.Fraction):
        note = "frac"

    class Uuid(uuid.UUID):
        pass

    made = [Array("n"), Date("d"), Delta(5), Dec("1.5", "note"), Frac(1, 3), Uuid(int=3)]
    while True:
        a, d, delta, dec, frac, ident = made
        a.append(2)
        yield (
            a.tolist(),
            a.note,
            str(d),
            d.note,
            delta,
            dec + 1,
            dec.note,
            frac + 1,
            frac.note,
            ident,
            [type(x).__name__ for x in made],
        )


@case
def over_random_functions_and_iterators():
    class Rng(random.Random):
        def __init__(self, must, seed):
            self.must = must
            super().__init__(seed)

        def __reduce__(self):
            raise RuntimeError

    class Part(functools.partial):
        def __new__(cls, f, *a):
            self = super().__new__(cls, f, *a)
            self.note = "partial"
            return self

    class Count(itertools.count):
        pass

    class Chain(itertools.chain):
        pass

    class Bytes(io.BytesIO):
        def __init__(self, note):
            super().__init__(b"0123456789")
            self.note = note

        def __getstate__(self):
            raise RuntimeError

    class Prop(property):
        pass

    made = [Rng("m", 3), Part(max, 5), Count(3), Chain("abcdef"), Bytes("b")]
    made[0].gauss(0, 1)

    class Holder:
        p = Prop(lambda self: "prop")

    while True:
        rng, part, count, chain, b = made
        yield (
            rng.gauss(0, 1),
            rng.must,
            part(1),
            part.note,
            next(count),
            next(chain),
            b.read(1),
            b.note,
            Holder().p,
            [type(x).__name__ for x in made],
        )


@case
def over_types_of_threads_and_references():
    class Local(threading.local):
        def __init__(self, v=1):
            self.v = v

    class Ref(weakref.ref):
        __slots__ = ("key",)

        def __new__(cls, target, key):
            self = super().__new__(cls, target)
            self.key = key
            return self

        def __init__(self, target, key):
            super().__init__(target)

    class Queue(queue.Queue):
        def _put(self, x):
            super()._put((x, "own"))

    class Lock:
        def __init__(self):
            self._lock = threading.RLock()

        def __getstate__(self):
            return {}

    target = Boom()
    made = [Local(5), Ref(target, "k"), Queue(), Lock()]
    while True:
        local, ref, q, lock = made
        q.put(1)
        local.v += 1
        with lock._lock:
            pass
        yield local.v, ref() is target, ref.key, q.get(), [type(x).__name__ for x in made]


@case
def over_modules_paths_and_errors():
    class Module(types.ModuleType):
        @property
        def answer(self):
            return self.base + 1

    class Namespace(types.SimpleNamespace):
        def __reduce__(self):
            raise RuntimeError

    class Path(type(pathlib.Path())):
        pass

    class Encoder(json.JSONEncoder):
        def default(self, x):
            return "default"

    class Error(OSError):
        def __init__(self, must, *, keyword):
            super().__init__(2, "text", "file")
            self.must, self.keyword = must, keyword

    class Exit(SystemExit):
        __slots__ = ("x",)

    made = [Module("m"), Namespace(a=1), Path("/x"), Encoder(), Error(1, keyword=2), Exit(3)]
    made[0].base = 1
    made[5].x = "slot"
    while True:
        module, ns, path, encoder, error, leave = made
        module.base += 1
        ns.a += 1
        yield (
            module.answer,
            ns.a,
            str(path),
            encoder.encode({"x": object()}),
            error.must,
            error.keyword,
            error.errno,
            error.filename,
            str(error),
            leave.code,
            leave.x,
            [type(x).__name__ for x in made],
        )


@case
def slots_and_dictionaries():
    class A:
        __slots__ = ("a", "__weakref__")

    class B(A):
        __slots__ = ("b", "_B__private", "__dict__")

    class C(B):
        __slots__ = {"c": "documented"}

        def __setattr__(self, name, value):
            super().__setattr__(name, ("set", value))

        def __getattribute__(self, name):
            if name == "ghost":
                return "ghost"
            return super().__getattribute__(name)

    c = C()
    c.a, c.b, c.c, c.d = 1, 2, 3, 4
    ref = weakref.ref(c)
    n = 0
    while True:
        n += 1
        c.d = n
        yield (
            c.a,
            c.b,
            c.c,
            c.d,
            c.ghost,
            ref() is c,
            hasattr(A(), "a"),
            C.__slots__,
            C.c.__doc__ if hasattr(C.c, "__doc__") else None,
        )


@case
def dynamic_attributes():
    class Proxy:
        def __init__(self, target):
            self.__dict__["target"] = target

        def __getattr__(self, name):
            return getattr(self.target, name)

        def __setattr__(self, name, value):
            setattr(self.target, name, value)

        def __eq__(self, other):
            raise RuntimeError

        __hash__ = __bool__ = __len__ = __eq__

        @property
        def __class__(self):
            return list

    class Everything:
        def __getattr__(self, name):
            return lambda *a, **k: f"called {name}"

    proxy, everything = Proxy(types.SimpleNamespace(x=1)), Everything()
    while True:
        proxy.x += 1
        yield proxy.x, isinstance(proxy, list), type(proxy).__name__, everything.anything(1)


@case
def metaclasses():
    class Meta(type):
        instances = []

        def __new__(meta, name, bases, space, **kw):
            cls = super().__new__(meta, name, bases, space)
            cls.kw = kw
            return cls

        def __init__(cls, name, bases, space, **kw):
            super().__init__(name, bases, space)
            Meta.instances.append(name)

        def __call__(cls, *args):
            made = super().__call__(*args)
            made.via = "meta"
            return made

        def __prepare__(name, bases, **kw):
            return {}

        @property
        def on_class(cls):
            return cls.__name__

        def __instancecheck__(cls, obj):
            return obj == "magic" or super().__instancecheck__(obj)

        def __iter__(cls):
            return iter(cls.kw)

    class Base(metaclass=Meta, flag=1):
        def __init_subclass__(cls, **kw):
            cls.initialised = sorted(kw)

    class Sub(Base, other=2):
        pass

    made = Sub()
    while True:
        yield (
            list(Meta.instances),
            Sub.kw,
            Base.kw,
            made.via,
            Sub().via,
            Sub.on_class,
            isinstance("magic", Sub),
            list(Sub),
            Sub.initialised,
            Base.__subclasses__() == [Sub],
            Sub.__mro__[1] is Base,
        )


@case
def singletons_and_registries():
    class Single:
        _one = None
        made = 0

        def __new__(cls):
            if cls._one is None:
                cls._one = super().__new__(cls)
                cls.made += 1
            return cls._one

    class Plugin:
        registry = {}

        def __init_subclass__(cls):
            Plugin.registry[cls.__name__] = cls

        def __set_name__(self, owner, name):
            self.names = (*getattr(self, "names", ()), name)

    class One(Plugin):
        pass

    class User:
        plugin = One()

    sentinel = object()
    default = sentinel
    single = Single()
    while True:
        yield (
            Single() is single,
            Single.made,
            Plugin.registry == {"One": One},
            User.plugin.names,
            default is sentinel,
        )


@case
def descriptors_of_the_program():
    class Typed:
        def __init__(self, kind):
            self.kind = kind
            self.values = weakref.WeakKeyDictionary()

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, obj, owner=None):
            return self if obj is None else self.values.get(obj, "unset")

        def __set__(self, obj, value):
            if not isinstance(value, self.kind):
                raise TypeError(self.name)
            self.values[obj] = value

    class Lazy:
        def __init__(self, f):
            self.f = f

        def __get__(self, obj, owner):
            obj.__dict__[self.f.__name__] = value = self.f(obj)
            return value

    class Has:
        x = Typed(int)

        @Lazy
        def computed(self):
            count.append(1)
            return len(count)

    count = []
    has, other = Has(), Has()
    has.x = 1
    has.computed
    while True:
        has.x += 1
        try:
            has.x = "s"
        except TypeError as error:
            yield has.x, other.x, str(error), has.computed, len(count), Has.x.name


@case
def classes_changed_at_run_time():
    class A:
        def f(self):
            return "A.f"

    class B:
        def f(self):
            return "B.f"

    class C(A):
        pass

    class Abstract(typing.Protocol):
        pass

    c = C()
    A.g = lambda self: "patched"
    C.__doc__ = "doc"
    C.__name__, C.__qualname__ = "Renamed", "Renamed.q"
    n = 0
    while True:
        n += 1
        setattr(A, f"attr{n}", n)
        if n == 2:
            C.__bases__ = (B,)
        if n == 3:
            c.__class__ = A
        yield (
            c.f(),
            getattr(c, "g", lambda: "none")(),
            type(c).__name__,
            C.__qualname__,
            C.__doc__,
            [k for k in vars(A) if k.startswith("attr")],
            C.__mro__[1].__name__,
        )


@case
def same_names_twice():
    def make(n):
        class Same:
            number = n

            def f(self):
                return super().__repr__()[:1], __class__ is type(self), n

        return Same

    classes = [make(n) for n in range(3)]
    objects = [cls() for cls in classes]
    while True:
        yield [(o.number, o.f()) for o in objects], [type(o) is c for o, c in zip(objects, classes)]


@case
def reduce_with_state_in_c():
    class State:
        """Its __reduce__ would open something again; the image takes what there is."""

        def __init__(self):
            self.iterator = iter(range(100))
            self.buffer = io.StringIO()
            self.lock = threading.Lock()

        def __getstate__(self):
            return {"iterator": None}

        def __setstate__(self, state):
            self.iterator = "reset"

    class Registered:
        def __init__(self, v):
            self.v = v

    copyreg.pickle(Registered, lambda r: (Registered, (-1,)))
    state, registered = State(), Registered(7)
    while True:
        state.buffer.write("x")
        with state.lock:
            yield next(state.iterator), state.buffer.getvalue(), registered.v


@case
def hashes_and_order():
    class Key:
        calls = 0

        def __init__(self, n):
            self.n = n
            self.peers = set()

        def __hash__(self):
            return hash(self.n) % 3

        def __eq__(self, other):
            return type(other) is Key and self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    keys = [Key(n) for n in range(8)]
    for k in keys:
        k.peers.update(keys)
    table = {k: k.n for k in keys}
    order = set(keys)
    order.discard(keys[3])
    by_identity = {object(): n for n in range(3)}
    n = 8
    while True:
        n += 1
        order.add(Key(n))
        yield (
            [k.n for k in order],
            [k.n for k in table],
            table[Key(2)],
            sorted(by_identity.values()),
            all(keys[0] in k.peers for k in keys),
        )


@case
def identity_hashed_sets():
    class Node:
        def __init__(self, n):
            self.n = n

    nodes = [Node(n) for n in range(5)]
    members, table = set(nodes), {node: node.n for node in nodes}
    while True:
        yield (
            sorted(node.n for node in members),
            [table[node] for node in nodes],
            nodes[0] in members,
            Node(0) in members,
        )


@case
def enums_over_other_types():
    class Planet(enum.Enum):
        EARTH = (1.0, "e")

        def __init__(self, mass, letter):
            self.mass, self.letter = mass, letter

    class Coordinate(bytes, enum.Enum):
        def __new__(cls, value, label):
            obj = bytes.__new__(cls, [value])
            obj._value_ = value
            obj.label = label
            return obj

        PX = (1, "P.X")

    class Perm(enum.Flag):
        R = enum.auto()
        W = enum.auto()

    class Op(enum.Enum):
        ADD = enum.member(lambda a, b: a + b)
        NOT = enum.nonmember(5)

    mixed = Perm.R | Perm.W
    while True:
        yield (
            Planet.EARTH.mass,
            Planet((1.0, "e")) is Planet.EARTH,
            Coordinate.PX + b"",
            Coordinate.PX.label,
            mixed,
            mixed is (Perm.R | Perm.W),
            Op.ADD.value(1, 2),
            Op.NOT,
            Perm["W"],
            list(Perm),
            Planet.__members__.keys(),
        )


@case
def an_abstract_class_that_leads_to_an_instance_of_its_own():
    """As the iterators of ``xml.etree.ElementTree.iterparse``: the instance is made before the class is complete."""

    class Endless(collections.abc.Iterator):
        count = 0

        def __next__(self):
            self.count += 1
            return self.count

    made = Endless()
    Endless.__aaa__ = lambda: made
    while True:
        yield next(made), Endless.__aaa__() is made, isinstance(made, collections.abc.Iterator)


@case
def a_finalizer_of_an_object_to_which_its_class_leads():
    """As the iterators of ``xml.etree.ElementTree.iterparse`` in 3.13: the class has a method of a generator, which refers to
    the object weakly, or a list."""
    ended = []

    def steps(found):
        while True:
            yield found() is not None

    def made(base):
        class Stepping(base):
            def __iter__(self):
                return self

            def __del__(self):
                ended.append(base.__name__)

        one = Stepping()
        found = weakref.ref(one)
        Stepping.__next__ = steps(found).__next__
        Stepping.itself = found
        return one

    class Plain:
        pass

    running = [iter(made(base)) for base in (Plain, set, collections.deque)]
    while True:
        yield [next(each) for each in running], [each.itself() is each for each in running], ended


if __name__ == "__main__":
    main()

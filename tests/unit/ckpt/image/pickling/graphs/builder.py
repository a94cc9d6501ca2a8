"""Makes a random graph of objects; all choices follow from the seed.

A step makes an object of a random kind out of those that are there, or has one of those refer to another one: so there are
cycles through everything that can be changed. Members of sets, and keys, have a label or are values, so that their order
in a description is certain.
"""

from __future__ import annotations

import array
import collections
import contextvars
import decimal
import fractions
import functools
import io
import itertools
import math
import operator
import pathlib
import queue
import random
import re
import threading
import types
import uuid
import weakref
import zoneinfo
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from tests.unit.ckpt.image.pickling.graphs import kinds

VALUES = (
    int,
    float,
    str,
    bytes,
    complex,
    bool,
    range,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    type(None),
)
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE")
_MAKERS: list[Callable[[Graph], Any]] = []
_IMPOSSIBLE = (LookupError, TypeError, ValueError, AttributeError, BufferError, RuntimeError, RecursionError)
"""What Python says of some of the random combinations."""


def maker(function: Callable[[Graph], Any]) -> Callable[[Graph], Any]:
    _MAKERS.append(function)
    return function


class Graph:
    """The objects so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.objects: list[Any] = []
        self.labels = itertools.count(1)

    def build(self, steps: int) -> list[Any]:
        """Most of the objects; the others are there only as far as these refer to them."""
        for _ in range(steps):
            try:
                if self.objects and self.random.random() < 0.25:
                    self.change()
                else:
                    self.objects.append(self.random.choice(_MAKERS)(self))
            except _IMPOSSIBLE:
                continue
        found = [each for each in self.objects if self.random.random() < 0.7]
        self.objects.clear()
        return found

    def label(self) -> int:
        return next(self.labels)

    def one(self) -> Any:
        return (
            self.random.choice(self.objects) if self.objects and self.random.random() < 0.85 else value(self)
        )

    def some(self, most: int = 5) -> list[Any]:
        return [self.one() for _ in range(self.random.randrange(most))]

    def key(self) -> Any:
        for _ in range(5):
            found = self.one()
            if _is_key(found):
                return found
        return self.random.randrange(50)

    def some_keys(self) -> list[Any]:
        return [self.key() for _ in range(self.random.randrange(4))]

    def of(self, *types_: type) -> Any:
        """An object of exactly one of these types, or an empty one."""
        return self.random.choice([each for each in self.objects if type(each) in types_] or [types_[0]()])

    def function(self) -> Any:
        """One of two functions that share their variables, and know each other."""
        captured, default, count = self.one(), self.one(), 0

        def first(x: Any, y: Any = default, *, z: Any = captured) -> Any:
            nonlocal count
            count += 1
            return captured, count, x

        def second(*_: Any) -> Any:
            return count, captured, first

        first.tag, first.peer, first.label = self.one(), second, self.label()  # type: ignore[attr-defined]
        return self.random.choice([first, second])

    def change(self) -> None:
        obj, other = self.random.choice(self.objects), self.one()
        kind = type(obj)
        if kind in (list, kinds.OwnList, collections.deque, collections.UserList):
            obj.append(other)
        elif isinstance(obj, dict):
            obj[self.key()] = other
        elif isinstance(obj, set):
            obj.add(self.key())
        elif isinstance(obj, (kinds.Node, kinds.Data, kinds.Annotated)):
            setattr(obj, self.random.choice("pqrsx"), other)
        elif isinstance(obj, (kinds.Slots, Exception)) or (
            isinstance(obj, types.FunctionType) and hasattr(obj, "label")  # a function of this graph
        ):
            obj.x = other  # type: ignore[union-attr]
        elif isinstance(obj, type) and "dynamic" in obj.__dict__:
            obj.later = other  # type: ignore[attr-defined]
        elif kind is np.ndarray and obj.dtype == object and obj.flags.writeable and obj.size:
            obj.flat[0] = other


def _is_key(obj: Any) -> bool:
    if isinstance(obj, (tuple, frozenset)) and not hasattr(obj, "label"):
        return all(map(_is_key, obj))
    if isinstance(obj, (type, *weakref.ProxyTypes)) or obj.__hash__ is None:
        return False
    return (type(obj) in VALUES and obj == obj) or type(getattr(obj, "label", None)) is int


def value(graph: Graph) -> Any:
    draw = graph.random
    number = draw.randrange(9)
    return draw.choice(
        [
            lambda: draw.randrange(-5, 300),
            lambda: draw.getrandbits(100),
            lambda: draw.choice([draw.random(), float("nan"), -0.0]),
            lambda: "".join(draw.choices("abé\u20ac", k=draw.randrange(6))),
            lambda: draw.choice([None, ..., NotImplemented, True, bytes(number), complex(1, number)]),
            lambda: draw.choice(
                [range(number), slice(1, number), kinds.Color.BLUE, kinds.Bits.A | kinds.Bits.B]
            ),
            lambda: draw.choice([decimal.Decimal(number) / 7, fractions.Fraction(number, 7)]),
            lambda: datetime(2020, 1, 1 + number, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
            lambda: draw.choice(
                [timedelta(number), pathlib.Path("/a") / str(number), re.compile(f"a|{number}")]
            ),
            lambda: uuid.UUID(int=draw.getrandbits(100)),
            lambda: draw.choice(
                [int, kinds.Node, len, operator.add, math, list[int], int | None, str.upper, np.add]
            ),
            lambda: draw.choice([operator.itemgetter(0, "a"), operator.methodcaller("method", 3), [].append]),
            lambda: draw.choice(
                [np.float32(number), np.dtype([("a", "i4"), ("b", "f8")]), kinds.Node.method]
            ),
            lambda: draw.choice([np.random.default_rng(number), random.Random(number)]),
        ]
    )()


# ---------------------------------------------------------------------- containers


@maker
def container(graph: Graph) -> Any:
    pairs = {key: graph.one() for key in graph.some_keys()}
    return graph.random.choice(
        [
            lambda: graph.some(),
            lambda: tuple(graph.some()),
            lambda: dict(pairs),
            lambda: set(graph.some_keys()),
            lambda: frozenset(graph.some_keys()),
            lambda: collections.deque(graph.some(), graph.random.choice([None, 3])),
            lambda: collections.OrderedDict(reversed(pairs.items())),
            lambda: collections.defaultdict(graph.random.choice([list, None, graph.function()]), pairs),
            lambda: collections.Counter(graph.some_keys()),
            lambda: collections.ChainMap({1: graph.one()}, graph.of(dict)),
            lambda: types.MappingProxyType(graph.of(dict)),
            lambda: graph.random.choice([dict.keys, dict.values, dict.items])(graph.of(dict)),
            lambda: collections.UserDict({1: graph.one()}),
            lambda: collections.UserList(graph.some()),
        ]
    )()


@maker
def own_container(graph: Graph) -> Any:
    label, items = graph.label(), graph.some()
    made = graph.random.choice(
        [
            lambda: kinds.OwnList(items),
            lambda: kinds.OwnDict({graph.key(): graph.one()}),
            lambda: kinds.OwnTuple(items),
            lambda: kinds.OwnStr(f"s{label}"),
            lambda: kinds.OwnInt(label),
            lambda: kinds.OwnSet(graph.some_keys()),
            lambda: kinds.OwnFrozenSet(graph.some_keys()),
            lambda: kinds.OwnFloat(label),
            lambda: kinds.OwnBytes(b"x%d" % label),
            lambda: kinds.OwnDeque(items, 7),
            lambda: kinds.OwnDefault(list, {graph.key(): graph.one()}),
            lambda: kinds.OwnOrdered({graph.key(): graph.one()}),
        ]
    )()
    made.attribute = graph.one()
    return made


# ---------------------------------------------------------------------- instances, classes, functions


@maker
def node(graph: Graph) -> Any:
    simple = (kinds.Node, kinds.Stateful, kinds.Reduced, kinds.WithMeta, kinds.Described, kinds.Valued)
    made = graph.random.choice([*simple, kinds.Data, kinds.Slots, kinds.Both])(graph.label())
    if graph.random.random() < 0.8:
        made.x = graph.one()
    if isinstance(made, kinds.Both):
        made.more = made.added = graph.one()
    return made


@maker
def other_instance(graph: Graph) -> Any:
    return graph.random.choice(
        [
            lambda: kinds.Frozen(graph.label(), graph.one()),
            lambda: kinds.Point(graph.one(), graph.one()),
            lambda: kinds.Numbered(graph.label(), graph.some()),
            lambda: types.SimpleNamespace(a=graph.one(), b=graph.one()),
        ]
    )()


@maker
def exception(graph: Graph) -> Any:
    made = graph.random.choice([kinds.Trouble, ValueError, KeyError, OSError])(graph.label(), graph.one())
    chance = graph.random.random
    if chance() < 0.5:
        made.__cause__ = ValueError(graph.one())
    if chance() < 0.3:
        made.add_note("a note")
    if chance() < 0.3:
        try:
            raise made
        except Exception:
            pass
    return ExceptionGroup("together", [made, ValueError(graph.one())]) if chance() < 0.2 else made


@maker
def function(graph: Graph) -> Any:
    captured, other = graph.one(), graph.function()
    return graph.random.choice(
        [
            lambda: other,
            lambda: lambda default=captured: (captured, default),
            lambda: functools.partial(other, *graph.some(3), k=captured),
            lambda: functools.lru_cache(maxsize=graph.random.choice([None, 4]))(other),
            lambda: graph.random.choice([property, staticmethod, classmethod])(other),
            lambda: types.MethodType(kinds.pair, captured),
            lambda: functools.singledispatch(other),
            lambda: functools.partialmethod(kinds.pair, captured),
            lambda: types.CellType(captured),
        ]
    )()


@maker
def method(graph: Graph) -> Any:
    names = ("method", "append", "made", "update", "add", "pop", "appendleft", "get", "upper")
    owner = graph.one()
    return getattr(owner, graph.random.choice([name for name in names if hasattr(owner, name)] or [""]))


@maker
def own_class(graph: Graph) -> Any:
    own = [each for each in graph.objects if isinstance(each, type) and "dynamic" in each.__dict__]
    base = graph.random.choice([object, kinds.Node, *own[:3]])
    meta = kinds.Meta if base is object and graph.random.random() < 0.3 else type(base)
    attributes = {
        "dynamic": True,
        "attribute": graph.one(),
        "function": graph.function(),
        "__module__": __name__,
    }
    return meta(f"Class{graph.label()}", (base,), attributes)


@maker
def instance_of_own_class(graph: Graph) -> Any:
    own = [each for each in graph.objects if isinstance(each, type) and "dynamic" in each.__dict__]
    made = object.__new__(graph.random.choice(own or [kinds.Node]))
    made.label, made.x = graph.label(), graph.one()
    return made


@maker
def weak(graph: Graph) -> Any:
    nodes = [
        each
        for each in graph.objects
        if isinstance(each, (kinds.Slots, kinds.OwnList)) or type(each) is kinds.Node
    ]
    target = graph.random.choice(nodes)
    is_key = target.__hash__ is not None
    return graph.random.choice(
        [
            lambda: weakref.ref(target),
            lambda: weakref.ref(target, graph.function()),
            lambda: weakref.WeakValueDictionary({1: target}),
            lambda: weakref.WeakKeyDictionary({target: graph.one()}) if is_key else None,
            lambda: weakref.WeakSet([target]) if is_key else None,
            lambda: weakref.WeakMethod(target.method),
            lambda: weakref.proxy(target),
        ]
    )()


# ---------------------------------------------------------------------- iterators, arrays, other types


@maker
def iterator(graph: Graph) -> Any:
    source, items = graph.of(list, tuple, dict, collections.deque), graph.some(6)
    made: Any = graph.random.choice(
        [
            lambda: iter(source),
            lambda: enumerate(source, 5),
            lambda: zip(source, items, strict=False),
            lambda: map(kinds.pair, source),
            lambda: filter(None, items),
            lambda: reversed(items),
            lambda: itertools.chain(source, items),
            lambda: itertools.chain.from_iterable([items, source]),
            lambda: itertools.count(graph.random.randrange(9)),
            lambda: itertools.cycle(items),
            lambda: itertools.islice(iter(items), 1, None),
            lambda: itertools.tee(source)[1],
            lambda: itertools.product(items, [1, 2]),
            lambda: itertools.permutations([1, *items[:2]]),
            lambda: itertools.combinations(items, 2),
            lambda: itertools.repeat(items, 3),
            lambda: itertools.starmap(kinds.pair, [(items, 1), (2, 3)]),
            lambda: itertools.zip_longest(items, source, fillvalue=items),
            lambda: itertools.compress(items, [1, 0, 1, 1]),
            lambda: itertools.pairwise(items),
            lambda: kinds.generator(items, source),
            lambda: kinds.delegating(items, graph.one()),
            lambda: (each for each in items),
            lambda: iter(items.__len__, 99),
            lambda: re.finditer("a", "banana"),
            lambda: iter(np.arange(4)),
        ]
    )()
    for _ in range(graph.random.randrange(3)):
        next(made, None)
    return made


@maker
def array_of_numpy(graph: Graph) -> Any:
    draw, structured = graph.random, [("a", "i4"), ("b", "O"), ("v", "f8", (2,))]
    made = draw.choice(
        [
            lambda: np.arange(draw.randrange(1, 8), dtype=draw.choice(["f8", "i4", "f4"])),
            lambda: np.asfortranarray(np.ones((2, 3))),
            lambda: np.array(3.0),
            lambda: np.zeros((2, 2), structured, order=draw.choice("CF")),
            lambda: np.array(["a", "bc"]),
            lambda: np.fromiter([None, *graph.some(3)], object),
            lambda: np.frombuffer(graph.of(bytearray), "u1"),
            lambda: np.rec.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")]),
        ]
    )()
    made.flags.writeable = made.flags.writeable and draw.random() < 0.8
    return made


@maker
def view_of_numpy(graph: Graph) -> Any:
    whole = graph.random.choice(
        [each for each in graph.objects if isinstance(each, np.ndarray) and each.ndim]
    )
    field = graph.random.choice(whole.dtype.names) if whole.dtype.names else ...
    return graph.random.choice(
        [
            lambda: whole[::-1],
            lambda: whole.T,
            lambda: whole[1:],
            lambda: whole[field],
            lambda: whole[(0,) * whole.ndim],
            lambda: whole[0][field],
            lambda: np.broadcast_to(whole, (2, *whole.shape)),
            lambda: whole.view(kinds.Annotated),
        ]
    )()


@maker
def buffer(graph: Graph) -> Any:
    return graph.random.choice(
        [
            lambda: bytearray(graph.random.randbytes(graph.random.randrange(1, 9))),
            lambda: array.array("d", [graph.random.random()] * 3),
            lambda: memoryview(graph.of(bytearray, bytes, array.array))[1:],
        ]
    )()


@maker
def of_the_standard_library(graph: Graph) -> Any:
    item = graph.one()

    def filled(made: Any) -> Any:
        made.put(item)
        return made

    def read(made: Any) -> Any:
        made.read(graph.random.randrange(5))
        return made

    def context() -> Any:
        made = contextvars.Context()
        made.run(VARIABLE.set, item)
        return made

    def module() -> Any:
        made = types.ModuleType(f"module{graph.label()}")
        made.x = item  # type: ignore[attr-defined]
        return made

    def lock() -> Any:
        made = threading.Lock()
        if graph.random.random() < 0.5:
            made.acquire()
        return made

    return graph.random.choice(
        [
            lambda: filled(queue.Queue()),
            lambda: filled(queue.SimpleQueue()),
            lambda: read(io.StringIO("hello\nworld")),
            lambda: read(io.BytesIO(b"hello world")),
            context,
            module,
            lock,
        ]
    )()

"""Classes and functions that random graphs are made of: the ways in which classes keep state, hash, and are pickled."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np


class Node:
    def __init__(self, label: int) -> None:
        self.label = label
        self.x: Any = None

    def method(self, value: Any = None) -> Any:
        return self.label, value

    @classmethod
    def made(cls, label: int) -> Any:
        return cls(label)

    def __iter__(self) -> Iterator[int]:
        return iter([self.label])


class Stateful(Node):
    def __getstate__(self) -> Any:
        return {**self.__dict__, "more": 1}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        del self.__dict__["more"]


class Reduced(Node):
    def __reduce__(self) -> Any:
        return Reduced, (self.label,), {"x": self.x}


class Valued(Node):
    """Equal by its label, and with a hash that many share."""

    def __eq__(self, other: object) -> bool:
        return self.label == getattr(other, "label", None)

    def __hash__(self) -> int:
        return hash(self.label) % 3


class Slots:
    __slots__ = ("__weakref__", "label", "x")

    def __init__(self, label: int) -> None:
        self.label = label


class Both(Slots):
    __slots__ = ("__dict__", "more")


class Descriptor:
    def __get__(self, obj: Any, cls: Any = None) -> Any:
        return self if obj is None else obj.__dict__.get("x")


class Described(Node):
    shown = Descriptor()


class Meta(type):
    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        return super().__call__(*args, **keywords)


class WithMeta(Node, metaclass=Meta):
    pass


@dataclasses.dataclass
class Data:
    label: int
    x: Any = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    label: int
    x: Any = None

    def __hash__(self) -> int:
        return hash(self.label)


class Numbered(tuple[Any, ...]):
    label: int

    def __new__(cls, label: int, items: Any) -> Numbered:
        made = super().__new__(cls, items)
        made.label = label
        return made

    def __getnewargs__(self) -> Any:
        return self.label, tuple(self)


Point = collections.namedtuple("Point", "x y")


class Color(enum.Enum):
    RED = 1
    BLUE = (1, 2)


class Bits(enum.Flag):
    A = 1
    B = 2


class Trouble(Exception):
    def __init__(self, label: int, *more: Any) -> None:
        super().__init__(label, *more)
        self.label = label


class OwnList(list):  # type: ignore[type-arg]
    pass


class OwnDict(dict):  # type: ignore[type-arg]
    pass


class OwnTuple(tuple):  # type: ignore[type-arg]
    pass


class Annotated(np.ndarray):  # type: ignore[misc,name-defined,unused-ignore]
    """An array with attributes, after numpy's guide."""

    def __array_finalize__(self, obj: Any) -> None:
        self.x = getattr(obj, "x", None)

    def __reduce__(self) -> Any:
        make, args, state = super().__reduce__()
        return make, args, (*state, self.__dict__)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state[:-1])
        self.__dict__.update(state[-1])


class OwnStr(str):
    pass


class OwnInt(int):
    pass


class OwnSet(set):  # type: ignore[type-arg]
    pass


class OwnFrozenSet(frozenset):  # type: ignore[type-arg]
    pass


class OwnFloat(float):
    pass


class OwnBytes(bytes):
    pass


class OwnDeque(collections.deque):  # type: ignore[type-arg]
    pass


class OwnDefault(collections.defaultdict):  # type: ignore[type-arg]
    pass


class OwnOrdered(collections.OrderedDict):  # type: ignore[type-arg]
    pass


def pair(a: Any, b: Any = None) -> Any:
    return a, b


def generator(things: list[Any], state: Any) -> Generator[Any, Any, None]:
    local = [things]
    for each in things:
        got = yield each, state
        local.append(got)
    yield local


def delegating(things: list[Any], state: Any) -> Generator[Any, Any, None]:
    yield from generator(things, state)


async def coroutine(x: Any) -> Any:
    return x

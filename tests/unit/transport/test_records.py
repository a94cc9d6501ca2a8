"""Classes made by `ckpt.transport.records` are those of the standard library's `dataclasses`: both are made of the same
source."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from ckpt.transport import records

SOURCE = """
from __future__ import annotations
from typing import ClassVar

@dataclass(frozen=True, slots=True)
class Nothing:
    pass

@dataclass(frozen=True, slots=True)
class Frozen(Nothing):
    "A frozen one."
    a: int
    b: list[int] = field(hash=False)
    c: str = "see"
    kind: ClassVar[int] = 7

    def twice(self) -> int:
        return 2 * self.a

@dataclass(frozen=True, slots=True)
class Longer(Frozen):
    d: tuple[int, ...] = ()

@dataclass(slots=True)
class Slots:
    a: int
    b: list[int] = field(default_factory=list)

    def __getstate__(self):
        return {"b": self.b, "a": self.a}

    def __setstate__(self, state):
        self.a, self.b = state["a"], state["b"]

@dataclass(slots=True)
class Plain:
    a: int
    b: dict[str, object] = field(default_factory=dict)

@dataclass
class Open:
    a: int
    key: bytes = field(repr=False)
    fs: object = field(default_factory=dict, repr=False, compare=False)
    b: int = 3

    def __post_init__(self) -> None:
        self.sum = self.a + self.b

@dataclass(frozen=True)
class Shown:
    a: int = 1
    b: int = 2

    def __repr__(self) -> str:
        return "shown"

    def __hash__(self) -> int:
        return 5

@dataclass
class Child(Open):
    c: int = 4
"""
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Nothing": [((), {})],
    "Frozen": [((1, [2]), {}), ((1,), {"b": [3], "c": "d"})],
    "Longer": [((1, [2], "x", (3,)), {})],
    "Slots": [((1,), {}), ((1, [2]), {})],
    "Plain": [((1,), {}), ((1,), {"b": {"x": [1]}})],
    "Open": [((1, b"k"), {}), ((1, b"k"), {"b": 7, "fs": None})],
    "Shown": [((), {}), ((5,), {})],
    "Child": [((1, b"k"), {"c": 9})],
}
Modules = tuple[types.ModuleType, types.ModuleType]


@pytest.fixture
def modules() -> Iterator[Modules]:
    """The source as a module, with the standard library's decorator and with ours."""
    made = []
    for name, maker in (("made_by_stdlib", dataclasses), ("made_by_lean", records)):
        module = types.ModuleType(name)
        vars(module).update(dataclass=maker.dataclass, field=maker.field)
        sys.modules[name] = module
        exec(SOURCE, vars(module))
        made.append(module)
    yield made[0], made[1]
    for module in made:
        del sys.modules[module.__name__]


def objects(module: types.ModuleType, name: str) -> list[Any]:
    made = getattr(module, name)
    return [made(*copy.deepcopy(args), **copy.deepcopy(words)) for args, words in CALLS[name]]


def tried(what: Any, *arguments: Any) -> Any:
    """What comes of a call: its result, or the kind of its failure."""
    try:
        return what(*arguments)
    except Exception as failure:
        return next(kind for kind in (AttributeError, TypeError, Exception) if isinstance(failure, kind))


@pytest.mark.parametrize("name", CALLS)
def test_the_class(modules: Modules, name: str) -> None:
    theirs, ours = (getattr(module, name) for module in modules)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    for attribute in ("__match_args__", "__slots__", "__qualname__", "__name__"):
        assert getattr(ours, attribute, None) == getattr(theirs, attribute, None)
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert records.names(ours) == tuple(field.name for field in dataclasses.fields(theirs))
    assert hasattr(ours, "__dict__") == hasattr(theirs, "__dict__")
    for attribute in (
        "a",
        "b",
        "c",
        "kind",
        "fs",
    ):  # defaults are seen on the class, those of factories are not
        assert type(getattr(ours, attribute, None)) is type(getattr(theirs, attribute, None))


@pytest.mark.parametrize("name", CALLS)
def test_the_objects(modules: Modules, name: str) -> None:
    theirs, ours = (objects(module, name) for module in modules)
    for their, our in zip(theirs, ours, strict=True):
        assert repr(our) == repr(their)
        assert [our == other for other in ours] == [their == other for other in theirs]
        assert our == objects(modules[1], name)[ours.index(our)] and our != their
        assert (tried(hash, our) is TypeError) == (tried(hash, their) is TypeError)
        assert records.asdict(our) == dataclasses.asdict(their)
        for call in (
            (lambda it: setattr(it, "a", 7), lambda it: delattr(it, "a")) if name != "Nothing" else ()
        ):
            assert tried(call, copy.deepcopy(our)) == tried(call, copy.deepcopy(their))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickles_hold_the_same(modules: Modules, name: str, protocol: int) -> None:
    """So an image that was taken with the one can be restored with the other."""
    theirs, ours = (objects(module, name) for module in modules)
    for their, our in zip(theirs, ours, strict=True):
        assert our.__reduce_ex__(protocol)[2:] == their.__reduce_ex__(protocol)[2:]
        assert pickle.loads(pickle.dumps(our, protocol)) == our == copy.deepcopy(our)


def test_wrong_arguments(modules: Modules) -> None:
    for module in modules:
        for arguments in ((), (1, 2, 3, 4, 5)):
            with pytest.raises(TypeError, match="__init__"):
                module.Frozen(*arguments)
        with pytest.raises(TypeError, match="unexpected"):
            module.Frozen(1, [], d=2)


def test_another_one_like_it(modules: Modules) -> None:
    before = objects(modules[1], "Frozen")[0]
    after = records.replace(before, a=9)
    assert (after.a, after.b, before.a) == (9, before.b, 1)


def test_patterns(modules: Modules) -> None:
    kind = modules[1].Longer
    match objects(modules[1], "Longer")[0]:
        case kind(a, _, c="x", d=(three,)):
            assert (a, three) == (1, 3)
        case _:
            pytest.fail("no match")


def test_copies_inside_are_taken_along() -> None:
    @records.dataclass
    class Inner:
        values: list[int]

    @records.dataclass
    class Outer:
        inner: list[Inner]
        by_name: dict[str, Inner]

    made = Outer([Inner([1])], {"x": Inner([2])})
    assert records.asdict(made) == {"inner": [{"values": [1]}], "by_name": {"x": {"values": [2]}}}

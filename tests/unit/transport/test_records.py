"""Classes made by `ckpt.transport.records` are those of the standard library's `dataclasses`: both are made of the same
source, given ones and random ones."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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


MAKERS: dict[str, Any] = {"made_by_stdlib": dataclasses, "made_by_records": records}


def module_of(name: str, source: str) -> types.ModuleType:
    """The source as a module of this name, with the decorator that belongs to it."""
    module = types.ModuleType(name)
    vars(module).update(dataclass=MAKERS[name].dataclass, field=MAKERS[name].field)
    sys.modules[name] = module
    exec(source, vars(module))
    return module


@pytest.fixture
def modules() -> Iterator[Modules]:
    """The source with the standard library's decorator and with ours."""
    yield module_of("made_by_stdlib", SOURCE), module_of("made_by_records", SOURCE)
    for name in MAKERS:
        del sys.modules[name]


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
    # Defaults are seen on the class, those of factories are not
    for attribute in (
        "a",
        "b",
        "c",
        "kind",
        "fs",
    ):
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


class Pair(NamedTuple):
    first: list[int]
    second: int


def test_copies_are_those_of_dataclasses_whatever_a_field_holds() -> None:
    """Named tuples and sets: copied, and of their own type; so are default dicts (those of the library, from 3.12 on)."""
    held: list[Any] = [Pair([1], 2), {1, 2}, bytearray(b"x"), ({"a": Pair([], 3)},)]
    copies = []
    for maker in MAKERS.values():

        @maker.dataclass
        class Holder:
            held: Any

        copies.append(maker.asdict(Holder(held))["held"])
    assert copies[0] == copies[1] == held
    assert [type(item) for item in copies[1]] == [type(item) for item in held]
    assert all(ours is not item for ours, item in zip(copies[1], held, strict=True))
    copy_of = records.asdict(Holder(defaultdict(list, a=[1])))["held"]
    assert copy_of["a"] == [1] and copy_of["b"] == []


# ---- random classes ------------------------------------------------------------------------------------------------

HEAD = """
from __future__ import annotations
import dataclasses, typing, typing as t
from typing import ClassVar, ClassVar as Shared

class ClassVarious:
    pass

class Base:
    a = 1
    __slots__ = ()
"""
KINDS = st.sampled_from(
    ["int", "ClassVar[int]", "ClassVar", "typing.ClassVar[int]", "t.ClassVar", "Shared[int]", "ClassVarious"]
    + ["int"] * 5
)
VALUES = ["1", "'x'", "()", "None", "[]", "{}", "set()", "bytearray()", "int"]
DEFAULTS = st.one_of(
    st.just(""),
    st.sampled_from([" = " + value for value in VALUES]),
    st.builds(
        " = field({})".format,
        st.builds(
            lambda first, words: ", ".join(filter(None, [first, *(f"{k}={v}" for k, v in words.items())])),
            st.sampled_from(["", "", "default=2", "default=[]", "default_factory=list", "default=1, default_factory=int"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "repr": st.booleans(),
                    "compare": st.booleans(),
                    "hash": st.sampled_from([None, True, False]),
                },
            ),
        ),
    ),
)  # fmt: skip
FIELD = st.builds("    {}: {}{}".format, st.sampled_from(["a", "b", "c", "self", "cls"]), KINDS, DEFAULTS)
METHOD = st.sampled_from(
    [
        "    def __eq__(self, other): return True",
        "    def __hash__(self): return 3",
        "    __hash__ = None",
        "    def __repr__(self): return 'own'",
        "    def __init__(self, *values, **words): pass",
        "    def __setattr__(self, name, value): object.__setattr__(self, name, value)",
        "    def __delattr__(self, name): pass",
        "    def __post_init__(self): object.__setattr__(self, 'after', 1)",
        "    __match_args__ = ()",
        "    __slots__ = ()",
        "    b = field()",
        "    c = 5",
    ]
)
CLASS = st.tuples(
    st.sampled_from(["", "frozen=True", "slots=True", "frozen=True, slots=True"]),
    st.lists(FIELD, max_size=4),
    st.lists(METHOD, max_size=1),
)


def source_of(classes: list[tuple[str, list[str], list[str]]], first: str, last: bool) -> str:
    """Each a child of the one before; `last`: and one below that is not decorated."""
    lines, base = [HEAD], first
    for number, (words, fields, methods) in enumerate(classes):
        lines += [f"@dataclass({words})", f"class C{number}({base}):", "    'Made.'", *fields, *methods]
        base = f"C{number}"
    return "\n".join([*lines, *([f"class Last({base}):", "    pass"] if last else [])])


def outcome(name: str, source: str) -> list[Any]:
    """Everything that can be seen of the classes of a source, as values that can be compared."""
    try:
        module = module_of(name, source)
    except Exception as failure:
        # From 3.12 on the words of one have an argument more.
        return [type(failure), str(failure).partition(" follows default argument")[0]]
    seen: list[Any] = []
    for made in (cls for key, cls in vars(module).items() if key[0] in "CL" and cls.__module__ == name):
        if made.__name__ == "ClassVarious":
            continue
        fields = (
            [each.name for each in dataclasses.fields(made)]
            if name == "made_by_stdlib"
            else records.names(made)
        )
        seen += [list(fields), made.__hash__ is None, getattr(made, "__slots__", None), made.__match_args__]
        seen += [sorted(key for key in vars(made) if key in ("a", "b", "c", "self", "cls", "__getstate__"))]
        objects = [
            tried(made, *arguments) for arguments in ((), (1,), (1, 2), (1, 2, 3), (1, 2, 4), (1, 2, 3, 4))
        ]
        for made_object in objects:
            if isinstance(made_object, type):
                seen.append(made_object)
                continue
            text = tried(repr, made_object)
            # From 3.13 on an object of the library is equal to itself, whatever its fields are.
            others = [each for each in objects if each is not made_object]
            seen += [text, [tried(lambda a, b: a == b, made_object, each) is True for each in others]]
            seen += [tried(hash, made_object) == tried(hash, each) for each in objects]
            seen.append(tried(lambda it: repr(pickle.loads(pickle.dumps(it))), made_object))
            # Of a frozen class with slots the library's `super().__setattr__` fails: it names the class without slots.
            for attribute in [*fields, *(["after"] if "slots=True" not in source else [])]:
                seen += [tried(setattr, made_object, attribute, 7), tried(repr, made_object)]
                seen += [tried(delattr, made_object, attribute), tried(repr, made_object)]
    return seen


@settings(max_examples=60, deadline=None)
@given(st.lists(CLASS, min_size=1, max_size=3), st.sampled_from(["object", "Base"]), st.booleans())
@example([("", ["    a: list = []"], [])], "object", False)
@example(
    [("", ["    a: ClassVarious = 1", "    b: ClassVar[int]", "    c: Shared[int] = []"], [])],
    "object",
    False,
)
@example([("", ["    a: int"], ["    def __init__(self, *values, **words): pass"])], "object", False)
@example([("", ["    a: int = 1", "    b: int"], [])], "object", False)
@example([("", ["    a: int"], []), ("", ["    a: int"], [])], "Base", False)
@example(
    [("", ["    a: int = 3"], []), ("slots=True", ["    a: int", "    b: int = 1"], [])], "object", False
)
@example([("frozen=True", ["    a: int"], [])], "object", True)
@example([("frozen=True", ["    a: int"], ["    __hash__ = None"])], "object", False)
@example([("", ["    self: int", "    a: int"], [])], "object", False)
@example([("", ["    a: int = field(default=1, default_factory=int)"], [])], "object", False)
@example([("", ["    a: ClassVar[int] = field(default_factory=list)"], [])], "object", False)
@example([("", [], ["    b = field()"])], "object", False)
@example([("frozen=True", [], []), ("", [], [])], "object", False)
@example([("", [], []), ("frozen=True", [], [])], "object", False)
@example([("slots=True", ["    a: int"], ["    __slots__ = ()"])], "object", False)
@example([("frozen=True", [], ["    def __delattr__(self, name): pass"])], "object", False)
def test_random_classes_made_both_ways_behave_alike(
    classes: list[tuple[str, list[str], list[str]]], first: str, last: bool
) -> None:
    source = source_of(classes, first, last)
    try:
        assert outcome("made_by_records", source) == outcome("made_by_stdlib", source)
    finally:
        for name in MAKERS:
            sys.modules.pop(name, None)


def test_init_is_compiled_when_it_is_first_asked_for() -> None:
    """A rank starts with fifty such classes, and makes instances of a third of them."""

    @records.dataclass(slots=True)
    class Base:
        a: int

    class Heir(Base):
        pass

    assert not isinstance(vars(Base)["__init__"], types.FunctionType)
    assert Heir(1).a == 1
    assert isinstance(vars(Base)["__init__"], types.FunctionType)
    assert "__init__" not in vars(Heir)
    first = vars(Base)["__init__"]
    assert Base(2).a == 2
    assert vars(Base)["__init__"] is first


def test_init_can_be_compiled_before_an_instance_is_made() -> None:
    @records.dataclass(frozen=True)
    class Pair:
        a: int
        b: int = 2

    records.compile_init(Pair)
    assert isinstance(vars(Pair)["__init__"], types.FunctionType)
    assert Pair.__init__.__qualname__ == f"{Pair.__qualname__}.__init__"
    assert Pair(1) == Pair(1, 2)


def test_an_object_that_holds_itself_is_shown() -> None:
    shown = []
    for maker in MAKERS.values():

        @maker.dataclass
        class Knot:
            held: Any = None

        knot = Knot()
        knot.held = [knot]
        shown.append(repr(knot))
    assert shown[0] == shown[1]


def test_annotations_need_not_be_text() -> None:
    made: Any = type("Made", (), {"__annotations__": {"a": int, "b": ClassVar[int], "c": list[int]}, "b": []})
    assert records.names(records.dataclass(made)) == ("a", "c")


@pytest.mark.parametrize(
    "what",
    [
        *("a: dataclasses.InitVar", "a: dataclasses.InitVar[int] = 1", "_: dataclasses.KW_ONLY"),
        *("a: int = field(init=False)", "a: int = field(kw_only=True)", "a: int = field(metadata={})"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(what: str) -> None:
    word = next(word for word in ("InitVar", "KW_ONLY", "init", "kw_only", "metadata") if word in what)
    with pytest.raises(TypeError, match=word):
        module_of("made_by_records", f"{HEAD}\n@dataclass\nclass C0:\n    {what}")


@pytest.mark.parametrize(
    "option", ["eq", "order", "unsafe_hash", "init", "repr", "kw_only", "match_args", "weakref_slot"]
)
def test_options_of_the_decorator_that_are_not_there(option: str) -> None:
    decorator: Any = records.dataclass
    with pytest.raises(TypeError, match=option):
        decorator(**{option: True})


NAMED_TUPLES = """
from __future__ import annotations
from typing import Any, ClassVar

class Pair(NamedTuple):
    "Two."
    a: int
    b: list[Any] = []

    @property
    def both(self) -> int:
        return self.a + len(self.b)

    def __repr__(self) -> str:
        return f"<{self.a}>"

class Nothing(NamedTuple):
    pass

class Outer:
    class Inner(NamedTuple):
        a: int
        b: str = "b"
"""


def named_tuples(base: Any) -> dict[str, Any]:
    module = types.ModuleType(f"named_tuples_of_{base.__module__.replace('.', '_')}")
    sys.modules[module.__name__] = module
    module.__dict__["NamedTuple"] = base
    exec(NAMED_TUPLES, module.__dict__)
    return module.__dict__


def test_a_named_tuple_is_that_of_typing() -> None:
    ours, theirs = named_tuples(records.NamedTuple), named_tuples(NamedTuple)
    for one, other in ((ours[name], theirs[name]) for name in ("Pair", "Nothing", "Outer")):
        one, other = getattr(one, "Inner", one), getattr(other, "Inner", other)
        assert one.__bases__ == other.__bases__ == (tuple,)
        assert one.__qualname__ == other.__qualname__
        assert one.__doc__ == other.__doc__
        assert (one._fields, one._field_defaults) == (other._fields, other._field_defaults)
        assert one.__match_args__ == other.__match_args__
    pair = ours["Pair"](1, [2])
    assert pair == theirs["Pair"](1, [2]) == (1, [2])
    assert (pair.both, repr(pair), pair._replace(a=5).a) == (2, "<1>", 5)
    assert pickle.loads(pickle.dumps(pair)) == pair
    assert type(pickle.loads(pickle.dumps(pair))) is ours["Pair"]
    assert repr(ours["Outer"].Inner(3)) == repr(theirs["Outer"].Inner(3))


@pytest.mark.parametrize("base", [NamedTuple, records.NamedTuple])
def test_the_methods_of_a_named_tuple(base: Any) -> None:
    one = named_tuples(base)["Outer"].Inner
    assert one._make([1, "c"]) == one(1, "c") == one(b="c", a=1)
    assert one(1)._asdict() == {"a": 1, "b": "b"}
    assert list(inspect.signature(one).parameters) == ["a", "b"]
    with pytest.raises(TypeError, match="Expected 2 arguments, got 1"):
        one._make([1])
    with pytest.raises(TypeError, match="1 required positional argument: 'a'"):
        one()
    with pytest.raises((TypeError, ValueError), match="Got unexpected field names"):
        one(1)._replace(c=1)


def test_named_tuples_of_as_many_fields_have_their_own_names() -> None:
    meta: Any = type(records.NamedTuple)
    made: list[Any] = [meta(f"T{x}", (), {"__annotations__": {x: "int", "y": "int"}}) for x in "abc"]
    assert [each(1, 2)._asdict() for each in made] == [{x: 1, "y": 2} for x in "abc"]
    assert [each(y=2, **{x: 1}) for x, each in zip("abc", made, strict=True)] == [(1, 2)] * 3


@pytest.mark.parametrize("body", ["a: int = 1\n    b: int", "_a: int"])
def test_a_named_tuple_that_typing_refuses_is_refused(body: str) -> None:
    found = []
    for base in (NamedTuple, records.NamedTuple):
        with pytest.raises((TypeError, AttributeError, ValueError)) as failure:
            exec(f"from __future__ import annotations\nclass A(base):\n    {body}", {"base": base})
        found.append((failure.type, str(failure.value).split(":")[0]))
    assert found[0] == found[1]

"""Functions, classes and instances by value: everything comes back, and none of the program's code runs for it."""

from __future__ import annotations

import abc
import collections
import copyreg
import dataclasses
import enum
import functools
import types
import typing
from pathlib import Path
from typing import Any

import pytest

from ckpt.image.reducers import by_value
from tests.unit.ckpt.image.support import copy_of, resumed_output


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"


class Bits(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: tuple[int, ...] = ()


@dataclasses.dataclass(slots=True)
class Slots:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)


class SlotsOnly:
    __slots__ = ("a",)


class SlotsAndMore(SlotsOnly):
    pass


class Row(typing.NamedTuple):
    x: int
    y: int = 2


class Count(dict):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("__setitem__")


class Log(list):
    def append(self, item: Any) -> None:
        raise AssertionError("append")

    def extend(self, items: Any) -> None:
        raise AssertionError("extend")


class Strict:
    def __new__(cls, required: int) -> Strict:
        self = super().__new__(cls)
        self.made = required
        return self

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("__setstate__")


class Shape(abc.ABC):
    subclasses: typing.ClassVar[list[str]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        Shape.subclasses.append(cls.__name__)

    @abc.abstractmethod
    def area(self) -> float: ...


class Square(Shape):
    def __init__(self, side: float) -> None:
        self.side = side

    def area(self) -> float:
        return self.side**2

    @functools.cached_property
    def double(self) -> float:
        return 2 * self.area()

    @property
    def half(self) -> float:
        return self.area() / 2

    @staticmethod
    def unit() -> Square:
        return Square(1)

    @classmethod
    def named(cls) -> str:
        return cls.__name__


def counter() -> tuple[Any, Any]:
    count = 0

    def up() -> int:
        nonlocal count
        count += 1
        return count

    def read() -> int:
        return count

    return up, read


def test_closures_share_their_cells() -> None:
    up, read = copy_of(counter())
    assert (up(), up(), read()) == (1, 2, 2)


def test_a_function_that_refers_to_itself() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    copy = copy_of(factorial)
    assert copy(5) == 120
    assert copy.__closure__[0].cell_contents is copy


def test_a_function_keeps_all_of_its_attributes() -> None:
    def function(a: int, b: int = 2, /, *, c: int = 3, **rest: Any) -> str:
        "doc"
        return f"{a}{b}{c}{rest}"

    function.extra = [function]  # type: ignore[attr-defined]
    copy = copy_of(function)
    assert copy(1, d=4) == function(1, d=4)
    assert (copy.__name__, copy.__qualname__, copy.__doc__) == ("function", function.__qualname__, "doc")
    assert copy.__annotations__ == function.__annotations__
    assert copy.extra[0] is copy
    assert copy.__globals__ is function.__globals__


def test_code_with_its_tables() -> None:
    def raises() -> None:
        try:
            raise KeyError
        finally:
            pass

    code = copy_of(raises.__code__)
    assert code == raises.__code__
    assert list(code.co_positions()) == list(raises.__code__.co_positions())


def test_library_functions_and_classes_are_references() -> None:
    assert copy_of([functools.wraps, collections.OrderedDict.fromkeys, dataclasses.Field, len]) == [
        functools.wraps,
        collections.OrderedDict.fromkeys,
        dataclasses.Field,
        len,
    ]


@pytest.mark.parametrize(
    "cls", [types.MethodType, types.CellType, type({}.keys()), type(iter([])), type(None), type(...)]
)
def test_types_whose_name_does_not_lead_to_them(cls: type) -> None:
    assert copy_of(cls) is cls


def test_enumerations() -> None:
    enums, red, both = copy_of((Colour, Colour.RED, Bits.A | Bits.B))
    assert enums.RED is red
    assert enums(1) is red
    assert enums("g").name == "GREEN"
    assert both == 3
    assert type(both)(1) in both


def test_dataclasses_named_tuples_and_slots() -> None:
    frozen, slots, row = copy_of((Frozen(1, (2,)), Slots(3, [4]), Row(5)))
    assert dataclasses.astuple(frozen) == (1, (2,))
    assert hash(frozen) == hash(Frozen(1, (2,)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.a = 2
    assert (slots.a, slots.b) == (3, [4])
    assert type(slots)(1).b == []
    assert row == (5, 2)
    assert row._replace(x=1).x == 1


def test_slots_beside_a_dictionary_that_is_shared() -> None:
    obj = SlotsAndMore()
    obj.a, obj.more = 1, 2  # type: ignore[attr-defined]
    copy, attributes = copy_of((obj, vars(obj)))
    assert (copy.a, copy.more) == (1, 2)
    assert vars(copy) is attributes


def test_subclasses_of_containers_are_filled_behind_their_back() -> None:
    count, log = Count(a=1), Log([1, 2])
    count.extra = log  # type: ignore[attr-defined]
    copy = copy_of(count)
    assert dict(copy) == {"a": 1}
    assert list(copy.extra) == [1, 2]


def test_no_constructor_and_no_hook_runs() -> None:
    before = list(Shape.subclasses)
    strict, square = copy_of((Strict(3), Square(2)))
    assert strict.made == 3
    assert square.area() == 4
    assert type(square).__mro__[1].subclasses == before
    assert Shape.subclasses == before


def test_descriptors_work_in_the_copied_class() -> None:
    square = Square(3)
    assert square.double == 18
    copy = copy_of(square)
    assert (copy.double, copy.half, copy.unit().side, copy.named()) == (18, 4.5, 1, "Square")
    with pytest.raises(TypeError):
        type(copy).__mro__[1]()


def test_a_metaclass_of_the_program() -> None:
    class Meta(type):
        def __call__(cls, *args: Any) -> Any:
            raise AssertionError("Meta.__call__")

        def __new__(mcs, name: str, bases: Any, namespace: Any) -> Any:
            return super().__new__(mcs, name, bases, {**namespace, "made_by": mcs})

        def size(cls) -> int:
            return len(cls.__name__)

    class Made(metaclass=Meta):
        pass

    obj = object.__new__(Made)
    copy = copy_of(obj)
    assert type(copy).size() == 4
    assert type(copy).made_by is type(type(copy))


def test_a_class_that_holds_an_instance_of_itself_and_uses_super() -> None:
    class Base:
        def who(self) -> str:
            return "base"

    class Node(Base):
        root: Any = None

        def who(self) -> str:
            return "node of " + super().who()

    Node.root = Node()
    copy = copy_of(Node.root)
    assert type(copy).root is copy
    assert copy.who() == "node of base"


def test_generic_classes_and_type_variables() -> None:
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        pass

    box = copy_of(Box[int]())
    assert type(box).__orig_bases__[0].__args__[0].__name__ == "T"


@pytest.mark.skipif(not hasattr(typing, "TypeAliasType"), reason="another Python: 3.12 has type parameters")
def test_type_parameters_and_aliases() -> None:
    namespace = {"__name__": __name__}
    source = """
def first[T: int, *Ts, **P](x: T, *rest: *Ts) -> T:
    return x
class Stack[T]:
    def push(self, x: T) -> T:
        return x
class Child(Stack[int]):
    pass
type Pair[A] = tuple[A, A]
"""
    exec(compile(source, "program", "exec", dont_inherit=True), namespace)
    names = ("first", "Stack", "Child", "Pair")
    first, stack, child, pair = copy_of([namespace[name] for name in names])
    parameter = first.__type_params__[0]
    assert [p.__name__ for p in first.__type_params__] == ["T", "Ts", "P"]
    assert parameter is not namespace["first"].__type_params__[0]
    assert (parameter.__bound__, parameter.__infer_variance__) == (int, True)
    assert first.__annotations__["x"] is parameter
    assert stack.__parameters__ == stack.__type_params__
    assert (child.__orig_bases__, child().push(3)) == ((stack[int],), 3)
    assert (pair.__name__, pair.__module__) == ("Pair", __name__)
    assert pair.__value__.__args__ == pair.__type_params__ * 2


def test_a_module_that_is_in_no_table() -> None:
    module = types.ModuleType("mine", "doc")
    exec("value = 1\ndef get(): return value", module.__dict__)
    copy = copy_of(module)
    assert (copy.__name__, copy.value, copy.get()) == ("mine", 1, 1)


class Ordered(collections.OrderedDict):
    def __init__(self, must: int) -> None:
        super().__init__(a=must)


class Ring(collections.deque):
    def __init__(self, must: int) -> None:
        super().__init__([must], maxlen=2)


def test_subclasses_of_collections_do_not_run_their_constructor() -> None:
    ordered, ring = copy_of((Ordered(1), Ring(2)))
    assert list(ordered.items()) == [("a", 1)]
    ring.extend([3, 4])
    assert list(ring) == [3, 4]


def test_library_classes_that_pickle_would_call_without_arguments_or_ask_for_hooks(tmp_path: Path) -> None:
    """importlib's FastPath has a __new__ that needs a path; esprima's objects have every attribute, as None."""
    (tmp_path / "site-packages").mkdir()
    library = """
        import functools
        class Path:
            @functools.lru_cache()
            def __new__(cls, root):
                return super().__new__(cls)
            def __init__(self, root):
                self.root = root
        class Everything:
            def __init__(self):
                self.set = 1
            def __getattr__(self, name):
                return None
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import odd_library
        path, everything = odd_library.Path("/x"), odd_library.Everything()
        driver_tick()
        print(path.root, everything.set, everything.unset)
    """
    files = {"site-packages/odd_library.py": library}
    assert resumed_output(tmp_path, source, files=files) == "/x 1 None\n"


def test_library_objects_with_a_reduce_keep_their_insides_while_a_method_runs(tmp_path: Path) -> None:
    """SortedList says "made of these values"; its add() holds the lists of before, and would go on with those."""
    (tmp_path / "site-packages").mkdir()
    library = """
        class Sorted:
            def __init__(self, values):
                self.parts = [sorted(values)]
            def __reduce__(self):
                return type(self), (self.parts[0],)
            def add(self, value, wait):
                part = self.parts[0]
                wait()
                part.append(value)
        class Notes(dict):
            def __init__(self, note):
                self.note = note
            def __setitem__(self, key, value):
                super().__setitem__(key, self.note(value))
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import sorted_library
        made, notes = sorted_library.Sorted([2, 1]), sorted_library.Notes(str)
        notes["a"] = 1
        made.add(3, lambda: driver_tick())
        print(made.parts, notes, notes.note)
    """
    files = {"site-packages/sorted_library.py": library}
    assert resumed_output(tmp_path, source, files=files) == "[[1, 2, 3]] {'a': '1'} <class 'str'>\n"


def test_a_library_object_that_is_being_made(tmp_path: Path) -> None:
    """inspect.Parameter says what it is made of, which it cannot before it is."""
    (tmp_path / "site-packages").mkdir()
    library = """
        class Parameter:
            def __init__(self, name, wait):
                wait()
                self._name = name
            def __reduce__(self):
                return type(self), (self._name, print)
    """
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import made_library
        print(made_library.Parameter("x", lambda: driver_tick())._name)
    """
    files = {"site-packages/made_library.py": library}
    assert resumed_output(tmp_path, source, files=files) == "x\n"


def test_objects_that_only_a_c_type_can_make_while_a_function_works_with_them(tmp_path: Path) -> None:
    program = """
        import ast
        def look(node):
            driver_tick()
            print(ast.dump(node), node is tree)
        tree = ast.parse("x = 1")
        look(tree)
    """
    assert resumed_output(tmp_path, program).endswith(" True\n")


def test_a_type_that_has_a_state_and_no_way_to_make_an_object_is_not_saved_by_its_state() -> None:
    """PyExpr of polars, in a variable of a function of polars: an image was made that could not be loaded."""

    class Made:  # stands for a type in C
        def __getstate__(self) -> bytes:
            return b"state"

        def __setstate__(self, state: bytes) -> None: ...

    class MadeByItself(Made):
        def __new__(cls) -> Any:
            return super().__new__(cls)

    assert by_value._reduce_by_getstate(Made, Made()) is None
    assert by_value._reduce_by_getstate(MadeByItself, MadeByItself()) == (
        copyreg.__newobj__,  # type: ignore[attr-defined]
        (MadeByItself,),
        b"state",
    )


def test_a_class_of_the_program_over_one_of_pybind11_gets_its_attributes() -> None:
    """The metaclass is made in C and has a way of its own to set attributes: a restart failed."""
    contourpy = pytest.importorskip("contourpy", reason="another Python: its environment has no matplotlib")

    class Own(contourpy.ContourGenerator):  # type: ignore[misc, name-defined]
        pass

    from ckpt.image.reducers import rebuild

    rebuild.fill_class(Own, ({"limit": 3}, None))
    assert Own.limit == 3


def test_no_setter_of_a_metaclass_of_the_program_runs_for_a_class() -> None:
    class Meta(type):
        def __setattr__(cls, name: str, value: object) -> None:
            raise AssertionError("called")

    class Own(metaclass=Meta):
        limit: int

    from ckpt.image.reducers import rebuild

    rebuild.fill_class(Own, ({"limit": 3}, None))
    assert Own.limit == 3

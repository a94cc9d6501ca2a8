"""Objects of classes of the program that derive from types in C."""

from __future__ import annotations

import ast
import pickle
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from ckpt.image.reducers import by_value
from tests.unit.ckpt.image.support import copy_of


class Bytes(bytearray):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begun = True


class Slotted(bytearray):
    __slots__ = ("place",)


class Number(np.float64):
    unit = "m"


class Text(np.str_):
    pass


class State(np.random.RandomState):
    pass


class Generator(np.random.Generator):
    pass


class Node(ast.AST):
    _fields = ("left",)


class Element(ET.Element):
    pass


def test_content_that_the_base_takes_in_init() -> None:
    """The copy was empty."""
    obj = Bytes(b"content")
    obj.extra = [obj]  # type: ignore[attr-defined]
    copy = copy_of(obj)
    assert (copy, copy.begun, type(copy).__name__) == (b"content", True, "Bytes")
    assert copy.extra[0] is copy
    slotted = Slotted(b"ab")
    slotted.place = 3
    copy = copy_of(slotted)
    assert (copy, copy.place) == (b"ab", 3)


@pytest.mark.parametrize("value", [Number(3.5), Text("abc")])
def test_scalars_of_numpy(value: Any) -> None:
    """The restart failed."""
    value.own = 1
    copy = copy_of(value)
    assert (copy, copy.own, type(copy).__name__) == (value, 1, type(value).__name__)


def test_generators_of_numpy() -> None:
    state, generator = State(3), Generator(np.random.PCG64(3))
    state.normal()
    state.own = generator.own = 1  # type: ignore[attr-defined]
    copies = copy_of((state, generator))
    assert [type(copy).__name__ for copy in copies] == ["State", "Generator"]
    assert [copy.own for copy in copies] == [1, 1]
    assert [copies[0].normal(), copies[1].normal()] == [state.normal(), generator.normal()]


def test_types_in_c_that_allocate_their_objects_themselves() -> None:
    node = Node()
    node.left = node  # type: ignore[attr-defined]
    copy = copy_of(node)
    assert (copy.left is copy, type(copy).__name__, copy._fields) == (True, "Node", ("left",))
    element = Element("a", {"k": "v"})
    copy = copy_of(element)
    assert (copy.tag, copy.attrib, type(copy).__name__) == ("a", {"k": "v"}, "Element")


class _Told:
    """Stands for a pickler: which classes are the program's."""

    def __init__(self, *classes: type) -> None:
        self.references = self
        self.slots: dict[type, Any] = {}
        self._classes = classes

    def is_user_type(self, cls: type) -> bool:
        return cls in self._classes


def test_a_base_that_pickles_its_objects_as_plain_ones_is_named() -> None:
    """The restart failed, or went on with an object of another class."""

    class Base(bytearray):
        def __reduce__(self) -> Any:
            return bytearray, (bytes(self),)

        def __reduce_ex__(self, protocol: Any) -> Any:
            return self.__reduce__()

    class Derived(Base):
        pass

    with pytest.raises(
        pickle.PicklingError, match=r"Derived, which derives from .*Base: .* hold one in an attribute"
    ):
        by_value.reduce_by_base(_Told(Derived), Derived(b"a"))  # type: ignore[arg-type]

"""Objects are looked at without running any of the program's code."""

from __future__ import annotations

import sys
import threading
import types
from collections import OrderedDict, deque
from typing import Any, ClassVar

import pytest

from ckpt.image.lowlevel import inspect_raw


class Deaf:
    """Every way that Python code is asked for something raises."""

    __slots__ = ("__dict__", "unset", "x")

    def __init__(self) -> None:
        object.__setattr__(self, "x", 1)
        object.__getattribute__(self, "__dict__")["y"] = 2

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("code of the program has run")

    __getattribute__ = __eq__ = __hash__ = _refuse  # type: ignore[assignment]
    __class__ = property(_refuse)  # type: ignore[assignment]


def test_attributes_and_slots_are_read_past_the_methods_of_the_class() -> None:
    obj = Deaf()
    assert inspect_raw.attributes_of(obj) == {"x": 1, "y": 2}
    assert inspect_raw.dictionary_of(obj) == {"y": 2}
    assert inspect_raw.is_a(obj, Deaf)
    assert not inspect_raw.is_a(obj, int)
    assert list(inspect_raw.slots_of(Deaf)) == ["unset", "x"]


def test_what_has_no_attributes_is_told_apart_from_what_has_none_set() -> None:
    assert inspect_raw.attributes_of(1) is None
    assert inspect_raw.attributes_of(types.SimpleNamespace()) == {}


def test_a_thread_local_shows_the_attributes_of_this_thread() -> None:
    local = threading.local()
    local.here = 1
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(inspect_raw.dictionary_of(local)))
    thread.start()
    thread.join()
    assert (inspect_raw.dictionary_of(local), found) == ({"here": 1}, [{}])


class _Loud(dict):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise AssertionError

    __getitem__ = copy = keys = items = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("container", "content"),
    [
        (_Loud({"a": 1}), {"a": 1}),
        (OrderedDict([("b", 1), ("a", 2)]), [("b", 1), ("a", 2)]),
        ({3}, {3}),
        ([1, 2], [1, 2]),
        (deque([1, 2]), [1, 2]),
    ],
)
def test_content_is_copied_by_the_methods_of_the_builtin_type(container: Any, content: Any) -> None:
    found = inspect_raw.content_of(container)
    assert found == content
    assert found is not container


TABLE = {"key": [Deaf(), (1, {"deep": "found"})]}


class Outer:
    inner: ClassVar = {1: "one"}


def test_a_path_leads_to_its_object() -> None:
    assert inspect_raw.follow((__name__, "TABLE", ("key",), (1,), (1,), ("deep",))) == "found"
    assert inspect_raw.follow((__name__, "Outer", "inner", (1,))) == "one"
    assert inspect_raw.follow((__name__, "TABLE", ("key",), (0,), "y")) == 2


@pytest.mark.parametrize(
    "rest", [("NOWHERE",), ("TABLE", ("other",)), ("Outer", "other"), ("TABLE", ("key",), (7,))]
)
def test_a_path_that_leads_nowhere_is_a_lookup_error(rest: tuple[Any, ...]) -> None:
    with pytest.raises(LookupError):
        inspect_raw.follow((__name__, *rest))


def test_a_module_that_is_not_there_is_a_lookup_error() -> None:
    assert "no_such_module" not in sys.modules
    with pytest.raises(LookupError):
        inspect_raw.follow(("no_such_module", "x"))


def test_a_class_is_named_if_its_qualified_name_finds_it() -> None:
    class Local:
        pass

    assert inspect_raw.is_named(Outer)
    assert not inspect_raw.is_named(Local)
    assert not inspect_raw.is_named(type("Outer", (), {"__module__": __name__}))

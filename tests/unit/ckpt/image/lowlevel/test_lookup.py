"""What is looked up in C: changed modules, changed dictionaries, what a program has bound in modules of others."""

from __future__ import annotations

import gc
import types

from ckpt.compat.interpreter import DICTS_COUNT_CHANGES
from ckpt.image.lowlevel import _lookup


def test_a_module_is_named_when_it_is_new_or_has_more_names_and_once() -> None:
    module = types.ModuleType("m")
    states = _lookup.ModuleStates()
    assert states.changed({"m": module}) == ["m"]
    assert states.changed({"m": module}) == []
    module.__dict__["more"] = 1
    assert states.changed({"m": module}) == ["m"]
    assert states.changed({"m": module}) == []
    if DICTS_COUNT_CHANGES:
        module.__dict__["more"] = 2
        assert states.changed({"m": module}) == ["m"]


def test_a_dictionary_is_the_same_if_each_name_has_the_same_object() -> None:
    noted = {"a": [1], "b": None}
    assert _lookup.same(noted, dict(noted))
    assert not _lookup.same(noted, {"a": [1], "b": None})
    assert not _lookup.same(noted, {"a": noted["a"]})
    assert not _lookup.same(noted, {**noted, "c": 1})


def test_a_class_is_the_same_until_an_attribute_is_set() -> None:
    class Some:
        x = 1

    noted = dict(vars(Some))
    assert _lookup.same(noted, Some)
    Some.x = 2
    assert not _lookup.same(noted, Some)


def test_functions_of_the_program_in_modules_of_others_are_found() -> None:
    program, other = types.ModuleType("program"), types.ModuleType("other")
    exec("def patch(): pass", program.__dict__)
    other.__dict__["original"] = program.__dict__["patch"]
    other.__dict__["own"] = len
    found = _lookup.patches({"other": other}, {"program": program})
    assert found == [("other", "original", program.__dict__["patch"])]


def test_a_set_is_laid_out_again_as_it_was() -> None:
    numbers = set(range(50)) - {3, 4, 20}
    copy: set[int] = set()
    assert _lookup.restore(copy, *_lookup.layout(numbers))
    assert list(copy) == list(numbers)
    assert copy == numbers


SOURCE = """
from enum import Enum
class Own: pass
class Color(Enum): red = 1
def plain(): pass
def counted(): pass
counted.calls = 0
number, text, table, instance, color, borrowed = 1, "", {}, Own(), Color.red, Enum
__hidden = Own()
"""


def test_variables_whose_values_have_attributes_are_found() -> None:
    space = {"__name__": "some"}
    exec(SOURCE, space)
    found = _lookup.owners(space, "some", False)
    assert [name for name, _, _ in found] == ["Own", "Color", "counted", "instance", "color"]
    assert all(value is space[name] for name, value, _ in found)
    assert [copy is not None and copy == dict(space[name].__dict__) for name, _, copy in found] == [
        True
    ] * 2 + [False] * 3
    assert _lookup.owners(space, "some", True) == [("counted", space["counted"], None)]
    assert [name for name, _, _ in _lookup.owners(space, "another", False)] == ["instance", "color"]


def test_tuples_that_can_be_part_of_no_cycle_are_untracked() -> None:
    constants, holder = tuple(iter(("a", 1, None, b""))), tuple(iter(("a", [])))
    cycle: list[object] = []
    cycle.append((cycle,))
    tuples = [constants, holder, cycle[0]]
    assert all(map(gc.is_tracked, tuples))
    _lookup.untrack_constants([*tuples, "no tuple", {}])
    assert list(map(gc.is_tracked, tuples)) == [False, True, True]

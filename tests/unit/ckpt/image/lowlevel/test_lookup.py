"""What is looked up in C: changed modules, changed dictionaries, what a program has bound in modules of others."""

from __future__ import annotations

import gc
import math
import threading
import types

import pytest

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


def test_objects_of_a_type_are_found_in_modules_and_in_classes_written_there() -> None:
    module, other, excluded = (types.ModuleType(name) for name in ("m", "other", "none.of_these"))
    exec("class Of:\n    inner = frozenset()\nouter = frozenset()", module.__dict__)
    other.__dict__["Imported"] = module.__dict__["Of"]
    excluded.__dict__["outer"] = module.__dict__["outer"]
    modules = {each.__name__: each for each in (module, other, excluded)}
    empty = frozenset()
    assert _lookup.instances(modules, (frozenset,), ("none",)) == [
        ("m", "Of", "inner", empty),
        ("m", "outer", None, empty),
    ]
    assert _lookup.instances(modules, (frozenset,), ("non",))[-1] == ("none.of_these", "outer", None, empty)


def test_what_is_written_outside_of_some_packages_is_found_in_modules() -> None:
    module, patch = types.ModuleType("m"), types.ModuleType("package.part")
    exec("def patch(): pass\nclass Of: pass", patch.__dict__)
    module.__dict__.update(
        patched=patch.__dict__["patch"], made=patch.__dict__["Of"](), own=len, text="package"
    )
    found = _lookup.foreign({"m": module, "x": module}, frozenset({"builtins", "m"}))
    assert [row[:2] for row in found] == [("m", "patched"), ("m", "made")]
    assert found[0][2] is patch.__dict__["patch"]
    assert _lookup.foreign({"m": module}, frozenset({"package"})) == []


def test_modules_of_which_a_note_differs_or_a_function_has_attributes_are_named() -> None:
    modules = {name: types.ModuleType(name) for name in ("same", "changed", "attributes", "in_class")}
    for name, module in modules.items():
        exec("class Of: pass\ndef function(): pass\nx = 1", module.__dict__)
        assert module.__dict__["function"].__module__ == name
    notes = {
        name: [
            (module.__dict__, dict(module.__dict__)),
            (module.__dict__["Of"], dict(vars(module.__dict__["Of"]))),
        ]
        for name, module in modules.items()
    }
    assert _lookup.differing(notes, 0, 1) == []
    modules["changed"].__dict__["x"] = 2
    modules["attributes"].__dict__["function"].seen = True
    modules["in_class"].__dict__["Of"].x = 1
    assert _lookup.differing(notes, 0, 1) == ["changed", "attributes", "in_class"]


def test_notes_of_another_shape_are_refused() -> None:
    for notes in ({"m": [({},)]}, {"m": [[]]}, {"m": ()}, {1: []}, {"m": [({}, 1)]}):
        with pytest.raises(TypeError):
            _lookup.differing(notes, 0, 1)  # type: ignore[arg-type]


def test_names_of_modules_that_a_dict_does_not_have() -> None:
    assert _lookup.added({"a": 1, "b": 2, "c": 3}, {"b": None}) == ["a", "c"]


def test_the_values_of_a_variable_in_all_modules_that_have_it() -> None:
    with_it, without, other = (
        types.ModuleType("with_it"),
        types.ModuleType("without"),
        types.ModuleType("other"),
    )
    with_it.registry, other.registry = {"a": 1}, None  # type: ignore[attr-defined]
    modules = {"with_it": with_it, "without": without, "no module": 3, "other": other}
    assert _lookup.bound(modules, "registry") == [{"a": 1}, None]
    with pytest.raises(TypeError):
        _lookup.bound(modules, 3)  # type: ignore[arg-type]


class _Some:
    pass


def _note(obj: object) -> tuple[object, object, object]:
    content = type(obj)(obj) if type(obj) in (dict, list, set) else None  # type: ignore[call-arg]
    attributes = dict(vars(obj)) if hasattr(obj, "__dict__") else None
    return obj, attributes, content


def _function() -> None:
    pass


def test_a_note_of_an_object_that_has_not_changed_is_not_found() -> None:
    some = _Some()
    some.__dict__["x"] = 1
    objects = [some, _Some, _function, {"a": 1}, [1, 2], {1, "b", 3}, set(), object()]
    assert _lookup.may_differ({id(obj): _note(obj) for obj in objects}, 0) == []


def test_each_change_of_an_object_is_found() -> None:
    class Of:
        x = 1

    def function() -> None:
        pass

    some, removed = _Some(), {1, 2, 3}
    objects = [some, Of, function, {"a": 1}, {"b": 1}, [1, 2], [1], {1, "b", 3}, removed, set(range(100))]
    notes = {number: _note(obj) for number, obj in enumerate(objects)}
    some.__dict__["x"] = 1
    Of.x = 2
    function.__dict__["x"] = 1
    objects[3]["a"] = 2  # type: ignore[index]
    objects[4].pop("b")  # type: ignore[attr-defined]
    objects[5][0] = 3  # type: ignore[index]
    objects[6].append(2)  # type: ignore[attr-defined]
    objects[7].symmetric_difference_update({1, 2})  # type: ignore[attr-defined]
    removed.remove(2)
    found = _lookup.may_differ(notes, 0)
    assert [note[0] for note in found] == objects  # the last one is too large to be compared


def test_an_object_with_slots_is_found_since_they_are_in_no_dictionary() -> None:
    class Slots:
        __slots__ = ("x",)

    class Both(Slots):
        pass

    notes = {number: (cls(), {}, None) for number, cls in enumerate((Slots, Both, _Some))}
    assert _lookup.may_differ(notes, 0) == [notes[0], notes[1]]


def test_a_note_whose_object_is_of_another_kind_is_found() -> None:
    notes = {1: (3, {"x": 1}, None), 2: (3, None, [1]), 3: ([1], None, {1}), 4: (iter(()), None, "count(0)")}
    assert _lookup.may_differ(notes, 0) == list(notes.values())
    with pytest.raises(TypeError):
        _lookup.may_differ({1: (3, None)}, 0)


def test_notes_that_hold_an_object_of_a_type_are_found() -> None:
    empty = frozenset[int]()
    notes = {
        1: ({"x": empty}, None),
        2: (None, [empty]),
        3: (None, {"x": empty}),
        4: ({"x": 1}, {1}),
        5: (None, None),
    }
    assert _lookup.holding(notes, 0, (frozenset,)) == [notes[1], notes[2], notes[3]]
    assert _lookup.holding(notes, 0, ()) == []


def test_the_values_of_a_module_whose_identity_matters() -> None:
    module = types.ModuleType("made_here")
    settings, lock = {"a": 1}, threading.Lock()
    vars(module).update(
        settings=settings,
        lock=lock,
        SUPPRESS="==SUPPRESS==",
        suppress="==suppress==",
        S1="=",
        nan=math.nan,
        one=1.0,
        number=1,
        cls=dict,
        __ALL__="in capitals",
    )
    vars(module)[7] = "a name that is no string"  # type: ignore[index]
    found = dict(_lookup.identities(module, (int, types.BuiltinFunctionType, type(None))))
    assert found == {
        "settings": settings,
        "lock": lock,
        "SUPPRESS": "==SUPPRESS==",
        "nan": found["nan"],
        "__ALL__": "in capitals",
    }


def test_the_values_of_what_is_no_module_are_not_asked_for() -> None:
    with pytest.raises(TypeError, match="module"):
        _lookup.identities({}, ())  # type: ignore[arg-type]

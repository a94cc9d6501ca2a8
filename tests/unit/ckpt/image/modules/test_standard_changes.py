"""What a program puts into the standard library is part of its image, or named where it cannot be saved."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from ckpt.image.lowlevel import _lookup
from ckpt.image.modules import standard_changes
from ckpt.image.modules.package_changes import Changed
from ckpt.image.modules.standard_baseline import StandardBaseline, is_from_standard
from tests.unit.ckpt.image.support import after_restart, image_failure, resumed_output


def test_variables_attributes_and_methods_are_put_back(tmp_path: Path) -> None:
    source = """
        import fractions, functools, http.client, json, math, reprlib, socketserver, ssl, sys

        json.own = open("x", "w")
        json.own.write("written once")
        math.own = sys.own = [json.own]
        del json.detect_encoding
        ssl._create_default_https_context = ssl._create_unverified_context
        http.client.HTTPConnection.debuglevel = 1
        http.client._MAXHEADERS = 1000
        socketserver.TCPServer.allow_reuse_address = True
        fractions.Fraction.own = {"file": json.own}
        fractions.Fraction.__repr__ = lambda self: "a fraction"
        json.dumps.calls = 3
        reprlib.aRepr.maxlist = 1
        original = json.JSONEncoder.default

        def default(self, obj):
            return sorted(obj) if isinstance(obj, set) else original(self, obj)

        json.JSONEncoder.default = default
        driver_tick()
        print(math.own is sys.own, math.own[0] is json.own, fractions.Fraction.own["file"] is json.own)
        print(hasattr(json, "detect_encoding"), ssl._create_default_https_context is ssl._create_unverified_context)
        print(http.client.HTTPConnection.debuglevel, http.client._MAXHEADERS)
        print(socketserver.TCPServer.allow_reuse_address, repr(fractions.Fraction(1, 2)))
        print(json.dumps.calls, reprlib.repr([1, 2, 3]), json.dumps({2, 1}))
        try:
            json.dumps(1j)
        except TypeError as error:
            print(error)
        json.own.close()
        print(open("x").read())
    """
    assert resumed_output(tmp_path, source).splitlines() == [
        "True True True",
        "False True",
        "1 1000",
        "True a fraction",
        "3 [1, ...] [1, 2]",
        "Object of type complex is not JSON serializable",
        "written once",
    ]


def test_what_cannot_be_saved_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    """The same holds for context variables of libraries."""
    library = (
        "import contextvars\ncurrent, depth = contextvars.ContextVar('c'), contextvars.ContextVar('d')\n"
    )
    program = """
        import fractions, json, lib, bz2
        json.own, json.level = bz2.BZ2Decompressor(), 2
        fractions.Fraction.own = bz2.BZ2Decompressor()
        lib.current.set(bz2.BZ2Decompressor())
        lib.depth.set(3)
        driver_tick()
        print(json.level, lib.depth.get())
    """
    assert after_restart(tmp_path, library, program) == "2 3\n"
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    (rows,) = [line["left_out"] for line in lines if line.get("left_out")]
    assert all(row["kind"] == "unsaved" and "decompressor" in row["reason"] for row in rows)
    assert sorted((row["package"], row["variables"]) for row in rows) == [
        ("fractions", ["fractions.Fraction.own"]),
        ("json", ["json.own"]),
        ("lib", ["lib.current"]),
    ]


def test_a_context_variable_of_the_program_is_not_left_out(tmp_path: Path) -> None:
    program = """
        import contextvars, bz2
        var = contextvars.ContextVar("var")
        var.set(bz2.BZ2Decompressor())
        driver_tick()
    """
    failure = image_failure(tmp_path, program)
    assert "program state 'context'" in failure and "Decompress" in failure


def _changes(source: str, change: str, *, patched: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """The changes that the second source makes in a module of the first one, which has a name of the standard library."""
    module = types.ModuleType("antigravity")
    exec(source, module.__dict__)
    baseline, found = StandardBaseline(), Changed()
    sys.modules["antigravity"] = module
    try:
        baseline.note(module)
        exec(change, {"module": module, "types": types, "sys": sys})
        standard_changes.find_changes(baseline, {}, patched, found)
    finally:
        del sys.modules["antigravity"]
        sys.modules.pop("antigravity.sub", None)
    return [name.removeprefix("antigravity.") for name in found.changes]


@pytest.mark.parametrize(
    ("source", "change", "expected"),
    [
        ("a = []", "module.a.append(1)", []),  # a table: the library changes it itself
        ("a = []", "module.a = []", ["a"]),
        ("a = 1", "del module.a", ["a"]),
        ("a = 1", "del module.a; module.a = 1", []),  # only the order is another one
        ("a = None\ndef f():\n  global a\n  a = 1", "module.f()", []),
        ("a = None\nclass A:\n  def f(self):\n    global a\n    a = 1", "module.A().f()", []),
        ("", "module.__warningregistry__ = {}", []),
        ("", "sys.modules['antigravity.sub'] = module.sub = types.ModuleType('antigravity.sub')", []),
        ("", "module.other = types", ["other"]),
        ("", "module.other = types.ModuleType('types')", []),  # ranks have such a `signal._signal`
        ("class A: pass", "module.A.x = 1", ["A.x"]),
        ("class A:\n  x = 1", "del module.A.x", ["A.x"]),
        ("class A: pass", "module.A.__slotnames__ = []", []),  # made by pickle
        ("class A: pass", "module.A.__eq__ = lambda a, b: True", ["A.__eq__"]),
        ("class A: pass\na = A()", "module.a.x = 1", ["a.x"]),
        ("class A: pass\na = A()", "module.a.x = 1; module.a = 2", ["a"]),
        ("def f(): pass", "module.f.x = 1", ["f.x"]),
        ("import enum\nclass A(enum.Enum):\n  a = 1\nb = A.a", "module.b.x = 1", []),
    ],
)
def test_what_counts_as_changed(source: str, change: str, expected: list[str]) -> None:
    assert _changes(f"__name__ = 'antigravity'\n{source}", change) == expected


def test_what_is_saved_as_a_patch_is_not_saved_twice() -> None:
    source, change = "__name__ = 'antigravity'\na = b = 1", "module.a = module.b = 2"
    assert _changes(source, change, patched=(("antigravity", "a"),)) == ["b"]


def test_attributes_of_functions_are_differences_only_where_they_are_new() -> None:
    source = "__name__ = 'antigravity'\ndef plain(): pass\ndef counted(): pass\ncounted.calls = 0"
    assert _changes(source, "") == []
    assert _changes(source, "module.plain.calls = 1; module.counted.calls = 1") == [
        "counted.calls",
        "plain.calls",
    ]


def test_a_module_of_the_program_with_a_name_of_the_standard_library_is_its_own() -> None:
    own = types.ModuleType("queue")
    own.__file__ = "/home/somebody/queue.py"
    assert not is_from_standard(own) and is_from_standard(json)


def test_dictionaries_are_compared_by_identity() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = object.__hash__

    class Owner:
        a = Odd()

    noted = dict(Owner.__dict__)
    assert _lookup.same(noted, Owner)
    Owner.a = Odd()
    assert not _lookup.same(noted, Owner)
    assert _lookup.same({"a": noted}, {"a": noted}) and not _lookup.same({"a": noted}, {})
    assert not _lookup.same({"a": 1, "b": 1}, {"b": 1, "a": 1})
    with pytest.raises(TypeError):
        _lookup.same({}, 1)  # type: ignore[arg-type]

"""Variables of the standard library that are ``None`` in a new process, in one that was resumed."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from ckpt.image.modules import lazy
from tests.unit.ckpt.image.support import resumed_output


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        ("base64", "_b85chars", True),
        ("tempfile", "_name_sequence", True),
        ("platform", "_uname_cache", True),
        ("base64", "_b85alphabet", False),  # bound once
        ("mimetypes", "types_map", False),  # bound anew by a function, but never None
        ("random", "_inst", False),
        ("os", "environ", False),
        ("sys", "path", False),
        ("threading", "_main_thread", False),
        ("not_a_module", "x", False),
        ("lazy_one", "x", False),  # of no package of the standard library
    ],
)
def test_they_are_told_by_the_code_of_their_module(module: str, name: str, expected: bool) -> None:
    if module not in ("not_a_module", "lazy_one"):
        __import__(module)
    assert lazy.is_lazy(module, name) is expected


def test_a_module_whose_code_is_not_to_be_had_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """``zipapp``: any name of the standard library that nobody else here has imported."""
    found = types.ModuleType("zipapp")
    exec("table = None\ndef make():\n    global table\n    table = []\nmake()", found.__dict__)
    monkeypatch.setitem(sys.modules, "zipapp", found)
    assert not lazy.is_lazy("zipapp", "table")


def test_what_they_hold_is_held_by_program_and_module_alike(tmp_path: Path) -> None:
    """It used to be found by the variable's name: None."""
    source = """
        import base64, mimetypes
        base64.b85encode(b"abcd")
        table, known, again = base64._b85chars, mimetypes.guess_type("a.png"), mimetypes._db
        driver_tick()
        print(table[:3], len(table), table is base64._b85chars, again is mimetypes._db)
        print(base64.b85encode(b"abcd"), known, again.guess_type("a.png"))
    """
    assert "[b'0', b'1', b'2'] 85 True True" in resumed_output(tmp_path, source)


def test_what_nobody_holds_is_made_again(tmp_path: Path) -> None:
    source = """
        import base64
        print(base64.b85encode(b"abcd"))
        driver_tick()
        print(base64.b85encode(b"efgh"), base64._b85chars[:3])
    """
    assert "[b'0', b'1', b'2']" in resumed_output(tmp_path, source)


@pytest.mark.parametrize("check", [40, 3000])
def test_a_function_that_is_making_them_goes_on(tmp_path: Path, check: int) -> None:
    """A restart in the middle of base64's tables ended with: frame 1: TypeError: 'NoneType' object is not iterable.

    Each of their 85 + 7 225 entries is made at a check of its own, or more: the first place is in the first table, the
    second in the other one.
    """
    source = """
        import base64
        driver_start()
        print(base64.b85encode(b"abcdefgh"))
        print(base64.b85decode(base64.b85encode(b"abcdefgh")), base64._b85chars2[:3])
    """
    assert "b'abcdefgh' [b'00', b'01', b'02']" in resumed_output(tmp_path, source, places=[check], at="run")


@pytest.mark.parametrize("check", [1500, 2000])
def test_a_table_that_is_filled_beside_one_is_filled_after_a_restart(tmp_path: Path, check: int) -> None:
    """A restart while ``dbm.open`` ran ended with: db type is dbm.dumb, but the module is not available. And so did each
    later ``shelve.open``."""
    source = """
        import dbm, dbm.dumb
        path = "entries"
        with dbm.dumb.open(path, "n") as entries:
            for number in range(60):
                entries[str(number)] = b"x"
        driver_start()
        with dbm.open(path, "w") as entries:
            print(len(entries))
        with dbm.open(path, "r") as entries:
            print(len(entries), sorted(dbm._modules)[:1])
    """
    assert resumed_output(tmp_path, source, places=[check], at="run").count("60") == 2

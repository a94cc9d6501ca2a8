"""Of what a program has changed in an installed package, settings and registries are kept; else nothing of that package."""

from __future__ import annotations

import collections
import contextvars
import datetime
import functools
import io
import itertools
import json
import logging
import multiprocessing
import random
import re
import sys
import threading
import types
import weakref
from array import array
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt.image.frames.stack import FrameRecord
from ckpt.image.modules import package_changes, plain_values
from ckpt.image.modules.package_baseline import PackageBaseline
from ckpt.image.modules.plain_values import PlainValues, leave_out_not_plain
from ckpt.image.modules.references import References
from tests.unit.ckpt.image.support import after_restart

SETS_UP = """
    is_set_up, level, source = False, 1, None
    def numbers(n):
        while True:
            n += 1
            yield n
    def set_up():
        global is_set_up, level, source
        is_set_up, level, source = True, 2, numbers(2)
    def use():
        if not is_set_up:
            set_up()
        return is_set_up, next(source)
"""


def left_out(tmp_path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    return [row for line in lines for row in line.get("left_out", ())]


def test_a_flag_does_not_come_back_without_what_was_set_up(tmp_path: Path) -> None:
    program = """
        import lib
        lib.set_up()
        driver_tick()
        print(lib.use())
    """
    assert after_restart(tmp_path, SETS_UP, program) == "(True, 3)\n"
    (row,) = left_out(tmp_path)
    assert (row["kind"], row["package"], row["variables"]) == ("not-plain", "lib", ["lib.source"])
    assert row["reason"].startswith("changed, not kept") and "builtins.generator" in row["reason"]
    assert "ckpt.keep_package" in row["reason"]


def test_both_come_back_if_the_program_asks_for_the_package(tmp_path: Path) -> None:
    program = """
        import lib
        from ckpt.image.modules import package_changes
        package_changes.keep("lib")
        lib.set_up()
        driver_tick()
        print(lib.is_set_up, lib.level, next(lib.source))
    """
    assert after_restart(tmp_path, SETS_UP, program) == "True 2 3\n"
    assert left_out(tmp_path) == []


def test_both_come_back_in_a_package_at_work(tmp_path: Path) -> None:
    """A function on the stack goes on with what it has set up."""
    work = "    def work(tick):\n        set_up()\n        tick()\n        return is_set_up, level, next(source)\n"
    program = """
        import lib
        print(lib.work(driver_tick))
    """
    assert after_restart(tmp_path, SETS_UP + work, program) == "(True, 2, 3)\n"
    assert left_out(tmp_path) == []


def test_plain_settings_and_a_registry_of_the_programs_own_are_kept(tmp_path: Path) -> None:
    library = """
        class Options:
            def __init__(self, **named):
                self.__dict__.update(named)
        options, handlers, commands = Options(level=1), {}, []
        def handler(f):
            handlers[f.__name__] = f
            return f
    """
    program = """
        import lib
        def outer(n):
            @lib.handler
            def inner():
                return n
        class Command:
            def __init__(self):
                self.todo = iter("abc")
        outer(5)
        mine = Command()
        lib.commands.append(mine)
        lib.options.log = lib.Options(to=[{"level": 7}], by=lib.handler)
        driver_tick()
        print(lib.handlers["inner"](), lib.commands[0] is mine, lib.options.log.to, lib.options.log.by is lib.handler)
    """
    assert after_restart(tmp_path, library, program) == "5 True [{'level': 7}] True\n"
    assert left_out(tmp_path) == []


# ---------------------------------------------------------------------- what is plain


class Colour(Enum):
    RED = 1


class Options:
    """An instance of a package's class, as these tests are not saved by value."""

    level: Any

    def __init__(self, level: Any) -> None:
        self.level = level

    def method(self) -> None: ...


class Slotted:
    __slots__ = ("level",)
    level: Any


def slotted(level: Any) -> Slotted:
    found = Slotted()
    found.level = level
    return found


class Table(dict[Any, Any]):
    pass


def held(lock: Any) -> Any:
    lock.acquire()
    return lock


def closure(n: Any = 1) -> Any:
    return lambda: n


def recursive() -> Any:
    def function() -> Any:
        return function, late

    if function is None:
        late = 1
    return function


def generator() -> Iterator[int]:
    yield 1


def references_of_packages() -> References:
    """As if this module were of an installed package."""
    references = References()
    references.refresh()
    references.by_value = {}
    return references


@pytest.fixture
def plain() -> PlainValues:
    return PlainValues(references_of_packages(), ())


POINT = collections.namedtuple("POINT", "x y")

PLAIN = {
    "atoms": [
        1,
        "a",
        1.5,
        1j,
        b"a",
        bytearray(b"a"),
        True,
        None,
        ...,
        NotImplemented,
        range(3),
        slice(1),
        object(),
    ],
    "values": [
        datetime.date.today(),
        Decimal("1.5"),
        re.compile("a"),
        Path("a"),
        array("i", [1]),
        Colour.RED,
    ],
    "context variable": contextvars.ContextVar("x"),
    "names": [
        json,
        json.dumps,
        json.JSONEncoder,
        len,
        "".join,
        dict.get,
        Options.method,
        property(Options.method),
    ],
    "containers": [
        (1,),
        {1},
        frozenset({1}),
        collections.deque([1]),
        Table(a=1),
        collections.Counter("a"),
        POINT(1, 2),
    ],
    "ordered": [collections.OrderedDict(a=1), collections.defaultdict(list, a=[1])],
    "instances": [
        Options(Options(1)),
        slotted(Options([1])),
        types.SimpleNamespace(a=1),
        types.MappingProxyType({}),
    ],
    "bound methods": [Options(1).method, functools.partial(Options, 1), {}.get, re.compile("a").match],
    "closures": [closure(), recursive(), functools.partial(closure(Options)), functools.lru_cache(closure())],
    "classes made at run time": [
        type("Local", (Options,), {"__module__": "tests"}),
        collections.namedtuple("L", "x"),
    ],
    "random": [random.Random(1), itertools.count(3)],
    "numpy": [
        np.ones(2),
        np.float64(1.5),
        np.dtype("f4"),
        np.random.default_rng(1),
        np.random.RandomState(1),
        np.array([1, None], object),
    ],
    "free locks": [
        multiprocessing.Lock(),
        multiprocessing.RLock(),
        threading.Lock(),
        threading.RLock(),
        threading.Condition(),
        threading.Event(),
    ],
    "thread's own": threading.local(),
    "logger": Options(logging.getLogger("tests.plain")),
    "error": ValueError(1),
    "streams": [sys.__stdout__],
    "weak containers": [weakref.WeakValueDictionary(a=Options), weakref.WeakSet([Options])],
    "weak references": [weakref.ref(Options), weakref.ref(collections.UserDict())],
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain(plain: PlainValues, name: str) -> None:
    assert plain.not_plain_in([PLAIN[name]]) is None


KEPT = generator()
NOT_PLAIN = {
    "in an array": (lambda: np.array([1, generator()], object), "generator"),
    "closure": (lambda: closure(generator()), "generator"),
    "local class": (lambda: type("Local", (), {"__module__": "tests", "x": generator()}), "generator"),
    "generator": (generator, "generator"),
    "iterator": (lambda: iter([1]), "list_iterator"),
    "held lock": (lambda: held(threading.Lock()), "lock"),
    "held reentrant lock": (lambda: held(threading.RLock()), "RLock"),
    "weak reference with a callback": (lambda: weakref.ref(Options, print), "ReferenceType"),
    "weak reference to it": (lambda: weakref.ref(KEPT), "generator"),
    "file in a weak container": (lambda: weakref.WeakKeyDictionary({Options: io.BytesIO()}), "BytesIO"),
    "file": (io.BytesIO, "BytesIO"),
    "digest": (lambda: __import__("hashlib").md5(), "HASH"),
    "partial of a closure": (lambda: functools.partial(closure(generator())), "generator"),
    "method of a file": (lambda: io.BytesIO().read, "BytesIO"),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_not_plain_wherever_it_is(plain: PlainValues, name: str) -> None:
    make, text = NOT_PLAIN[name]
    value = make()
    places: list[Any] = [value, [value], {"a": (value,)}, Options(value), slotted(value), Table(a=value)]
    places += [
        collections.OrderedDict(a=value),
        Options(1).method if value is None else functools.partial(len, value),
    ]
    for place in places:
        found = plain.not_plain_in([1, place])
        assert found is not None and text in found
    assert plain.not_plain_in([1, Options(1)]) is None


def test_what_holds_itself_is_walked_once(plain: PlainValues) -> None:
    options = Options([])
    options.level.append(options)
    assert plain.not_plain_in([options]) is None
    assert plain.not_plain_in([options]) is None
    options = Options([])
    options.level += [generator(), options]
    assert plain.not_plain_in([options]) is not None
    assert plain.not_plain_in([options.level]) is not None


def test_a_large_value_is_no_setting(plain: PlainValues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_values, "_MOST_OBJECTS", 10)
    assert plain.not_plain_in([[Options(n) for n in range(9)]]) is None
    assert "more than 10 objects" in str(plain.not_plain_in([[Options(n) for n in range(10)]]))
    assert plain.not_plain_in([list(range(100))]) is None


# ---------------------------------------------------------------------- which packages


def looked_at(**changed: Any) -> package_changes.Changed:
    """The rest of a package that had ``a``, a table with a generator, and ``b`` after its import."""
    return looked_at_with((), **changed)


def looked_at_with(frames: tuple[FrameRecord, ...], **changed: Any) -> package_changes.Changed:
    module = types.ModuleType("a_noted_library")
    module.__dict__.update(a={"old": generator()}, b=1)
    notes = PackageBaseline()
    notes.begin_import()
    notes.end_import(module)
    for name, value in changed.items():
        if name in ("old", "new"):
            module.__dict__["a"][name] = value
        else:
            module.__dict__[name] = value
    sys.modules[module.__name__] = module
    try:
        references = references_of_packages()
        found = references.changed = package_changes.find_changes(notes, references)
        leave_out_not_plain(found, notes, references, frames)
        return found
    finally:
        del sys.modules[module.__name__]


def test_what_a_table_held_after_the_import_is_no_change() -> None:
    found = looked_at(new=1, b=2)
    assert list(found.changes) == ["a_noted_library"] and found.left_out == []


def test_all_changes_of_a_package_or_none() -> None:
    found = looked_at(new=generator(), b=2)
    assert found.changes == {} and found.ids == {} and found.rebound == {("a_noted_library", "b")}
    (row,) = found.left_out
    assert (row["kind"], row["variables"]) == ("not-plain", ["a_noted_library.a"])


def test_another_package_and_one_with_a_library_class_have_no_part_in_it() -> None:
    found = package_changes.Changed()
    found.changes = {
        "one": [package_changes.Change(("one",), "module", ({"f": generator()}, []))],
        "two": [package_changes.Change(("two",), "module", ({"n": 1}, []))],
        "tqdm": [package_changes.Change(("tqdm",), "module", ({"f": generator()}, []))],
        "json.f": [package_changes.Change(("json",), "module", ({"f": generator()}, []))],
    }
    references = references_of_packages()
    leave_out_not_plain(found, PackageBaseline(), references, ())
    assert list(found.changes) == ["two", "tqdm", "json.f"]


def test_an_unforeseen_failure_leaves_the_package_out_and_is_said(
    plain: PlainValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlainValues, "_parts", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in str(plain.not_plain_in([[]]))


def test_tensors_that_a_package_keeps_come_back(tmp_path: Path) -> None:
    """Silently made anew: the parameters of pyro, after a restart in the middle of a training."""
    pytest.importorskip("torch")
    library = """
        import weakref

        class Store:
            def __init__(self):
                self.parameters, self.names = {}, {}

        STORE = Store()

        def parameter(name, value):
            STORE.parameters[name], STORE.names[value] = value, name
            value.unconstrained = weakref.ref(value)
            return value
    """
    program = """
        import lib, torch
        first = lib.parameter("a", torch.ones(3, requires_grad=True))
        lib.parameter("generator", torch.Generator().manual_seed(3).get_state())
        driver_tick()
        print(lib.STORE.parameters["a"] is first, lib.STORE.names[first], first.unconstrained() is first)
    """
    assert after_restart(tmp_path, library, program) == "True a True\n"

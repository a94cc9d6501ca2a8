"""Classes, functions and cells of installed packages that no name leads to; modules that nothing in the image refers to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ckpt.image.errors import RestoreError
from ckpt.image.modules.definitions import Definitions, follow
from ckpt.image.modules.references import References
from tests.unit.ckpt.image.support import resumed_output

LIBRARY = '''
late = None

def prepare():
    """As matplotlib chooses its backend: a class made, and kept in a variable, when it is first needed."""
    global late
    class Late:
        def run(self, tick):
            tick()
            return type(self) is __class__
    late = Late
    return Late()

import enum
import functools
from dataclasses import dataclass

def replaced(cls):
    """As many libraries do it: the name gets a subclass of what was written."""
    return type(cls.__name__, (cls,), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})

class Base:
    def __init__(self, tick):
        self.ticks = tick()

@replaced
class Replaced(Base):
    def __init__(self, tick):
        tick()
        super().__init__(tick)

@dataclass(slots=True)
class Slotted(Base):
    ticks: int = 0
    def run(self, tick):
        tick()
        return any(cell.cell_contents is __class__ for cell in Slotted.run.__closure__)

def counted(function):
    calls = 0
    @functools.wraps(function)
    def counting(*args):
        nonlocal calls
        calls += 1
        return function(*args), calls
    return counting

@counted
def work(tick):
    return tick()

@counted
def produce(tick):
    yield tick()
    yield "end"

class Kind(enum.Enum):
    ONE = 1
    TWO = 2
    def run(self, tick):
        tick()
        return self is Kind.TWO and Kind(2) is self
'''


def resumed(tmp_path: Path, body: str, **packages: str) -> str:
    installed = tmp_path / "site-packages"
    for name, text in {"a_library": LIBRARY, **packages}.items():
        path = installed / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "body.txt").write_text(body)
    start = f"import sys\nsys.path.insert(0, {str(installed)!r})\n"
    return resumed_output(tmp_path, start + body)


@pytest.mark.parametrize(
    "body",
    [
        "from a_library import Replaced\nmade = Replaced(lambda: driver_tick())\nprint(type(made) is Replaced)\n",
        "from a_library import Slotted\nprint(Slotted().run(lambda: driver_tick()))\n",
        "from a_library import Kind\nprint(Kind.TWO.run(lambda: driver_tick()))\n",
        "from a_library import prepare\nprint(prepare().run(lambda: driver_tick()))\n",
    ],
    ids=[
        "a class replaced by a subclass",
        "a dataclass with slots",
        "a member of an Enum",
        "a class made later",
    ],
)
def test_a_method_that_is_stopped_knows_its_class(tmp_path: Path, body: str) -> None:
    assert "False" not in resumed(tmp_path, body)


def test_a_decorator_counts_on(tmp_path: Path) -> None:
    printed = resumed(
        tmp_path,
        "from a_library import work\nwork(int)\nwork(lambda: driver_tick())\nprint(work(int))\n",
    )
    assert printed == "(0, 3)\n"


def test_a_generator_of_a_decorated_function(tmp_path: Path) -> None:
    printed = resumed(
        tmp_path,
        "from a_library import produce\nprint([*produce(lambda: driver_tick())[0]][1:])\n",
    )
    assert printed == "['end']\n"


def test_a_function_under_another_name_than_its_own_stays_the_key_of_its_packages_table(
    tmp_path: Path,
) -> None:
    """autograd has a rule for each function that its decorator has made; those of a program's own are in the same table."""
    marks = (
        "rules = {}\n"
        "def marked(function):\n"
        "    calls = 0\n"
        "    def wrapper(*args):\n"
        "        nonlocal calls\n"
        "        calls += 1\n"
        "        return rules[wrapper], function(*args), calls\n"
        "    return wrapper\n"
        "def make():\n"
        "    class Made: pass\n"
        "    return Made\n"
    )
    functions = (
        "from package.marks import make, marked, rules\n"
        "dot, cross = marked(lambda tick: tick()), marked(len)\n"
        "Kind = make()\n"
        "rules |= {dot: 'rule of dot', cross: 'rule of cross', Kind: 'rule of Kind'}\n"
    )
    printed = resumed(
        tmp_path,
        "from package.functions import cross, dot, Kind\n"
        "from package.marks import marked, rules\n"
        "own = marked(len)\n"
        "rules[own] = 'own rule'\n"
        "kept = [cross, Kind, Kind()]\n"
        "print(dot(lambda: driver_tick()), dot(lambda: None))\n"
        "print(cross('ab'), own('abc'), rules[kept[1]], kept[0] is cross, type(kept[2]) is Kind, len(rules))\n"
        "import package.functions\n"
        "print(package.functions.dot is dot, package.functions.Kind is Kind)\n",
        **{"package.__init__": "", "package.marks": marks, "package.functions": functions},
    )
    assert printed == (
        "('rule of dot', 'going on', 1) ('rule of dot', None, 2)\n"
        "('rule of cross', 2, 1) ('own rule', 3, 1) rule of Kind True True 4\n"
        "True True\n"
    )


def test_a_submodule_that_only_its_package_leads_to_is_imported_again(tmp_path: Path) -> None:
    """`import package.part` keeps `package` in a variable; the part was missing (dulwich)."""
    printed = resumed(
        tmp_path,
        "import package.part\ndriver_tick()\nprint(package.part.name)\n",
        **{"package.__init__": "", "package.part": "name = __name__"},
    )
    assert printed == "package.part\n"


def test_what_the_program_lets_nobody_import_stays_so(tmp_path: Path) -> None:
    """`sys.modules[name] = None`: it could be imported after a restart; and of a library that ckpt knows, the settings were
    looked for where they had never been, so the restart failed. What was imported before and after it is as it was."""
    printed = resumed(
        tmp_path,
        "import sys, before\nsys.modules['numpy'] = sys.modules['bisect'] = None\nimport after\ndriver_tick()\n"
        "for name in ('numpy', 'bisect'):\n    try:\n        __import__(name)\n    except ImportError as error:\n"
        "        print(error)\nprint(before.found, after.found)\n",
        before="import bisect\nfound = bisect.__name__",
        after="try:\n    import numpy\n    found = True\nexcept ImportError:\n    found = False",
    )
    halted = [f"import of {name} halted; None in sys.modules" for name in ("numpy", "bisect")]
    assert printed.splitlines() == [*halted, "bisect False"]


def test_packages_are_imported_again_before_the_programs_patches_are_in_force(tmp_path: Path) -> None:
    """What a library does when it is imported is not seen by a patch that the program has made later."""
    printed = resumed(
        tmp_path,
        "import re, package\nseen = []\nreal = re.compile\n"
        "re.compile = lambda *args: (seen.append(args[0]), real(*args))[1]\n"
        "driver_tick()\nre.compile('mine')\nprint(seen)\n",
        package="import re\npattern = re.compile('of a library')",
    )
    assert printed == "['mine']\n"


def test_what_is_not_defined_any_more_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "a_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    import a_library  # type: ignore[import-not-found]

    try:
        original = a_library.Replaced.__bases__[0]
        path = Definitions(References()).path_of(original)
        assert path is not None and follow(path, original.__qualname__) is original
        a_library.Replaced = a_library.Base
        with pytest.raises(RestoreError, match=r"a_library.*Replaced"):
            follow(path, original.__qualname__)
    finally:
        del sys.modules["a_library"]


def test_a_ctypes_function_type_comes_back(tmp_path: Path) -> None:
    """Its metaclass has no name in `_ctypes`: it is the type of one that has."""
    source = """
        import ctypes
        Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
        class Point(ctypes.Structure):
            _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]
        Row = Point * 3
        driver_tick()
        print(Callback(lambda x: x + 1)(41), Callback._argtypes_, type(Callback) is type(ctypes._CFuncPtr))
        print(Point(1, 2.5).y, ctypes.sizeof(Row))
    """
    assert resumed_output(tmp_path, source).split() == [
        "42",
        "(<class",
        "'ctypes.c_int'>,)",
        "True",
        "2.5",
        "48",
    ]

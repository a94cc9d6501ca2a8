"""Which modules a program imports, and whether a host has them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpt.controller.launch.imports import Imports, lacks, modules_of, statements

SCRIPT = b"""
from __future__ import annotations
import os, numpy.linalg as la, ckpt
from scipy import sparse
from . import beside
from mpi4py import MPI
import tools
try:
    import cupy
except ImportError:
    cupy = None
if os.environ.get("PLOT"):
    import matplotlib
def late():
    import pandas
"""


def named(source: str, *, is_main: bool = True) -> tuple[str, str]:
    """The modules that are imported always, and perhaps."""
    found = statements(source, is_main=is_main)
    return tuple(" ".join(each.module for each in found if each.always is sure) for sure in (True, False))  # type: ignore[return-value]


def test_what_is_imported_whenever_a_program_runs() -> None:
    assert named(SCRIPT.decode()) == (
        "__future__ os numpy.linalg ckpt scipy  mpi4py tools",
        "matplotlib pandas",
    )
    assert statements(b"print 'no Python 3'") == statements(b"\0") == statements(b"") == []
    (each,) = statements("from ..a.b import c, d")
    assert (each.module, each.names, each.level, each.always) == ("a.b", ("c", "d"), 2, True)
    assert statements("from a import *")[0].names == ()


@pytest.mark.parametrize(
    ("source", "always", "perhaps"),
    [
        ("def f():\n import a\nasync def g():\n def h():\n  import b", "", "a b"),
        ("class C:\n import a\n def f(self):\n  import b", "a", "b"),
        ("if x:\n import a\nelif y:\n import b\nelse:\n import c", "", "a b c"),
        ("for i in x:\n import a\nelse:\n import b\nwhile x:\n import c", "", "a b c"),
        ("match x:\n case 1:\n  import a", "", "a"),
        ("with x:\n import a", "a", ""),
        ("with contextlib.suppress(ImportError):\n import a", "", ""),
        ("with suppress(OSError, ModuleNotFoundError):\n import a", "", ""),
        ("with suppress(Exception):\n import a\nwith suppress(OSError):\n import b", "b", "a"),
        ("if TYPE_CHECKING:\n import a\nelse:\n import b", "b", ""),
        ("if typing.TYPE_CHECKING:\n import a", "", ""),
        ("if not TYPE_CHECKING:\n import a\nelse:\n import b", "a", ""),
        ("def f():\n if TYPE_CHECKING:\n  import a\n try:\n  import b\n except ImportError: pass", "", ""),
        (
            "try:\n import a\nexcept ImportError:\n import b\nelse:\n import c\nfinally:\n import d",
            "d",
            "b c",
        ),
        ("try:\n import a\nexcept (OSError, ModuleNotFoundError):\n pass", "", ""),
        ("try:\n import a\nexcept builtins.ImportError:\n pass", "", ""),
        ("try:\n import a\nexcept Exception:\n pass", "", "a"),
        ("try:\n import a\nexcept:\n pass", "", "a"),
        ("try:\n import a\nexcept OSError:\n import b\nelse:\n import c", "a c", "b"),
        ("try:\n import a\nexcept* ImportError:\n pass", "", ""),
        ("try:\n import a\nfinally:\n pass", "a", ""),
    ],
)
def test_where_a_statement_stands(source: str, always: str, perhaps: str) -> None:
    assert named(source) == (always, perhaps)


def test_what_is_done_by_the_main_module_alone() -> None:
    source = 'if __name__ == "__main__":\n import a\nelse:\n import b'
    assert named(source) == ("a", "")
    assert named(source, is_main=False) == ("b", "")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages of others, below `tmp_path` as the program is."""
    path = tmp_path / "site-packages"
    path.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(path)])
    return path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def told(found: Imports) -> tuple[str, str, str, str]:
    """Always: here, not here; perhaps: here, not here."""
    return tuple(  # type: ignore[return-value]
        " ".join(sorted(name for name, is_here in part.items() if is_here is wanted))
        for part in found
        for wanted in (True, False)
    )


def test_modules_are_looked_for_beside_the_script_and_in_those_that_it_imports(
    tmp_path: Path, packages: Path
) -> None:
    write(packages, {"there/__init__.py": "import not_looked_at", "there/sub.py": ""})
    (packages / "only_a_directory").mkdir()
    program = "import there.sub, nowhere, tools, only_a_directory, app\nfrom there import sub, anything"
    write(tmp_path / "program", {"app.py": SCRIPT.decode(), "tools.py": program})
    script = ["program/app.py", "--option"]
    always, missing, perhaps, _ = told(modules_of(script, {}, str(tmp_path)))
    assert always.split() == [name for name in ("app", "numpy", "scipy", "there", "tools") if name in always]
    assert {"app", "there", "tools"} <= set(always.split())
    assert {"nowhere", "only_a_directory"} <= set(missing.split()) <= {*missing.split(), "numpy", "scipy"}
    assert "pandas" in modules_of(script, {}, str(tmp_path)).perhaps and "there" not in perhaps
    assert "there" not in sys.modules and "only_a_directory" not in sys.modules
    assert "mpi4py" not in modules_of(script, {}, str(tmp_path)).all
    assert "mpi4py" in modules_of(script, {"mpi4py": False}, str(tmp_path)).always, "the installed one"
    assert modules_of(["no such"], {}, str(tmp_path)) == ({}, {})
    assert modules_of([], {}, str(tmp_path)) == ({}, {})


APP = {
    "app/__init__.py": "from app import base",
    "app/__main__.py": "from .parts import first, helper\nfrom . import second\nimport there\nfirst.run()",
    "app/base.py": "import of_base",
    "app/parts/__init__.py": "",
    "app/parts/first.py": "from .. import base\nfrom ..other import f\ndef run():\n from . import late",
    "app/parts/late.py": "import of_late, there\nfrom app import base",
    "app/other.py": "import gone",
    "app/second.py": "if __name__ == '__main__':\n import not_looked_at",
    "app/not_imported.py": "import not_looked_at",
}


@pytest.mark.parametrize("installed", [False, True])
def test_a_program_that_is_a_module_is_read_with_its_package(
    tmp_path: Path, packages: Path, installed: bool
) -> None:
    """`ckpt run -m app`: nothing of it was looked at."""
    write(packages, {"there.py": "import not_looked_at", "of_base.py": "", "of_late.py": ""})
    write(packages if installed else tmp_path, APP)
    found = modules_of(["-m", "app", "-m"], {}, str(tmp_path))
    always, missing, perhaps, nowhere = told(found)
    assert always == (
        "app app.__main__ app.base app.other app.parts app.parts.first app.second of_base there"
    )
    assert missing == "app.parts.helper gone"
    assert (perhaps, nowhere) == ("app.parts.late of_late", "")
    assert modules_of(["app"], {"module": True}, str(tmp_path)) == found, "a job of version 0.1.0"


def test_a_module_of_a_package_a_folder_and_code_are_read(tmp_path: Path, packages: Path) -> None:
    write(packages, {"there.py": ""})
    write(tmp_path, APP)
    always, *_ = told(modules_of(["-m", "app.parts.late"], {}, str(tmp_path)))
    assert always == "app app.base app.parts app.parts.late there"
    write(tmp_path, {"folder/__main__.py": "import beside, gone", "folder/beside.py": "import there"})
    assert told(modules_of(["folder"], {}, str(tmp_path)))[:2] == ("beside there", "gone")
    assert told(modules_of(["-c", "import app.base, gone"], {}, str(tmp_path)))[:2] == (
        "app app.base",
        "gone of_base",
    )
    assert told(modules_of(["-m", "nowhere.at"], {}, str(tmp_path))) == ("", "nowhere nowhere.at", "", "")
    write(tmp_path, {"imp.py": "import gone"})
    assert told(modules_of(["-m", "imp"], {}, str(tmp_path)))[:2] == ("imp", "gone"), (
        "of the standard library, too"
    )
    assert modules_of(["-m", "timeit"], {}, str(tmp_path)) == ({"timeit": True}, {})
    for words in (["-m"], ["-c"], ["-m", "mpi4py.run", "app.py"]):
        assert not any(modules_of(words, {}, str(tmp_path)).all.values()), words


def test_packages_that_are_only_directories_are_looked_into(tmp_path: Path, packages: Path) -> None:
    """As those of Google, whose parts are installed one by one."""
    write(packages, {"shared/one/__init__.py": "", "shared/group/two.py": ""})
    write(
        tmp_path, {"app.py": "import shared.one.more\nfrom shared.group import two, three\nimport mine.part"}
    )
    write(tmp_path, {"mine/part.py": "import gone"})
    here = modules_of(["app.py"], {}, str(tmp_path)).always
    assert {name for name, is_here in here.items() if is_here} == {
        "shared.one",
        "shared.group.two",
        "mine.part",
    }
    (packages / "shared/group/two.py").unlink()
    assert lacks(here, modules_of(["app.py"], {}, str(tmp_path)).always) == ["shared.group.two"]
    (packages / "shared/group").rmdir()
    assert lacks(here, modules_of(["app.py"], {}, str(tmp_path)).always) == ["shared.group.two"]


def test_a_host_that_lacks_a_module_of_the_program_itself(tmp_path: Path) -> None:
    write(tmp_path, APP)
    here = modules_of(["-m", "app"], {}, str(tmp_path))
    (tmp_path / "app/base.py").unlink()
    there = modules_of(["-m", "app"], {}, str(tmp_path))
    assert (lacks(here.always, there.all), lacks(here.perhaps, there.all)) == (["app.base"], [])
    (tmp_path / "app/parts/late.py").unlink()
    there = modules_of(["-m", "app"], {}, str(tmp_path))
    assert (lacks(here.always, there.all), lacks(here.perhaps, there.all)) == (
        ["app.base"],
        ["app.parts.late"],
    )
    assert lacks(here.always, modules_of(["-m", "app"], {}, str(tmp_path / "app")).all) == ["app"]


def test_a_module_that_is_imported_in_a_function_and_elsewhere_is_needed(tmp_path: Path) -> None:
    write(
        tmp_path, {"app.py": "def f():\n import one, two\nimport two", "one.py": "import three", "two.py": ""}
    )
    assert told(modules_of(["app.py"], {}, str(tmp_path))) == ("two", "", "one", "three")


def test_a_host_lacks_what_this_one_has() -> None:
    assert lacks({"a": True, "b": False, "c": True}, {"a": True, "b": False, "c": False}) == ["c"]
    assert lacks({"a": True, "a.b": True}, {"a": False, "a.b": False}) == ["a"]
    assert lacks({"a": True}, {}) == lacks({"a": True}, None) == lacks(None, {"a": False}) == []

"""Which modules travel by value, and what a persistent id leads to."""

from __future__ import annotations

import collections.abc
import gc
import importlib.util
import json
import os
import random
import shutil
import sys
import textwrap
import types
from importlib.machinery import FrozenImporter, ModuleSpec
from pathlib import Path

import pytest

import ckpt
from ckpt.compat.memory import is_made_from_definition
from ckpt.image.errors import RestoreError
from ckpt.image.modules.origins import is_by_value
from ckpt.image.modules.references import References, resolve
from tests.unit.ckpt.image.support import LIBRARY_START, after_restart, copy_of, resumed_output


def module(name: str, **attributes: object) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(attributes)
    return made


@pytest.mark.parametrize(
    "name",
    [
        "os",
        "json",
        "sys",
        "builtins",
        "collections.abc",
        "ckpt",
        "ckpt.image.modules.references",
        "_frozen_importlib",
        "pytest",
    ],
)
def test_installed_modules_are_references(name: str) -> None:
    assert not is_by_value(name, sys.modules[name])


def test_modules_of_the_user_travel_by_value(tmp_path: Path) -> None:
    assert is_by_value("__main__", sys.modules["__main__"])
    assert is_by_value("app", module("app", __file__=str(tmp_path / "app.py")))
    assert is_by_value("lisp", module("lisp", __file__=str(tmp_path / "lisp.hy")))
    assert is_by_value("space", module("space", __path__=[str(tmp_path)]))
    assert not is_by_value("fast", module("fast", __file__=str(tmp_path / "fast.so")))
    assert not is_by_value("lib", module("lib", __file__=str(tmp_path / "site-packages" / "lib.py")))
    assert is_by_value("ckpt", module("ckpt", __file__=str(tmp_path / "ckpt.py"))), "only the name is ours"


class OwnModule(types.ModuleType):
    """A class of modules that is no installed package's: this file counts as the program's."""


class OwnLoader:
    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, made: types.ModuleType) -> None:
        return None


def test_modules_without_a_file_are_the_programs_where_it_has_made_their_class_or_loader() -> None:
    assert is_by_value("lazy", OwnModule("lazy"))
    assert is_by_value("virtual", module("virtual", __spec__=ModuleSpec("virtual", OwnLoader())))  # type: ignore[arg-type]
    assert is_by_value("virtual", module("virtual", __spec__=ModuleSpec("virtual", OwnLoader)))  # type: ignore[arg-type]
    assert not is_by_value("zipimport", module("zipimport", __spec__=ModuleSpec("zipimport", FrozenImporter)))
    own_place = type("Lazy", (types.ModuleType,), {"__module__": "in_its_own_place", "look": lambda self: 1})
    sys.modules["in_its_own_place"] = made = own_place("in_its_own_place")
    try:
        assert is_by_value("in_its_own_place", made)
    finally:
        del sys.modules["in_its_own_place"]


def found(references: References, obj: object) -> object:
    return references.finder({}, lambda container: None, lambda table: None, lambda pid: None)(obj)


def test_a_stale_entry_is_not_used() -> None:
    library = module("a_library", __file__=os.path.join(os.path.dirname(json.__file__), "x.py"), table={})
    sys.modules["a_library"] = library
    try:
        references = References()
        references.refresh()
        old = library.table
        assert found(references, old) == ("attr", "a_library", "table")
        library.table = {}  # the dictionary of the module keeps its length
        assert found(references, old) is None
    finally:
        del sys.modules["a_library"]


class Users:
    pass


def test_what_the_user_puts_into_a_library_stays_the_users() -> None:
    mine = Users()
    json.mine = mine  # type: ignore[attr-defined]
    try:
        references = References()
        references.refresh()
        assert found(references, mine) is None
    finally:
        del json.mine  # type: ignore[attr-defined]


def test_refreshing_again_finds_new_modules_only() -> None:
    references = References()
    walked: list[str] = []
    gc.disable()  # hypothesis notes each collection in a variable of a module
    try:
        references.refresh()
        references._search = lambda name, *_: walked.append(name)  # type: ignore[method-assign]
        references.refresh()
        assert walked == []
        sys.modules["a_library"] = module("a_library", __spec__=collections.abc.__spec__)
        references.refresh()
    finally:
        gc.enable()
        sys.modules.pop("a_library", None)
    assert walked == ["a_library"]


def test_resolving() -> None:
    live = object()
    assert resolve(("module", "json"), {}) is json
    assert resolve(("dict", "json"), {}) is json.__dict__
    assert resolve(("attr", "random", "_inst"), {}) is random._inst
    assert resolve(("live", "x"), {"x": live}) is live
    assert resolve(("std", "stdout"), {}) is sys.__stdout__
    for pid in (("module", "no_such_module"), ("attr", "json", "no_such"), ("live", "y"), ("std", "stdlog")):
        with pytest.raises(RestoreError):
            resolve(pid, {"x": live})


def test_ckpt_is_by_reference() -> None:
    references = References()
    references.refresh()
    assert "ckpt" not in references.by_value
    assert found(references, ckpt) == ("module", "ckpt")


def test_two_modules_of_the_user_that_import_each_other(tmp_path: Path) -> None:
    files = {
        "left.py": "import right\ncount = 0\nclass Left:\n    def go(self):\n        return right.Right(self).back()\n",
        "right.py": """
            import left
            made = []
            class Right:
                def __init__(self, other):
                    global last
                    made.append(other)
                    last = self
                def back(self):
                    left.count += 1
                    driver_tick()
                    return left.count, len(made), isinstance(made[0], left.Left), last is self
        """,
    }
    source = "import left, right\nprint(left.Left().go(), right.left is left)\nprint(left.Left().go())\n"
    assert resumed_output(tmp_path, source, files=files) == "(1, 1, True, True) True\n(2, 2, True, True)\n"


def test_a_package_with_relative_imports_and_a_patched_library(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    files = {
        "pkg/__init__.py": "from .core import run\nNAME = 'pkg'\n",
        "pkg/core.py": "from . import helper\ndef run():\n    driver_tick()\n    return helper.value()\n",
        "pkg/helper.py": "def value():\n    from .late import late\n    return late()\n",
        "pkg/late.py": "import time\ndef late():\n    return time.clock_of_the_user()\n",
    }
    source = "import pkg, time\ntime.clock_of_the_user = lambda: pkg.NAME\nprint(pkg.run(), pkg.core.helper.__name__)\n"
    assert resumed_output(tmp_path, source, files=files) == "pkg pkg.helper\n"


def test_plain_values_put_into_a_library(tmp_path: Path) -> None:
    source = """
        import builtins, os
        builtins.SETTINGS = {"level": 3}
        os.limits = limits = [1]
        driver_tick()
        limits.append(SETTINGS["level"])
        print(os.limits, os.limits is limits)
    """
    assert resumed_output(tmp_path, source) == "[1, 3] True\n"


def test_a_mark_that_is_its_own_name() -> None:
    """decimal.ROUND_HALF_EVEN is the string "ROUND_HALF_EVEN": naming it by that very string would never end."""
    import decimal

    assert copy_of([decimal.ROUND_HALF_EVEN]) == ["ROUND_HALF_EVEN"]


def test_a_library_module_with_a_lazy_object_that_does_not_like_to_be_asked(tmp_path: Path) -> None:
    """django.conf.settings raises when isinstance() asks for its __class__ before it is configured."""
    library = """
        class Lazy:
            def __getattribute__(self, name):
                raise RuntimeError(f"asked for {name}")
        settings = Lazy()
        __version__ = Lazy()
    """
    (tmp_path / "site-packages").mkdir()
    source = """
        import sys
        sys.path.append(sys.path[0] + "/site-packages")
        import lazy_library
        driver_tick()
        print(type(lazy_library.settings).__name__)
    """
    assert resumed_output(tmp_path, source, files={"site-packages/lazy_library.py": library}) == "Lazy\n"


def test_a_module_that_an_extension_makes_beside_itself_is_not_the_programs() -> None:
    """`_openssl` of cryptography has neither file nor spec: it was taken for one that the program has made."""
    assert is_made_from_definition(sys) and not is_made_from_definition(types.ModuleType("mine"))
    assert not is_by_value("cython_runtime", types.ModuleType("cython_runtime"))
    assert is_by_value("mine", types.ModuleType("mine"))


@pytest.mark.system
@pytest.mark.parametrize("package", ["transportx", "ckptools", "controllers"])
def test_what_is_put_into_a_package_whose_name_begins_as_ours_does_is_kept(
    tmp_path: Path, package: str
) -> None:
    """A package with a compiled part: of one written in Python, changes are noted by another way, too."""
    compiled = importlib.util.find_spec("_csv")
    if compiled is None or not compiled.has_location or compiled.origin is None:
        pytest.skip("this interpreter has no extension in a file of its own")
    place = tmp_path / "site-packages" / package
    place.mkdir(parents=True)
    shutil.copy(compiled.origin, place)
    program = f"""
        import {package}
        def report(): return "the program's"
        {package}.report = report
        driver_tick()
        print({package}.report())
    """
    source = LIBRARY_START + textwrap.dedent(program)
    text = f"from {package} import _csv\ndef report(): return 'its own'\n"
    found = resumed_output(tmp_path, source, files={f"site-packages/{package}/__init__.py": text})
    assert found == "the program's\n"


def test_texts_in_the_header_are_no_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchmetrics sets ``PIL.PILLOW_VERSION = PIL.__version__``. The header of an image, which is read before modules are
    imported, has the versions of packages: with that very text by its name, no image of a program with both could be loaded.
    """
    text = "".join(["1.", "7"])
    monkeypatch.setattr(json, "OLD_VERSION", text, raising=False)
    references = References()
    references.refresh()
    find = references.finder({}, lambda _: None, lambda _: None, lambda _: None)
    assert find(text) == ("attr", "json", "OLD_VERSION", "1.7")
    references.is_header = True
    assert find(text) is None and find(json) == ("module", "json")


def test_a_text_or_number_of_a_package_that_is_another_one_in_a_new_process(tmp_path: Path) -> None:
    """No restart was possible with pony, which keeps the path of the program: `code() argument 11 must be str, not None`;
    and a program that had a name by chance from a package went on with another one."""
    library = """
        import os, sys
        MAIN = getattr(sys.modules["__main__"], "__file__", None)
        RUN, START, SAME, EMPTY = f"run-{os.urandom(8).hex()}", float(os.getpid()), "the same", ""
    """
    program = """
        import lib
        run, start, same, empty = lib.RUN, lib.START, lib.SAME, lib.EMPTY
        before = repr((run, start))
        def named(): pass
        driver_tick()
        print(before == repr((run, start)), same is lib.SAME, empty == "", named.__code__.co_filename == __file__)
    """
    assert after_restart(tmp_path, library, program) == "True True True True\n"


def test_tables_of_packages_by_functions_in_c_find_them_after_a_restart(tmp_path: Path) -> None:
    """`sum in lib.TABLE` was False after a restart, without a word: what follows `sum` changes its hash, and did so behind
    the import. So queries of pony failed."""
    library = """
        import functools, heapq, math
        TABLE = dict.fromkeys([sum, min, max, sorted, functools.reduce, math.prod, math.fsum, heapq.heappush], "known")
    """
    program = """
        import lib
        import functools, heapq, math
        driver_tick()
        known = [lib.TABLE.get(f) for f in (sum, min, max, sorted, functools.reduce, math.prod, math.fsum, heapq.heappush)]
        print(known, [key in lib.TABLE for key in lib.TABLE])
    """
    assert after_restart(tmp_path, library, program) == f"{['known'] * 8} {[True] * 8}\n"

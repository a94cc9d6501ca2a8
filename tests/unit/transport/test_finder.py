"""An agent finds the modules of this package as the import system's own finder does, and a rank does not see how."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import ckpt
from ckpt.transport.finder import Finder
from tests.system.support import PATIENCE_S, environment

ROOT = Path(ckpt.__file__).parent
ATTRIBUTES = (
    "name",
    "origin",
    "has_location",
    "cached",
    "parent",
    "submodule_search_locations",
    "loader_state",
)


def modules() -> list[str]:
    """The names of all modules of this package, of packages too, written in Python or in C."""
    found = []
    for path in sorted(ROOT.rglob("*")):
        parts = list(path.relative_to(ROOT.parent).parts)
        if path.suffix == ".so" or (path.suffix == ".py" and path.name != "__init__.py"):
            found.append(".".join([*parts[:-1], path.name.partition(".")[0]]))
        elif path.name == "__init__.py" and len(parts) > 2:
            found.append(".".join(parts[:-1]))
    return found


def test_each_module_of_the_package_is_found_as_the_import_system_finds_it() -> None:
    finder, compared = Finder(), 0
    for name in modules():
        package = importlib.import_module(name.rpartition(".")[0])
        own, standard = finder.find_spec(name, package.__path__), PathFinder.find_spec(name, package.__path__)
        assert standard is not None
        if standard.origin is None or standard.origin.endswith(".so"):
            assert own is None, (
                "packages without a file, and extension modules, are left to the import system"
            )
            continue
        assert own is not None, name
        assert [getattr(own, each) for each in ATTRIBUTES] == [getattr(standard, each) for each in ATTRIBUTES]
        assert type(own.loader) is type(standard.loader)
        assert vars(own.loader) == vars(standard.loader)
        compared += 1
    assert compared > 300


def test_what_is_not_source_in_the_one_folder_of_its_package_is_left_to_others(tmp_path: Path) -> None:
    for name in ("bare", "package"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "module.py").touch()
    finder, path = Finder(), [str(tmp_path)]
    assert finder.find_spec("ckpt.module", path) is not None
    assert finder.find_spec("ckpt.package", path) is not None
    assert finder.find_spec("ckpt.bare", path) is None
    assert finder.find_spec("ckpt.absent", path) is None
    assert finder.find_spec("ckpt.module", [*path, *path]) is None
    assert finder.find_spec("ckpt.module", [str(tmp_path / "gone")]) is None
    assert finder.find_spec("other.module", path) is None
    assert finder.find_spec("ckpt", None) is None


def test_finders_that_others_have_installed_are_asked_first() -> None:
    """A test kills ranks in functions that its finder wraps: it was not asked any more."""
    program = (
        "import sys\n"
        "asked = []\n"
        "class Other:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        asked.append(name)\n"
        "sys.meta_path.insert(0, Other())\n"
        "from ckpt.transport import finder\n"
        "finder.install()\n"
        "import ckpt.store.errors\n"
        "assert 'ckpt.store.errors' in asked\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, env=environment()
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("options", [(), ("-O",), ("-X", "pycache_prefix={folder}")])
def test_the_bytecode_file_is_the_import_systems(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Also with options that change its name."""
    program = (
        "from ckpt.transport import finder\n"
        "finder.install(); finder.install()\n"
        "import ckpt.store.errors, sys, importlib.util\n"
        "assert len(sys.meta_path) == len({id(each) for each in sys.meta_path})\n"
        "finder.remove(); finder.remove()\n"
        "assert not [each for each in sys.meta_path if type(each) is finder.Finder]\n"
        "module = ckpt.store.errors\n"
        "assert module.__cached__ == importlib.util.cache_from_source(module.__file__), module.__cached__\n"
        "assert type(module.__spec__.loader).__name__ == 'SourceFileLoader'\n"
    )
    words = [sys.executable, *(each.format(folder=tmp_path) for each in options), "-c", program]
    run = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, env=environment())
    assert run.returncode == 0, run.stderr

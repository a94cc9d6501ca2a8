"""A program sees what it would see under plain Python, and its image holds nothing of the launcher."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ckpt.image.program import prepare_program
from tests.unit.ckpt.image.support import REPOSITORY, resumed_output

SHOW = """
import sys
print(sorted(k for k in globals() if k != "sys"), __name__, __file__, __package__, __spec__ and __spec__.name)
print(sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals(), __doc__, __builtins__.len is len)
"""


def run(words: list[str], cwd: Path, under: bool) -> str:
    if under:
        start = f"import sys; sys.path.pop(0); sys.path.append({str(REPOSITORY)!r}); "
        start += "from ckpt.image import run_program as r; "
        call = [sys.executable, "-c", start + f"r(*{words!r})"]
    else:
        call = [sys.executable, *words]
    done = subprocess.run(call, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text('"doc"\n' + SHOW)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(SHOW)
    (tmp_path / "package" / "tool.py").write_text(SHOW)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(SHOW)
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    return tmp_path


@pytest.mark.parametrize("target", ["app.py", "folder", "app.pyz"])
def test_scripts_folders_and_archives(place: Path, target: str) -> None:
    assert run([target, "a", "-b"], place, True) == run([target, "a", "-b"], place, False)


@pytest.mark.parametrize("target", ["package", "package.tool", "app"])
def test_modules(place: Path, target: str) -> None:
    assert run(["-m", target, "a"], place, True) == run(["-m", target, "a"], place, False)


def test_code(place: Path) -> None:
    code = SHOW.replace("__file__", "globals().get('__file__')")
    assert run(["-c", code, "a"], place, True) == run(["-c", code, "a"], place, False)


def test_what_python_reports_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        prepare_program([str(tmp_path / "missing.py")])
    (tmp_path / "bad.py").write_text("def :\n")
    with pytest.raises(SyntaxError):
        prepare_program([str(tmp_path / "bad.py")])
    with pytest.raises(ImportError):
        prepare_program(["-m", "no_such_module_here"])


def test_main_holds_nothing_but_the_program(tmp_path: Path) -> None:
    source = """
        def f():
            driver_tick()
            return sorted(globals())
        print(f(), __name__, __file__.rpartition("/")[2])
        import __main__
        print(__main__.f is f, __main__.__dict__ is globals())
    """
    names = [
        "__annotations__",
        "__builtins__",
        "__cached__",
        "__doc__",
        "__file__",
        "__loader__",
        "__name__",
        "__package__",
        "__spec__",
        "f",
    ]
    assert resumed_output(tmp_path, source) == f"{names} __main__ program.py\nTrue True\n"


def test_the_packages_of_a_module_that_is_run_are_noted(tmp_path: Path) -> None:
    """They are imported before the module runs. What they changed later was lost, and objects that one of their variables
    was bound to were taken for what it held after the import."""
    package = tmp_path / "site-packages" / "lib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("level = 1\n")
    (package / "tool.py").write_text("")
    code = (
        "from ckpt.image.program import prepare_program; from ckpt.image.modules import package_baseline; "
        "prepare_program(['-m', 'lib.tool']); print(package_baseline.watch().modules['lib'].noted['level'])"
    )
    start = f"import sys; sys.path[:0] = [{str(package.parent)!r}, {str(REPOSITORY)!r}]; "
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1\n", done.stderr

"""A patch release that moves a field of a struct that no header promises: refused at the start, by name; no crash.

Such a release is made here from the headers of this one: they are copied, a field is put into one of them, and the
extension is compiled with that. What then runs is this interpreter, whose fields are elsewhere.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ckpt.image import available
from ckpt.image.frames import _frames, running, selftest
from ckpt.image.lowlevel import _lookup

pytestmark = pytest.mark.skipif(
    not hasattr(_frames, "prove"), reason="frames of this interpreter are not known"
)

SOURCES = Path(__file__).parents[5] / "ckpt" / "image" / "frames"

# header, the text before which a field is put, the field
MOVED = {
    "the whole of a frame": (
        "internal/pycore_frame.h",
        r"(?<=struct _PyInterpreterFrame \{\n)",
        "void *moved;",
    ),
    "previous": ("internal/pycore_frame.h", r"struct _PyInterpreterFrame \*previous;", "void *moved;"),
    "stacktop": ("internal/pycore_frame.h", r"int stacktop;", "int moved;"),
    "localsplus": ("internal/pycore_frame.h", r"PyObject \*localsplus\[1\];", "void *moved;"),
    "the state of a thread": ("cpython/pystate.h", r"(?<=\nstruct _ts \{\n)", "void *moved;"),
    "exc_info": ("cpython/pystate.h", r"_PyErr_StackItem \*exc_info;", "void *moved;"),
    "recursion": ("cpython/pystate.h", r"int (py_)?recursion_remaining;", "int moved;"),
    "a generator": ("cpython/genobject.h", r"_PyErr_StackItem prefix##_exc_state;", "void *moved;"),
    "fork": ("internal/pycore_interp.h", r"PyObject \*before_forkers;", "void *moved;"),
}

# The extension as it is given in argv[1] takes the place of the one that is installed.
PROGRAM = """
import importlib.machinery, importlib.util, os, sys

name = "ckpt.image.frames._frames"
loader = importlib.machinery.ExtensionFileLoader(name, sys.argv[1])
sys.modules[name] = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
from ckpt import image
from ckpt.image.frames import _frames, running

print(image.available()[1])
done = []
_frames.request(lambda: done.append(_frames.untraced(lambda: 1)))
pid = _frames.fork()
if pid == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert done == [1] and not hasattr(_frames, "walk") and not _frames.on_stack(4096, 0)
assert not _frames.look(int, 0, 0, 1)
assert running.run_base(len, "ab") == 2  # an explicit program runs
"""


@pytest.mark.rotate(3)
@pytest.mark.parametrize("field", MOVED)
def test_a_moved_field_is_refused_by_name_and_not_crashed_into(field: str, tmp_path: Path) -> None:
    header, before, addition = MOVED[field]
    include = tmp_path / "include"
    shutil.copytree(sysconfig.get_paths()["include"], include)
    text = (include / header).read_text()
    at = re.search(before, text)
    assert at is not None
    (include / header).write_text(f"{text[: at.start()]}{addition} {text[at.start() :]}")
    version = include / "patchlevel.h"  # and it calls itself another patch release
    version.write_text(re.sub(r"(PY_MICRO_VERSION\s+)\d+", r"\g<1>99", version.read_text()))
    version.write_text(re.sub(r'(PY_VERSION\s+"3\.\d+\.)[^"]*', r"\g<1>99", version.read_text()))
    built = tmp_path / f"_frames{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = ["cc", "-O0", "-w", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}"]
    subprocess.run([*compiler, *map(str, sorted(SOURCES.rglob("*.c"))), "-o", str(built)], check=True)

    done = subprocess.run([sys.executable, "-c", PROGRAM, str(built)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    here = sys.version.split()[0]
    other = ".".join([*here.split(".")[:2], "99"])
    assert f"was built for CPython {other} and does not fit this {here}: " in done.stdout
    assert "build ckpt again" in done.stdout


@pytest.mark.rotate(2)
def test_the_extension_is_built_where_frames_are_not_known(tmp_path: Path) -> None:
    """A minor version that is not known (3.14): `pip install` failed, because a name was declared with frames only."""
    built = tmp_path / f"_frames{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = ["cc", "-O0", "-w", "-shared", "-fPIC", "-fvisibility=hidden", "-DPYPY_VERSION"]
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run(
        [*compiler, include, *map(str, sorted(SOURCES.rglob("*.c"))), "-o", str(built)], check=True
    )

    done = subprocess.run([sys.executable, "-c", PROGRAM, str(built)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert f"the frames extension was built for CPython {sys.version.split()[0]}" in done.stdout


def test_what_fits_is_used_whatever_the_patch_release_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The full versions differ; the self-test decides, not the number."""
    monkeypatch.setattr(_frames, "BUILT_HEX", _frames.BUILT_HEX ^ 0xFF00)
    monkeypatch.setattr(_frames, "BUILT_FOR", ".".join([*_frames.BUILT_FOR.split(".")[:2], "99"]))
    assert selftest.find_misfit() is None
    assert available() == (True, "")


def test_the_extension_knows_the_full_version_that_it_was_compiled_against() -> None:
    assert sys.hexversion >> 16 == _frames.BUILT_HEX >> 16
    assert _frames.BUILT_FOR.split(".")[:2] == sys.version.split()[0].split(".")[:2]


def test_what_is_compared_can_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked from within another function than the one it is told of."""
    prove = _frames.prove
    monkeypatch.setattr(_frames, "prove", lambda truth: prove(truth))
    assert selftest.find_misfit() == "the function of a frame"


def test_sets_that_are_laid_out_otherwise_are_a_reason_too() -> None:
    assert _lookup.MISFIT == ""


def test_a_misfit_is_the_reason_why_there_are_no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "misfit", "the code of a frame")
    ok, reason = running.available()
    assert not ok
    assert "does not find the code of a frame; build ckpt again" in reason


def test_the_programs_handler_of_faults_is_there_again() -> None:
    def handler(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGSEGV, handler)
    try:
        selftest.find_misfit()
        assert signal.getsignal(signal.SIGSEGV) is handler
    finally:
        signal.signal(signal.SIGSEGV, before)

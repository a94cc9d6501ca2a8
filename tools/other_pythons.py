"""Runs the tests that depend on the interpreter with other versions of Python that this machine has or can install.

    python tools/other_pythons.py             one version, another one for each commit; exit code 1 if a test failed
    python tools/other_pythons.py --nightly   every version, and all tests that depend on the interpreter
    python tools/other_pythons.py --prepare   only make the environments of these versions, as a run would
    python tools/other_pythons.py --list      only print which versions were found, and where

A version is looked for as ``python3.N`` on PATH, then under ``$PYENV_ROOT`` (or ``~/.pyenv``), and at last installed from
the distribution (apt, as root).  Each gets an environment of its own, ``.venv-3.N``, made by tools/setup.sh and kept: the
next run begins at once.  A version that is not available is reported as skipped, with the reason, and is no failure.

The versions are tested side by side: the processes wait for each other more than they compute.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MINORS = (11, 12, 13)  # of the versions whose frames are known (ckpt/image/frames/tables.py)
_SPINE = "tests/system/spine/test_spine_restart.py"
_IMAGE = "tests/unit/ckpt/image"
TESTS = (  # frames, bytecode, generators, iterators and signals are what a version of Python changes
    "tests/unit/ckpt/compat",
    f"{_IMAGE}/frames",
    f"{_IMAGE}/reducers/test_iterators.py",
    f"{_IMAGE}/modules/test_definitions.py",
    f"{_IMAGE}/process/test_clocks.py",
    f"{_IMAGE}/process/test_signals.py",
    f"{_SPINE}::test_a_killed_rank_changes_nothing_in_the_output[compute]",
    "tests/system/mpi/test_windows.py::test_after_a_restart_a_window_is_the_memory_that_the_program_sees",
    f"{_SPINE}::test_garbage_is_collected_after_a_restart_as_it_was_before",
    f"{_SPINE}::test_an_alarm_that_is_set_rings_after_a_restart_too",
    "tests/unit/transport/wires/test_owned.py",
    "tests/system/files/test_effects.py::test_what_waits_for_a_commit_happens_once_for_each_key",
)
_TORCH = "tests/system/libraries/test_torch_programs.py"
_SYSTEM = (
    "tests/system/image/test_image_programs.py",
    "tests/system/image/test_ends.py",
    "tests/system/threads",
    _TORCH,
)
WHOLE = (_IMAGE, *_SYSTEM, "tests/sweep", "-m", "not soak")
WORKERS = 3  # one of them mostly waits
_QUESTION = (
    "import json, os, platform, sys, sysconfig; print(json.dumps([platform.python_implementation(), "
    "list(sys.version_info[:3]), os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h')), "
    "sysconfig.get_config_var('EXT_SUFFIX')]))"
)


@dataclass(frozen=True)
class Found:
    """An interpreter that answers, and can have C extensions built for it."""

    path: str
    version: tuple[int, int, int]
    suffix: str  # of the file names of its extensions


def places(minor: int, environ: Mapping[str, str]) -> Iterator[str]:
    """The paths where a version may be, in the order of the search."""
    name = f"python3.{minor}"
    for directory in environ.get("PATH", "").split(os.pathsep):
        if directory:
            yield os.path.join(directory, name)
    root = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/")) / ".pyenv")
    installed = (root / "versions").glob(f"3.{minor}.*")
    for version in sorted(installed, key=lambda path: _number(path.name.rpartition(".")[2]), reverse=True):
        yield str(version / "bin" / name)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else -1


def ask(path: str, minor: int) -> Found | str:
    """The interpreter at that path, or why it cannot be used."""
    if not os.access(path, os.X_OK):
        return "not there"
    try:
        done = subprocess.run([path, "-c", _QUESTION], capture_output=True, text=True, timeout=60, check=True)
        implementation, version, has_headers, suffix = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return f"{path} does not run: {str(error).splitlines()[0]}"
    if implementation != "CPython" or version[:2] != [3, minor]:
        return f"{path} is {implementation} {version[0]}.{version[1]}"
    if not has_headers:
        return f"{path} has no Python.h"
    return Found(path, tuple(version), suffix)


def find(minor: int, environ: Mapping[str, str]) -> Found | str:
    """The first usable interpreter of a version, or why there is none."""
    reasons = []
    for path in places(minor, environ):
        found = ask(path, minor)
        if isinstance(found, Found):
            return found
        if found != "not there":
            reasons.append(found)
    return "; ".join(reasons) or f"no python3.{minor} on PATH or under $PYENV_ROOT (~/.pyenv)"


def install(minor: int) -> str:
    """Install the distribution's packages of a version. Returns an error message, or an empty string."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "and it can be installed by apt as root only"
    name = f"python3.{minor}"
    names = (name, f"{name}-dev", f"{name}-venv")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *names]):
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"and apt cannot install {name} here"


def is_ready(venv: Path, found: Found) -> bool:
    """Does the environment exist, for this interpreter, and is it newer than all files that it was made from?"""
    stamp = venv / ".ready"
    made_from = [
        ROOT / "pyproject.toml",
        ROOT / "tools" / "setup.sh",
        *ROOT.glob("ckpt/**/*.[ch]"),
        *ROOT.glob("transport/**/*.[ch]"),
    ]
    if not stamp.exists() or stamp.read_text() != f"{found.path} {found.version}":
        return False
    built = (ROOT / "ckpt" / "image" / "frames" / f"_frames{found.suffix}").exists()
    return built and stamp.stat().st_mtime >= max(path.stat().st_mtime for path in made_from)


def set_up(venv: Path, found: Found) -> str:
    """Make the environment unless it is ready. Returns an error message, or an empty string."""
    if is_ready(venv, found):
        return ""
    command = [str(ROOT / "tools" / "setup.sh"), found.path, str(venv), "test"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"tools/setup.sh {found.path} {venv} failed:\n{done.stdout}{done.stderr}"
    (venv / ".ready").write_text(f"{found.path} {found.version}")
    return ""


def add_torch(venv: Path) -> str:
    """Install what the programs with torch need. Returns an error message, or an empty string."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "-r", "tests/libraries/torch.txt"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{' '.join(command)} failed:\n{done.stderr}"


def test(minor: int, log: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start the tests of one version; their output goes to the file."""
    venv = ROOT / f".venv-3.{minor}"
    with open(log, "wb") as stream:
        return subprocess.Popen(
            [
                str(venv / "bin" / "python"),
                "-m",
                "pytest",
                "-rs",
                "-n",
                str(WORKERS),
                "--dist",
                "loadgroup",
                "-o",
                f"cache_dir={venv}/.pytest_cache",
                *options,
            ],
            cwd=ROOT,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description="the tests that depend on the interpreter, on other versions"
    )
    parser.add_argument("--prepare", action="store_true", help="only make the environments")
    parser.add_argument("--list", action="store_true", help="only say which versions there are")
    parser.add_argument(
        "--nightly", action="store_true", help="every version, and all tests; not the share of this commit"
    )
    arguments = parser.parse_args()
    from tests.seeds import share

    tests = (*TESTS, *WHOLE) if arguments.nightly else (*TESTS, "--rotate")
    running: list[tuple[int, Path, subprocess.Popen[bytes]]] = []
    began, failed = time.monotonic(), False
    minors = [minor for minor in MINORS if minor != sys.version_info.minor]
    if not (arguments.nightly or arguments.list):
        minors = share(minors, len(minors), "versions of Python")
    for minor in minors:
        found = find(minor, os.environ)
        if isinstance(found, str) and not arguments.list:
            trouble = install(minor)
            found = f"{found}, {trouble}" if trouble else find(minor, os.environ)
        if isinstance(found, str):
            print(f"Python 3.{minor}: skipped: {found}", flush=True)
            continue
        print(f"Python 3.{minor}: {'.'.join(map(str, found.version))}, {found.path}", flush=True)
        if arguments.list:
            continue
        venv = ROOT / f".venv-3.{minor}"
        trouble = set_up(venv, found) or (add_torch(venv) if arguments.nightly else "")
        if trouble:
            print(f"Python 3.{minor}: FAILED: {trouble}", flush=True)
            failed = True
            continue
        if arguments.prepare:
            continue
        log = venv / "tests.log"
        running.append((minor, log, test(minor, log, *tests)))
    for minor, log, process in running:
        code = process.wait()
        lines = log.read_text(errors="replace").splitlines()
        failed = failed or code != 0
        shown = lines if code else [line for line in lines if line.startswith("SKIPPED")]
        for line in shown:
            print(f"  3.{minor} {line}")
        summary = lines[-1].strip("= ") if code == 0 and lines else f"FAILED, exit code {code}, {log}"
        print(f"Python 3.{minor}: {summary}", flush=True)
    if running:
        print(f"other versions of Python: {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Packages that tests download from the package index at run time, once, into a cache outside of the tree.

A run has several processes, and each version of Python has some of its own: the first one fills the cache under a lock. An
incomplete cache is made again. If a package is not available, :class:`Unavailable` says why, and the tests are skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

PATIENCE_S = 900


class Unavailable(Exception):
    """The package is not available here; the text says why."""


def filled(name: str, made_from: Iterable[bytes], fill: Callable[[Path], None]) -> Path:
    """The directory of this name, interpreter version and content, filled by `fill`. Raises Unavailable.

    Below ``$CKPT_NAME_CACHE``, by default ``~/.cache/ckpt-name``.
    """
    known = hashlib.sha256()
    for part in made_from:
        known.update(part)
    base = os.environ.get(f"CKPT_{name.upper()}_CACHE") or Path.home() / ".cache" / f"ckpt-{name}"
    root = Path(base) / f"{sys.version_info[0]}.{sys.version_info[1]}-{known.hexdigest()[:12]}"
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "complete").exists():
            fill(root)
            (root / "complete").touch()
    return root


def pip(*arguments: str, python: str = sys.executable, what: str = "packages") -> None:
    """Run pip. Raises Unavailable with its error message."""
    run(what, python, "-m", "pip", "--disable-pip-version-check", "-q", *arguments)


def run(what: str, *command: str) -> None:
    """Run a command that downloads something. Raises Unavailable."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} cannot be fetched here: no end within {PATIENCE_S} s") from None
    if done.returncode:
        said = done.stderr.splitlines()
        lines = [line for line in said if "ERROR" in line] or said[-1:]
        raise Unavailable(f"{what} cannot be fetched here: {lines[-1] if lines else done.returncode}")


def sources(requirement: str, directory: Path, part: str = "") -> Path:
    """Where the source distribution is unpacked, or those of its members that have `part` in their names."""
    # With the setuptools of the environment that runs the tests: pip asks the sources for their metadata.
    words = ("download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:")
    pip(*words, "-d", str(directory), requirement, what=f"the sources of {requirement}")
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, [member for member in packed if part in member.name], filter="data")
    archive.unlink()
    return directory / archive.name.removesuffix(".tar.gz")

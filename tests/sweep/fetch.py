"""Gets the programs of the sweep from the package index, once per interpreter version, into a cache outside of the tree.

::

    $CKPT_SWEEP_CACHE/3.11-1f0c…/          one per interpreter version and list of packages; default: ~/.cache/ckpt-sweep
        site-packages/                     requirements.txt, installed: modules that an image refers to by name
        benchmarks/bm_…/                   the programs of pyperformance: modules that an image contains
        ticks.….so                         ticks.c, compiled
        complete                           made last: without it, all is made again

Raises :class:`tests.fetching.Unavailable` where there is no package index (or no compiler); tests are skipped then.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.fetching import Unavailable, filled, pip

HERE = Path(__file__).parent
PYPERFORMANCE = "pyperformance==1.14.0"


@dataclass(frozen=True)
class Place:
    """Where everything is. `path`: entries for PYTHONPATH."""

    root: Path

    @property
    def suite(self) -> Path:
        return self.root / "benchmarks"

    @property
    def path(self) -> list[str]:
        return [str(self.root), str(self.root / "site-packages"), str(HERE / "stand_in")]


def fetched() -> Place:
    """The cache of this interpreter, filled. Raises Unavailable."""
    files = [(HERE / name).read_bytes() for name in ("requirements.txt", "ticks.c")]
    return Place(filled("sweep", [PYPERFORMANCE.encode(), *files], _fill))


def _fill(root: Path) -> None:
    for name in ("site-packages", "benchmarks", "download"):
        shutil.rmtree(root / name, ignore_errors=True)
    _build_ticks(root)
    pip("download", "--no-deps", "--dest", str(root / "download"), PYPERFORMANCE)
    (wheel,) = (root / "download").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        prefix = "pyperformance/data-files/benchmarks/"
        archive.extractall(root / "download", [n for n in archive.namelist() if n.startswith(prefix)])
    shutil.move(root / "download" / prefix, root / "benchmarks")
    shutil.rmtree(root / "download")
    pip("install", "--target", str(root / "site-packages"), "-r", str(HERE / "requirements.txt"))


def _build_ticks(root: Path) -> None:
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    target = root / f"ticks{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = [*compiler, "-O2", "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}"]
    try:
        subprocess.run([*command, str(HERE / "ticks.c"), "-o", str(target)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as failure:
        reason = getattr(failure, "stderr", b"") or str(failure).encode()
        raise Unavailable(f"ticks.c cannot be compiled: {reason.decode(errors='replace')[-300:]}") from None

"""The C sources declare what they call: gcc from version 14 on, and clang from 16 on, refuse to compile what does not."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STRICT = (
    "-Werror=implicit-function-declaration",
    "-Werror=implicit-int",
    "-Werror=int-conversion",
    "-Werror=incompatible-pointer-types",
)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_no_source_needs_an_old_compiler() -> None:
    modules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    sources = {
        source: module.get("extra-compile-args", []) for module in modules for source in module["sources"]
    }

    def compiled(source: str) -> str:
        standard = [option for option in sources[source] if option.startswith("-std=")]
        words = [
            "cc",
            "-fsyntax-only",
            *standard,
            *STRICT,
            f"-I{sysconfig.get_path('include')}",
            source,
        ]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
        return done.stderr if done.returncode else ""

    with ThreadPoolExecutor(2) as threads:
        said = [text for text in threads.map(compiled, sources) if text]
    assert len(sources) > 20 and not said, "\n".join(said)

"""Tries one package: its program, an image at the cut, the rest in a fresh process; and the page made of what was seen."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.libraries.catalogue import LIBRARIES, Library
from tests.unit.ckpt.image.support import image_failure, resumed_output

PAGE = Path(__file__).resolve().parents[2] / "docs" / "libraries.md"
_CUT = "\n---\n"
_HEAD = """\
# Common libraries

What comes back of the state that programs keep in common packages. The table is made by trying: `python -m tests.libraries`
runs for each package a small program, takes an image half-way, restores it in a fresh process, and compares what both print;
`make nightly` fails when a line has got worse.

*Works*: equal. *Refused*: no image is taken while such an object is held, for the reason quoted; the job goes on, and the
next checkpoint succeeds once it is gone. What to do: [hooks and types](programs.md). Other packages: `ckpt doctor app.py`.

| package | tried | state kept over a restart | |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Result:
    """``verdict``: works, refused, differs, or missing (not installed); ``reason`` in words."""

    library: Library
    version: str
    verdict: str
    reason: str = ""


def attempt(library: Library) -> Result:
    """Try one."""
    if importlib.util.find_spec(library.module.partition(".")[0]) is None:
        return Result(library, "", "missing")
    version = _version(library)
    before, _, after = library.program.partition(_CUT)
    source = f"{before}\ndriver_tick()\n{after}"
    with tempfile.TemporaryDirectory() as directory:
        try:
            resumed_output(Path(directory), source)
        except AssertionError as failure:
            text = str(failure)
        else:
            return Result(library, version, "works")
    with tempfile.TemporaryDirectory() as directory:
        try:
            return Result(library, version, "refused", image_failure(Path(directory), source))
        except (AssertionError, StopIteration):
            lines = [line for line in text.strip().splitlines() if line.strip()]
            return Result(library, version, "differs", lines[-1] if lines else text)


def _version(library: Library) -> str:
    if library.module in sys.stdlib_module_names:
        return "standard library"
    name = library.name.partition(" ")[0]
    for distribution in (
        name,
        *importlib.metadata.packages_distributions().get(library.module.partition(".")[0], ()),
    ):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def page(results: Sequence[Result]) -> str:
    """The page; what is missing here is left out."""
    rows = [
        f"| {result.library.name} | {result.version} | {result.library.what} | {_words(result)} |\n"
        for result in sorted(results, key=lambda result: result.library.name.lower())
        if result.verdict != "missing"
    ]
    return _HEAD + "".join(rows)


def _words(result: Result) -> str:
    if result.verdict == "works":
        return f"works with a hook: {result.library.hook}" if result.library.hook else "works"
    reason = re.sub(r"\b0x[0-9a-f]+\b|/tmp/\S+", "…", result.reason).replace("|", "\\|")
    return f"{result.verdict}: {reason}"


def promised() -> dict[str, str]:
    """What the page says of each package: its last column."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "\0").strip("|").split("|")]
        if len(cells) == 4 and cells[0] in {library.name for library in LIBRARIES}:
            found[cells[0]] = cells[3].replace("\0", "|")
    return found

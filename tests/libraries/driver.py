"""Tries one package: its program, an image half-way and images at random moments, the rest in fresh processes; and the page
made of what was seen."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.libraries.catalogue import LIBRARIES
from tests.libraries.library import Library
from tests.libraries.moments import tried_at_random, tried_half_way
from tests.seeds import seed_of_the_commit

PAGE = Path(__file__).resolve().parents[2] / "docs" / "libraries.md"
MOMENTS = 6
RANKS = {"differs": 0, "refused": 1, "works with a hook": 2, "works": 3}
_HEAD = """\
# Common libraries

What comes back of the state that programs keep in common packages. The table is made by trying: `python -m tests.libraries`
runs for each package a small program, takes an image half-way and others at random moments, also inside of the package's own
functions, restores each in a fresh process, and compares what is printed. `make nightly` tries all of it again, at other
moments, and fails when a line has got worse.

*Works*: equal. *Works with a hook*: the same, with the statement that is shown; what is said without it is quoted.
*Refused*: no image is taken while such an object is held, for the reason quoted; the job goes on, and the next checkpoint
succeeds once it is gone. What to do: [hooks and types](programs.md). Other packages: `ckpt doctor app.py`.

| package | tried | state kept over a restart | |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Result:
    """``verdict``: one of RANKS, or missing (not installed); ``reason`` in words; ``moments``: images that came back equal,
    at random moments, and ``refused_moments`` what was said at others."""

    library: Library
    version: str
    verdict: str
    reason: str = ""
    moments: int = 0
    refused_moments: tuple[str, ...] = ()


def attempt(library: Library, moments: int = MOMENTS) -> Result:
    """Try one: half-way, and at so many random moments."""
    if importlib.util.find_spec(library.module.partition(".")[0]) is None:
        return Result(library, "", "missing")
    version = _version(library)
    verdict, reason = _half_way(library.pieces)
    if verdict == "refused" and library.hook:
        with_hook, why = _half_way(library.hooked_pieces)
        verdict, reason = ("works with a hook", reason) if with_hook == "works" else (with_hook, why)
    if verdict == "differs" or not moments:
        return Result(library, version, verdict, reason)
    imports, before, after = library.hooked_pieces if verdict == "works with a hook" else library.pieces
    with tempfile.TemporaryDirectory() as directory:
        try:
            seed = f"{seed_of_the_commit()} {library.name}"
            tried = tried_at_random(
                Path(directory), f"{imports}\ndriver_start()\n{before}\n{after}", moments, seed
            )
        except AssertionError as failure:
            return Result(library, version, "differs", _last_line(str(failure)))
        except subprocess.TimeoutExpired:
            return Result(
                library, version, verdict, reason, 0, ("not tried: the program has too many checks",)
            )
    wrong = [moment for moment in tried if moment.wrong]
    if wrong:
        return Result(
            library,
            version,
            "differs",
            f"at check {wrong[0].check} (seed {seed}): {_last_line(wrong[0].wrong)}",
        )
    refused = tuple(moment.refused for moment in tried if moment.refused)
    return Result(library, version, verdict, reason, len(tried) - len(refused), refused)


def _half_way(pieces: tuple[str, str, str]) -> tuple[str, str]:
    imports, before, after = pieces
    source = f"{imports}\n{before}\ndriver_tick()\n{after}"
    with tempfile.TemporaryDirectory() as directory:
        try:
            moment = tried_half_way(Path(directory), source)
        except AssertionError as failure:
            return "differs", _last_line(str(failure))
    if moment.refused:
        return "refused", moment.refused
    return ("differs", _last_line(moment.wrong)) if moment.wrong else ("works", "")


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else text


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
    """The page, with these results in their lines. What is missing here has the line that it had; what is in the catalogue
    no more has none."""
    rows = {name: line for name, line in _lines().items() if name in {library.name for library in LIBRARIES}}
    for result in results:
        if result.verdict != "missing":
            library = result.library
            rows[library.name] = (
                f"| {library.name} | {result.version} | {library.what} | {_words(result)} |\n"
            )
    return _HEAD + "".join(rows[name] for name in sorted(rows, key=str.lower))


def _lines() -> dict[str, str]:
    """The lines of the table by the name in their first cell."""
    found = {}
    for line in PAGE.read_text().splitlines(keepends=True):
        if line.startswith("| ") and not line.startswith(("| package |", "| --- |")):
            found[line.split("|")[1].strip()] = line
    return found


def _words(result: Result) -> str:
    if result.verdict == "works":
        return "works"
    reason = re.sub(r"\b0x[0-9a-f]+\b|/tmp/\S+", "…", result.reason)
    if result.verdict == "works with a hook":
        reason = f"`{result.library.hook}` (without: {reason})"
    return f"{result.verdict}: {reason}".replace("|", "\\|")


def promised() -> dict[str, str]:
    """What the page says of each package: its last column."""
    return {
        name: line.replace("\\|", "\0").strip().strip("|").split("|")[-1].strip().replace("\0", "|")
        for name, line in _lines().items()
    }


def verdict_of(words: str) -> str:
    """Of a last column."""
    return words.partition(":")[0]

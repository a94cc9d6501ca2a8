"""Images of a package's program half-way and at random moments of its run, each restored in a fresh process.

At random moments: the program is run once to count the interpreter's checks after its imports, once more to take images at
some of them, drawn at random, and each image is restored with the working directory as it was then. Many checks are in the
package's own functions, so many images are, too. What the restored program prints must be what is left of the original's
output.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.support import drive

_NEVER = 1 << 60


@dataclass(frozen=True)
class Moment:
    """One image. ``refused``: the words; ``wrong``: what was different after the restart; both empty: equal."""

    check: int
    refused: str = ""
    wrong: str = ""


def tried_half_way(directory: Path, source: str) -> Moment:
    """An image at the program's call of ``driver_tick()``. Raises AssertionError: the program itself fails, or prints
    nothing."""
    return _tried(directory, source, "calls-files", [1])[0]


def tried_at_random(directory: Path, source: str, moments: int, seed: str) -> list[Moment]:
    """Images at ``moments`` checks at most after its call of ``driver_start()``: where the stack cannot be captured, the
    next check is taken. Raises AssertionError likewise."""
    script, control = directory / "program.py", directory / "control"
    script.write_text(source)
    undisturbed = _ran(["run", str(control), json.dumps([_NEVER]), str(script)], directory)
    total: int = _log(control)[-1]["total"]
    shutil.rmtree(control)
    places = random.Random(seed).sample(range(1, total + 1), min(moments, total))
    return _tried(directory, source, "run-files", sorted(places), undisturbed)


def _tried(
    directory: Path, source: str, verb: str, places: list[int], undisturbed: bytes | None = None
) -> list[Moment]:
    script, control = directory / "program.py", directory / "control"
    script.write_text(source)
    original = _ran([verb, str(control), json.dumps(places), str(script)], directory)
    assert original.strip(), "the program prints nothing"
    assert undisturbed in (None, original), f"with images it prints {original!r}, and without {undisturbed!r}"
    found = []
    for line in _log(control):
        if "failed" in line:
            found.append(Moment(line["at"], refused=line["failed"]))
        elif "image" in line:
            found.append(Moment(line["at"], wrong=_difference(directory, line, original)))
    return found


def _difference(directory: Path, line: dict[str, Any], original: bytes) -> str:
    work, left = directory / "work", original[line["printed"] :]
    shutil.rmtree(work)
    shutil.copytree(line["image"] + ".files", work)
    try:
        resumed = _ran(["resume", str(directory / "resumed"), "[]", line["image"]], directory)
    except AssertionError as failure:
        return str(failure)
    return "" if resumed == left else f"the original printed {left!r}, but the resumed program {resumed!r}"


def _ran(arguments: list[str], directory: Path) -> bytes:
    """What this call of the image driver prints, in the directory ``work``."""
    out, work = directory / "out", directory / "work"
    if not arguments[0].startswith("resume"):
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(exist_ok=True)
    Path(arguments[1]).mkdir(exist_ok=True)
    out.write_text("")
    drive(*arguments, out=out, directory=work)
    return out.read_bytes()


def _log(control: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (control / "log.jsonl").read_text().splitlines()]

"""Programs of every kind, stopped at random checks and resumed in fresh processes: the output is the same byte for byte.

The checks are drawn by the seed of the commit; a failure prints the line that reproduces it. ``IMAGE_SEED`` and
``IMAGE_PLACES`` change the seed and the number of images per program (``make soak`` uses many).
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import seed_of_the_commit
from tests.system.support import drive

PROGRAMS = Path(__file__).parents[1] / "programs"
SEED = int(os.environ.get("IMAGE_SEED") or seed_of_the_commit())
PLACES = int(os.environ.get("IMAGE_PLACES", "3"))

pytestmark = pytest.mark.system


class Runs:
    """One program in one directory; its own files are in ``work``, a copy of which every resumed run gets."""

    def __init__(self, directory: Path, program: str) -> None:
        self.directory = directory
        self.script = PROGRAMS / f"{program}.py"
        self.work = directory / "work"

    def run(self, places: list[int], out: str, verb: str = "run") -> list[dict[str, Any]]:
        """The program from its start, with images at ``places``; the lines of its log."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        self.log.unlink(missing_ok=True)
        places_text = json.dumps(places)
        drive(
            verb,
            str(self.directory),
            places_text,
            str(self.script),
            str(self.work),
            out=self.directory / out,
        )
        return self.lines()

    def resume(self, image: str, out: str, places: list[int] | None = None) -> None:
        """Go on from an image, with the files as the original left them and its whole output in the way."""
        target = self.directory / out
        if not target.exists():
            shutil.copy(self.directory / "expected", target)
        drive("resume", str(self.directory), json.dumps(places or []), image, out=target)

    @property
    def log(self) -> Path:
        return self.directory / "log.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.mark.rotate(4)
@pytest.mark.parametrize("program", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_resumed_anywhere_the_output_is_the_same(program: str, tmp_path: Path) -> None:
    if program == "arrays":
        pytest.importorskip("numpy")
    runs = Runs(tmp_path, program)
    total = runs.run([10**9], "expected")[-1]["total"]
    # One of them early: a refusal may last until the program ends
    choose = random.Random(f"{program} {SEED}")
    places = sorted({choose.randint(1, total // 2), *choose.sample(range(1, total + 1), PLACES - 1)})
    lines = runs.run(places, "with-images")
    reproduce = f"IMAGE_SEED={SEED} IMAGE_PLACES={PLACES} pytest {__file__} -k {program}"
    failed = [line["failed"] for line in lines if "failed" in line]
    assert not failed, f"{failed}\n{reproduce}"
    expected = (tmp_path / "expected").read_bytes()
    assert (tmp_path / "with-images").read_bytes() == expected, f"an image changed the program\n{reproduce}"
    images = [line["image"] for line in lines if "image" in line]
    assert images, f"never captured: {lines[-1]['refused']}\n{reproduce}"
    left = tmp_path / "left"
    shutil.copytree(runs.work, left)
    for image in images:
        shutil.rmtree(runs.work)
        shutil.copytree(left, runs.work)
        out = f"resumed-{Path(image).name}"
        runs.resume(image, out)
        assert (tmp_path / out).read_bytes() == expected, f"{image} of {places}\n{reproduce}"


@pytest.mark.rotate(4)
@pytest.mark.parametrize("program", sorted({path.stem for path in PROGRAMS.glob("*.py")} - {"deep"}))
def test_captured_at_every_check_the_output_is_the_same(program: str, tmp_path: Path) -> None:
    """Nor does any capture crash; few are refused (in numpy's C code more are). `deep` has too many frames for this."""
    if program == "arrays":
        pytest.importorskip("numpy")
    runs = Runs(tmp_path, program)
    runs.run([10**9], "expected")
    last = runs.run([], "watched", verb="watch")[-1]
    assert (tmp_path / "watched").read_bytes() == (tmp_path / "expected").read_bytes()
    assert last["taken"] >= (0.2 if program == "arrays" else 0.75) * last["total"], last


@pytest.mark.rotate(4)
@pytest.mark.parametrize("program", ["classes", "control", "arrays", "sets", "compressed"])
def test_three_generations(program: str, tmp_path: Path) -> None:
    """Image, resume, image of the resumed program, resume, and once more."""
    if program == "arrays":
        pytest.importorskip("numpy")
    runs = Runs(tmp_path, program)
    total = runs.run([10**9], "expected")[-1]["total"]
    runs.run([total // 5], "with-images")
    for generation in range(1, 4):
        (image,) = [line["image"] for line in runs.lines() if "image" in line]
        kept = tmp_path / f"generation-{generation}"
        for suffix in (".stream", ".buffers"):
            shutil.move(image + suffix, str(kept) + suffix)
        runs.log.unlink()
        runs.resume(str(kept), f"resumed-{generation}", [total // 10] if generation < 3 else [])
        assert (tmp_path / f"resumed-{generation}").read_bytes() == (tmp_path / "expected").read_bytes(), (
            generation
        )

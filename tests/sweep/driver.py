"""One program of the sweep: its undisturbed output, its images, and every image resumed in a fresh process.

A failure is one of: an image changed the running program; a resumed run ended differently, printed something else, or
died; a program of ours could not be saved (unless the catalogue says so), or a foreign one more often than it could. A
single round of a foreign program that met an object no image can hold is burnt, named and counted: so it is promised.
Each failure says where, and how to see it again.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.sweep.catalogue import Program
from tests.sweep.fetch import Place

ROOT = Path(__file__).parents[2]
HASH_SEED = 11
_PATIENCE_S = 400
_ADDRESS = re.compile(
    rb"(?<= at )0x[0-9a-f]+"
)  # of an object, as in what the interpreter prints of an error that it ignores
_TURNS = 4
"""Runs of a program, at most, until it has as many images as were asked for: a short one may be through before a command
gets there."""


@dataclass
class Outcome:
    """What came of one program. `burnt`: rounds that met an object no image can hold; `surprises`: reasons of those that the
    catalogue does not know; `refused`: reason → how often; `waited_ms`: the longest wait for an image."""

    program: str
    images: int = 0
    burnt: int = 0
    equal: int = 0
    failures: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    waited_ms: float = 0.0
    seconds: float = 0.0


class HostDied(Exception):
    """Never to be seen: the process that ranks are forked from has ended."""


class Bench:
    """One program in one directory: `work` is its working directory, `job` the job of its images.

    puts_back: what the program has done with files since an image is undone before it is resumed, wherever they are. Then
    the images of a run are resumed from the newest to the oldest. Else the working directory is as the program has left it.
    """

    def __init__(
        self,
        program: Program,
        place: Place,
        directory: Path,
        python: str = sys.executable,
        *,
        puts_back: bool = False,
    ) -> None:
        self.puts_back, self.highest = puts_back, 0
        self.program, self.place, self.directory, self.python = program, place, directory, python
        self.work, self.left, self.job = directory / "work", directory / "left", directory / "job"
        self.work.mkdir(parents=True, exist_ok=True)
        self.argv = [part.format(suite=place.suite, work=self.work) for part in program.command]
        self.host: subprocess.Popen[str] | None = None
        self.attempt = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.host is not None:
            self.host.kill()
            self.host.communicate()
            self.host = None

    def environment(self, **changed: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONHASHSEED": str(HASH_SEED),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *self.place.path]),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.program.environment,
            **changed,
        }

    # ------------------------------------------------------------------ runs

    def undisturbed(self) -> tuple[int, bytes, bytes]:
        """What plain Python makes of it."""
        self.clear_work()
        done = subprocess.run(
            [self.python, *self.argv],
            capture_output=True,
            env=self.environment(),
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
        )
        return done.returncode, done.stdout, done.stderr

    def images(self, **when: Any) -> dict[str, Any]:
        """The program from its start, with images at `moments` or `places`; what the host says about it."""
        shutil.rmtree(self.job, ignore_errors=True)
        shutil.rmtree(self.left, ignore_errors=True)
        self.clear_work()
        self.attempt = 0
        result = self.ask(verb="images", argv=self.argv, puts_back=self.puts_back, **when)
        self.highest = max([image["epoch"] for image in result["images"]], default=0)
        if any(self.work.iterdir()) and not self.puts_back:
            shutil.copytree(self.work, self.left)
        return result

    def refusals(self, **when: Any) -> dict[str, Any]:
        """The program from its start, with a capture tried at `every` n-th check, or at intervals of `interval_s`."""
        shutil.rmtree(self.job, ignore_errors=True)
        self.clear_work()
        return self.ask(verb="refusals", argv=self.argv, **when)

    def resume(self, epoch: int, **when: Any) -> dict[str, Any]:
        """Go on from an image in a fresh process, with output as the original left it."""
        if self.left.is_dir():
            self.clear_work()
            shutil.copytree(self.left, self.work, dirs_exist_ok=True)
        self.attempt += 1
        files = {"puts_back": self.puts_back, "highest": max(self.highest, epoch)}
        return self.ask(verb="resume", argv=self.argv, epoch=epoch, attempt=self.attempt, **files, **when)

    def output(self) -> tuple[bytes, bytes]:
        return tuple((self.job / "output" / f"rank-0.{kind}").read_bytes() for kind in ("out", "err"))  # type: ignore[return-value]

    def printed_afresh(self, printed: tuple[bytes, bytes]) -> None:
        """The output as the original left it: a resumed run that died must not be seen again in the next one."""
        for kind, content in zip(("out", "err"), printed, strict=True):
            (self.job / "output" / f"rank-0.{kind}").write_bytes(content)

    def clear_work(self) -> None:
        for entry in self.work.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def ask(self, **task: Any) -> dict[str, Any]:
        """One task for the host, a process of its own that ranks are forked from."""
        if self.host is None:
            self.host = subprocess.Popen(
                [self.python, "-c", "from tests.sweep import host; host.main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self.environment(),
                cwd=self.work,
            )
        assert self.host.stdin is not None and self.host.stdout is not None
        self.host.stdin.write(json.dumps({"directory": str(self.directory), **task}) + "\n")
        self.host.stdin.flush()
        line = self.host.stdout.readline()
        if not line:
            raise HostDied(f"{self.program.name}: the host died with status {self.host.wait()}, doing {task}")
        return dict(json.loads(line))

    # ------------------------------------------------------------------ judging

    def difference(self, result: dict[str, Any], expected: tuple[int, bytes, bytes]) -> str:
        """How a finished run differs from the undisturbed one; nothing if it does not."""
        if result["code"] != expected[0] or result.get("error"):
            said = (result.get("error") or self.output()[1].decode(errors="replace"))[-1500:]
            return f"ended with {result['code']} instead of {expected[0]}: {said}"
        for name, found, want in zip(("output", "errors"), self.output(), expected[1:], strict=True):
            found, want = (_ADDRESS.sub(b"0x", text) for text in (found, want))
            if found != want:
                at = next((i for i, (a, b) in enumerate(zip(found, want, strict=False)) if a != b), None)
                at = min(len(found), len(want)) if at is None else at
                part = slice(max(0, at - 40), at + 60)
                return f"{name} differ at byte {at}: {found[part]!r} is not {want[part]!r}"
        return ""


def sweep(
    program: Program, place: Place, directory: Path, *, seed: int, restores: int, exact: bool = False
) -> Outcome:
    """Take `restores` images of a run of the program, at random, and resume every one of them.

    exact: at checks drawn by number, the same every time; else at moments drawn by time, as a controller does it, faster.
    A program that is through before all are taken is run again. The directory is kept when something fails.
    """
    outcome, began = Outcome(program.name), time.monotonic()
    try:
        _sweep(outcome, program, place, directory, seed, restores, exact)
    except HostDied as death:
        outcome.failures.append(str(death))
    outcome.seconds = time.monotonic() - began
    if not outcome.failures:
        shutil.rmtree(directory, ignore_errors=True)
    return outcome


def _sweep(
    outcome: Outcome, program: Program, place: Place, directory: Path, seed: int, restores: int, exact: bool
) -> None:
    rng = random.Random(f"{program.name} {seed}")
    options = f"--seed {seed} --restores {restores}{' --exact' if exact else ''}"
    again = f"python -m tests.sweep {program.name} {options} --keep {directory}"
    with Bench(program, place, directory, puts_back=True) as bench:
        expected = bench.undisturbed()
        if expected[0] != program.code:
            outcome.failures.append(f"{program.name} does not run here: {expected[2].decode()[-600:]}")
            return
        (directory / "expected.json").write_text(json.dumps([expected[0], *map(repr, expected[1:])]))
        first = bench.images(places=[1 << 62]) if exact else bench.images()
        differs = bench.difference(first, expected)
        if differs:
            outcome.failures.append(f"{program.name}: without any image, {differs}\n    {again}")
            return
        for _ in range(1 if exact else _TURNS):
            missing = restores - outcome.images - outcome.burnt
            if missing <= 0:
                break
            if exact:
                when = {"places": sorted(rng.sample(range(1, first["checks"] + 1), missing))}
            else:
                when = {"moments": sorted(rng.random() * first["wall_s"] for _ in range(missing))}
            one_run(outcome, bench, expected, when, again)
            if outcome.failures:
                return
    if len(outcome.surprises) > outcome.images:
        outcome.failures += outcome.surprises


def one_run(
    outcome: Outcome, bench: Bench, expected: tuple[int, bytes, bytes], when: dict[str, Any], again: str
) -> None:
    """One run with images, every one of them resumed; what came of it is added to `outcome`. `when`: the `places` or the
    `moments` of the images; `again`: the command that shows it again."""
    program, directory = bench.program, bench.directory
    taken = bench.images(**when)
    for reason, times in taken["refused"].items():
        outcome.refused[reason] = outcome.refused.get(reason, 0) + times
    outcome.waited_ms = max(outcome.waited_ms, taken.get("waited_ns", 0) / 1e6)
    for text in taken["failed"]:
        if any(name in text for name in program.holds):
            outcome.burnt += 1
        elif program.foreign:
            outcome.burnt += 1
            outcome.surprises.append(f"{program.name}: no image: {text}\n    {again}")
        else:
            outcome.failures.append(f"{program.name}: no image: {text}\n    {again}")
    differs = bench.difference(taken, expected)
    if differs:
        outcome.failures.append(f"{program.name}: an image changed the program: {differs}\n    {again}")
    printed = bench.output()
    for image in reversed(taken["images"]):
        outcome.images += 1
        bench.printed_afresh(printed)
        differs = bench.difference(bench.resume(image["epoch"]), expected)
        if differs:
            check = taken.get("places", {}).get(str(image["epoch"]), "?")
            outcome.failures.append(
                f"{program.name}: image {image['epoch']} (check {check}): {differs}\n    {again}\n"
                f"    python -m tests.sweep {program.name} --again {directory} {image['epoch']}"
            )
            return  # the files are left as they are for that command
        outcome.equal += 1

"""What the spine's benchmarks share: jobs under `ckpt run` whose event log is followed, and figures with goals.

A benchmark runs the command that a user runs, in fresh processes, and reads what happened off the job's event
log and off what the program itself wrote (`programs/`). Jobs lie in a temporary directory on the same disk as
the repository's `.ckpt`, since syncing is part of what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(__file__).resolve().parent / "programs"
TIMEOUT_S = 120.0

Event = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One line of the summary. `goal` None: no limit, only to compare with. `values`: one per round."""

    name: str
    unit: str
    values: tuple[float, ...]
    goal: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.median >= self.goal if self.at_least else self.median <= self.goal

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "met": self.met}

    def line(self) -> str:
        spread = f"[{min(self.values):.4g}, {max(self.values):.4g}]" if len(self.values) > 1 else ""
        goal = "" if self.goal is None else f"{'≥' if self.at_least else '≤'} {self.goal:g}"
        verdict = {None: "", True: "reached", False: "MISSED"}[self.met]
        text = f"  {self.name:52s} {self.median:9.4g} {self.unit:6s} {spread:20s} {goal:9s} {verdict:8s}"
        return f"{text}{self.note}".rstrip()


@dataclass(frozen=True)
class Skipped:
    """A contestant that cannot take part here."""

    name: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "skipped": self.reason}

    def line(self) -> str:
        return f"  {self.name:52s}   skipped: {self.reason}"


Row = Figure | Skipped


PARENT = [ROOT / ".ckpt"]
"""Where benchmarks work: on the repository's disk, or where `--on` says."""


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory in which a benchmark works, removed afterwards."""
    parent = PARENT[0]
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment() -> dict[str, str]:
    """One computing thread a process, as `ckpt run` does, for peers too; compiled modules are kept, as an
    installation does.
    """
    found = dict(os.environ)
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        found[name] = "1"
    return found


class Job:
    """One `ckpt run` of a program in `programs/`; its event log is followed while it runs."""

    def __init__(
        self, folder: Path, program: str | Path, *args: object, ranks: int, flags: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._offset = 0
        self._output = open(f"{folder}.out", "wb")  # noqa: SIM115 (closed with the job)
        path = program if isinstance(program, Path) else PROGRAMS / program
        command = [
            sys.executable,
            "-m",
            "ckpt",
            "run",
            "-n",
            str(ranks),
            "--job",
            str(folder),
            *flags,
        ]
        self.started_ns = time.monotonic_ns()
        self.process = subprocess.Popen(
            [*command, "--", str(path), *map(str, args)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._output.close()

    def read(self) -> list[Event]:
        """Whole lines added to the event log since the last call."""
        path = self.folder / "events.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = [json.loads(line) for line in whole.splitlines()]
        self.events += new
        return new

    def wait(self, what: str, found: Callable[[Event], bool], timeout_s: float = TIMEOUT_S) -> Event:
        """The first event that `found` accepts. Raises RuntimeError when it does not come."""
        return self.wait_many(what, found, 1, timeout_s)[0]

    def wait_many(
        self, what: str, found: Callable[[Event], bool], count: int, timeout_s: float = TIMEOUT_S
    ) -> list[Event]:
        """All accepted events, as soon as there are `count`."""
        deadline = time.monotonic() + timeout_s
        while True:
            running = self.process.poll() is None
            self.read()
            accepted = [event for event in self.events if found(event)]
            if len(accepted) >= count:
                return accepted
            if not running or time.monotonic() > deadline:
                raise RuntimeError(f"{what}: {'timeout' if running else 'the job ended'}\n{self.output()}")
            time.sleep(0.005)

    def finish(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait for the end of the job, which must be a good one."""
        code = wait_for_end(self.process, timeout_s)
        self.read()
        if code:
            raise RuntimeError(f"ckpt run ended with exit code {code}\n{self.output()}")

    def output(self) -> str:
        return Path(f"{self.folder}.out").read_text(errors="replace")[-3000:]

    def of(self, name: str) -> list[Event]:
        return [event for event in self.events if event["event"] == name]


def wait_for_end(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """As ``process.wait``, which with a time limit looks only every 50 ms: returns at once. Raises RuntimeError."""
    pidfd = os.pidfd_open(process.pid)
    try:
        if not select.select([pidfd], [], [], timeout_s)[0]:
            raise RuntimeError(f"process {process.pid} has not ended after {timeout_s} s")
    finally:
        os.close(pidfd)
    return process.wait()


def named(name: str, **fields: object) -> Callable[[Event], bool]:
    """Accepts events of this name with these fields."""
    return lambda event: (
        event["event"] == name and all(event.get(key) == value for key, value in fields.items())
    )


def wait_file(path: Path, lines: int, alive: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> list[str]:
    """The lines of a file that a program writes, once there are so many."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        running = alive()
        text = path.read_text() if path.exists() else ""
        found = text.splitlines() if text.endswith("\n") else text.splitlines()[:-1]
        if len(found) >= lines:
            return found
        if not running:
            break
        time.sleep(0.005)
    raise RuntimeError(f"{path.name} has fewer than {lines} lines")


def run_suite(measure: Callable[[int, bool], list[Row]], description: str | None, rounds: int = 5) -> int:
    """The command line of one spine benchmark; exit status 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds (default {rounds})")
    parser.add_argument("--quick", action="store_true", help="smaller and shorter: to see that it works")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parser.add_argument(
        "--on", metavar="DIR", type=Path, help="work below DIR (default: .ckpt of the repository)"
    )
    options = parser.parse_args()
    if options.on is not None:
        PARENT[0] = options.on.resolve()
    rows = measure(options.rounds, options.quick)
    for row in rows:
        print(row.line())
    if options.json:
        Path(options.json).write_text(json.dumps([row.as_dict() for row in rows], indent=1))
    return 1 if any(isinstance(row, Figure) and row.met is False for row in rows) else 0
